"""A replica: what the records of changes, applied in order to nothing, leave in place of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tablestone.engines.change_record import FIRST, After
from tablestone.engines.contract import Key
from tablestone.tables import storage_keys
from tablestone.tables.catalog import scan_in_steps
from tablestone.tables.metadata import DocumentKind

if TYPE_CHECKING:
    from tablestone.engines.contract import Engine

Rows = dict[Key, tuple[int, bytes]]
"""Versions and values."""
NOT_FOR_A_REPLICA = {
    storage_keys.documents_partition(kind.value)
    for kind in (DocumentKind.PROBE, DocumentKind.LEASES)
}


async def stored_rows(engine: Engine) -> Rows:
    return {
        Key(row.partition, row.row): (row.version, row.value)
        async for rows in scan_in_steps(engine, storage_keys.EVERYTHING)
        for row in rows
    }


async def replayed(engine: Engine) -> Rows:
    """The rows by all records, which must reach back to when storage was empty."""
    assert engine.changes is not None
    rows: Rows = {}
    position, has_more = FIRST, True
    while has_more:
        page = await engine.changes.read(position, subject=None, rows_max=1_000, bytes_max=1 << 20)
        assert page is not None
        assert page.kept.is_complete
        for record in page.records:
            for row, version, value, _before in record.rows:
                if value is None:
                    del rows[Key(record.partition, row)]
                else:
                    rows[Key(record.partition, row)] = version, value
        position, has_more = After(page.reached), page.has_more
    return rows


def differences(stored: Rows, replica: Rows) -> list[str]:
    """What the replica lacks or has otherwise, and what it has too much: all but what its own sweeper removes."""
    found = []
    tables: storage_keys.Tables = {}
    dead = {key.row[1:] for key in replica if is_note_of_deletion(key)}
    for key in sorted(stored.keys() | replica.keys()):
        if key.partition in NOT_FOR_A_REPLICA or stored.get(key) == replica.get(key):
            continue
        if key in stored or not (is_note_of_deletion(key) or is_entity_of(key, dead)):
            found.append(storage_keys.in_words(key, tables))
    return found


def is_note_of_deletion(key: Key) -> bool:
    """Of a deleted table, or of its name, which is reserved for a while."""
    is_note = storage_keys.is_deleted_row(key.row) or storage_keys.is_taken_row(key.row)
    return is_note and key.partition.startswith(storage_keys.CATALOG)


def is_entity_of(key: Key, tables: set[bytes]) -> bool:
    is_entity = key.partition.startswith(storage_keys.ENTITIES)
    return is_entity and storage_keys.table_id_of(key.partition) in tables
