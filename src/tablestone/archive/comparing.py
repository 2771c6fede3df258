"""Checks an archive: restores it into a scratch directory, and compares that with the data, while a server writes.

Both sides are scanned in short reads. What differs may have changed in between: it is compared again after the records
that came meanwhile, as long as it changes. Left out are the rows whose commits leave no record of changes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
from typing import TYPE_CHECKING, Final, NamedTuple

from tablestone.archive.going_back import MomentRefused, bring, find_goal, restore
from tablestone.clock import unix_seconds
from tablestone.engines.change_record import read_rows
from tablestone.engines.contract import EngineFull, EngineRefused, Key, StorageId
from tablestone.engines.sqlite.restored_directory import RestoredDirectory
from tablestone.tables import storage_keys
from tablestone.tables.metadata import DocumentKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from tablestone.archive.archiver import Archiver
    from tablestone.archive.store import Store
    from tablestone.engines.contract import StoredRow
    from tablestone.engines.kind import EncryptionKey
    from tablestone.engines.sqlite.archive_source import ArchiveSource

READ_BYTES: Final = 4 << 20
DIFFERENCES_MAX: Final = 100_000
"""Rows that may change while both sides are scanned."""
CHANGED_BYTES_MAX: Final = 64 << 20
ROUNDS_MAX: Final = 100
_NO_RECORDS: Final = tuple(
    storage_keys.documents_partition(kind.value)
    for kind in (DocumentKind.PROBE, DocumentKind.LEASES, DocumentKind.COUNTS)
)


log = logging.getLogger(__name__)


class TooManyDiffer(Exception):
    """More rows differ than can be looked at again."""


class Checked(NamedTuple):
    rows: int
    number: int
    """The record up to which both sides were compared."""
    differing: list[Key]
    """The first rows that differ for no change of the server."""


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

    Raises the errors of `find_goal` and `restore`, `TooManyDiffer`, and `EngineFull` if there is no room.
    """
    needed, free = source.database_bytes(), shutil.disk_usage(scratch.parent).free
    if free < needed:
        raise EngineFull(
            f"{scratch.parent} has {free >> 20:,} MiB for a copy of the data, which has {needed >> 20:,} MiB."
        )
    state = await asyncio.to_thread(source.state)
    goal = await find_goal(
        store, keys, life or (None if state is None else state.life), None, None, unix_seconds()
    )
    with RestoredDirectory(scratch, StorageId(goal.source.encode()), key) as target:
        await restore(store, keys, goal, target, "", progress)
        reached = goal.number

        async def bring_up_to(number: int) -> None:
            nonlocal reached
            reached = await bring(store, keys, goal.history.life, target, reached, number)

        rows, differing = await compare(source, target, bring_up_to)
    return Checked(rows, reached, differing)


async def compare(
    source: ArchiveSource, target: RestoredDirectory, bring: Callable[[int], Awaitable[None]]
) -> tuple[int, list[Key]]:
    """Compare a directory with what was restored. `bring` applies the archive's records up to a number to the target.

    Raises the errors of both sides, and `TooManyDiffer`.
    """
    rows, waiting = await asyncio.to_thread(_scan, source, target)
    for _round in range(ROUNDS_MAX):
        if not waiting:
            break
        last = (await asyncio.to_thread(source.ends)).last
        await bring(last)
        dead = await asyncio.to_thread(_dead_tables, target)
        waiting = [
            key
            for key in waiting
            if (here := source.row(key)) != target.row(key)
            and not (here is None and _is_swept(key, dead))
        ]
        # What has changed since may differ: it is compared once more.
        changed = {
            Key(record.partition, row.row)
            for record in source.records(last, None, CHANGED_BYTES_MAX)
            for row in read_rows(record.rows)
        }
        if certain := [key for key in waiting if key not in changed]:
            return rows, certain
    return rows, waiting


def _scan(source: ArchiveSource, target: RestoredDirectory) -> tuple[int, list[Key]]:
    """Merge both sides in the order of keys: the number of rows, and the keys of those that differ."""
    count, found, dead = 0, list[Key](), _dead_tables(target)
    mine, theirs = _rows(source.rows), _rows(target.rows)
    one, other = next(mine, None), next(theirs, None)
    while one is not None or other is not None:
        count += 1
        if other is None or (one is not None and one[:2] < other[:2]):
            assert one is not None
            found.append(Key(one.partition, one.row))
            one = next(mine, None)
        elif one is None or other[:2] < one[:2]:
            key = Key(other.partition, other.row)
            if not _is_swept(key, dead):
                found.append(key)
            other = next(theirs, None)
        else:
            if one != other:
                found.append(Key(one.partition, one.row))
            one, other = next(mine, None), next(theirs, None)
        if len(found) > DIFFERENCES_MAX:
            raise TooManyDiffer
    return count, found


def _dead_tables(target: RestoredDirectory) -> set[bytes]:
    """The ids of deleted tables: the server's sweeper removes their entities and leaves no record."""
    catalogs = storage_keys.catalogs_after(b"")
    dead, after = set[bytes](), catalogs.start
    while rows := target.rows(after, READ_BYTES):
        for row in rows:
            if (row.partition, row.row) >= catalogs.end:
                return dead
            if storage_keys.is_deleted_row(row.row):
                dead.add(row.row[1:])
        after = Key(rows[-1].partition, rows[-1].row)
    return dead


def _is_swept(key: Key, dead: set[bytes]) -> bool:
    """Whether the sweeper removes the row: the note of a deleted table, of its name, or an entity of it."""
    if key.partition.startswith(storage_keys.ENTITIES):
        return storage_keys.table_id_of(key.partition) in dead
    is_note = storage_keys.is_deleted_row(key.row) or storage_keys.is_taken_row(key.row)
    return is_note and key.partition.startswith(storage_keys.CATALOG)


def _rows(read: Callable[[Key | None, int], list[StoredRow]]) -> Iterator[StoredRow]:
    after: Key | None = None
    while rows := read(after, READ_BYTES):
        for row in rows:
            if row.partition not in _NO_RECORDS:
                yield row
        after = Key(rows[-1].partition, rows[-1].row)


def next_due(archiver: Archiver) -> float:
    """When a server checks its archive again, by the clock that never steps back."""
    seconds = archiver.settings.check_seconds
    if seconds is None or not archiver.is_restorable:
        return math.inf
    return archiver.check_began_at + seconds


async def check_itself(archiver: Archiver) -> None:
    """Check the archive of this server, and note how it went."""
    archiver.check_began_at = archiver.elapsed()
    assert archiver.begun is not None
    rows = 0
    shutil.rmtree(archiver.scratch, ignore_errors=True)
    try:
        archiver.scratch.mkdir(mode=0o700)
        found = await check(
            *(archiver.store, archiver.keys, archiver.begun.life, archiver.source),
            *(archiver.scratch / "data", archiver.settings.directory_key),
        )
        rows = found.rows
        names = [storage_keys.in_words(key, {}) for key in found.differing]
        archiver.check_failed = f"the archive has {names[0]} otherwise" if names else None
    except (MomentRefused, TooManyDiffer, EngineRefused) as failed:
        archiver.check_failed = str(failed) or "too many rows differ"
    finally:
        shutil.rmtree(archiver.scratch, ignore_errors=True)
    if archiver.check_failed is None:
        archiver.check_held_at = unix_seconds()
        log.info("The archive holds what the data directory holds: %d rows.", rows)
    else:
        log.error("The check of the archive failed: %s", archiver.check_failed)
