"""The record of changes: what every commit changed, in the order of the commits, for as long as it is kept.

An engine that keeps changes writes one record for each write set with a note, in the commit itself: a record exists
exactly if its commit does. A write set that changed no row has no record. Numbers have no holes, and times never step
back. Numbers go on after a trim, and after keeping ends and begins again; each beginning has its own epoch.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.record_age import RecordAge


class Note(NamedTuple):
    """What the caller of a commit says about it."""

    subject: bytes
    """Readers ask for the records of a subject. An engine only compares it."""
    about: bytes
    """For the readers of records; no engine reads it."""


class ChangedRow(NamedTuple):
    """A row that a commit put or deleted."""

    row: bytes
    version: int
    """The version of the value; of a deletion, the version that was deleted."""
    value: bytes | None
    """None: deleted."""
    before: bytes | None = None
    """What the caller keeps of the replaced value (`Put.before`)."""


class ChangeRecord(NamedTuple):
    """One commit."""

    number: int
    time: int
    """Ticks: the clock at the commit, or the previous record's time if that is later."""
    note: Note
    partition: bytes
    rows: Sequence[ChangedRow]


class Retention(NamedTuple):
    """Records are kept until they are older, or take more bytes, whichever comes first."""

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
    """What is kept for the feed. (What is kept for an archive alone does not show.)"""

    storage: bytes
    """The id of the storage, `ID_BYTES` random bytes: the same for all epochs."""
    epoch: bytes
    """`ID_BYTES` random bytes, new whenever keeping begins."""
    first: int
    """The number of the oldest kept record; `last` plus one if there is none."""
    last: int
    """The number of the newest record, kept or not."""
    oldest_time: int
    """The time of the oldest kept record in ticks; if there is none, `newest_time`."""
    newest_time: int
    """The time of the newest record, kept or not, in ticks."""
    whole_since: int
    """All records from this time on are kept. (Of several records with the same time, some may be trimmed.)"""
    bytes: int
    """About the size of all kept records."""
    is_complete: bool
    """Whether the records hold every change since storage was empty: none was trimmed."""
    retention: Retention
    """The setting in force; it has a size."""
    makes_room: bool = False
    """Whether the oldest go early, because the disk is nearly full."""


class After(NamedTuple):
    """Begin after the record with this number; `FIRST` and `LAST` are the ends."""

    number: int


class At(NamedTuple):
    """Begin with the first record that is not older (ticks)."""

    time: int


FIRST: Final = After(0)
LAST: Final = After(2**62)


class ChangesRead(NamedTuple):
    """What was kept in one snapshot, and some of its records in order."""

    kept: KeptChanges
    begun_time: int | None
    """The time of the record that the read began after; None if it is not kept, or the read began at a time."""
    records: Sequence[ChangeRecord]
    reached: int
    """All records up to this number were examined."""
    reached_time: int
    """The time of that record, in ticks; 0 if it is not kept."""
    has_more: bool
    """Whether records of the subject follow."""


class ChangeLog(Protocol):
    """The record of changes of an engine (`Engine.changes`). Every method may raise `EngineUnavailable`."""

    age: RecordAge
    """Says which records are too old. A server calls its `begin` at the start."""

    async def keep(self, retention: Retention | None, accepted: Retention | None = None) -> None:
        """Keep changes for the feed, in every process; None stops it and removes the records.

        A server calls this when it starts. The setting is stored, so later starts and other programs follow it. A
        shorter age or size that would trim records at once is stored only if it is `accepted`; no size means the
        stored one.
        """
        ...

    def kept(self) -> KeptChanges | None:
        """What is kept; None if no changes are kept. Quick."""
        ...

    async def read(
        self, position: After | At, *, subject: bytes | None, rows_max: int, bytes_max: int
    ) -> ChangesRead | None:
        """Records of one subject, or of all, from a position on; None if no changes are kept.

        The answer is one snapshot, so the caller can tell whether the position was still kept. If not, the read begins
        at the nearest kept one. It stops after the record that brings the rows to `rows_max` or `bytes_max`.
        """
        ...

    async def news(self, after: int, seconds: float) -> Sequence[tuple[int, Note]]:
        """Numbers and notes of the records after a number, at most `NEWS_MAX`; empty records have empty notes.

        If there is none, wait for one: a commit of this process ends the wait at once, another one need not.
        """
        ...


NEWS_MAX: Final = 1_000


def not_taken(kept: KeptChanges | None, asked: Retention | None) -> str | None:
    """One sentence about why a server's setting is not in force; None if it is."""
    if kept is None or asked is None or with_size(asked, kept.retention.bytes) == kept.retention:
        return None
    return (
        f"--keep-changes {asked} would remove changes at once, so {kept.retention} stays in force. If they may go, "
        f"add --yes-trim {asked}"
    )


def with_size(retention: Retention, size: int | None) -> Retention:
    """The setting, with this size if it names none."""
    return retention if retention.bytes is not None else retention._replace(bytes=size)


ID_BYTES: Final = 8
DISK_PART: Final = 10
MEMORY_BYTES: Final = 256 * 1024 * 1024
_HEAD: Final = struct.Struct("<iqii")
"""The head of a stored row: the lengths of row, value and replaced value (-1 for none), and the version."""
RECORD_BYTES: Final = 64
"""About what a record takes beside its texts."""


def size_of(record: ChangeRecord) -> int:
    """About the bytes that a record takes."""
    texts = len(record.note.subject) + len(record.note.about) + len(record.partition)
    rows = (
        _HEAD.size + len(row.row) + len(row.value or b"") + len(row.before or b"")
        for row in record.rows
    )
    return RECORD_BYTES + texts + sum(rows)


def write_rows(rows: Iterable[tuple[bytes, int, bytes | None, bytes | None]]) -> bytes:
    """Encode rows, each with the members of a `ChangedRow`, for a stored record."""
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
