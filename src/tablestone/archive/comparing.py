"""Checks an archive: restores it into a scratch directory, and compares that with the data, while a server writes.

The data is read in short reads, each of one moment. Rows that differ are compared once more when the archive's records
up to that moment are applied: then they must be equal. Left out are the rows whose commits leave no record of changes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
from typing import TYPE_CHECKING, Final, NamedTuple

from tablestone.archive.going_back import MomentRefused, bring, find_goal, restore
from tablestone.archive.objects import ObjectDamaged, ObjectRefused
from tablestone.archive.store import StoreUnavailable
from tablestone.clock import unix_seconds
from tablestone.engines.contract import EngineFull, EngineRefused, EngineUnavailable, Key
from tablestone.engines.sqlite.restored_directory import RestoredDirectory
from tablestone.tables import storage_keys
from tablestone.tables.metadata import DocumentKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tablestone.archive.store import Store
    from tablestone.archive.terms import OwnTerm
    from tablestone.configuration import ArchiveSettings
    from tablestone.engines.contract import StoredRow
    from tablestone.engines.kind import EncryptionKey
    from tablestone.engines.sqlite.archive_source import ArchiveSource

READ_BYTES: Final = 16 << 20
NAMED_MAX: Final = 20
"""Rows that differ and are named."""
RETRY_SECONDS: Final = 600.0
"""Seconds to the next check, if one could not run, or if the one before this start did not hold or did not end."""
_WITHOUT_BOUND: Final = 1 << 62
_NO_RECORDS: Final = tuple(
    storage_keys.documents_partition(kind.value)
    for kind in (DocumentKind.PROBE, DocumentKind.LEASES, DocumentKind.COUNTS)
)

log = logging.getLogger(__name__)


class Checked(NamedTuple):
    rows: int
    number: int
    """The record up to which both sides were compared."""
    differing: int
    named: list[str]
    """The first rows that differ, in words."""
    older: str
    """What to say if the data ends before the archive does."""


async def check(
    store: Store,
    keys: Sequence[EncryptionKey],
    life: str | None,
    source: ArchiveSource,
    scratch: Path,
    key: EncryptionKey | None,
    progress: Callable[[int, int], None] = lambda _done, _whole: None,
) -> Checked:
    """Restore the newest moment into the new directory `scratch`, encrypted with `key`, and compare it.

    Raises the errors of `find_goal`, `restore` and `bring`, and `EngineFull` if there is no room.
    """
    needed, free = source.database_bytes(), shutil.disk_usage(scratch.parent).free
    if free < needed:
        raise EngineFull(
            f"{scratch.parent} has {free >> 20:,} MiB for a copy of the data, which has {needed >> 20:,} MiB."
        )
    state = await asyncio.to_thread(source.state)
    life = life or state.life or None
    goal = await find_goal(store, keys, life, None, None, unix_seconds())
    reached, rows, after = goal.number, 0, None
    differing = list[Key]()
    with RestoredDirectory(scratch, key) as target:
        await restore(store, keys, goal, target, "", progress)
        while True:
            number, here = await asyncio.to_thread(source.rows_of_moment, after, READ_BYTES)
            last = None if not here else Key(here[-1].partition, here[-1].row)
            found = await asyncio.to_thread(_differing, here, target, after, last)
            if found and number > reached:
                await bring(store, keys, goal.history.life, target, reached, number)
                reached = number
                found = await asyncio.to_thread(_differing, here, target, after, last)
            rows += len(here)
            differing += found
            if last is None:
                break
            after = last
    named = [storage_keys.in_words(each, {}) for each in differing[:NAMED_MAX]]
    older = ""
    if (ends := await asyncio.to_thread(source.ends)).last < goal.number:
        older = f": this is an older state, up to record {ends.last:,} of {goal.number:,}"
    return Checked(rows, reached, len(differing), named, older)


def _differing(
    here: list[StoredRow], target: RestoredDirectory, after: Key | None, last: Key | None
) -> list[Key]:
    """The keys after one, up to another, of rows that differ."""
    restored = target.rows(after, _WITHOUT_BOUND, last)
    differing = {Key(*row[:2]) for row in {*here} ^ {*restored} if row.partition not in _NO_RECORDS}
    if differing:
        dead = _dead_tables(target)
        mine = {row[:2] for row in here}
        differing = {key for key in differing if key in mine or not _is_swept(key, dead)}
    return sorted(differing)


def _dead_tables(target: RestoredDirectory) -> set[bytes]:
    """The ids of deleted tables: the server's sweeper removes their entities and leaves no record."""
    catalogs = storage_keys.catalogs_after(b"")
    rows = target.rows(catalogs.start, _WITHOUT_BOUND, catalogs.end)
    return {row.row[1:] for row in rows if storage_keys.is_deleted_row(row.row)}


def _is_swept(key: Key, dead: set[bytes]) -> bool:
    """Whether the sweeper removes the row: the note of a deleted table, of its name, or an entity of it."""
    if key.partition.startswith(storage_keys.ENTITIES):
        return storage_keys.table_id_of(key.partition) in dead
    is_note = storage_keys.is_deleted_row(key.row) or storage_keys.is_taken_row(key.row)
    return is_note and key.partition.startswith(storage_keys.CATALOG)


class SelfCheck:
    """Checks the archive of a server by itself, in a scratch directory, and notes how it went."""

    CANNOT: Final = "The archive {} could not be checked:"
    STUCK: Final = "The check of the archive {} takes longer than --archive-check:"

    def __init__(
        self,
        source: ArchiveSource,
        settings: ArchiveSettings,
        elapsed: Callable[[], float],
        scratch: Path,
    ) -> None:
        checked, self.held_at = source.checks()
        """When a check held last, in seconds since 1970; 0 for never."""
        self.failed: str | None = None
        """Why the last check failed."""
        self.could_not_run: str | None = None
        self._source = source
        self._settings = settings
        self._elapsed = elapsed
        self._scratch = scratch
        self._every = math.inf if settings.check_seconds is None else float(settings.check_seconds)
        waits = max(checked + self._every - unix_seconds(), 0.0)
        if self.held_at < checked or waits > self._every:  # or the clock was wrong
            waits = min(RETRY_SECONDS, self._every)
        self.due = elapsed() + (waits if settings.check_seconds is not None else math.inf)

    async def run(self, term: OwnTerm) -> None:
        began, rows = int(unix_seconds()), 0
        self.due, self.could_not_run = self._elapsed() + self._every, None
        try:
            shutil.rmtree(self._scratch, ignore_errors=True)
            await asyncio.to_thread(self._source.note_checks, began, self.held_at)
            self._scratch.mkdir(mode=0o700)
            found = await check(
                *(term.store, term.keys, term.life, self._source),
                *(self._scratch / "data", self._settings.directory_key),
            )
            rows = found.rows
            self.failed = f"The archive has {found.named[0]} otherwise." if found.named else None
            if self.failed is None:
                self.held_at = max(int(unix_seconds()), began)
                await asyncio.to_thread(self._source.note_checks, began, self.held_at)
                log.info("The archive holds what the data directory holds: %d rows.", rows)
                return
        except (StoreUnavailable, EngineUnavailable, EngineFull, OSError) as error:
            self.due = self._elapsed() + min(RETRY_SECONDS, self._every)
            self.could_not_run = str(error)
            log.warning("The archive could not be checked: %s", error)
            return
        except (MomentRefused, EngineRefused, ObjectDamaged, ObjectRefused) as failed:
            self.failed = str(failed)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)
        log.error("The check of the archive failed: %s", self.failed)
