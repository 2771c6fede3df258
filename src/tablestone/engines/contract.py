"""The engine contract: all that the semantics above may ask of storage, and all that an engine must keep.

A row is (partition bytes, row bytes) -> (version, value bytes). The order of the bytes is the service's order.
An engine has never heard of an account, a table, an entity, a property or HTTP; it imports nothing of ours but
`limits` and `clock`. Every engine passes the one suite in `tests/engines`.

Engines never raise a code of the service. They answer `Conflict`, or raise `EngineUnavailable` (storage cannot
answer now; the caller may try again) or, while being opened, `EngineRefused` (one sentence for the operator).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol


class EngineUnavailable(Exception):
    """Storage cannot answer now (disk full, locked, a node missing): nothing of the request was applied."""


class EngineDamaged(EngineUnavailable):
    """What is stored cannot be read: trying again is of no use, a person has to look."""


class EngineRefused(Exception):
    """The engine cannot be opened; the text is one clear sentence for the person who starts the server."""


class EngineBroken(EngineRefused):
    """What is stored is damaged so much that it cannot even be opened."""


StorageId = tuple[int, int]
"""Tells storage that an engine opened from another that somebody put in its place."""


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
    """What a read found: values in key order, and where to go on.

    `next_key` is the key of the first row that was left unread because of `rows_max` or `bytes_max`; None when
    the ranges are exhausted. Values alone are given (no keys, no versions): what is stored above this seam
    names both inside the value, and leaving them out makes a page quicker.
    """

    values: list[bytes]
    next_key: Key | None


class StoredRow(NamedTuple):
    """A row with everything that is known of it, for checking, sweeping and copying."""

    partition: bytes
    row: bytes
    version: int
    value: bytes


ABSENT: Final = 0
"""Expectation: there is no row. (Also the version reported where there is none.)"""
ANY: Final = -1
"""Expectation: none; the row may or may not be there."""
PRESENT: Final = -2
"""Expectation: there is a row, whatever its version."""

Expectation = int
"""`ABSENT`, `ANY`, `PRESENT`, or a version (positive): the row is there and has exactly this version."""


def expectation_holds(expectation: Expectation, version_found: int) -> bool:
    """Whether a row of this version (`ABSENT` for none) is as expected."""
    if expectation == ANY:
        return True
    return version_found != ABSENT if expectation == PRESENT else version_found == expectation


class Put(NamedTuple):
    """Write the row. `render` is given the version the engine assigned and returns the value to store.

    It is pure and cheap, and may be called more than once (a commit that is tried again).
    """

    render: Callable[[int], bytes]


class _Delete:
    """The type of `DELETE`."""

    __slots__ = ()


DELETE: Final = _Delete()
"""Mutation: remove the row; nothing happens if it is not there (say `PRESENT` to make that a conflict)."""

Mutation = Put | _Delete | None
"""What to do with a row whose expectation holds; None only checks."""


class Change(NamedTuple):
    """One row of a write set: what must hold, and what to do then."""

    row: bytes
    expectation: Expectation
    mutation: Mutation


class WriteSet(NamedTuple):
    """Changes to rows of one partition, applied all or not at all; each row appears once.

    `announced` says that somebody may keep these rows in memory: see `Engine.generation`.
    """

    partition: bytes
    changes: Sequence[Change]
    announced: bool = False


class Committed(NamedTuple):
    """Everything was applied and is durable. `versions` has one entry a change: 0 unless it was a `Put`.

    An assigned version is `max(clock(), old version + 1)`, so it strictly increases per row even if the clock
    steps back; a row that was not there counts as old version 0.
    """

    versions: list[int]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was applied: the expectation of the change at `index` (the first that failed) did not hold.

    `version_found` is the row's version, or `ABSENT`.
    """

    index: int
    version_found: int


# Those of hints are no named tuples: these are equal where their members are, whatever their class, and who keeps
# something for a hint would take "all of" for "any of".


