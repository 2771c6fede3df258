"""Feeds of changes: what became of the entities of a table, or of all tables of an account, in order, from a cursor on.

A feed is read from the engine's record of commits. Each page looks up its tables after it has read: a record that comes
after the deletion of its table is never shown, and the id tells it from those of a later table of the name.
"""

import math
from collections.abc import Sequence
from typing import Final

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, Clock
from tablestone.engines.change_record import ChangeLog, ChangeRecord, ChangesRead, KeptChanges
from tablestone.engines.contract import Engine, EngineUnavailable
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
"""Changed rows that one page of an account's feed examines; of a table's feed it examines those that it shows."""
LAG_SECONDS: Final = 60
"""How long `ChangeFeeds.lag_seconds` remembers a reader."""


class ChangeFeeds:
    """The feeds of all accounts on one engine."""

    def __init__(self, engine: Engine, catalog: Catalog, clock: Clock) -> None:
        self._log = engine.changes
        self._catalog = catalog
        self._clock = clock
        self._lags: dict[int, float] = {}
        """The largest lag that was noted in a second, of the last seconds."""

    def lag_seconds(self) -> float:
        """How far readers are behind: the age of the oldest change that one had not seen when it asked, lately."""
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
        """Whether changes are kept now: else there is no feed."""
        return self._log is not None and self._log.kept() is not None

    async def of_table(self, owner: Owner, operation: ReadTableChanges) -> ChangesFound:
        """The next changes of the table that has the name now."""
        table_id = (await self._catalog.require(owner, operation.table)).table_id
        feed = self._feed(table_id, table_id)
        read = feed.read(feed.start(operation.since, self._clock()))
        if (await self._catalog.require(owner, operation.table)).table_id != table_id:
            raise StorageError("TableNotFound")
        self._note_lag(read.records)
        return feed.found(read.records, read.reached, operation.bounds)

    async def of_account(self, owner: Owner, operation: ReadAccountChanges) -> ChangesFound:
        """The next changes of all tables that the account has or had."""
        feed = self._feed(f"{owner.name}/{owner.incarnation}".encode(), None)
        read = feed.read(feed.start(operation.since, self._clock()))
        ends: dict[bytes, float] = {}
        shown: list[ChangeRecord] = []
        for record in read.records:
            about = read_about(record.note.about)
            if about.kind is CommitKind.SETTINGS:
                continue
            if (about.account, about.incarnation) != (owner.name, owner.incarnation):
                continue
            if about.kind in OF_ENTITIES and about.table_id not in ends:
                ends[about.table_id] = await self._end(owner, about)
            if about.kind not in OF_ENTITIES or record.number < ends.get(about.table_id, math.inf):
                shown.append(record)
        await self._catalog.incarnations.require(owner)
        self._note_lag(shown)
        return feed.found(shown, read.reached, None)

    async def _end(self, owner: Owner, about: About) -> float:
        """The number of the record that deleted a table. Infinite while it exists; 0 if the record is not kept."""
        assert self._log is not None
        present = await self._catalog.find(owner, about.table)
        if present is not None and present.table_id == about.table_id:
            return math.inf
        subject = deletion_subject(about.table_id)
        deletions = self._log.read(0, subject=subject, rows_max=1, bytes_max=1).records
        return deletions[0].number if deletions else 0

    def _feed(self, scope: bytes, subject: bytes | None) -> "_Feed":
        log = self._log
        kept = None if log is None else log.kept()
        if log is None or kept is None:
            raise StorageError("InvalidQueryParameterValue", early=True)
        return _Feed(log, kept, scope, subject)


class _Feed:
    """The feed of one scope at one moment: of the records of a subject, or of all."""

    def __init__(
        self, log: ChangeLog, kept: KeptChanges, scope: bytes, subject: bytes | None
    ) -> None:
        self._log = log
        self._kept = kept
        self._scope = scope
        self._subject = subject

    def start(self, since: ChangesSince, now: int) -> int:
        """The number behind which to begin; raises if that place is not in the feed, or not any more."""
        kept = self._kept
        if since is Since.OLDEST:
            return kept.first - 1
        if since is Since.NOW:
            return kept.last
        if isinstance(since, int):
            if since > now:
                raise StorageError(
                    "InvalidQueryParameterValue", "The time in since is in the future."
                )
            if since < kept.oldest_time and not kept.is_complete:
                raise StorageError("ChangesNotKept")
            return self._log.since(since) - 1
        assert isinstance(since, ChangeCursor)
        if since.storage != kept.storage:
            raise _not_here("is of another storage")
        if since.epoch != kept.epoch:
            raise _not_here("is from before this record of changes began")
        if since.scope != self._scope:
            raise _not_here(
                "is of another table, of an earlier table of this name, or of another account"
            )
        time = self._log.time_of(since.number)
        if since.number > kept.last or (since.time and time is not None and since.time != time):
            raise _not_here("names a change that was never made here")
        if since.number < kept.first - 1:
            raise StorageError("ChangesNotKept")
        return since.number

    def read(self, after: int) -> ChangesRead:
        return self._log.read(
            after,
            subject=self._subject,
            rows_max=EXAMINED_MAX if self._subject is None else limits.PAGE_ENTITIES_MAX,
            bytes_max=limits.PAGE_BYTES_MAX,
        )

    def found(
        self, records: Sequence[ChangeRecord], reached: int, bounds: KeyBounds | None
    ) -> ChangesFound:
        """The page of these records, which end where all were examined; it ends behind a whole record."""
        commits: list[CommitFound] = []
        lines = 0
        for number, time, note, partition, rows in records:
            about = read_about(note.about)
            partition_key = ""
            changed: Sequence[EntityChange] = rows
            if about.kind in OF_ENTITIES:
                partition_key = storage_keys.partition_key_of(partition)
                if bounds is not None:
                    changed = _within(bounds, partition_key, rows)
                    if not changed:
                        continue
            else:
                changed = ()
            commits.append(
                CommitFound(about.kind.value, about.table, number, time, partition_key, changed)
            )
            lines += len(changed) or 1
            if lines >= limits.PAGE_ENTITIES_MAX:
                reached = number
                break
        time_of = self._log.time_of(reached) or 0
        kept = self._kept
        cursor = ChangeCursor(kept.storage, kept.epoch, reached, time_of, self._scope)
        return ChangesFound(commits, cursor, lambda: self._has_more(reached))

    def _has_more(self, after: int) -> bool:
        try:
            read = self._log.read(after, subject=self._subject, rows_max=1, bytes_max=1)
        except EngineUnavailable:
            return True  # whoever reads on gets the error
        return bool(read.records)


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
