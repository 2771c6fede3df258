"""Verification of stored data: every row is read and checked against the rules of the storage format.

Keys must parse, the content of a row must name the row's own key and version, entities must have the form of the wire,
and every entity must belong to a table that exists or is being swept. The findings are sentences for the operator.
Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson

from tablestone import limits
from tablestone.engines.contract import Engine, EngineUnavailable, Key, KeyRange, StoredRow
from tablestone.model.edm import format_date_time
from tablestone.model.entity_json import entity_renderer, key_of, read_raw, typed_properties
from tablestone.model.typed_json import members
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import read_incarnation
from tablestone.tables.catalog import read_record
from tablestone.tables.metadata import DocumentKind, Members, read_document, read_properties
from tablestone.tables.storage_keys import Tables, in_words

DocumentReaders = Mapping[DocumentKind, Callable[[str, Members], object]]
"""The reader of each kind of document: it takes the name and the members, and raises for an invalid document. Its
messages contain no secret. The caller supplies readers for the kinds that `tables` does not read itself."""
_NO_READERS: DocumentReaders = {}

_DOCUMENT_KINDS = {kind.value: kind for kind in DocumentKind}
_EVERYTHING = KeyRange(Key(b"", b""), Key(b"\xff" * 16, b""))


async def check_rows(engine: Engine, readers: DocumentReaders = _NO_READERS) -> list[str]:
    """The faults of an engine's rows, a sentence each; empty if there are none."""
    found: list[str] = []
    tables: Tables = {}
    rest = _EVERYTHING
    try:
        while rows := await engine.scan(rest, rows_max=limits.PAGE_ENTITIES_MAX):
            # The catalog sorts before all entities, so every table is known before its first entity is read.
            for row in rows:
                found.extend(_check_row(row, tables, readers))
            rest = storage_keys.after(rest, rows[-1])
    except EngineUnavailable as error:
        begins = "" if rest is _EVERYTHING else f"from {in_words(rest.start, tables)} on "
        found.append(f"{begins}nothing can be read: {error}")
    return found


def _why(error: Exception) -> str:
    """The reason why a row cannot be read."""
    if isinstance(error, orjson.JSONDecodeError):
        return "it is not JSON"
    if isinstance(error, KeyError):
        return f"it has no member {error.args[0]!r}"
    return str(error) or "it is not in the form that the server writes"


def _check_row(row: StoredRow, tables: Tables, readers: DocumentReaders) -> list[str]:
    place = in_words(Key(row.partition, row.row), tables)
    if row.version <= 0:
        return [f"{place}: version {row.version} is not positive"]
    try:
        if storage_keys.is_for_leases(Key(row.partition, row.row)):
            return []
        if row.partition.startswith(storage_keys.CATALOG):
            return [f"{place}: {text}" for text in _check_catalog_row(row, tables)]
        if row.partition.startswith(storage_keys.ENTITIES):
            return [f"{place}: {text}" for text in _check_entity(row, tables)]
        if row.partition.startswith(storage_keys.DOCUMENTS):
            return [f"{place}: {text}" for text in _check_document(row, readers)]
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        return [f"{place}: unreadable: {_why(error)}"]
    return [f"{place}: neither a catalog row, an entity nor a document"]


def _check_catalog_row(row: StoredRow, tables: Tables) -> list[str]:
    if row.row == storage_keys.INCARNATION_ROW:
        return _check_version(read_incarnation(row.value), row)
    record = read_record(row.value)
    is_taken = storage_keys.is_taken_row(row.row)
    if is_taken:
        expected = {storage_keys.taken_row(record.name)}
    elif storage_keys.is_table_row(row.row):
        expected = {storage_keys.table_row(record.name)}
    else:
        table_id = record.table_id
        expected = {storage_keys.deleted_row(table_id), *storage_keys.deleted_slots(table_id)}
    wrong = _check_version(record.version, row)
    if row.row not in expected:
        wrong.append(f"describes table '{record.name}' with id {record.table_id.hex()}")
    if is_taken:
        return wrong
    if record.table_id in tables:
        wrong.append(f"table id {record.table_id.hex()} is used twice")
    tables[record.table_id] = record.name
    ids = {identifier.id for identifier in record.identifiers}
    if not len(ids) == len(record.identifiers) <= limits.SIGNED_IDENTIFIERS_MAX:
        wrong.append("has too many stored access policies, or two of one id")
    return wrong


def _check_version(version: int, row: StoredRow) -> list[str]:
    if version == row.version:
        return []
    return [f"says version {version}, but is stored with {row.version}"]


def _check_document(row: StoredRow, readers: DocumentReaders) -> list[str]:
    version, content = read_document(row.value)
    wrong = _check_version(version, row)
    kind = _DOCUMENT_KINDS.get(row.partition.removeprefix(storage_keys.DOCUMENTS))
    if kind is None:
        return ["is a document of no known kind", *wrong]
    if kind is DocumentKind.SERVICE_PROPERTIES:
        read_properties(content)
    elif kind in readers:
        readers[kind](row.row.decode("utf-8"), content)
    return wrong


def entity_faults(row: StoredRow) -> list[str]:
    """The faults of an entity by itself, whatever its table; empty if it is as the server writes it."""
    try:
        return _check_content(row)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        return [f"unreadable: {_why(error)}"]


def _check_entity(row: StoredRow, tables: Tables) -> list[str]:
    wrong = []
    table_id = storage_keys.table_id_of(row.partition)
    if table_id not in tables:
        wrong.append(
            f"belongs to table id {table_id.hex()}, which is neither a table nor being swept"
        )
    return wrong + _check_content(row)


def _check_content(row: StoredRow) -> list[str]:
    wrong = []
    table_id = storage_keys.table_id_of(row.partition)
    raw = read_raw(row.value)
    key = key_of(raw)
    if storage_keys.entity_place(table_id, key) != (row.partition, row.row):
        wrong.append(f"holds the entity {key!r}")
    if raw["Timestamp"] != format_date_time(row.version):
        wrong.append(f"has Timestamp {raw['Timestamp']}, but is stored with version {row.version}")
    if entity_renderer(key, members(typed_properties(raw)).values())(row.version) != row.value:
        wrong.append("is not written in the form that the server writes")
    return wrong
