"""The capabilities of an engine: one frozen value for each kind of engine, known before storage is opened.

Every decision that depends on the engine asks this value, and never the text of a URL. Knows no engine.
"""

import enum
from dataclasses import dataclass


class StoredIn(enum.Enum):
    """The place where an engine keeps its rows."""

    PROCESS = enum.auto()
    """The memory of the process that opened it; the rows are lost at the end of the process."""
    DIRECTORY = enum.auto()
    """A directory of this machine, which the engine's URL names."""
    SERVERS = enum.auto()
    """Other servers, which the engine's URL names and which are reached over a network."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of one kind of engine."""

    stored_in: StoredIn
    processes: bool
    """Several processes may have the same storage open, and each of them may commit."""
    hints: bool
    """The reads of a snapshot use a hint to leave rows out. If False, a hint has no effect and need not be made."""
    waits: bool
    """A read may suspend: it waits for a network or a thread. All calls then run inside a task of the event loop, where
    time-outs and task groups work. If False, a read never suspends, and its caller may run it outside any task."""
    snapshots_pass: bool = False
    """A snapshot shows its moment until the rows that it reads are changed: then a read raises `MomentPassed`. If
    False, it does so for any time."""
    versions_outlive_rows: bool = False
    """The versions of a row that is deleted and created again continue from its last version."""
    keeps_changes: bool = False
    """The engine can keep a record of changes (`change_record`)."""
    keeps_entries: bool = False
    """The engine can keep entries of indexes, and its snapshots read them (`contract.IndexedSnapshot`)."""
