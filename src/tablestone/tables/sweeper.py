"""The sweeper: removes the rows of deleted tables, a few at a time, while a server runs.

One process of a server runs it. Requests run between two of its steps. `catalog` knows the rows that are left of a
deleted table, and when the table is forgotten. This module knows when to look, and what to do if storage cannot answer.
If the engine gives leases, the marks of unfinished changes are removed too.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, Clock
from tablestone.engines.contract import Engine, EngineUnavailable
from tablestone.tables import storage_keys
from tablestone.tables.cache_invalidation import remove_old_marks
from tablestone.tables.catalog import Catalog
from tablestone.tables.metadata import DocumentKind

log = logging.getLogger(__name__)

SWEEP_PAUSE_SECONDS: Final = 1.0
"""Seconds between two looks of the sweeper while no deleted table has rows left."""
TELL_SECONDS: Final = 60
"""Seconds between two messages that sweeping fails, at least: it is tried again each second."""
NETWORK_PAUSE_SECONDS: Final = 0.05
"""Seconds between two steps of the sweeper where storage is behind a network: the nodes also have requests to serve."""


class Sweeper:
    """Sweeps the storage of one engine. `clock` is wall time."""

    def __init__(self, engine: Engine, catalog: Catalog, clock: Clock) -> None:
        self._engine = engine
        self._catalog = catalog
        self._clock = clock
        self._busy_pause = NETWORK_PAUSE_SECONDS if engine.capabilities.waits else 0
        self._marks_were_removed_at = clock()
        self._told_at = 0
        self.is_busy = False
        """Whether the last look found rows of deleted tables."""

    async def run(self) -> None:
        """Sweep until this is cancelled."""
        while True:
            is_busy = False
            try:
                is_busy = self.is_busy = await self.step()
            except EngineUnavailable as error:
                if self._may_tell():
                    log.warning("sweeping deleted tables waits: %s", error)
            except Exception:
                if self._may_tell():
                    log.exception("sweeping deleted tables failed")
            await asyncio.sleep(self._busy_pause if is_busy else SWEEP_PAUSE_SECONDS)

    def _may_tell(self) -> bool:
        """Whether the log has not told of a failure lately; it is then told of this one."""
        now = self._clock()
        if 0 <= now - self._told_at < TELL_SECONDS * TICKS_PER_SECOND:
            return False
        self._told_at = now
        return True

    async def step(self) -> bool:
        """Remove some rows of deleted tables in every account; False if there is nothing to do now."""
        is_busy = False
        async for account in self._catalog.accounts_to_sweep():
            is_busy = await self._catalog.sweep(account) or is_busy
            await asyncio.sleep(0)  # there may be many accounts, so let requests run
        if self._engine.leases is not None:
            before = self._clock() - limits.SWEEP_AGAIN_SECONDS * TICKS_PER_SECOND
            if self._marks_were_removed_at < before:
                self._marks_were_removed_at = self._clock()
                await self._remove_marks(before)
        return is_busy

    async def _remove_marks(self, before: int) -> None:
        for kind in DocumentKind:
            partition = storage_keys.documents_partition(kind.value)
            await remove_old_marks(self._engine, partition, before)
        partition = b""
        while rows := await self._engine.scan(storage_keys.catalogs_after(partition), rows_max=1):
            partition = rows[0].partition
            await remove_old_marks(self._engine, partition, before)
            await asyncio.sleep(0)
