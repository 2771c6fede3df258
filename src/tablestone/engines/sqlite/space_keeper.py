"""Looks after the space of a data directory beside a server: gives free pages back, and notices a disk that gets full.

Each process looks at the disk; one of them gives pages back, after the deletions that freed them have ended. Knows when
to do what; `free_space` and `disk_room` know how.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import apsw

from tablestone.engines.contract import EngineUnavailable
from tablestone.engines.sqlite.free_space import STEP_PAGES, FreeSpace, kept_bytes

if TYPE_CHECKING:
    from tablestone.engines.sqlite.commit_lock import CommitLock
    from tablestone.engines.sqlite.data_directory import DataDirectory
    from tablestone.engines.sqlite.disk_room import DiskRoom
    from tablestone.engines.storage_size import StorageSize

STEP_PAUSE_SECONDS: Final = 0.02
"""Seconds between two steps that give free pages back, for the commits of requests."""

log = logging.getLogger(__name__)


class SpaceKeeper:
    """The space of one data directory, for one process. `size` gives the present sizes."""

    def __init__(
        self,
        directory: DataDirectory,
        lock: CommitLock,
        size: Callable[[], StorageSize],
        room: DiskRoom,
    ) -> None:
        self._directory = directory
        self._size = size
        self._room = room
        self._free_space = FreeSpace(directory.connect_writer, lock)
        self._free_before = 0
        self._was_short = False
        self._is_incremental: bool | None = None
        """Whether free pages can be given back; not in a database that an older version made."""

    async def look(self, log_bytes: int, *, leads: bool) -> None:
        """Look at the disk and, in the process that leads, give free pages back. Called once a second."""
        try:
            size = self._size()
            self._room.look(log_bytes, size.free_bytes)
            if leads:
                self._tell()
                await self._give_back(size)
        except (apsw.Error, EngineUnavailable) as error:
            if leads:
                log.warning("Free space could not be given back: %s", error)

    async def close(self) -> None:
        """Wait for a step that is under way."""
        await asyncio.to_thread(self._free_space.close)

    def _tell(self) -> None:
        is_short = self._room.is_short
        changed, self._was_short = is_short != self._was_short, is_short
        if changed and is_short:
            log.warning(
                "The disk of the data directory %s is nearly full: writes that need room are refused, deletes are "
                "accepted.",
                self._directory.path,
            )
        elif changed:
            log.warning(
                "The disk of the data directory %s has room again: all writes are accepted.",
                self._directory.path,
            )

    async def _give_back(self, size: StorageSize) -> None:
        before, self._free_before = self._free_before, size.free_bytes
        is_short = self._room.is_short
        if self._is_incremental is None:
            self._is_incremental = self._free_space.can_be_given_back()
        kept = 0 if is_short else kept_bytes(size)
        step_bytes = 0 if is_short else STEP_PAGES * size.page_bytes
        is_growing = size.free_bytes > before and not is_short  # more deletes may follow
        if self._is_incremental and size.free_bytes > kept + step_bytes and not is_growing:
            await self._give_back_down_to(kept // size.page_bytes, copies_log=is_short)
            log.info("Free space was given back: %s", self._size())
        elif is_short or self._directory.database.stat().st_size > size.database_bytes:
            await asyncio.to_thread(self._free_space.copy_log)

    async def _give_back_down_to(self, kept_pages: int, *, copies_log: bool) -> None:
        left = kept_pages + 1
        while left > kept_pages:
            before = left
            left = await asyncio.to_thread(self._free_space.step, copies_log=copies_log)
            if left == before:
                break
            await asyncio.sleep(STEP_PAUSE_SECONDS)
        await asyncio.to_thread(self._free_space.copy_log)
