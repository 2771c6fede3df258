"""Free space: noticing a full disk, and giving the free pages of a database back to the file system.

While the disk is nearly full, the engine refuses writes that need room and goes on with deletes. Deleted rows leave
free pages. A step moves pages from the end of the file into them and cuts the file; it is one commit under the commit
lock, as short as others. Some free pages stay for later writes. `compact` gives all back, beside a server or without.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from tablestone.engines.contract import EngineUnavailable
from tablestone.engines.figures import StorageSize
from tablestone.engines.kind import EncryptionKey, Opening
from tablestone.engines.sqlite.data_directory import INCREMENTAL, LOG_NAME, DataDirectory, Progress
from tablestone.engines.sqlite.write_ahead_log import counted_frames

RESERVE_BYTES: Final = 64 * 1024 * 1024
"""Room for deletes and their log."""
RESERVE_PART: Final = 16
"""On a small disk, the reserve is a sixteenth of it."""
MARGIN_PART: Final = 8
"""The oldest records of changes go below twice the reserve; on a small disk, below the reserve plus an eighth."""

LOOK_PAGES: Final = 128
"""Look at the disk each time the log has grown by this many pages: a quick writer fills it quickly."""

log = logging.getLogger(__name__)


@dataclass(eq=False)
class DiskRoom:
    """The room on the disk of one directory, as one process last saw it."""

    _path: Path
    _statistics: Callable[[Path], os.statvfs_result] = os.statvfs
    _free_bytes: int = 0
    _pages_before: int = 0
    _pages_at_look: int = 0
    is_short: bool = False
    """Refuse writes that need room."""
    is_tight: bool = False
    """Copy the log into the database soon, so that neither it nor its copy needs more room."""
    lacks_room: bool = False
    """Remove the oldest records of changes now, so that room never gets short."""
    is_low: bool = False
    """Room was lacking, and there is still hardly more."""

    def is_tight_after_commit(self, log_pages: int, page_bytes: int) -> bool:
        """Return `is_tight`, after a look at the disk now and then. The log has `log_pages` pages now.

        A log that has become shorter has restarted. Look then too: while room is tight, it never reaches `LOOK_PAGES`.
        """
        has_restarted = log_pages < self._pages_before
        self._pages_before = log_pages
        if has_restarted or log_pages >= self._pages_at_look + LOOK_PAGES:
            self._pages_at_look = log_pages
            self.look(log_pages * page_bytes)
        return self.is_tight

    def look(self, log_bytes: int, free_bytes: int | None = None) -> bool:
        """Look at the disk, and return `is_short`.

        `log_bytes`: the length of the log, whose copy may make the database longer. `free_bytes`: the free room inside
        the database; None if it is as at the last look.
        """
        if free_bytes is not None:
            self._free_bytes = free_bytes
        try:
            found = self._statistics(self._path)
        except OSError:  # the directory is gone: the engine notices that itself
            return self.is_short
        whole = found.f_blocks * found.f_frsize
        if not whole:  # this file system does not say
            return self.is_short
        reserve = min(RESERVE_BYTES, whole // RESERVE_PART)
        available = found.f_bavail * found.f_frsize
        room = available + self._free_bytes
        # A shortage ends with more than the reserve, so it does not begin and end again and again.
        self.is_short = room < (reserve + reserve // 4 if self.is_short else reserve)
        margin = min(RESERVE_BYTES, whole // MARGIN_PART)
        self.lacks_room = room < reserve + margin
        self.is_low = room < reserve + (2 if self.is_low else 1) * margin
        # The log cannot grow into free pages inside the database.
        self.is_tight = self.is_short or available < reserve + log_bytes
        return self.is_short


STEP_PAGES: Final = 64
"""Free pages that a step gives back: half a megabyte, and some milliseconds in which no other process commits."""
KEPT_PAGES: Final = 256
"""Free pages that are always kept: 2 MiB."""
KEPT_PART: Final = 8
"""Keep an eighth of the pages with data free too, so that steady deletes and inserts do not cut and grow the file."""
COPY_PAGES: Final = 1000
"""A step copies a log of this length into the database, as commits do (`commit`)."""


def size_of(connection: apsw.Connection, log: Path) -> StorageSize:
    """The sizes that this connection sees; some microseconds."""
    page_bytes = connection.pragma("page_size")
    try:
        log_bytes = log.stat().st_size
    except OSError:  # no process has the database open
        log_bytes = 0
    return StorageSize(
        database_bytes=connection.pragma("page_count") * page_bytes,
        free_bytes=connection.pragma("freelist_count") * page_bytes,
        log_bytes=log_bytes,
        page_bytes=page_bytes,
    )


def step(directory: DataDirectory, *, copies_log: bool = False) -> int:
    """Give up to `STEP_PAGES` free pages back; returns how many are left. Waits for the commit lock.

    `copies_log`: copy the log into the database too; only then the file gets shorter. Raises `apsw.Error`.
    """
    with directory.committing() as connection:
        connection.execute(f"PRAGMA incremental_vacuum({STEP_PAGES})").fetchall()
        free = int(connection.pragma("freelist_count"))
        copy_long_log(connection, at_once=copies_log or not free)
        return free


def copy_log(directory: DataDirectory) -> None:
    """Copy the log into the database, so that the file gets shorter or the log can restart."""
    with directory.committing() as connection:
        _copy_log(connection)


def copy_long_log(writer: apsw.Connection, *, at_once: bool) -> None:
    """Copy the log into the database if it is long, or `at_once`. The caller holds the commit lock."""
    if at_once or counted_frames(writer) >= COPY_PAGES:
        _copy_log(writer)


def _copy_log(connection: apsw.Connection) -> None:
    with suppress(apsw.BusyError):  # another process is copying
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)


READS_MS_MAX: Final = 5_000
"""How long to wait for reads of other processes; after that the log keeps its length."""
STEP_PAUSE_SECONDS: Final = 0.02
"""A pause between two steps, for the commits of requests."""


@dataclass(eq=False)
class SpaceKeeper:
    _directory: DataDirectory
    _size: Callable[[], StorageSize]
    _room: DiskRoom
    _free_before: int = 0
    _was_short: bool = False
    _is_incremental: bool | None = None
    """Whether free pages can be given back; not in a database from before the first release."""

    async def look(self, log_bytes: int, *, leads: bool) -> None:
        """Look at the disk, and give free pages back in the process that leads. Called once a second."""
        try:
            size = self._size()
            self._room.look(log_bytes, size.free_bytes)
            if leads:
                self._log_shortage()
                await self._give_back(size)
        except (apsw.Error, EngineUnavailable) as error:
            if leads:
                log.warning("Free space could not be given back: %s", error)

    def _log_shortage(self) -> None:
        was_short, self._was_short = self._was_short, self._room.is_short
        if self._was_short != was_short:
            state = "has room again: all writes are accepted."
            if self._was_short:
                state = "is nearly full: writes that need room are refused, deletes are accepted."
            log.warning("The disk of the data directory %s %s", self._directory.path, state)

    async def _give_back(self, size: StorageSize) -> None:
        before, self._free_before = self._free_before, size.free_bytes
        is_short = self._room.is_short
        if self._is_incremental is None:
            with closing(self._directory.connect_reader()) as reader:
                self._is_incremental = reader.pragma("auto_vacuum") == INCREMENTAL
        kept = step_bytes = 0
        if not is_short:
            data_bytes = size.database_bytes - size.free_bytes
            kept = KEPT_PAGES * size.page_bytes + data_bytes // KEPT_PART
            step_bytes = STEP_PAGES * size.page_bytes
        is_growing = size.free_bytes > before and not is_short  # more deletes may follow
        if self._is_incremental and size.free_bytes > kept + step_bytes and not is_growing:
            await self._give_back_down_to(kept // size.page_bytes, copies_log=is_short)
            log.info("Free space was given back: %s", self._size())
        elif is_short or self._directory.database.stat().st_size > size.database_bytes:
            await asyncio.to_thread(copy_log, self._directory)

    async def _give_back_down_to(self, kept_pages: int, *, copies_log: bool) -> None:
        left = kept_pages + 1
        while left > kept_pages:
            before = left
            left = await asyncio.to_thread(step, self._directory, copies_log=copies_log)
            if left == before:
                break
            await asyncio.sleep(STEP_PAUSE_SECONDS)
        await asyncio.to_thread(copy_log, self._directory)


def compact(
    path: Path, progress: Progress, key: EncryptionKey | None = None
) -> tuple[StorageSize, StorageSize]:
    """Give all free pages of a directory back, which `key` may encrypt; returns the sizes before and after.

    `EngineRefused` if the directory cannot be used, `EngineUnavailable` if a step fails; earlier steps stay done.
    """
    DataDirectory(path, Opening.READ_ONLY, key=key).close()  # refuses to create one
    log = path / LOG_NAME
    with closing(DataDirectory(path, Opening.SHARED, key=key)) as directory:
        try:
            with closing(directory.connect_reader()) as reader:
                before = size_of(reader, log)
                _give_back(directory, before, progress)
            with directory.committing() as writer:
                writer.set_busy_timeout(READS_MS_MAX)
                with suppress(apsw.BusyError):
                    writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                return before, size_of(writer, log)
        except apsw.Error as error:
            raise EngineUnavailable(f"The space could not be given back: {error}.") from error


def _give_back(directory: DataDirectory, before: StorageSize, progress: Progress) -> None:
    copy_log(directory)
    left = before.free_bytes // before.page_bytes + 1
    while left:
        last, left = left, step(directory, copies_log=True)
        progress(max(0, before.free_bytes - left * before.page_bytes), before.free_bytes)
        if left >= last:  # other processes free as many
            return
