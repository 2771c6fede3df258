"""The record of changes in the database: two tables, made when changes are first kept.

Commits write records in the transaction of their rows (`commit`). `change_records` always has a record, so the next
number, time and sum of bytes follow from the newest one; an empty record replaces a newest one that is too old. The
size of any run of records is the difference of two sums.

Records are kept for the feed, for the archive (`archive_source`) or for both. The epoch and the beginning in
`change_log` are the feed's while there is a feed; the archive has its own in `archive_state`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
from bisect import bisect_left
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

import apsw

from tablestone.engines.change_record import (
    DISK_PART,
    ID_BYTES,
    NEWS_MAX,
    RECORD_BYTES,
    After,
    At,
    ChangeRecord,
    ChangesRead,
    KeptChanges,
    Note,
    Retention,
    read_rows,
    with_size,
)
from tablestone.engines.record_age import RecordAge
from tablestone.engines.sqlite.data_directory import KEEPING_FORMAT_VERSION
from tablestone.engines.sqlite.free_space import copy_long_log
from tablestone.engines.sqlite.read import unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tablestone.clock import Clock
    from tablestone.engines.sqlite.commit_lock import Generation
    from tablestone.engines.sqlite.data_directory import DataDirectory
    from tablestone.engines.sqlite.free_space import DiskRoom

SCHEMA: Final = """
CREATE TABLE change_records (
    number INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    bytes_up_to INTEGER NOT NULL,
    subject BLOB NOT NULL,
    about BLOB NOT NULL,
    partition BLOB NOT NULL,
    rows BLOB NOT NULL
) STRICT;
CREATE INDEX change_records_by_subject ON change_records (subject);
CREATE TABLE change_log (
    storage BLOB NOT NULL,
    epoch BLOB,
    began INTEGER NOT NULL,
    began_empty INTEGER NOT NULL,
    ticks_max INTEGER,
    bytes_max INTEGER NOT NULL,
    kept_for TEXT NOT NULL DEFAULT 'feed'
) STRICT;
INSERT INTO change_records VALUES (0, 0, 0, x'', x'', x'', x'')
"""
KEPT_FOR_FEED: Final = "feed"
KEPT_FOR_ARCHIVE: Final = "archive"
KEPT_FOR_BOTH: Final = "both"
FOR_ARCHIVE: Final = frozenset({KEPT_FOR_ARCHIVE, KEPT_FOR_BOTH})
_EVER: Final = 1 << 63
_HAS_KEPT_FOR: Final = "SELECT 1 FROM pragma_table_info('change_log') WHERE name = 'kept_for'"
_ADD_KEPT_FOR: Final = "ALTER TABLE change_log ADD COLUMN kept_for TEXT NOT NULL DEFAULT 'feed'"

log = logging.getLogger(__name__)

TRIM_RECORDS_MAX: Final = 512
TRIM_BYTES_MAX: Final = 2 * 1024 * 1024
"""Records and bytes that one commit trims, in some milliseconds."""

_FOR: Final = "(SELECT (SELECT kept_for FROM change_log) FROM (SELECT 'feed' AS kept_for))"
"""'feed' where the column is missing."""
_KEPT_FOR: Final = f"SELECT {_FOR} FROM change_log WHERE epoch IS NOT NULL"  # noqa: S608 - no value in it
_STATE: Final = f"""
SELECT storage, epoch, began, began_empty, oldest.number, oldest.time, oldest.is_empty, oldest.bytes_up_to,
    newest.number, newest.time, newest.bytes_up_to, (SELECT time FROM change_records WHERE number = ?),
    ticks_max, bytes_max
FROM change_log,
    (SELECT number, time, length(rows) = 0 AS is_empty, bytes_up_to FROM change_records
        WHERE number >= (SELECT began FROM change_log) ORDER BY number LIMIT 1) oldest,
    (SELECT number, time, bytes_up_to FROM change_records ORDER BY number DESC LIMIT 1) newest
