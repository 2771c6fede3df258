"""The engine contract: all that may be asked of storage, and all that an engine must keep (docs/engines.md).

A row is (partition bytes, row bytes) -> (version, value bytes), in the order of the bytes. An engine knows no account,
table, entity, property or HTTP. Engines never raise a code of the service. They return `Conflict`, or raise
`EngineUnavailable` (storage cannot answer now; the caller may try again), `OutcomeUnknown` (a commit that may yet be
applied) or, while they are opened, `EngineRefused` (one sentence for the operator).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NewType, Protocol

from tablestone.engines.capabilities import Capabilities
from tablestone.engines.change_record import ChangeLog, Note
from tablestone.engines.leases import Leases


class EngineUnavailable(Exception):
    """Storage cannot answer now (disk full, locked, a node missing): nothing of the request was applied.

    `sentence` is for an operator: the text, or, if the text has words of a library, the same without them.
    """

    def __init__(self, text: str = "", sentence: str | None = None) -> None:
        super().__init__(text)
        self.sentence = text if sentence is None else sentence


class EngineBusy(EngineUnavailable):
    """As above, and it is expected to pass by itself: other clients or other machines are the reason."""


class EngineDamaged(EngineUnavailable):
    """The stored data cannot be read: trying again does not help, an operator has to look."""


class OutcomeUnknown(Exception):
    """A commit may or may not have been applied, or may yet be: no answer may say that it was not."""


class EngineRefused(Exception):
    """The engine cannot be opened; the text is one clear sentence for the person who starts the server."""


class EngineBroken(EngineRefused):
    """The stored data is too damaged to be opened."""


class EngineFull(EngineRefused):
    """The disk has no room for what opening the engine writes."""


class NothingStored(EngineRefused):
    """A place that is only to be read, and holds no data yet."""


class MomentPassed(Exception):
    """A snapshot can no longer show its moment: rows that it has not read yet were changed."""


StorageId = NewType("StorageId", bytes)
"""Identifies the storage that an engine opened, also if other storage takes its place. Only the engine that made an id
can read it; other code compares it and passes it on."""


class Key(NamedTuple):
    """The place of a row. Keys order by partition, then by row, bytewise."""

    partition: bytes
    row: bytes


class KeyRange(NamedTuple):
    """All keys with `start <= key < end`. A range never has `end <= start`."""

    start: Key
    end: Key

    @classmethod
    def of_row(cls, partition: bytes, row: bytes) -> KeyRange:
        """The range that holds exactly one key."""
        return cls(Key(partition, row), Key(partition, row + b"\0"))

    @classmethod
    def of_partition(cls, partition: bytes) -> KeyRange:
        """The range of all rows of one partition."""
        return cls(Key(partition, b""), Key(partition + b"\0", b""))

    @property
    def is_point(self) -> bool:
        """True when the range can hold one key only."""
        start, end = self
        return start.partition == end.partition and end.row == start.row + b"\0"


class Rows(NamedTuple):
    """The result of a read: values in key order, and the key at which to continue.

    `next_key` is the key of the first row that was left unread; None when the ranges are exhausted. There are only
    values, no keys and no versions, because the values that `tables` stores contain both. This makes a page quicker.
    """

    values: list[bytes]
    next_key: Key | None
    left_out: int = 0
    """About how many rows the engine examined and left out because of a hint."""


class StoredRow(NamedTuple):
    """A whole row, for checking, sweeping and copying."""

    partition: bytes
    row: bytes
    version: int
    value: bytes


class Entry(NamedTuple):
    """An entry of an index: bytes by which a row is found. Entries order by these bytes, then by the row's key."""

    entry: bytes
    partition: bytes
    row: bytes


ABSENT: Final = 0
"""Expectation: there is no row. (Also the version that is reported if there is none.)"""
ANY: Final = -1
"""Expectation: none; the row may exist or not."""
PRESENT: Final = -2
"""Expectation: there is a row, of any version."""

