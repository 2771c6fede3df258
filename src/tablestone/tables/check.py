"""Verifying what is stored: every row is read and held against what the tables above storage promise.

Keys parse, a row's content names the row's own key and version, entities are in the form the wire sends, and every
entity belongs to a table that exists or is being swept. Answers in words for a person; changes nothing.
"""

from __future__ import annotations

import orjson

from tablestone import limits
from tablestone.edm import format_date_time
from tablestone.engines.contract import Engine, Key, KeyRange, StoredRow
from tablestone.entity_json import entity_renderer, key_of, members, read_raw, typed_properties
from tablestone.tables import keys
from tablestone.tables.catalog import read_record

_EVERYTHING = KeyRange(Key(b"", b""), Key(b"\xff" * 16, b""))


async def check_rows(engine: Engine) -> list[str]:
    """What is wrong with the rows of an engine, a sentence each; empty is healthy."""
    found: list[str] = []
    table_ids: set[bytes] = set()
    rest = _EVERYTHING
    while rows := await engine.scan(rest, rows_max=limits.PAGE_ENTITIES_MAX):
        # The catalog sorts before all entities, so every table id is known before the first entity is met.
        for row in rows:
            found.extend(_check_row(row, table_ids))
        last = rows[-1]
        rest = KeyRange(Key(last.partition, last.row + b"\0"), rest.end)
    return found


def _check_row(row: StoredRow, table_ids: set[bytes]) -> list[str]:
    place = f"row {row.row!r} of partition {row.partition!r}"
    if row.version <= 0:
        return [f"{place}: version {row.version} is not positive"]
    try:
        if row.partition.startswith(keys.CATALOG):
            return [f"{place}: {text}" for text in _check_catalog_row(row, table_ids)]
        if row.partition.startswith(keys.ENTITIES):
            return [f"{place}: {text}" for text in _check_entity(row, table_ids)]
    except (ValueError, KeyError, TypeError, AssertionError, orjson.JSONDecodeError) as error:
        return [f"{place}: unreadable ({type(error).__name__}: {error})"]
    return [f"{place}: neither a catalog row nor an entity"]


def _check_catalog_row(row: StoredRow, table_ids: set[bytes]) -> list[str]:
    record = read_record(row.value)
    expected = (
        keys.table_row(record.name)
        if keys.is_table_row(row.row)
        else keys.deleted_row(record.table_id)
    )
    wrong = []
    if row.row != expected:
        wrong.append(f"describes table '{record.name}' with id {record.table_id.hex()}")
    if record.version != row.version:
        wrong.append(f"says version {record.version}, but is stored with {row.version}")
    if record.table_id in table_ids:
        wrong.append(f"table id {record.table_id.hex()} is used twice")
    table_ids.add(record.table_id)
    return wrong


def _check_entity(row: StoredRow, table_ids: set[bytes]) -> list[str]:
    wrong = []
    table_id = row.partition[1 : 1 + keys.TABLE_ID_LENGTH]
    if table_id not in table_ids:
        wrong.append(
            f"belongs to table id {table_id.hex()}, which is neither a table nor being swept"
        )
    raw = read_raw(row.value)
    key = key_of(raw)
    if keys.entity_place(table_id, key) != (row.partition, row.row):
        wrong.append(f"holds the entity {key!r}")
    if raw["Timestamp"] != format_date_time(row.version):
        wrong.append(f"has Timestamp {raw['Timestamp']}, but is stored with version {row.version}")
    if entity_renderer(key, members(typed_properties(raw)).values())(row.version) != row.value:
        wrong.append("is not written in the form that the server writes")
    return wrong
