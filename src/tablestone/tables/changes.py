"""Feeds of changes: what became of the entities of a table, or of all tables of an account, in order, from a cursor on.

A page is read from the engine's record of commits in one moment, and its position is judged by what was kept then.
Tables are looked up afterwards: a record that comes after the deletion of its table is never shown, and the id tells
it from those of a later table of the name.
"""

import math
from collections.abc import Sequence
from typing import Final

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, Clock
from tablestone.engines.change_record import FIRST, LAST, After, At, ChangeRecord, ChangesRead, Note
from tablestone.engines.contract import Engine
from tablestone.model.entity_json import version_of
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey, KeyBounds, decode_key
from tablestone.model.operations import (
    ChangeCursor,
    ChangesFound,
    ChangesSince,
    CommitFound,
    EntityChange,
    ReadAccountChanges,
    ReadTableChanges,
    Since,
)
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.catalog import Catalog
from tablestone.tables.change_notes import (
    OF_ENTITIES,
    About,
    CommitKind,
    deletion_subject,
    read_about,
)

EXAMINED_MAX: Final = 2_000
"""Changed rows that one page of an account's feed examines. A page of a table's feed examines what it shows."""
LAG_SECONDS: Final = 60
"""Seconds for which `ChangeFeeds.lag_seconds` remembers a reader."""


class ChangeFeeds:
    """The feeds of all accounts on one engine."""

    def __init__(self, engine: Engine, catalog: Catalog, clock: Clock) -> None:
        self._log = engine.changes
        self._catalog = catalog
        self._clock = clock
        self._lags: dict[int, float] = {}
        """The largest lag noted in each of the last seconds."""

    def lag_seconds(self) -> float:
        """The age of the oldest change that a reader had not seen when it asked, in the last `LAG_SECONDS`."""
        second = self._clock() // TICKS_PER_SECOND
        recent = (lag for at, lag in self._lags.items() if second - LAG_SECONDS < at <= second)
        return max(recent, default=0.0)

    def _note_lag(self, unseen: Sequence[ChangeRecord]) -> None:
        """Note that a reader had not seen these records when it asked."""
        if unseen:
            now = self._clock()
            second = now // TICKS_PER_SECOND
            recent = range(second - LAG_SECONDS + 1, second + 1)
            self._lags = {at: lag for at, lag in self._lags.items() if at in recent}
            lag = max(0, now - unseen[0].time) / TICKS_PER_SECOND
            self._lags[second] = max(lag, self._lags.get(second, 0.0))

    @property
    def are_kept(self) -> bool:
        """Whether changes are kept for feeds now; else there is no feed."""
        return self._log is not None and self._log.kept() is not None

    async def of_table(self, owner: Owner, operation: ReadTableChanges) -> ChangesFound:
        """The next changes of the table that has the name now."""
        table_id = (await self._catalog.require(owner, operation.table)).table_id
        since, not_before = operation.since, operation.not_before
        if since is Since.OLDEST and not_before:
            position: After | At = At(not_before)
        else:
            position = _position(since)
        read = await self._read(position, subject=table_id, rows_max=limits.PAGE_ENTITIES_MAX)
        self._require_kept(since, read, scope=table_id)
        if not_before:
            _require_start(since, read, not_before)
        if (await self._catalog.require(owner, operation.table)).table_id != table_id:
            raise StorageError("TableNotFound")
        self._note_lag(read.records)
        return _found(table_id, read, read.records, operation.bounds, not_before)

    async def of_account(self, owner: Owner, operation: ReadAccountChanges) -> ChangesFound:
        """The next changes of all tables that the account has or had."""
        scope = account_scope(owner.name, owner.incarnation)
        read = await self._read(_position(operation.since), subject=None, rows_max=EXAMINED_MAX)
        self._require_kept(operation.since, read, scope)
        ends: dict[bytes, float] = {}
        shown: list[ChangeRecord] = []
        for record in read.records:
            about = read_about(record.note.about)
            if about.kind is CommitKind.SETTINGS:
                continue
            if (about.account, about.incarnation) != (owner.name, owner.incarnation):
                continue
            if about.kind in OF_ENTITIES and about.table_id not in ends:
                ends[about.table_id] = await self._end(owner, about, record.number)
            if about.kind not in OF_ENTITIES or record.number < ends.get(about.table_id, math.inf):
                shown.append(record)
        await self._catalog.incarnations.require(owner)
        self._note_lag(shown)
        return _found(scope, read, shown)

    async def _end(self, owner: Owner, about: About, number: int) -> float:
        """The number of the table's deletion: infinite while the table exists, 0 if it came before all that is kept."""
        present = await self._catalog.find(owner, about.table)
        if present is not None and present.table_id == about.table_id:
            return math.inf
        read = await self._read(FIRST, subject=deletion_subject(about.table_id), rows_max=1)
        if read.records:
            return read.records[0].number
        if number < read.kept.first:
            # Trimmed since it was read, so it cannot be told any more whether it came before the deletion.
            raise StorageError("ChangesNotKept")
        return 0

    async def _read(
        self, position: After | At, *, subject: bytes | None, rows_max: int
    ) -> ChangesRead:
        read = None
        if self._log is not None:
            read = await self._log.read(
                position, subject=subject, rows_max=rows_max, bytes_max=limits.PAGE_BYTES_MAX
            )
        if read is None:
            raise StorageError("InvalidQueryParameterValue")
        return read

    def _require_kept(self, since: ChangesSince, read: ChangesRead, scope: bytes) -> None:
        """Raise if the feed of this scope has no position `since`, or no longer has it."""
        kept = read.kept
        if isinstance(since, int):
            # Times of records never step back. The clock may, and a reader may go on from the time of a line.
            if since > max(self._clock(), kept.newest_time):
                raise StorageError(
                    "InvalidQueryParameterValue", "The time in since is in the future."
                )
            if since < kept.whole_since and not kept.is_complete:
                raise StorageError("ChangesNotKept")
        elif isinstance(since, ChangeCursor):
            if since.storage != kept.storage:
                raise _not_here("is of another storage")
            if since.epoch != kept.epoch:
                raise _not_here("is from before this record of changes began")
            if since.scope != scope:
                raise _not_here(
                    "is of another table, of an earlier table of this name, or of another account"
                )
            is_made_up = since.time and read.begun_time not in (None, since.time)
            if since.number > kept.last or is_made_up:
                raise _not_here("names a change that was never made here")
            if since.number < kept.first - 1:
                raise StorageError("ChangesNotKept")