Expectation = int
"""`ABSENT`, `ANY`, `PRESENT`, or a version (positive): the row exists and has exactly this version."""


def expectation_holds(expectation: Expectation, version_found: int) -> bool:
    """Whether a row of this version (`ABSENT` for none) is as expected."""
    if expectation == ANY:
        return True
    return version_found != ABSENT if expectation == PRESENT else version_found == expectation


class Put(NamedTuple):
    """Write the row. `render` takes the version that the engine assigned, and returns the value to store.

    `before` returns what the record of changes keeps of the value that is replaced; it is called only if changes are
    kept. Both are pure and cheap, and are called again if the commit is tried again.
    """

    render: Callable[[int], bytes]
    before: Callable[[], bytes] | None = None


class Refusal(NamedTuple):
    """An `Update` that cannot be done, for a reason that only the caller of `commit` understands."""

    reason: Any


class Update(NamedTuple):
    """Write the row as its value demands: no other commit comes between the value and the write.

    `decide` takes the value, None if there is no row. It is pure, cheap and waits for nothing, so an engine may call it
    as often as it likes. An embedded engine calls it inside the commit. An engine over a network may do so too, in a
    transaction that holds the row; or it reads the row, decides, and commits on condition that the row still has the
    version that was read, and else begins again (`decide_updates`). Only the last decision counts.

    It refuses by its result and never raises, so that no other write set of a group fails.
    """

    decide: Callable[[bytes | None], Put | Refusal]


class _Delete:
    """The type of `DELETE`."""

    __slots__ = ()


DELETE: Final = _Delete()
"""Mutation: remove the row. A missing row is no error; the expectation `PRESENT` makes it a conflict."""


class Reindex(NamedTuple):
    """Leave the row as it is, and give it the entries that its value has by `WriteSet.entries_of`.

    The entries in `stale` are removed unless its value has them. Without a row, all of them are.
    """

    stale: Sequence[bytes] = ()


Mutation = Put | Update | Reindex | _Delete | None
"""The change of a row whose expectation holds; None only checks."""


class Change(NamedTuple):
    """One row of a write set: its expectation, and its mutation if the expectation holds."""

    row: bytes
    expectation: Expectation
    mutation: Mutation


class ReliedRows(NamedTuple):
    """Rows of any partitions on which a write set relies, though it does not change them, as they were read.

    An engine need not look at them while `generation` is the present one: no invalidating commit came since.
    """

    rows: Sequence[tuple[Key, int]]
    """Each with the version that it had; `ABSENT` if there was none."""
    generation: int | None
    """The engine's generation before the rows were read; None if there was none, and with leases: those tell nothing
    about the moment of the commit."""


class WriteSet(NamedTuple):
    """Changes to rows of one partition, applied all or not at all; each row appears once.

    `invalidates_caches`: any process may keep these rows in memory, so the commit ends the validity of all caches
    (`Engine.generation`). `note`: a record of the changed rows is kept, if changes are kept at all; None: it never is.

    If `capabilities.keeps_entries`: `entries_of` returns the entries of a stored value. Of each row that changes, the
    entries of the old value go and those of the new one come, in the same commit. It is pure and quick.

    If `capabilities.checks_relied_rows`: unless the rows of `relies_on` are as they were, nothing is applied, and the
    conflict is `outdated`. None: the write set relies on no other row.
    """

    partition: bytes
    changes: Sequence[Change]
    invalidates_caches: bool = False
    note: Note | None = None
    entries_of: Callable[[bytes], Sequence[bytes]] | None = None
    relies_on: ReliedRows | None = None


