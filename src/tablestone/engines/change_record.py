"""The record of changes: what every commit changed, in the order of the commits, for as long as it is kept.

An engine that keeps changes writes one record for each write set with a note, in the commit itself: a record exists
exactly if its commit does. Records are numbered without holes, and their times never step back. A write set that
changed no row has no record. Numbers go on when records are trimmed, and when keeping ends and begins again; each
beginning has an epoch of its own. The form of stored rows and `Retention` are here too.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.record_age import RecordAge


class Note(NamedTuple):
    """What the caller of a commit says about it."""

    subject: bytes
    """What records are asked for by. An engine only compares it."""
    about: bytes
    """Anything else. No engine reads it."""


class ChangedRow(NamedTuple):
    """A row that a commit put or deleted."""

    row: bytes
    version: int
    """The version of the value; of a deletion, the version that was deleted."""
    value: bytes | None
    """None: deleted."""
    before: bytes | None = None
    """What the caller of the commit keeps of the value that was replaced (`Put.before`)."""


class ChangeRecord(NamedTuple):
    """One commit."""

    number: int
    time: int
    """Ticks: the clock at the commit, or the time of the record before if that is later."""
    note: Note
    partition: bytes
    rows: Sequence[ChangedRow]


class Retention(NamedTuple):
    """How long records are kept: until they are older, or take more bytes, whichever comes first."""

    ticks: int | None
    bytes: int | None
    """None: a tenth of the disk; in memory, `MEMORY_BYTES`."""

    def __str__(self) -> str:
        """As the option takes it: `7d,20GiB`."""
        seconds = None if self.ticks is None else self.ticks // TICKS_PER_SECOND
        given = ((seconds, _AGES), (self.bytes, _SIZES))
        return ",".join(_in_units(number, units) for number, units in given if number is not None)


_AGES: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_SIZES: Final = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}


def _in_units(number: int, units: Mapping[str, int]) -> str:
    return next(f"{number // size}{unit}" for unit, size in units.items() if number % size == 0)


class KeptChanges(NamedTuple):
    """The records that are kept now."""

    storage: bytes
    """The id of the storage, `ID_BYTES` random bytes: the same for all epochs."""
    epoch: bytes
    """`ID_BYTES` random bytes, new whenever keeping begins."""
    first: int
    """The number of the oldest record that is kept; the newest one's plus one if none is."""
    last: int
    """The number of the newest commit that was recorded, whether its record is still kept or not."""
    oldest_time: int
    """The time of the oldest record that is kept, or of the newest that was, in ticks."""
    newest_time: int
    """The time of the newest record, kept or not, in ticks."""
    whole_since: int
    """From this time on, all records are kept: several may have one time, and some of them may be trimmed."""
    bytes: int
    """About the bytes of all records that are kept."""
    is_complete: bool
    """Whether the records are all changes of storage that was empty: they began with it, and none was trimmed."""
    retention: Retention
    """The setting that is in force, with its size."""
    for_feed: bool = True
    """Whether they are kept for the feed: else there is none."""
    makes_room: bool = False
    """Whether the oldest go before their time, because the disk is nearly full."""


class After(NamedTuple):
    """Begin after the record of this number; with `FIRST` or `LAST`, at one of the ends."""

    number: int


class At(NamedTuple):
    """Begin with the first record that is not older (ticks)."""

    time: int


FIRST: Final = After(0)
LAST: Final = After(2**62)


class ChangesRead(NamedTuple):
    """What was kept at one moment, and some of its records in order."""

    kept: KeptChanges
    begun_time: int | None
    """The time of the record after which the read was to begin; None if it is not kept, or the read began at a time."""
    records: Sequence[ChangeRecord]
    reached: int
    """The number up to which all records were examined."""
    reached_time: int
    """The time of that record, in ticks; 0 if it is not kept."""
    has_more: bool
    """Whether records of the subject follow."""