def scopes_of(note: Note) -> tuple[bytes, ...]:
    """The scopes of the feeds in which a record with this note may have lines: of its table, and of its account."""
    if not note.about:
        return ()  # an engine may keep an empty record in place of those that were trimmed
    about = read_about(note.about)
    return note.subject, account_scope(about.account, about.incarnation)


def account_scope(name: str, incarnation: int | None) -> bytes:
    """The scope of an account's feed, which its cursors name. That of a table's feed is the table's id."""
    return f"{name}/{incarnation}".encode()


def _position(since: ChangesSince) -> After | At:
    if isinstance(since, ChangeCursor):
        return After(since.number)
    if isinstance(since, int):
        return At(since)
    return FIRST if since is Since.OLDEST else LAST


def _require_start(since: ChangesSince, read: ChangesRead, not_before: int) -> None:
    """Raise if changes from before the start of a signature were asked for (changes 1)."""
    is_before = isinstance(since, int) and since < not_before
    if is_before or (read.records and read.records[0].time < not_before):
        raise StorageError(
            "ChangesNotKept",
            "The signature shows the changes since its start, and none from before. Begin again: take a cursor with "
            "since=now, copy the entities to where there are none, and go on from the cursor.",
        )


def _found(
    scope: bytes,
    read: ChangesRead,
    records: Sequence[ChangeRecord],
    bounds: KeyBounds | None = None,
    not_before: int = 0,
) -> ChangesFound:
    """The page of the records that are shown; it ends with a whole record."""
    reached, reached_time, has_more = read.reached, read.reached_time, read.has_more
    commits: list[CommitFound] = []
    lines = 0
    for number, time, note, partition, rows in records:
        if lines >= limits.PAGE_ENTITIES_MAX:
            has_more = True
            break
        about = read_about(note.about)
        partition_key = ""
        changed: Sequence[EntityChange] = rows
        if about.kind in OF_ENTITIES:
            partition_key = storage_keys.partition_key_of(partition)
            if bounds is not None:
                changed = _within(bounds, partition_key, rows)
                if not changed:
                    continue
            if not_before:
                changed = [
                    _since_start(each, not_before)
                    for each in changed
                    # After a step back of the clock, the time of the record is later than the change.
                    if each[2] is None or each[1] >= not_before
                ]
                if not changed:
                    continue
        else:
            changed = ()
        commits.append(
            CommitFound(about.kind.value, about.table, number, time, partition_key, changed)
        )
        lines += len(changed) or 1
        if lines >= limits.PAGE_ENTITIES_MAX:
            reached, reached_time = number, time
    cursor = ChangeCursor(read.kept.storage, read.kept.epoch, reached, reached_time, scope)
    return ChangesFound(commits, cursor, has_more)


def _since_start(change: EntityChange, not_before: int) -> EntityChange:
    """The change without what a merge replaced, if that is from before the start of a signature."""
    row, version, stored, replaced = change
    if replaced is not None and version_of(replaced) < not_before:
        return row, version, stored, None
    return change


def _within(
    bounds: KeyBounds, partition_key: str, rows: Sequence[EntityChange]
) -> Sequence[EntityChange]:
    """The rows of a partition that a caller may see."""
    return [row for row in rows if bounds.hold(EntityKey(partition_key, decode_key(row[0])))]


def _not_here(why: str) -> StorageError:
    return StorageError(
        "InvalidChangeCursor",
        f"The cursor in since {why}. Begin again: take a cursor with since=now, copy the entities to where there are "
        "none, and go on from the cursor.",
    )