class Committed(NamedTuple):
    """The write set was applied and is durable. `versions` has one entry for each change: 0 if nothing was put.

    An assigned version is `max(clock(), old version + 1)`, so the versions of a row strictly increase even if the clock
    steps back. The old version of a missing row is 0, or the last version that it had, if
    `capabilities.versions_outlive_rows`.
    """

    versions: list[int]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was applied: the expectation of the change at `index` (the first that failed) did not hold.

    `version_found` is the row's version, or `ABSENT`. `refused`: the expectation held, and the `Update` refused.
    `outdated`: no expectation was looked at, because a row of `WriteSet.relies_on` has another version.
    """

    index: int
    version_found: int
    refused: Any = None
    outdated: bool = False


OUTDATED: Final = Conflict(0, ABSENT, outdated=True)


def effect_of(
    change: Change, index: int, version_found: int, value: bytes | None
) -> Put | Reindex | _Delete | Conflict | None:
    """What the change at `index` does to a row of this version and value (`ABSENT` and None for none)."""
    if not expectation_holds(change.expectation, version_found):
        return Conflict(index, version_found)
    if not isinstance(change.mutation, Update):
        return change.mutation
    decided = change.mutation.decide(value)
    return (
        Conflict(index, version_found, decided.reason) if isinstance(decided, Refusal) else decided
    )


def decide_updates(
    write_set: WriteSet, found: Mapping[bytes, tuple[int, bytes]]
) -> WriteSet | Conflict:
    """The write set with each update decided by the row that was found, which it then expects; or a conflict.

    For an engine that decides before the commit. All rows were found at one moment: by row, versions and values.
    """
    changes: list[Change] = []
    for index, change in enumerate(write_set.changes):
        version, value = found.get(change.row, (ABSENT, None))
        mutation = effect_of(change, index, version, value)
        if isinstance(mutation, Conflict):
            return mutation
        expectation = version if isinstance(change.mutation, Update) else change.expectation
        changes.append(Change(change.row, expectation, mutation))
    return write_set._replace(changes=changes)


# Hints are no named tuples: named tuples of different classes are equal if their members are, so a cache with hints as
# its keys would confuse "all of" with "any of".


@dataclass(frozen=True, slots=True)
class Contains:
    """The value contains these bytes."""

    text: bytes


@dataclass(frozen=True, slots=True)
class NumberAfter:
    """The value contains `marker`, once. The text after it is a number between the two bounds, or no number.

    If a value contains the marker more than once, the engine may take any of its occurrences.

    A number is decimal, as JSON writes it. The bounds belong to the range and may be infinite. An engine that rounds
    must round by less than one part in 10^12; the bounds leave room for that.
    """

    marker: bytes
    least: float
    greatest: float
    quoted: bool = False
    """True: one quotation mark before the number is skipped. False: a text with a quotation mark is no number."""
    integers: bool = True
    """False: a number written without fraction and exponent, ended by `,` or `}`, counts as no number."""
    or_absent: bool = False
    """True: a value without the marker may match too."""


@dataclass(frozen=True, slots=True)
class TextAfter:
    """The bytes after `marker` (found as for numbers), as many as `least` has, are between the two bounds, inclusive.

    `or_absent`: a value without the marker may match too.
    """

    marker: bytes
    least: bytes
    greatest: bytes
    or_absent: bool = False


@dataclass(frozen=True, slots=True)
class RowBetween:
    """The row part of the key: `start <= row < end`. Without an end, all rows from `start` on."""

    start: bytes
    end: bytes | None


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds."""

    all_of: tuple[Hint, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds."""

    any_of: tuple[Hint, ...]


Hint = Contains | NumberAfter | TextAfter | RowBetween | AllOf | AnyOf
"""A condition that holds for every row that the reader wants. An engine may leave out rows for which it does not hold,
some or all of them, and no other row."""


class Snapshot(Protocol):
    """One moment of the rows, for several reads. Close it soon: storage keeps what it may still read."""

    async def read(
        self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int, hint: Hint | None = None
    ) -> Rows:
        """As `Engine.read`, at the moment of this snapshot's first read; later commits are not seen.

        Raises `MomentPassed`, but only if `capabilities.snapshots_pass`, and never in the first read. The reader
        then continues without the snapshot.

        With a hint, rows may be left out. `rows_max` is then the number of rows that are examined, and `next_key` the
        first row that was not. The result may have no value and still a key at which to continue.
        """
        ...

    async def entries(self, start: Entry, end: Entry, *, entries_max: int) -> list[Entry]:
        """The first entries with `start <= entry < end`, at the moment of this snapshot's first read.

        Never called without `capabilities.keeps_entries`, and nor is the next one.
        """
        ...

    async def count_entries(self, start: Entry, end: Entry, *, entries_max: int) -> int:
        """The number of these entries, up to `entries_max`: quicker than to read them."""
        ...

    async def close(self) -> None:
        """Release the snapshot."""
        ...


class Engine(Protocol):
    """Ordered rows with one conditional atomic commit.

    A read sees only committed rows and, within one call, each partition at one moment: never half of a write set. A
    commit that returned is durable and seen by every later read of every process. A commit that raises
    `EngineUnavailable` was not applied and never will be. If an engine does not know the outcome, it finds it out or
    raises `OutcomeUnknown`. A read or commit that can finish at once does so without another thread. A call that is
    cancelled is carried out whole or not at all, and does not disturb other calls.
    """

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of this kind of engine, the same for every engine of the kind."""
        ...

    @property
    def generation(self) -> int | None:
        """The number under which caches of rows are valid: cheap to read, and read at every use of a cached row.

        A row that was read after the generation may be used while the generation stays the same. None: no row may be
        cached.

        Without `leases`, every invalidating commit of any process changes the number, before the commit is
        acknowledged. It is None while such a commit is under way, and while the commits of another process cannot be
        known. So a change acts on the very next request of every process.

        With `leases`, time changes it. A number is valid for at most the length of a lease after the lease began, by a
        clock that goes on while the process or the machine is suspended (`engines.leases.Leases`): a process that was
        suspended for longer uses no cached row. A row that was read for a lease after it began, and before it was the
        present one, may be used in it too. Commits do not change the number. Instead, an invalidating commit is
        made only when no lease can hide the change any more (`tables.cache_invalidation`), so a change acts on the
        very next request of every process here too.
        """
        ...

    @property
    def leases(self) -> Leases | None:
        """The leases whose numbers the generation is, if the engine does not learn of the commits of other processes.

        Such an engine has `capabilities.versions_outlive_rows`: the marks of changes use rows again, and a change must
        not take the mark of another one for its own.

        All processes on one storage must agree on their length: it is a constant, or stored with the rows.
        """
        ...

    @property
    def changes(self) -> ChangeLog | None:
        """The record of changes; None if this kind of engine cannot keep one (`capabilities.keeps_changes`)."""
        ...

    async def get(self, key: Key) -> bytes | None:
        """The value of one row, None if there is no such row: the same as `read` of a range with this key alone."""
        ...

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        """The values in `ranges` (ascending, disjoint), at most `rows_max`, stopping early at `bytes_max`.

        Never reads outside the ranges. A page ends after the value that brings its total length to `bytes_max`
        or more, so at least one row is returned if there is any. It may end earlier, after one row or more, if the
        engine could not read more at one moment. But up to 100 points of one partition are always read together.
        """
        ...

    async def snapshot(self) -> Snapshot:
        """A moment that several reads can see."""
        ...

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        """The first `rows_max` rows of the range in key order, or all if they are fewer, with keys and versions."""
        ...

    def commit(self, write_set: WriteSet) -> Awaitable[Committed | Conflict]:
        """Apply the write set if all its expectations hold, else nothing.

        Write sets that arrive together may share one flush; each has its own outcome.
        """
        ...

    async def watch(self, *, leads: bool) -> None:
        """Look after storage beside a server. While storage is not where it was opened, commits raise
        `EngineUnavailable`, because they would be lost.

        `leads`: this process does what one of several is enough for, such as to log what it finds and to give room
        back. The call returns if there is nothing to watch.
        """
        ...

    async def check(self) -> list[str]:
        """The invariants of storage itself that do not hold, in words; empty if storage is sound."""
        ...

    async def close(self) -> None:
        """Finish the commits that were accepted, then release everything."""
        ...
