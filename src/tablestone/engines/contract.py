"""The engine contract: what the server asks of storage, and what an engine must promise (docs/engines.md).

A row is (partition bytes, row bytes) -> (version, value bytes), in bytewise order. An engine knows no account, table,
entity, property or HTTP, and raises no error code of the service. It returns `Conflict`, or raises `EngineUnavailable`
(try again later), `OutcomeUnknown` (the commit may yet be applied) or, while it is opened, `EngineRefused` (one
sentence for the operator).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NewType, Protocol

from tablestone.engines.capabilities import Capabilities
from tablestone.engines.change_record import ChangeLog, Note
from tablestone.engines.leases import Leases


class EngineUnavailable(Exception):
    """Storage cannot answer now (disk full, locked, a node missing): nothing of the request was applied."""

    def __init__(self, text: str = "", sentence: str | None = None) -> None:
        super().__init__(text)
        self.sentence = text if sentence is None else sentence
        """The text for an operator, without the words of a library."""


class EngineBusy(EngineUnavailable):
    """Storage cannot answer now because of other clients or machines: this should pass by itself."""


class EngineDamaged(EngineUnavailable):
    """The stored data cannot be read. Trying again does not help: an operator has to look."""


class WriteTooLarge(EngineUnavailable):
    """Storage takes no write as large as this one, now or later. `key` is that of the row, if it is one row's fault."""

    def __init__(self, text: str, key: Key | None = None) -> None:
        super().__init__(text)
        self.key = key


class OutcomeUnknown(Exception):
    """A commit may have been applied, or may yet be: no answer may say that it was not."""


class EngineRefused(Exception):
    """The engine cannot be opened; the text is one sentence for the operator."""


class EngineBroken(EngineRefused):
    """The stored data is too damaged to be opened."""


class EngineFull(EngineRefused):
    """The disk has no room to open the engine."""


class NothingStored(EngineRefused):
    """The storage was opened read-only and holds no data yet."""


class SnapshotPassed(Exception):
    """A snapshot has ended: rows that it has not read yet were changed."""


StorageId = NewType("StorageId", bytes)
"""Tells the storage that an engine opened from other storage in its place. Other code only compares it."""


class Key(NamedTuple):
    """Keys order by partition, then by row, bytewise."""

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
        start, end = self
        return start.partition == end.partition and end.row == start.row + b"\0"


class Rows(NamedTuple):
    """Values in key order, without keys and versions: `tables` stores both in the value, and pages are quicker."""

    values: list[bytes]
    next_key: Key | None
    """The first row that was left unread; None if the ranges are exhausted."""
    left_out: int = 0
    """About how many rows a hint left out."""


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
"""Expectation: there is no row. It is also the reported version of a missing row."""
ANY: Final = -1
"""Expectation: the row may exist or not."""
PRESENT: Final = -2
"""Expectation: there is a row, of any version."""

Expectation = int
"""`ABSENT`, `ANY`, `PRESENT`, or a version (positive): the row exists and has exactly this version."""


def expectation_holds(expectation: Expectation, version_found: int) -> bool:
    if expectation == ANY:
        return True
    return version_found != ABSENT if expectation == PRESENT else version_found == expectation


class Put(NamedTuple):
    """Write the row. `render` takes the assigned version and returns the value to store.

    `before` returns what the record of changes keeps of the replaced value; it is called only if changes are kept. Both
    are pure and cheap, and are called again if the commit is tried again.
    """

    render: Callable[[int], bytes]
    before: Callable[[], bytes] | None = None


class Refusal(NamedTuple):
    """An `Update` refuses, for a reason that only the caller of `commit` understands."""

    reason: Any


class Update(NamedTuple):
    """Decide by the row's present value what to write: no other commit comes between the two.

    `decide` takes the value, None if there is no row. It is pure, cheap and waits for nothing, so an engine may call it
    as often as it likes. An embedded engine calls it inside the commit. An engine over a network may do so too, in a
    transaction that holds the row. Or it reads the row, decides, commits if the row still has the version that was
    read, and else begins again (`decide_updates`). Only the last decision counts.

    To refuse, return `Refusal`. `decide` never raises, so no other write set of a group fails.
    """

    decide: Callable[[bytes | None], Put | Refusal]


class _Delete:
    __slots__ = ()


DELETE: Final = _Delete()
"""Mutation: remove the row. A missing row is no error, unless the expectation is `PRESENT`."""