class ChangeLog(Protocol):
    """The record of changes of an engine (`Engine.changes`). Every method may raise `EngineUnavailable`."""

    age: RecordAge
    """Which records are too old. A server that starts begins it."""

    async def keep(self, retention: Retention | None, accepted: Retention | None = None) -> None:
        """Begin or go on to keep changes for the feed, in every process; None ends it, and the records go.

        Called when a server starts with the setting. It is stored, so later starts and commits of other programs follow
        it too. A shorter age or size that would trim records at once is only stored if it is `accepted`; a size that
        is not given leaves the stored one.
        """
        ...

    def kept(self) -> KeptChanges | None:
        """What is kept; None if no changes are kept. Quick."""
        ...

    async def read(
        self, position: After | At, *, subject: bytes | None, rows_max: int, bytes_max: int
    ) -> ChangesRead | None:
        """Records of one subject, or of all, from a position on; None if no changes are kept.

        All of the answer is of one moment, so the caller can tell whether the position was kept. If it is not, the
        nearest one that is takes its place. Stops after the record that brings the rows to `rows_max` or `bytes_max`.
        """
        ...

    async def news(self, after: int, seconds: float) -> Sequence[tuple[int, Note]]:
        """The numbers and notes of records after a number, at most `NEWS_MAX`; also of empty ones, with empty notes.

        If there is none, wait for one: commits of this process end the wait at once, others need not.
        """
        ...


NEWS_MAX: Final = 1_000


def not_taken(kept: KeptChanges | None, asked: Retention | None) -> str | None:
    """Why a setting that a server was started with is not in force, in a sentence; None if it is."""
    if kept is None or asked is None or with_size(asked, kept.retention.bytes) == kept.retention:
        return None
    return (
        f"--keep-changes {asked} would remove changes at once, so {kept.retention} stays in force. If they may go: "
        f"--yes-trim {asked}"
    )


def with_size(retention: Retention, size: int | None) -> Retention:
    """The setting, with this size if it names none."""
    return retention if retention.bytes is not None else retention._replace(bytes=size)


ID_BYTES: Final = 8
DISK_PART: Final = 10
MEMORY_BYTES: Final = 256 * 1024 * 1024
_HEAD: Final = struct.Struct("<iqii")
"""Of a stored row: the lengths of row, value and the value before (-1 for none), and the version."""
RECORD_BYTES: Final = 64
"""What a record takes beside its texts, about."""


def size_of(record: ChangeRecord) -> int:
    """About the bytes that a record takes."""
    texts = len(record.note.subject) + len(record.note.about) + len(record.partition)
    rows = (
        _HEAD.size + len(row.row) + len(row.value or b"") + len(row.before or b"")
        for row in record.rows
    )
    return RECORD_BYTES + texts + sum(rows)


def write_rows(rows: Iterable[tuple[bytes, int, bytes | None, bytes | None]]) -> bytes:
    """Rows, each with the members of a `ChangedRow`, as the bytes of a stored record."""
    parts: list[bytes] = []
    for row, version, value, before in rows:
        value_length = -1 if value is None else len(value)
        before_length = -1 if before is None else len(before)
        parts += (
            _HEAD.pack(len(row), version, value_length, before_length),
            row,
            value or b"",
            before or b"",
        )
    return b"".join(parts)


def read_rows(stored: bytes) -> list[ChangedRow]:
    """The rows of a stored record."""
    rows: list[ChangedRow] = []
    at, end = 0, len(stored)
    while at < end:
        row_length, version, value_length, before_length = _HEAD.unpack_from(stored, at)
        row_end = at + _HEAD.size + row_length
        value_end = row_end + max(value_length, 0)
        row, value, before = stored[at + _HEAD.size : row_end], None, None
        if value_length >= 0:
            value = stored[row_end:value_end]
        at = value_end
        if before_length >= 0:
            at = value_end + before_length
            before = stored[value_end:at]
        rows.append(ChangedRow(row, version, value, before))
    return rows