WHERE epoch IS NOT NULL AND {_FOR} != '{KEPT_FOR_ARCHIVE}'
"""  # noqa: S608 - no value in it
_RETENTION: Final = f"SELECT epoch, began, ticks_max, bytes_max, {_FOR} FROM change_log"  # noqa: S608 - no value in it
_FLOOR: Final = "SELECT max(began, archived) FROM archive_state"
_OLDEST: Final = """
SELECT number, time, bytes_up_to FROM change_records
WHERE number >= (SELECT began FROM change_log) AND length(rows) > 0 ORDER BY number LIMIT 1
"""
_NEWEST: Final = "SELECT number, time, bytes_up_to FROM change_records ORDER BY number DESC LIMIT 1"
_ENDS: Final = "SELECT min(number), max(number) FROM change_records"
_KEPT: Final = "SELECT time, bytes_up_to, length(rows) = 0 FROM change_records WHERE number = ?"
_TIME: Final = "SELECT time FROM change_records WHERE number = ?"
_READ: Final = """
SELECT number, time, subject, about, partition, rows FROM change_records WHERE number > ? ORDER BY number LIMIT ?
"""
_READ_SUBJECT: Final = """
SELECT number, time, subject, about, partition, rows FROM change_records
WHERE subject = ? AND number > ? ORDER BY number LIMIT ?
"""
_WRONG: Final = """
SELECT number FROM (
    SELECT number, time, bytes_up_to, lag(number) OVER sorted AS number_before, lag(time) OVER sorted AS time_before,
        lag(bytes_up_to) OVER sorted AS bytes_before
    FROM change_records WINDOW sorted AS (ORDER BY number)
) WHERE number != number_before + 1 OR time < time_before OR bytes_up_to <= bytes_before LIMIT 100
"""
_NOTES: Final = (
    "SELECT number, subject, about FROM change_records WHERE number > ? ORDER BY number LIMIT ?"
)
_LAST: Final = "SELECT max(number) FROM change_records"


def make_tables(writer: apsw.Connection) -> None:
    """Make the tables of the record in the open transaction, unless they exist. No changes are kept yet."""
    if writer.pragma("user_version") < KEEPING_FORMAT_VERSION:
        writer.execute(SCHEMA)
        storage = secrets.token_bytes(ID_BYTES)
        writer.execute(
            "INSERT INTO change_log VALUES (?, NULL, 0, 0, NULL, 0, ?)", (storage, KEPT_FOR_FEED)
        )
        writer.pragma("user_version", KEEPING_FORMAT_VERSION)
    elif writer.execute(_HAS_KEPT_FOR).get is None:  # tables of an earlier build
        writer.execute(_ADD_KEPT_FOR)


def kept_for(connection: apsw.Connection) -> str | None:
    """For whom records are kept; None if they are not."""
    if connection.pragma("user_version") < KEEPING_FORMAT_VERSION:
        return None
    found: str | None = connection.execute(_KEPT_FOR).get
    return found


@contextmanager
def switching(writer: apsw.Connection, generation: Generation) -> Iterator[None]:
    """A transaction that changes whether records are kept, and for whom. The caller holds the commit lock."""
    writer.execute("BEGIN IMMEDIATE")  # after an error, closing the connection undoes everything
    make_tables(writer)
    yield
    generation.begin()  # every process looks again before its next commit
    try:
        writer.execute("COMMIT")
    finally:
        generation.end()


def begin_epoch(writer: apsw.Connection, now: int, bytes_max: int) -> None:
    """Begin to keep records, for whom `kept_for` then says, of any age."""
    is_empty = writer.execute("SELECT 1 FROM stored_rows LIMIT 1").get is None
    _append_empty(writer, now)
    writer.execute(
        "UPDATE change_log SET epoch = ?, began_empty = ?, began ="
        " (SELECT max(number) FROM change_records), ticks_max = NULL, bytes_max = ?",
        (secrets.token_bytes(ID_BYTES), is_empty, bytes_max),
    )


def default_bytes(directory: Path) -> int:
    disk_bytes = shutil.disk_usage(directory).total
    return (disk_bytes // DISK_PART >> 20 or 1) << 20


@cache
def record_statement(records: int) -> str:
    """Appends so many records; `record_values` are its values."""
    given = ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * records)
    return (
        "INSERT INTO change_records WITH newest AS MATERIALIZED"  # noqa: S608 - no value in it
        " (SELECT number, time, bytes_up_to FROM change_records ORDER BY number DESC LIMIT 1)"
        " SELECT newest.number + column1, max(newest.time, column2), newest.bytes_up_to + column3,"
        f" column4, column5, column6, column7 FROM newest, (VALUES {given})"
    )


def record_values(records: Iterable[tuple[Note, bytes, bytes]], time: int) -> list[bytes | int]:
    """Values for records (note, partition, written rows) of commits at this time."""
    values: list[bytes | int] = []
    size = 0
    for number, ((subject, about), partition, rows) in enumerate(records, 1):
        size += RECORD_BYTES + len(subject) + len(about) + len(partition) + len(rows)
        values += (number, time, size, subject, about, partition, rows)
    return values


def wrong_records(connection: apsw.Connection) -> list[str]:
    """A sentence for each record that does not follow from the one before."""
    if connection.pragma("user_version") < KEEPING_FORMAT_VERSION:
        return []
    return [
        f"the record of changes is broken before number {number}"
        for (number,) in connection.execute(_WRONG)
    ]


def leave_records_out(copy: apsw.Connection, *, ends_epoch: bool) -> None:
    """Remove the records and their room from a copy of a database. Numbers go on from the newest one."""
    if copy.pragma("user_version") < KEEPING_FORMAT_VERSION:
        return
    copy.execute("BEGIN IMMEDIATE")
    newest = copy.execute(_NEWEST).get
    copy.execute("DELETE FROM change_records")  # without a condition SQLite frees whole pages
    copy.execute("INSERT INTO change_records VALUES (?, ?, ?, x'', x'', x'', x'')", newest)
    if ends_epoch:
        copy.execute("UPDATE change_log SET epoch = NULL")
    copy.execute("COMMIT")
    copy.execute("PRAGMA incremental_vacuum").fetchall()


@dataclass(eq=False)
class SqliteChangeLog:
    """The `ChangeLog` of a data directory, for one process. `generation` is None if it only reads."""

    _directory: DataDirectory
    _reader: apsw.Connection
    _clock: Clock
    _generation: Generation | None
    _room: DiskRoom
    _is_there: bool = False
    _has_grown: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.age = RecordAge(self._clock)

    async def keep(self, retention: Retention | None, accepted: Retention | None = None) -> None:
        await asyncio.to_thread(self._keep, retention, retention == accepted)

    def _keep(self, retention: Retention | None, is_accepted: bool) -> None:  # noqa: FBT001
        assert self._generation is not None
        ended = 0
        with raising_unavailable("write"), self._directory.committing() as writer:
            was_for = kept_for(writer)
            is_feed = was_for in {KEPT_FOR_FEED, KEPT_FOR_BOTH}
            is_archived = was_for in FOR_ARCHIVE
            if retention is None and not is_feed:
                return
            if retention is None:
                oldest = writer.execute(_OLDEST).get
                ended = writer.execute(_LAST).get + 1 - oldest[0] if oldest else 0
            elif is_feed:
                *_, ticks_max, bytes_max = writer.execute(_STATE, (None,)).get
                stored, retention = Retention(ticks_max, bytes_max), with_size(retention, bytes_max)
                if retention == stored:
                    return  # so a server starts on a full disk too
                if not is_accepted and _would_trim(writer, retention, stored, self.age.now()):
                    return
            default = default_bytes(self._directory.path)
            ticks_max, bytes_max = with_size(retention or Retention(None, None), default)
            whom = KEPT_FOR_FEED
            if is_archived:
                whom = KEPT_FOR_ARCHIVE if retention is None else KEPT_FOR_BOTH
            with switching(writer, self._generation):
                if retention is None and not is_archived:
                    writer.execute("UPDATE change_log SET epoch = NULL")
                elif not is_feed:
                    begin_epoch(writer, self._clock(), default)
                writer.execute(
                    "UPDATE change_log SET ticks_max = ?, bytes_max = ?, kept_for = ?",
                    (ticks_max, bytes_max, whom),
                )
        if retention is None and is_archived:
            log.warning(
                "The feed of changes ends, no cursor is valid any more. Records are kept until they are archived."
            )
        elif retention is None:
            log.warning(
                "The record of changes ends, no cursor is valid any more. Records removed: %d",
                ended,
            )

    def kept(self) -> KeptChanges | None:
        with raising_unavailable("read"):
            state = self._state(None)
        return None if state is None else state[0]

    def _state(self, number: int | None) -> tuple[KeptChanges, int | None] | None:
        """What is kept, and the time of the record with this number; None if no changes are kept."""
        state = self._reader.execute(_STATE, (number,)).get if self.is_there else None
        if state is None:
            return None
        storage, epoch, began, began_empty, oldest, oldest_time, is_empty, up_to, *more = state
        last, newest_time, bytes_of_all, time, ticks_max, bytes_max = more
        kept = KeptChanges(
            storage=storage,
            epoch=epoch,
            first=oldest + is_empty,
            last=last,
            oldest_time=oldest_time,
            newest_time=newest_time,
            whole_since=oldest_time + (oldest != began),
            bytes=bytes_of_all - up_to,
            is_complete=bool(began_empty) and oldest == began,
            retention=Retention(ticks_max, bytes_max),
            makes_room=self._room.is_low,
        )
        return kept, time

    async def read(
        self, position: After | At, *, subject: bytes | None, rows_max: int, bytes_max: int
    ) -> ChangesRead | None:
        number = position.number if isinstance(position, After) else None
        with raising_unavailable("read"), self._one_moment():
            state = self._state(number)
            if state is None:
                return None
            kept, begun_time = state
            if isinstance(position, At):
                number = self._before(position.time)
            after = min(max(number or 0, kept.first - 1), kept.last)
            given = (after, rows_max + 1) if subject is None else (subject, after, rows_max + 1)
            records: list[ChangeRecord] = []
            taken = taken_bytes = 0
            for number, time, of, about, partition, stored in self._reader.execute(
                _READ if subject is None else _READ_SUBJECT, given
            ):
                if taken >= rows_max or taken_bytes >= bytes_max:
                    last = records[-1]
                    return ChangesRead(kept, begun_time, records, last.number, last.time, True)
                rows = read_rows(stored)
                records.append(ChangeRecord(number, time, Note(of, about), partition, rows))
                taken += len(rows) or 1
                taken_bytes += len(stored)
            return ChangesRead(kept, begun_time, records, kept.last, kept.newest_time, False)

    async def news(self, after: int, seconds: float) -> Sequence[tuple[int, Note]]:
        self._has_grown.clear()
        found = self._notes(after)
        if not found:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._has_grown.wait()
            found = self._notes(after)
        return found

    def _notes(self, after: int) -> list[tuple[int, Note]]:
        with raising_unavailable("read"):
            notes = self._reader.execute(_NOTES, (after, NEWS_MAX))
            return [(number, Note(subject, about)) for number, subject, about in notes]

    def note_growth(self) -> None:
        """End the wait of `news`: a commit of this process may have written records."""
        self._has_grown.set()

    @contextmanager
    def _one_moment(self) -> Iterator[None]:
        """Later commits do not show in the block."""
        self._reader.execute("BEGIN")
        try:
            yield
        finally:
            self._reader.execute("ROLLBACK")

    @property
    def is_there(self) -> bool:
        """Whether the tables exist: changes are kept, or were."""
        if not self._is_there:  # once made, they stay
            self._is_there = self._reader.pragma("user_version") >= KEEPING_FORMAT_VERSION
        return self._is_there

    def _before(self, time: int) -> int:
        """One less than the number of the first record that is not older."""
        first, last = self._reader.execute(_ENDS).get
        # Numbers have no holes and times never step back, so bisection works.
        later = bisect_left(
            range(last + 1), time, lo=first, key=lambda n: self._reader.execute(_TIME, (n,)).get
        )
        return later - 1

    def has_surplus(self, *, makes_room: bool = False) -> bool:
        """Whether `trim` has something to remove. Quick."""
        if not self.is_there:
            return False
        with self._one_moment():
            return _surplus(self._reader, self.age, makes_room=makes_room) is not None

    def trim(self, *, makes_room: bool = False) -> None:
        """Remove old records, as many as one short commit can. `makes_room`: the oldest go before their time."""
        with self._directory.committing() as writer:
            writer.execute("BEGIN IMMEDIATE")
            last = _surplus(writer, self.age, makes_room=makes_room)
            if last is None:
                return  # closing the connection ends the transaction
            if last == writer.execute(_LAST).get:
                _append_empty(writer, self._clock())
            writer.execute("DELETE FROM change_records WHERE number <= ?", (last,))
            writer.execute("COMMIT")
            copy_long_log(writer, at_once=makes_room)  # other commits may not follow


def _surplus(connection: apsw.Connection, age: RecordAge, *, makes_room: bool) -> int | None:
    """The last record that the next trim removes; None if there is nothing to remove."""
    epoch, began, ticks_max, bytes_max, whom = connection.execute(_RETENTION).get
    first, last = connection.execute(_ENDS).get
    all_bytes = connection.execute(_KEPT, (last,)).get[1]
    first_bytes = connection.execute(_KEPT, (first,)).get[1]
    oldest_time = age.oldest_time(ticks_max)
    floor: int = last + 1
    if whom != KEPT_FOR_FEED:
        floor = connection.execute(_FLOOR).get
    if whom == KEPT_FOR_ARCHIVE:
        began = last + 1

    def stays(number: int) -> bool:
        time, bytes_up_to, is_empty = connection.execute(_KEPT, (number,)).get
        if (number == last and is_empty) or bytes_up_to - first_bytes > TRIM_BYTES_MAX:
            return True
        if epoch is None or makes_room or all_bytes - bytes_up_to >= bytes_max:
            return False
        # The newest archived record stays too: the next start compares it with the archive's.
        return number >= floor or bool(number >= began and time >= oldest_time)

    end = bisect_left(range(min(last + 1, first + TRIM_RECORDS_MAX)), True, lo=first, key=stays)
    return None if end == first else end - 1


def _would_trim(
    connection: apsw.Connection, retention: Retention, stored: Retention, now: int
) -> bool:
    """Whether a shorter age or size than the stored one would remove records at once."""
    oldest = connection.execute(_OLDEST).get
    if oldest is None:
        return False
    _number, time, bytes_up_to = oldest
    (ticks, size), (stored_ticks, stored_size) = (
        (_EVER if each is None else each for each in both) for both in (retention, stored)
    )
    later_bytes = connection.execute(_NEWEST).get[2] - bytes_up_to
    return (ticks < stored_ticks and time < now - ticks) or (
        size < stored_size and later_bytes >= size
    )


def _append_empty(writer: apsw.Connection, time: int) -> None:
    nothing: Sequence[tuple[Note, bytes, bytes]] = [(Note(b"", b""), b"", b"")]
    writer.execute(record_statement(1), record_values(nothing, time))


@contextmanager
def raising_unavailable(what: str) -> Iterator[None]:
    """Turn errors of SQLite and of the files beside it into the contract's."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise unavailable(what, error) from error