class Reindex(NamedTuple):
    """Keep the row, and write the index entries that `WriteSet.entries_of` returns for its value.

    The entries in `stale` go unless the value still has them; all of them if there is no row.
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
    """Rows of any partition that a write set relies on without changing them, as they were read.

    An engine may skip the check while `generation` is the present one: no invalidating commit came since.
    """

    rows: Sequence[tuple[Key, int]]
    """The keys, each with the version that was read (`ABSENT` for none)."""
    generation: int | None
    """The engine's generation before the read, if any; None with leases, which do not tell of other commits."""


class WriteSet(NamedTuple):
    """Changes to rows of one partition, applied all or not at all; each row appears once."""

    partition: bytes
    changes: Sequence[Change]
    invalidates_caches: bool = False
    """Any process may have these rows in memory: the commit makes all caches invalid (`Engine.generation`)."""
    note: Note | None = None
    """Goes into the record of changes, if one is kept; None: this commit leaves no record."""
    entries_of: Callable[[bytes], Sequence[bytes]] | None = None
    """Returns the index entries of a stored value. For each changed row, the old value's entries go and the new
    value's come, in the same commit. Pure and quick; only if `capabilities.keeps_entries`."""
    relies_on: ReliedRows | None = None
    """If one of these rows has changed, nothing is applied, and the conflict is `outdated`. Only if
    `capabilities.checks_relied_rows`."""
    is_small: bool = False
    """A document that soon goes: it is written on a full disk too, as every invalidating commit is."""


class Committed(NamedTuple):
    """The write set was applied and is durable. `versions` has one number for each change: 0 if nothing was put.

    An assigned version is `max(clock(), old version + 1)`, so the versions of a row strictly increase even if the clock
    steps back. A missing row has version 0, or its last one if `capabilities.versions_outlive_rows`.
    """

    versions: list[int]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was applied: the expectation of the change at `index`, the first such one, did not hold."""

    index: int
    version_found: int
    """The version of that row, or `ABSENT`."""
    refused: Any = None
    """The expectation held, and the `Update` refused for this reason."""
    outdated: bool = False
    """No expectation was checked: a row of `WriteSet.relies_on` has another version."""


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
    """The write set with each `Update` replaced by its decision and the version that was found; or a conflict.

    For an engine that decides before the commit. `found` has the versions and values of one snapshot, by row.
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


# Hints are dataclasses: named tuples of different classes are equal if their members are, so a cache keyed by hints
# would confuse "all of" with "any of".


@dataclass(frozen=True, slots=True)
class Contains:
    text: bytes


@dataclass(frozen=True, slots=True)
class NumberAfter:
    """After `marker` comes a number between the two bounds, or no number.

    The value contains the marker once; of several occurrences, the engine may take any. A number is decimal, as JSON
    writes it. The bounds are inclusive and may be infinite. They leave room to round by less than one part in 10^12.
    """

    marker: bytes
    least: float
    greatest: float
    quoted: bool = False
    """True: skip one quotation mark before the number. False: a text with a quotation mark is no number."""
    integers: bool = True
    """False: a number written without fraction and exponent, ended by `,` or `}`, counts as no number."""
    or_absent: bool = False
    """True: a value without the marker may match too."""


@dataclass(frozen=True, slots=True)
class TextAfter:
    """The bytes after `marker`, as many as `least` has, are between the two bounds, inclusive."""

    marker: bytes
    least: bytes
    greatest: bytes
    or_absent: bool = False
    """True: a value without the marker may match too."""


@dataclass(frozen=True, slots=True)
class RowBetween:
    """The row part of the key: `start <= row < end`; None for no end."""

    start: bytes
    end: bytes | None


