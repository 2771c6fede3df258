"""Integrity: every stored row is checked against the rules of the storage format, and damaged storage is salvaged.

Keys must parse, the content of a row must name the row's own key and version, entities must have the form of the wire,
and every entity must belong to a table that exists or is being swept. The findings are sentences for the operator.
Salvage takes the entities that pass, sorted by their tables, and names those that are lost. Changes nothing.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from tablestone import limits
from tablestone.engines.contract import Engine, EngineUnavailable, Key, StoredRow
from tablestone.engines.sqlite.salvage import SalvagedRows
from tablestone.model.edm import format_date_time
from tablestone.model.entity import require_sizes
from tablestone.model.entity_json import (
    entity_renderer,
    key_of,
    members,
    read_raw,
    typed_properties,
)
from tablestone.model.errors import StorageError
from tablestone.model.keys import TABLE_NAME
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import read_incarnation
from tablestone.tables.catalog import every_table, read_record
from tablestone.tables.index_building import indexes_of, wrong_entries
from tablestone.tables.indexes import Index, IndexState
from tablestone.tables.metadata import DocumentKind, Members, read_document, read_properties
from tablestone.tables.storage_keys import Tables, in_words

DocumentReaders = Mapping[DocumentKind, Callable[[str, Members], object]]
"""Readers of other kinds: each takes name and members, and raises for a fault, without a secret in its message."""
_NO_READERS: DocumentReaders = {}

_DOCUMENT_KINDS = {kind.value: kind for kind in DocumentKind}


async def check_rows(
    engine: Engine, readers: DocumentReaders = _NO_READERS, large: list[str] | None = None
) -> list[str]:
    """The faults of an engine's rows, a sentence each; empty if there are none.

    `large` gets the entities, in words, that only a server with `--entity-size` writes.
    """
    found: list[str] = []
    tables: Tables = {}
    rest = storage_keys.EVERYTHING
    try:
        while rows := await engine.scan(rest, rows_max=limits.PAGE_ENTITIES_MAX):
            # The catalog sorts before all entities, so every table is known before its first entity is read.
            for row in rows:
                found.extend(_check_row(row, tables, readers))
                if large is not None and _is_large(row):
                    large.append(in_words(Key(row.partition, row.row), tables))
            rest = storage_keys.after(rest, rows[-1])
    except EngineUnavailable as error:
        is_start = rest is storage_keys.EVERYTHING
        begins = "" if is_start else f"from {in_words(rest.start, tables)} on "
        found.append(f"{begins}nothing can be read: {error}")
    # Nobody can say which entries a damaged row should have.
    return found or await _check_indexes(engine)


def _is_large(row: StoredRow) -> bool:
    """False for what cannot be read, which is a fault."""
    is_entity = row.partition.startswith(storage_keys.ENTITIES)
    try:
        if is_entity and len(row.value) > limits.STRING_LENGTH_MAX:
            raw = read_raw(row.value)
            require_sizes(key_of(raw), typed_properties(raw))
    except StorageError:
        return True
    except _UNREADABLE:
        pass
    return False


async def _check_indexes(engine: Engine) -> list[str]:
    found: list[str] = []
    async for account, table in every_table(engine):
        for index in await indexes_of(engine, table):
            if index.state is not IndexState.READY:
                continue
            wrong = wrong_entries(engine, table.table_id, index)
            _, missing, stale = [so_far async for _, so_far in wrong][-1]
            if missing or stale:
                entries = "entry" if missing == 1 else "entries"
                found.append(
                    f"the index on {index.property} of table {table.name!r} of account {account} lacks {missing} "
                    f"{entries} and has {stale} that no entity has: repair it with tablestone index check"
                )
    return found


def _why(error: Exception) -> str:
    if isinstance(error, orjson.JSONDecodeError):
        return "it is not JSON"
    if isinstance(error, KeyError):
        return f"it has no member {error.args[0]!r}"
    return str(error) or "it is not in the form that the server writes"


_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, AssertionError)
"""The errors of reading a row that is not in the form that the server writes."""


def _check_row(row: StoredRow, tables: Tables, readers: DocumentReaders) -> list[str]:
    key = Key(row.partition, row.row)
    if row.version <= 0:
        wrong = [f"version {row.version} is not positive"]
    elif storage_keys.is_for_leases(key):
        wrong = []
    else:
        try:
            wrong = _faults(row, tables, readers)
        except _UNREADABLE as error:
            wrong = [f"unreadable: {_why(error)}"]
    place = in_words(key, tables)
    return [f"{place}: {fault}" for fault in wrong]


def _faults(row: StoredRow, tables: Tables, readers: DocumentReaders) -> list[str]:
    if row.partition.startswith(storage_keys.CATALOG):
        return _check_catalog_row(row, tables)
    if row.partition.startswith(storage_keys.DOCUMENTS):
        return _check_document(row, readers)
    if not row.partition.startswith(storage_keys.ENTITIES):
        return ["neither a catalog row, an entity nor a document"]
    table_id = storage_keys.table_id_of(row.partition)
    wrong = _check_entity(row)
    if table_id in tables:
        return wrong
    which = "which is neither a table nor being swept"
    return [f"belongs to table id {table_id.hex()}, {which}", *wrong]


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


def _check_entity(row: StoredRow) -> list[str]:
    """The faults of an entity by itself, whatever its table; empty if it is as the server writes it."""
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


Store = Callable[[bytes, bytes], None]
"""Takes the id of a table and an entity as JSON."""

_ACCOUNT_NAME: Final = re.compile(r"[a-z0-9]{3,24}", re.ASCII)


class LostEntity(NamedTuple):
    partition_key: str
    row_key: str
    reason: str


@dataclass
class SalvagedTable:
    """A table, as far as it is known: without an account and a name if its catalog row is lost."""

    table_id: bytes
    account: str | None = None
    name: str | None = None
    is_deleted: bool = False
    """Its entities were being swept, so they are not salvaged."""
    indexes: tuple[Index, ...] = ()
    """Their entries are not salvaged."""
    entities: int = 0
    lost: list[LostEntity] = field(default_factory=list)


@dataclass
class Salvaged:
    tables: list[SalvagedTable]
    other_losses: list[str]
    """Rows of other kinds that cannot be read, each in words: tables, policies, accounts."""
    storage: SalvagedRows

    @property
    def lost(self) -> int:
        return sum(len(table.lost) for table in self.tables)


def salvage(storage: SalvagedRows, store: Store) -> Salvaged:
    """Hand every entity that can be read to `store`, and return what was found and what was not."""
    return _Salvage(store).run(storage)


class _Salvage:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._tables: dict[bytes, SalvagedTable] = {}
        self._refused: dict[int, tuple[Key, str]] = {}
        """The rows whose content is damaged, by their rowids: the key that was read, and the reason."""

    def run(self, storage: SalvagedRows) -> Salvaged:
        for rowid, row in storage.rows():
            wrong = self._take(row)
            if wrong:
                self._refused[rowid] = (Key(row.partition, row.row), wrong)
        for table in self._tables.values():
            if table.is_deleted:
                table.entities = 0
        other = [self._lose(key, "its page is damaged") for key in storage.lost_keys()]
        by_index = storage.keys_at(self._refused)
        for rowid, (key, reason) in self._refused.items():
            other.append(self._lose(by_index.get(rowid, key), reason))
        found = [table for table in self._tables.values() if not table.is_deleted]
        return Salvaged(
            tables=sorted(found, key=lambda table: (table.account or "~", table.name or "")),
            other_losses=sorted({words for words in other if words}),
            storage=storage,
        )

    def _take(self, row: StoredRow) -> str:
        """Take a row; returns its fault in words, or an empty text."""
        try:
            if row.partition.startswith(storage_keys.CATALOG):
                self._take_catalog_row(row)
        except _UNREADABLE:
            return "it is not in the form that the server writes"
        if not row.partition.startswith(storage_keys.ENTITIES):
            return ""
        try:
            faults = _check_entity(row)
        except _UNREADABLE as error:
            return f"unreadable: {_why(error)}"
        if faults:
            return faults[0]
        table = self._table(storage_keys.table_id_of(row.partition))
        table.entities += 1
        self._store(table.table_id, row.value)
        return ""

    def _take_catalog_row(self, row: StoredRow) -> None:
        is_table = storage_keys.is_table_row(row.row)
        if not is_table and not storage_keys.is_deleted_row(row.row):
            return
        record = read_record(row.value)
        table = self._table(record.table_id)
        table.is_deleted = not is_table
        table.indexes = record.indexes
        account = storage_keys.account_of(row.partition)
        # The names become names of files.
        if _ACCOUNT_NAME.fullmatch(account) and TABLE_NAME.fullmatch(record.name):
            table.account, table.name = account, record.name

    def _lose(self, key: Key, reason: str) -> str | None:
        """Note a lost entity; returns words for a row of another kind."""
        if key.partition.startswith(storage_keys.ENTITIES):
            table = self._table(storage_keys.table_id_of(key.partition))
            with suppress(UnicodeDecodeError):
                table.lost.append(LostEntity(*storage_keys.entity_key(key), reason))
                return None
        return in_words(key, {})

    def _table(self, table_id: bytes) -> SalvagedTable:
        return self._tables.setdefault(table_id, SalvagedTable(table_id))
