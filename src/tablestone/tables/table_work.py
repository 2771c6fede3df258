"""Work on tables beside requests, in the worker that leads: making and dropping indexes, and dry counts of expiry.

A request of any worker, or a command, stores what it wants; this finds it and carries it out. So it goes on after a
kill or a restart: the index and the count are where they were. One piece of work at a time, with rests, because the
same process answers requests. Work that fails, as on a full disk, waits and is tried again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tablestone.clock import monotonic_seconds
from tablestone.engines.contract import Engine, EngineUnavailable, OutcomeUnknown
from tablestone.model.errors import StorageError
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.catalog import Catalog, TableRecord, every_table
from tablestone.tables.expiry_counts import ExpiryCounts
from tablestone.tables.index_building import IndexRefused, IndexWork, is_unclaimed
from tablestone.tables.indexes import Index

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks. Where a read waits for a network, `LOOK_SECONDS_REMOTE`."""
LOOK_SECONDS_REMOTE: Final = 2.0
AGAIN_SECONDS: Final = 20.0
"""Seconds after which all tables are looked at although none has changed: a claim may be over. And after a failure."""


class TableWork:
    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        counts: ExpiryCounts,
        find_owner: Callable[[str], Awaitable[Owner | None]],
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._counts = counts
        self._find_owner = find_owner
        self._seen: int | None = None
        """The engine's generation when all tables were looked at."""
        self._looked_at = 0.0
        self._began = 0.0
        self._failure = ""

    async def run(self) -> None:
        is_remote = self._engine.capabilities.waits
        while True:
            pause = LOOK_SECONDS_REMOTE if is_remote else LOOK_SECONDS
            try:
                await self.once()
                self._failure = ""
            except (EngineUnavailable, OutcomeUnknown) as error:
                if str(error) != self._failure:
                    log.warning("Work on indexes and counts of expiry waits: %s", error)
                self._failure = str(error)
                pause = AGAIN_SECONDS
            except Exception:
                log.exception("Work on indexes and counts of expiry failed.")
                pause = AGAIN_SECONDS
            await asyncio.sleep(pause)

    async def once(self) -> None:
        """Carry out what is asked for now."""
        self._began = monotonic_seconds()
        await self._counts.work(self._find_owner, self._rest)
        if self._engine.capabilities.keeps_entries:
            await self._look()

    async def _rest(self) -> None:
        """Let requests run for as long as the step took."""
        await asyncio.sleep(monotonic_seconds() - self._began)
        self._began = monotonic_seconds()

    async def _look(self) -> None:
        """Go on with every index that is building or dropping, if a table may have changed since the last look."""
        generation, now = self._engine.generation, monotonic_seconds()
        is_same = generation is not None and generation == self._seen
        if is_same and now < self._looked_at + AGAIN_SECONDS:
            return
        self._looked_at = now
        async for account, table in every_table(self._engine):
            for index in table.indexes:
                if is_unclaimed(index, self._catalog.clock()):
                    await self._go_on(account, table, index)
        self._seen = generation

    async def _go_on(self, account: str, table: TableRecord, index: Index) -> None:
        owner = await self._find_owner(account)
        if owner is None:
            return
        work = IndexWork(self._catalog, owner, table.name, index.property, rests=True)
        try:
            await work.go_on()
        except (IndexRefused, StorageError) as error:  # dropped or taken over meanwhile
            log.debug("the index on %s of %s: %s", index.property, table.name, error)