@dataclass(frozen=True, slots=True)
class Contains:
    """The value contains these bytes."""

    text: bytes


@dataclass(frozen=True, slots=True)
class NumberAfter:
    """The value contains `marker`, once, and what follows it is a number between the two, or no number.

    In a value that contains it more than once any of the occurrences may be taken.

    A number is decimal, as JSON writes it; the bounds belong to the range, and may be infinite. An engine that rounds
    must round by less than one part in 10^12: whoever asks leaves room for that.
    """

    marker: bytes
    least: float
    greatest: float
    quoted: bool = False
    """One quotation mark before the number is skipped. Otherwise it makes what follows no number."""
    integers: bool = True
    """False: a number written without fraction and exponent, ended by `,` or `}`, counts as no number."""
    or_absent: bool = False
    """True: a value without the marker may match too."""


@dataclass(frozen=True, slots=True)
class TextAfter:
    """As many bytes as `least` has, after `marker` as with numbers, are between the two (which belong to it).

    `or_absent` says whether a value without the marker may match too.
    """

    marker: bytes
    least: bytes
    greatest: bytes
    or_absent: bool = False


@dataclass(frozen=True, slots=True)
class RowBetween:
    """The row's own bytes: `start <= row < end`; no end: to the last."""

    start: bytes
    end: bytes | None


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds."""

    all_of: tuple[Hint, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Some part holds."""

    any_of: tuple[Hint, ...]


Hint = Contains | NumberAfter | TextAfter | RowBetween | AllOf | AnyOf
"""What must hold of a row that the reader wants. An engine may leave out the rows of which it does not hold, some or
all, and never another one."""


class Snapshot(Protocol):
    """One moment of the rows, for a reader that comes back for more. To be closed soon: it holds back storage."""

    async def read(
        self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int, hint: Hint | None = None
    ) -> Rows:
        """As `Engine.read`, of the moment of this snapshot's first read, whatever is committed meanwhile.

        With a hint rows may be left out; `rows_max` is then how many are looked at, and `next_key` the first that was
        not. There may be no value at all, and still a key to go on with.
        """
        ...

    def close(self) -> None:
        """The moment is no longer needed."""
        ...


class Engine(Protocol):
    """Ordered rows with one conditional atomic commit.

    A read sees only committed rows and, within one call, one moment: never half of a write set. A commit that
    returned is durable and seen by every later read. A read or commit that can finish at once does so without
    a thread hop.
    """

    @property
    def generation(self) -> int | None:
        """A number that is another one after every announced commit, by whatever process; cheap to ask.

        What was read of announced rows after this was asked stays true for as long as the answer is the same. None
        while an announced commit is under way, and where it cannot be known: then nothing may be kept.
        """
        ...

    async def get(self, key: Key) -> bytes | None:
        """The value of one row, None if there is no such row: what `read` finds in the key's own range."""
        ...

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        """The values in `ranges` (ascending, disjoint), at most `rows_max`, stopping early at `bytes_max`.

        Never reads outside the ranges. A page ends after the value that brings its total length to `bytes_max`
        or more, so at least one row is returned if there is any.
        """
        ...

    def snapshot(self) -> Snapshot:
        """A moment that several reads can see."""
        ...

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        """Up to `rows_max` rows of the range in key order, with keys and versions."""
        ...

    def commit(self, write_set: WriteSet) -> Awaitable[Committed | Conflict]:
        """Apply the write set if all its expectations hold, else nothing.

        Write sets that arrive together may share one flush, each with its own fate.
        """
        ...

    async def watch(self, *, tells: bool) -> None:
        """Run beside a server: while storage is not where it was opened, where nobody will look for what is written,
        commits raise `EngineUnavailable`.

        Logs what it sees if it `tells`: of several processes one is enough. Ends where there is nothing to watch.
        """
        ...

    async def check(self) -> list[str]:
        """Invariants of storage itself that do not hold, in words; empty is healthy."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, release everything."""
        ...