@dataclass(frozen=True, slots=True)
class AllOf:
    all_of: tuple[Hint, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    any_of: tuple[Hint, ...]


Hint = Contains | NumberAfter | TextAfter | RowBetween | AllOf | AnyOf
"""A condition that every wanted row meets. An engine may leave out rows that do not meet it, and no others."""
HINTS_KEPT: Final = 4
"""What an engine keeps of the last hints: few, because clients choose the texts in them, of up to 64 KiB."""


class Snapshot(Protocol):
    """The rows at one moment, for several reads. Close it soon: storage keeps what it may still read."""

    async def read(
        self,
        ranges: Sequence[KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: Hint | None = None,
        reverse: bool = False,
    ) -> Rows:
        """As `Engine.read`, at the moment of this snapshot's first read: later commits do not show.

        `reverse`: from the last key to the first, only if `capabilities.reads_backwards`. The ranges are ascending all
        the same, and `next_key` is the greatest one that was left unread.

        If `capabilities.snapshots_pass`, any read but the first may raise `SnapshotPassed`; the reader then continues
        without the snapshot. With a hint, `rows_max` limits the examined rows, and `next_key` is the first row that
        was not examined: a result without values may have one.
        """
        ...

    async def entries(
        self, start: Entry, end: Entry, *, entries_max: int, reverse: bool = False
    ) -> list[Entry]:
        """The first entries with `start <= entry < end`, in the same snapshot; only if `keeps_entries`.

        `reverse`: the last ones, the greatest first.
        """
        ...

    async def count_entries(self, start: Entry, end: Entry, *, entries_max: int) -> int:
        """The number of these entries, up to `entries_max`: quicker than to read them."""
        ...

    async def close(self) -> None: ...


class Engine(Protocol):
    """Ordered rows with one conditional atomic commit.

    A read sees only committed rows and, within one call, each partition at one moment: never half of a write set. A
    commit that returned is durable, and every later read of every process sees it. A commit that raises
    `EngineUnavailable` was not applied and never will be. An engine that does not know the outcome finds it out or
    raises `OutcomeUnknown`. A read or commit that can finish at once uses no other thread. A cancelled call is carried
    out whole or not at all, and disturbs no other call.
    """

    @property
    def capabilities(self) -> Capabilities:
        """The same for every engine of the kind."""
        ...

    @property
    def generation(self) -> int | None:
        """The number for which cached rows are valid: cheap, because every use of a cached row reads it.

        Read the generation, then a row: the row may be used while the generation stays the same. None: cache no row.

        Without `leases`, every invalidating commit of any process changes the number before the commit is acknowledged.
        It is None while such a commit is under way, and while other processes' commits cannot be known. So a change
        acts on the very next request of every process.

        With `leases`, time changes it: a number is valid for at most the length of a lease after the lease began. The
        clock goes on while the process or the machine is suspended (`engines.leases.Leases`), so a process that was
        suspended for longer uses no cached row. A row that was read for the next lease, after that one began, may be
        used in it. Commits do not change the number. Instead, an invalidating commit waits until no lease can hide the
        change (`tables.cache_invalidation`), so here too it acts on the very next request of every process.
        """
        ...

    @property
    def leases(self) -> Leases | None:
        """The leases that give the generation if `capabilities.leases`; else None.

        Such an engine has `versions_outlive_rows`: a change puts a mark, a row that stops caching, into its partition.
        Names of marks are reused, and no change may take another's mark for its own. All processes on one storage must
        agree on the length of a lease: it is a constant, or stored with the rows.
        """
        ...

    @property
    def changes(self) -> ChangeLog | None:
        """The record of changes; None if this kind of engine cannot keep one (`capabilities.keeps_changes`)."""
        ...

    async def get(self, key: Key) -> bytes | None:
        """The value of one row, None if there is no such row; the same as a `read` of this key alone."""
        ...

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        """The values in `ranges` (ascending, disjoint), at most `rows_max`.

        A page ends after the value that brings its total length to `bytes_max` or more, so it has a row if there is
        any. It may end earlier, after one row or more, if the engine could not read more at one moment. But up to 100
        points of one partition are always read together.
        """
        ...

    async def snapshot(self) -> Snapshot:
        """Begin a snapshot for several reads."""
        ...

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        """The first rows of the range in key order, at most `rows_max`, with keys and versions.

        It may end earlier, after some MiB of values. Only an empty list means that there are no more.
        """
        ...

    def commit(self, write_set: WriteSet) -> Awaitable[Committed | Conflict]:
        """Apply the write set if all its expectations hold, else nothing. Write sets may share one flush."""
        ...

    async def watch(self, *, leads: bool) -> None:
        """Look after storage while a server runs; return if there is nothing to watch.

        While storage is not where it was opened, commits raise `EngineUnavailable`: they would be lost. `leads`: this
        process does the work that only one of several needs to do, such as to log and to give room back.
        """
        ...

    async def check(self) -> list[str]:
        """A sentence for each broken invariant of storage itself; empty if storage is sound."""
        ...

    async def close(self) -> None:
        """Finish the commits that were accepted, then release everything."""
        ...
