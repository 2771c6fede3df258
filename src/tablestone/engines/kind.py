"""A kind of engine, as the registry knows it: its capabilities, its URL, its encryption key, and how to open it.

Another package declares its engine with an entry point of the group `tablestone.engines`: the name is the scheme of the
URL, the value names an `EngineKind`. Its module must be cheap to import: it imports a driver when an engine opens.
"""

from __future__ import annotations

import base64
import binascii
import enum
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple

from tablestone.clock import Clock
from tablestone.engines.capabilities import Capabilities
from tablestone.engines.contract import Engine, StorageId
from tablestone.engines.figures import Figure


class EngineUrl(NamedTuple):
    scheme: str
    place: str | None
    """The text after the colon; None without a colon."""

    @classmethod
    def parse(cls, text: str) -> EngineUrl:
        scheme, colon, place = text.partition(":")
        return cls(scheme, place if colon else None)

    def __str__(self) -> str:
        """The whole URL. It may hold a password: not for messages and logs."""
        return self.scheme if self.place is None else f"{self.scheme}:{self.place}"

    @property
    def shown(self) -> str:
        """The URL for messages and logs: without a password, and of the query only the schema, which holds the data."""
        if self.place is None or not self.place.startswith("//"):
            return str(self)
        place = _PASSWORD.sub("//***@", self.place)
        schema = _SCHEMA.search(place)
        return f"{self.scheme}:{_REST.sub('', place)}" + (f"?{schema[1]}" if schema else "")


# A password may have any character, so everything up to the last `@` may belong to it.
_PASSWORD: Final = re.compile(r"^//.*@", re.DOTALL)
_REST: Final = re.compile(r"[?#].*", re.DOTALL)
_SCHEMA: Final = re.compile(r"[?&](schema=[^&#]*)")


KEY_BYTES: Final = 32
FORM: Final = "32 bytes in base64 or in hexadecimal digits"
"""The two forms of a key, for messages."""


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    secret: bytes
    """`KEY_BYTES` bytes, for a cipher."""

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise ValueError(FORM)

    @classmethod
    def parse(cls, text: str) -> EncryptionKey:
        """Parse a key with white space around it or not; `ValueError` if it is in neither form."""
        text = text.strip()
        try:
            if len(text) == 2 * KEY_BYTES:
                return cls(binascii.unhexlify(text))
            return cls(base64.b64decode(text, validate=True))
        except ValueError:
            raise ValueError(FORM) from None

    def __repr__(self) -> str:
        return "EncryptionKey(hidden)"


ENTRY_POINTS = "tablestone.engines"
"""The group of entry points that name kinds of engines."""

CONTRACT: Final = 2
"""The version of the engine contract. It grows when an engine of the last version would lose data or show wrong data:
2 has `WriteSet.relies_on` in place of `decided_under`."""


class Opening(enum.Enum):
    SERVER = enum.auto()
    """Serve the storage: no other server may open it until it is closed."""
    SHARED = enum.auto()
    """Read and commit, beside a server or without one."""
    READ_ONLY = enum.auto()
    """Only read, beside any other process: create, change and lock nothing."""


OpenEngine = Callable[[str, Clock, Opening, StorageId | None, EncryptionKey | None], Engine]
"""Opens the engine at the URL's place (the text after its scheme). May block: it is called before anything is served,
on the thread of the event loop that will use the engine.

With a `StorageId`, open only the storage with this id. Only an engine that `encrypts` gets a key; refuse one that is
not the storage's. `EngineRefused` says in one sentence why the engine cannot be opened; `EngineBroken`: the data is
damaged.
"""
HoldStorage = Callable[[str, EncryptionKey | None], AbstractContextManager[StorageId]]
"""Prepares the storage at a place for the processes of one server, and keeps other servers out if only one is allowed.

In the block nothing is open, no thread runs and no loop exists, so the server can fork. Each process then opens the
storage as `SHARED`, with the id that the block got. `EngineRefused` if the storage cannot be held.
"""


@dataclass(frozen=True, slots=True)
class EngineKind:
    capabilities: Capabilities
    forms: tuple[str, ...]
    """The forms of its URL, for messages and `--help`: `sqlite`, `sqlite:DIR`."""
    open: OpenEngine
    hold: HoldStorage | None = None
    """None exactly if several processes cannot share the storage (`Capabilities.processes`)."""
    figures: tuple[Figure, ...] = ()
    """An engine with figures is a `MeasuredEngine`."""
    contract: int = 1
    """The version of the contract that the engine keeps; the registry refuses any but `CONTRACT`."""
    encrypts: bool = False
