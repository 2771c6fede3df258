"""The capabilities of an engine: one frozen value for each kind of engine, known before storage is opened.

Every decision that depends on the engine asks this value, and never the text of a URL. Knows no engine.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


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
    checks_relied_rows: bool = False
    """A commit looks whether the rows on which its write set relies are as they were (`contract.WriteSet`)."""
    keeps_entries: bool = False
    """The engine can keep entries of indexes, and its snapshots read them (`contract.Snapshot.entries`)."""


# What must hold of every kind, and why another combination cannot work.
_RULES: Final[tuple[tuple[str, Callable[[Capabilities], bool]], ...]] = (
    (
        "it keeps entries of indexes, and does not check the rows on which a write set relies",
        lambda can: can.checks_relied_rows or not can.keeps_entries,
    ),
    (
        "it keeps entries of indexes, which are read in one moment, and its snapshots pass",
        lambda can: not (can.keeps_entries and can.snapshots_pass),
    ),
    (
        "its rows are in the memory of one process, which several processes cannot have open",
        lambda can: can.stored_in is not StoredIn.PROCESS or not can.processes,
    ),
    (
        "its rows are on other servers, and a read does not wait",
        lambda can: can.stored_in is not StoredIn.SERVERS or can.waits,
    ),
    (
        "its snapshots pass, and a read does not wait: nothing can come between two reads",
        lambda can: can.waits or not can.snapshots_pass,
    ),
)


def why_impossible(can: Capabilities) -> str | None:
    """Why no engine can have these capabilities together; None if one can."""
    return next((why for why, holds in _RULES if not holds(can)), None)
