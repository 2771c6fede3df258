"""Work on tables beside requests, in the worker that leads: making and dropping indexes, and dry counts of expiry.

A request of any worker, or a command, stores what it wants; this finds it and carries it out. So it goes on after a
kill or a restart: the index and the count are where they were. One piece of work at a time, with rests, because the
same process answers requests. Work that fails, as on a full disk, waits and is tried again; it stops no other.
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
TABLES_PER_STEP: Final = 500
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
        self._failed: dict[tuple[bytes, int], float] = {}
        """When the work on an index last failed, by its table and number."""

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
        unreached: Exception | None = None
        try:
            await self._counts.work(self._find_owner, self._rest)
        except (EngineUnavailable, OutcomeUnknown) as error:
            unreached = error
        if self._engine.capabilities.keeps_entries:
            unreached = await self._look() or unreached
        if unreached is not None:
            raise unreached

    async def _rest(self) -> None:
        """Let requests run for as long as the step took."""
        await asyncio.sleep(monotonic_seconds() - self._began)
        self._began = monotonic_seconds()

    async def _look(self) -> Exception | None:
        """Go on with every index that is building or dropping, if a table may have changed since the last look.

        Returns the last error by which the engine kept one from that; the others go on.
        """
        generation, now = self._engine.generation, monotonic_seconds()
        is_same = generation is not None and generation == self._seen
        if is_same and now < self._looked_at + AGAIN_SECONDS:
            return None
        unreached: Exception | None = None
        self._looked_at = now
        tables = 0
        async for account, table in every_table(self._engine):
            tables += 1
            if tables % TABLES_PER_STEP == 0:
                await self._rest()
            for index in table.indexes:
                failed_at = self._failed.get((table.table_id, index.number), -AGAIN_SECONDS)
                is_due = is_unclaimed(index, self._catalog.clock()) and (
                    monotonic_seconds() >= failed_at + AGAIN_SECONDS
                )
                try:
                    if is_due:
                        await self._go_on(account, table, index)
                except (EngineUnavailable, OutcomeUnknown) as error:
                    unreached = error
        self._seen = generation if unreached is None else None
        return unreached

    async def _go_on(self, account: str, table: TableRecord, index: Index) -> None:
        owner = await self._find_owner(account)
        if owner is None:
            return
        work = IndexWork(self._catalog, owner, table.name, index.property, rests=True)
        try:
            await work.go_on()
        except (IndexRefused, StorageError) as error:  # dropped or taken over meanwhile
            log.debug("the index on %s of %s: %s", index.property, table.name, error)
        except (EngineUnavailable, OutcomeUnknown):
            raise
        except Exception:
            place = table.table_id, index.number
            if place not in self._failed:  # it is tried again and again
                log.exception(
                    "The index on %s of %s/%s failed.", index.property, account, table.name
                )
            self._failed[place] = monotonic_seconds()
