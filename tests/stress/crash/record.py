"""The record of changes that a killed server leaves: it has the commits that are there, and all acknowledged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from storage.write_sets import WHOLE
from tablestone.clock import system_clock
from tablestone.engines.change_record import FIRST
from tablestone.engines.contract import Key
from tablestone.engines.registry import open_engine
from tablestone.model.etag import parse_etag
from tablestone.tables import storage_keys
from tablestone.tables.change_notes import CommitKind, read_about

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stress.crash.journal import Journal
    from stress.crash.stored_place import StoredPlace
    from tablestone.engines.contract import Engine

KEEP = "--keep-changes=1d,8GiB"
ROWS_MAX = 1_000_000
Put = tuple[Key, int]
"""The key of a row, and a version of it."""


def problems_of_record(data: StoredPlace, journals: Sequence[Journal]) -> Iterator[str]:
    """Where the record and the rows of a directory contradict each other, or the record lacks what was acknowledged."""
    engine = open_engine(f"sqlite:{data.path}", system_clock, read_only=True, key=data.key)
    try:
        replayed, deleted, puts = asyncio.run(_read(engine))
        rows = {
            Key(row.partition, row.row): row.version
            for row in asyncio.run(engine.scan(WHOLE, rows_max=ROWS_MAX))
        }
    finally:
        asyncio.run(engine.close())
    for key in sorted(replayed.keys() | rows.keys()):
        if replayed.get(key) != rows.get(key) and not _is_swept(key, deleted):
            yield f"{key}: version {rows.get(key)}, in the record {replayed.get(key)}"
    entities = {
        (storage_keys.entity_key(key), version)
        for key, version in puts
        if key.partition.startswith(storage_keys.ENTITIES)
    }
    recorded = {(key.partition_key, key.row_key, version) for key, version in entities}
    for journal in journals:
        for row_key, etag in sorted(journal.etags):
            if (journal.partition_key, row_key, parse_etag(etag)) not in recorded:
                yield f"{journal.partition_key}/{row_key}: {etag} was acknowledged, and is not in the record"


async def _read(engine: Engine) -> tuple[dict[Key, int], set[bytes], set[Put]]:
    """The versions of the rows that the record makes of nothing, the ids of deleted tables, and all puts."""
    log = engine.changes
    assert log is not None
    read = await log.read(FIRST, subject=None, rows_max=ROWS_MAX, bytes_max=1 << 40)
    assert read is not None
    assert read.kept.is_complete
    assert not read.has_more
    replayed: dict[Key, int] = {}
    deleted: set[bytes] = set()
    puts: set[Put] = set()
    for record in read.records:
        if not record.rows:
            continue
        about = read_about(record.note.about)
        if about.kind is CommitKind.TABLE_DELETED:
            deleted.add(about.table_id)
        for row in record.rows:
            key = Key(record.partition, row.row)
            if row.value is None:
                assert replayed.pop(key, row.version) == row.version
            else:
                assert replayed.get(key, 0) < row.version
                replayed[key] = row.version
                puts.add((key, row.version))
    return replayed, deleted, puts


def _is_swept(key: Key, deleted: set[bytes]) -> bool:
    """Whether the row is of a deleted table: what removes those is not in the record."""
    if key.partition.startswith(storage_keys.ENTITIES):
        return storage_keys.table_id_of(key.partition) in deleted
    return key.partition.startswith(storage_keys.CATALOG) and key.row[:1] in {b"d", b"u"}
