"""A kind of engine, as the registry knows it: its capabilities, its URL, its encryption key, and the way to open it.

Another package declares its engine with an entry point of the group `tablestone.engines`. The name of the entry point
is the scheme of the URL, and its value names an `EngineKind`. Importing the module of a kind is cheap: a driver is
imported when an engine is opened. Knows no engine.
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
    """An engine's URL, taken apart."""

    scheme: str
    place: str | None
    """The text after the colon; None without a colon."""

    @classmethod
    def parse(cls, text: str) -> EngineUrl:
        """The parts of any text."""
        scheme, colon, place = text.partition(":")
        return cls(scheme, place if colon else None)

    def __str__(self) -> str:
        """The whole URL. It may hold a password: not for messages and logs."""
        return self.scheme if self.place is None else f"{self.scheme}:{self.place}"

    @property
    def shown(self) -> str:
        """The URL for messages and logs: without a password, and without what follows a question mark.

        A password may have any character, so everything up to the last `@` may belong to it.
        """
        if self.place is None or not self.place.startswith("//"):
            return str(self)
        place = _PASSWORD.sub("//***@", self.place)
        return f"{self.scheme}:{_REST.sub('', place)}"


_PASSWORD: Final = re.compile(r"^//.*@", re.DOTALL)
_REST: Final = re.compile(r"[?#].*", re.DOTALL)


KEY_BYTES: Final = 32
FORM: Final = "32 bytes in base64 or in hexadecimal digits"
"""The two forms of a key, for messages."""


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """A key of `KEY_BYTES` bytes."""

    secret: bytes
    """The bytes of the key, for a cipher."""

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise ValueError(FORM)

    @classmethod
    def parse(cls, text: str) -> EncryptionKey:
        """The key of a text, which may begin and end with white space; `ValueError` if it is in neither form."""
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
"""The version of the engine contract. It changes when an engine that kept the last one loses or shows wrong data with
this one: 2 has `WriteSet.relies_on` in place of `decided_under`."""


class Opening(enum.Enum):
    """The use for which a process opens storage, and the processes that it keeps out by that."""

    SERVER = enum.auto()
    """To serve it: no other server may open it until it is closed."""
    SHARED = enum.auto()
    """To read and commit, beside a server or without one."""
    READ_ONLY = enum.auto()
    """To read only, beside any other process: nothing is created, changed or locked."""


OpenEngine = Callable[[str, Clock, Opening, StorageId | None, EncryptionKey | None], Engine]
"""Opens the engine at the place that the URL names after its scheme. The call may block; it is made before anything is
served, and on the thread of the event loop that will use the engine.

With a `StorageId`, only the storage that has this id is opened. The key, which only an engine that `encrypts` gets, is
the one of the storage; otherwise it is refused. `EngineRefused` is one sentence that tells the operator
why the engine cannot be opened; its subclass `EngineBroken` means that the stored data is damaged.
"""
HoldStorage = Callable[[str, EncryptionKey | None], AbstractContextManager[StorageId]]
"""Prepares the storage at a place for the processes of one server, and keeps other servers out if only one is allowed.

In the block nothing is open, no thread runs and no loop exists, so the server can fork its processes there. Each of
them opens the storage as `SHARED`, with the id that the block was given. `EngineRefused` if the storage cannot be held.
"""


@dataclass(frozen=True, slots=True)
class EngineKind:
    """The engines of one scheme."""

    capabilities: Capabilities
    forms: tuple[str, ...]
    """The forms of its URL, for messages and `--help`: `sqlite`, `sqlite:DIR`."""
    open: OpenEngine
    hold: HoldStorage | None = None
    """None if several processes cannot share the storage (`Capabilities.processes`)."""
    figures: tuple[Figure, ...] = ()
    """The figures of an engine of this kind, which is then a `MeasuredEngine`."""
    contract: int = 1
    """The version of the contract that the engine keeps; another one than `CONTRACT` is refused."""
    encrypts: bool = False
    """Whether the engine can encrypt what it stores."""
