"""What each kind of engine can do: one frozen value per kind, known before storage is opened.

Every decision that depends on the engine asks this value, never the text of a URL.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


class StoredIn(enum.Enum):
    PROCESS = enum.auto()
    """The memory of the process that opened it; the rows are lost at the end of the process."""
    DIRECTORY = enum.auto()
    """The directory of this machine that the engine's URL names."""
    SERVERS = enum.auto()
    """The servers that the engine's URL names, over a network."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    stored_in: StoredIn
    processes: bool
    """Several processes may open the same storage, and each may commit."""
    hints: bool
    """A snapshot's reads use a hint to leave rows out. If False, a hint has no effect, so make none."""
    waits: bool
    """A read may suspend: it waits for a network or a thread. All calls then run inside a task of the event loop, where
    time-outs and task groups work. If False, a read never suspends, and its caller may run it outside any task."""
    snapshots_pass: bool = False
    """A snapshot lasts only until a row that it reads changes: then a read raises `SnapshotPassed`."""
    leases: bool = False
    """Leases give the generation, since the engine does not learn of other processes' commits."""
    versions_outlive_rows: bool = False
    """A row that is deleted and created again continues from its last version."""
    keeps_changes: bool = False
    """The engine can keep a record of changes (`change_record`)."""
    checks_relied_rows: bool = False
    """A commit checks that the rows its write set relies on have not changed (`contract.WriteSet`)."""
    keeps_entries: bool = False
    """The engine can keep entries of indexes, and its snapshots read them (`contract.Snapshot.entries`)."""
    reads_backwards: bool = False
    """Its snapshots read rows and entries in descending order too."""

    @property
    def shares_over_network(self) -> bool:
        """Servers of several machines may have the rows, and have to agree who does the work that is there once."""
        return self.stored_in is StoredIn.SERVERS


# What must hold of every kind, and why another combination cannot work.
_RULES: Final[tuple[tuple[str, Callable[[Capabilities], bool]], ...]] = (
    (
        "it keeps entries of indexes, but a commit does not check the rows on which a write relies",
        lambda can: can.checks_relied_rows or not can.keeps_entries,
    ),
    (
        "it keeps entries of indexes, but its snapshots end as soon as a row that was read changes",
        lambda can: not (can.keeps_entries and can.snapshots_pass),
    ),
    (
        "it has leases, but a row that is deleted and made again may get an earlier version",
        lambda can: can.versions_outlive_rows or not can.leases,
    ),
    (
        "several processes may open it, but its rows are in the memory of one process",
        lambda can: can.stored_in is not StoredIn.PROCESS or not can.processes,
    ),
    (
        "its rows are on other servers, but its reads never wait for an answer",
        lambda can: can.stored_in is not StoredIn.SERVERS or can.waits,
    ),
    (
        "its snapshots end if a row changes between two reads, but its reads never wait, so none can",
        lambda can: can.waits or not can.snapshots_pass,
    ),
)


def why_impossible(can: Capabilities) -> str | None:
    """Why no engine can have these capabilities together; None if one can."""
    return next((why for why, holds in _RULES if not holds(can)), None)
