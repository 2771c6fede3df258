"""Sweeping: one process of a server removes the rows of deleted tables in small steps, between requests.

The deletion of a table only notes its id (`catalog`). The sweeper removes the rows, looks once more after
`SWEEP_AGAIN_SECONDS` for writes that were under way at the deletion, and forgets the table once its name is free.
Servers that share storage over a network claim a table before they sweep it. A claim ends by itself, so others sweep
the tables of a server that dies. If clocks differ, two servers may sweep one table, which does no harm.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import groupby
from typing import Final

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, Clock
from tablestone.engines.contract import (
    ANY,
    DELETE,
    Change,
    Committed,
    Engine,
    EngineBusy,
    EngineUnavailable,
    Key,
    Put,
    StoredRow,
    WriteSet,
)
from tablestone.tables import storage_keys
from tablestone.tables.cache_invalidation import remove_old_marks
from tablestone.tables.catalog import TableRecord, read_record, record_renderer
from tablestone.tables.index_building import remove_entries
from tablestone.tables.metadata import DocumentKind

log = logging.getLogger(__name__)

SWEEP_PAUSE_SECONDS: Final = 1.0
"""Seconds between two looks while no deleted table has rows left."""
NETWORK_PAUSE_SECONDS: Final = 0.05
"""Seconds between two steps if storage is over a network: the nodes also have requests to serve."""
LOG_SECONDS: Final = 60
"""Seconds between two messages that sweeping fails, at least: it tries again each second."""
CLAIM_SECONDS: Final = 20
"""A server that sweeps a table renews its claim when half of this time has passed."""
PARTITIONS_AT_ONCE: Final = 8
"""Partitions of a deleted table that are removed at a time, where a commit waits for a network."""
POSTPONED_SECONDS: Final = 600
"""The time until the sweeper looks again at a table whose rows the nodes refused to read."""
SWEPT_MAX: Final = 65_536
"""Swept tables that a server remembers. It forgets the oldest: another server may have removed a note unnoticed."""


class Sweeper:
    """Sweeps one engine. It keeps notes while they reserve names (`deletion_seconds`). `fresh_id` names the server."""

    def __init__(
        self, engine: Engine, clock: Clock, fresh_id: Callable[[], bytes], deletion_seconds: int = 0
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._fresh_id = fresh_id
        self._name = ""
        """The name of this server in its claims."""
        self._forget_ticks = max(limits.SWEEP_AGAIN_SECONDS, deletion_seconds) * TICKS_PER_SECOND
        self._is_shared = engine.capabilities.shares_over_network
        self._at_once = PARTITIONS_AT_ONCE if engine.capabilities.waits else 1
        self._busy_pause = NETWORK_PAUSE_SECONDS if engine.capabilities.waits else 0
        self._parts: dict[str, int] = {}
        """The part of the notes that is read next, by accounts whose notes could not be read as a whole."""
        self._reached: dict[bytes, Key] = {}
        """The last row that was removed, by tables that are not swept to their end."""
        self._swept: dict[bytes, None] = {}  # in the order in which they were swept
        self._postponed: dict[bytes, int] = {}
        self._marks_were_removed_at = clock()
        self._logged_at = 0
        self.is_busy = False
        """Whether the last look found rows of deleted tables."""
        self.swept_rows = 0
        """The rows of deleted tables that this process has removed."""

    async def run(self) -> None:
        while True:
            is_busy = False
            try:
                is_busy = self.is_busy = await self.step()
            except Exception as error:
                now = self._clock()
                if not 0 <= now - self._logged_at < LOG_SECONDS * TICKS_PER_SECOND:
                    self._logged_at = now
                    if isinstance(error, EngineUnavailable):
                        log.warning("sweeping deleted tables waits: %s", error)
                    else:
                        log.exception("sweeping deleted tables failed")
            await asyncio.sleep(self._busy_pause if is_busy else SWEEP_PAUSE_SECONDS)

    async def step(self) -> bool:
        """Remove some rows of deleted tables in every account; False if there is nothing to do now."""
        is_busy = False
        async for account in self.accounts():
            is_busy = await self.sweep(account) or is_busy
            await asyncio.sleep(0)  # there may be many accounts, so let requests run
        if self._engine.leases is not None:  # changes have left marks
            before = self._clock() - limits.SWEEP_AGAIN_SECONDS * TICKS_PER_SECOND
            if self._marks_were_removed_at < before:
                self._marks_were_removed_at = self._clock()
                for kind in DocumentKind:
                    partition = storage_keys.documents_partition(kind.value)
                    await remove_old_marks(self._engine, partition, before)
                async for row in self._first_rows():
                    await remove_old_marks(self._engine, row.partition, before)
                    await asyncio.sleep(0)
        return is_busy

    async def _first_rows(self) -> AsyncIterator[StoredRow]:
        partition = b""
        while rows := await self._engine.scan(storage_keys.catalogs_after(partition), rows_max=1):
            partition = rows[0].partition
            yield rows[0]

    async def accounts(self) -> AsyncIterator[str]:
        """The accounts, known or not, that may have deleted tables left to sweep."""
        async for row in self._first_rows():
            # Do not read on after a sentinel: that could mean to read past all rows that were deleted.
            if row.row == storage_keys.SENTINEL_ROW or storage_keys.is_deleted_row(row.row):
                yield storage_keys.account_of(row.partition)

    async def sweep(self, account: str) -> bool:
        """Remove some rows of the account's deleted tables; False if there is nothing to do now.

        If the engine refuses to read past too many removed notes, read one part of them at each call; then all again.
        """
        part = self._parts.get(account)
        following = 0 if part is None else part + 1
        try:
            notes = await self._engine.scan(
                storage_keys.deleted_rows(account, part), rows_max=limits.PAGE_ENTITIES_MAX
            )
        except EngineBusy as error:
            log.warning("the deleted tables of %s are now looked at in parts: %s", account, error)
            self._parts[account] = following
        else:
            if await self._sweep_noted(notes):
                return True
            if part is not None:
                self._parts[account] = following
        if following == storage_keys.DELETED_PARTS:
            del self._parts[account]
        return False

    async def _sweep_noted(self, notes: list[StoredRow]) -> bool:
        """As `sweep`, for these notes. Leaves a table to the server that has claimed it."""
        for note in notes:
            table = read_record(note.value)
            is_old = self._clock() - table.ticks > self._forget_ticks
            version: int | None = note.version
            if self._is_shared:
                version = await self._claim(note, table, is_old=is_old)
            if version is None:
                continue
            rest = storage_keys.table_range(table.table_id)
            if (reached := self._reached.get(table.table_id)) is not None:
                rest = storage_keys.after(rest, reached)
            try:
                rows = await self._engine.scan(rest, rows_max=limits.SWEEP_ROWS_PER_STEP)
            except EngineBusy as error:
                log.warning("a deleted table cannot be read, and is left for later: %s", error)
                now = self._clock()
                self._postponed = {key: at for key, at in self._postponed.items() if at > now}
                self._postponed[table.table_id] = now + POSTPONED_SECONDS * TICKS_PER_SECOND
                continue
            if rows:
                await self._remove(table.table_id, rows)
                return True
            if self._engine.capabilities.keeps_entries and await remove_entries(
                self._engine, table.table_id
            ):
                return True
            if not self._was_empty(table.table_id):
                return True
            if is_old:
                await self._forget(Change(note.row, version, DELETE), note.partition, table)
        return False

    async def _claim(self, note: StoredRow, table: TableRecord, *, is_old: bool) -> int | None:
        """The version of the table's note if this server is to sweep the table now, else None.

        A table that this server has swept waits until it `is_old`: each look reads past all rows that were removed.
        """
        if table.table_id in self._swept and not is_old:
            return None
        now = self._clock()
        if self._postponed.get(table.table_id, 0) > now:
            return None
        self._name = self._name or self._fresh_id().hex()
        name, until = table.claim or ("", 0)
        if name == self._name and until - now > CLAIM_SECONDS * TICKS_PER_SECOND // 2:
            return table.version
        if name != self._name and until > now:
            return None
        claim = (self._name, now + CLAIM_SECONDS * TICKS_PER_SECOND)
        render = record_renderer(table.name, table.table_id, table.ticks, claim=claim)
        change = Change(note.row, table.version, Put(render))
        outcome = await self._engine.commit(WriteSet(note.partition, (change,)))
        return outcome.versions[0] if isinstance(outcome, Committed) else None

    async def _remove(self, table_id: bytes, rows: Sequence[StoredRow]) -> None:
        groups = [
            WriteSet(partition, [Change(row.row, ANY, DELETE) for row in group])
            for partition, group in groupby(rows, key=lambda row: row.partition)
        ]
        for first in range(0, len(groups), self._at_once):
            some = groups[first : first + self._at_once]
            await asyncio.gather(*(self._engine.commit(group) for group in some))
        self.swept_rows += len(rows)
        self._reached[table_id] = Key(rows[-1].partition, rows[-1].row)
        self._swept.pop(table_id, None)

    def _was_empty(self, table_id: bytes) -> bool:
        """Note that no row is left, and start over; True if this look began at the start."""
        self._swept[table_id] = None
        if len(self._swept) > SWEPT_MAX:
            del self._swept[next(iter(self._swept))]
        return self._reached.pop(table_id, None) is None

    async def _forget(self, unnote: Change, partition: bytes, table: TableRecord) -> None:
        """Remove the note of a deleted table, and the reservation of its name if no later table had the name."""
        changes = [unnote]
        row = storage_keys.taken_row(table.name)
        stored = await self._engine.get(Key(partition, row))
        if stored is not None and (taken := read_record(stored)).table_id == table.table_id:
            changes.append(Change(row, taken.version, DELETE))
        await self._engine.commit(WriteSet(partition, changes))
        self._swept.pop(table.table_id, None)
