"""A kind of engine, as the registry knows it: its capabilities, the forms of its URL, and the way to open it.

Another package declares its engine with an entry point of the group `tablestone.engines`. The name of the entry point
is the scheme of the URL, and its value names an `EngineKind`. Importing the module of a kind is cheap: a driver is
imported when an engine is opened. Knows no engine.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tablestone.clock import Clock
from tablestone.engines.capabilities import Capabilities
from tablestone.engines.contract import Engine, StorageId
from tablestone.engines.encryption_key import EncryptionKey
from tablestone.engines.figures import Figure

ENTRY_POINTS = "tablestone.engines"
"""The group of entry points that name kinds of engines."""


class Opening(enum.Enum):
    """The use for which a process opens storage, and the processes that it keeps out by that."""

    SERVER = enum.auto()
    """To serve it: no other server may open it until it is closed."""
    SHARED = enum.auto()
    """To read and commit, beside a server or without one."""
    READ_ONLY = enum.auto()
    """To read only, beside any other process: nothing is created, changed or locked."""


OpenEngine = Callable[[str, Clock, Opening, StorageId | None], Engine]
"""Opens the engine at the place that the URL names after its scheme. The call may block; it is made before anything is
served, and on the thread of the event loop that will use the engine.

With a `StorageId`, only the storage that has this id is opened. `EngineRefused` is one sentence that tells the operator
why the engine cannot be opened; its subclass `EngineBroken` means that the stored data is damaged.
"""
HoldStorage = Callable[[str], AbstractContextManager[StorageId]]
"""Prepares the storage at a place for the processes of one server, and keeps other servers out if only one is allowed.

In the block nothing is open, no thread runs and no loop exists, so the server can fork its processes there. Each of
them opens the storage as `SHARED`, with the id that the block was given. `EngineRefused` if the storage cannot be held.
"""


OpenEncrypted = Callable[[str, Clock, Opening, StorageId | None, EncryptionKey], Engine]
HoldEncrypted = Callable[[str, EncryptionKey], AbstractContextManager[StorageId]]


@dataclass(frozen=True, slots=True)
class Encrypted:
    """The same two for storage that a key encrypts. `EngineRefused` if the key is not that of the storage."""

    open: OpenEncrypted
    hold: HoldEncrypted


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
    encrypted: Encrypted | None = None
    """None if the engine does not encrypt what it stores."""
