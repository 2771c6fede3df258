"""Salvage: the entities of damaged storage, sorted by their tables, and the names of those that are lost.

An entity comes out only if it is as the server wrote it: its text, its key, its version. Knows the layout of storage;
does not know pages, nor where the entities are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tablestone.engines.contract import DamagedStorage, Key, StoredRow
from tablestone.model.table_names import TABLE_NAME
from tablestone.tables import storage_keys
from tablestone.tables.catalog import read_record
from tablestone.tables.integrity import entity_faults
from tablestone.tables.storage_keys import in_words

Store = Callable[[bytes, bytes], None]
"""Takes the id of a table and an entity as JSON."""

_ACCOUNT_NAME: Final = re.compile(r"[a-z0-9]{3,24}", re.ASCII)


class LostEntity(NamedTuple):
    """An entity that exists and cannot be read."""

    partition_key: str
    row_key: str
    reason: str


@dataclass
class SalvagedTable:
    """A table, as far as it is known. Without an account and a name if its catalog row is lost."""

    table_id: bytes
    account: str | None = None
    name: str | None = None
    is_deleted: bool = False
    """Its entities were being removed, so they do not come out."""
    entities: int = 0
    lost: list[LostEntity] = field(default_factory=list)


@dataclass
class Salvaged:
    """The result of a salvage."""

    tables: list[SalvagedTable]
    other_losses: list[str]
    """Rows that are no entities and cannot be read, each in words: tables, policies, accounts."""
    pages: int
    damaged_pages: Collection[int]
    is_complete: bool
    """Whether every lost entity has its place in `tables`."""
    lost_writes: bool
    """Whether acknowledged writes are lost of which nothing is known, not even their keys."""
    uncertain: int
    """Entities that may have been deleted before."""

    @property
    def lost(self) -> int:
        """The number of entities that are known to be lost."""
        return sum(len(table.lost) for table in self.tables)


def salvage(storage: DamagedStorage, store: Store) -> Salvaged:
    """Hand every entity that can be read to `store`, and return what was found and what was not."""
    return _Salvage(store).run(storage)


class _Salvage:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._tables: dict[bytes, SalvagedTable] = {}
        self._refused: dict[int, tuple[Key, str]] = {}
        """The rows whose content is damaged, by their place: the key that was read, and the reason."""

    def run(self, storage: DamagedStorage) -> Salvaged:
        for place, row in storage.rows():
            wrong = self._take(row)
            if wrong:
                self._refused[place] = (Key(row.partition, row.row), wrong)
        for table in self._tables.values():
            if table.is_deleted:
                table.entities = 0
        other = [self._lose(key, reason) for key, reason in self._losses(storage)]
        found = [table for table in self._tables.values() if not table.is_deleted]
        return Salvaged(
            tables=sorted(found, key=lambda table: (table.account or "~", table.name or "")),
            other_losses=sorted({words for words in other if words}),
            pages=storage.pages,
            damaged_pages=storage.damaged_pages,
            is_complete=storage.is_complete,
            lost_writes=storage.lost_writes,
            uncertain=storage.uncertain_rows,
        )

    def _losses(self, storage: DamagedStorage) -> Iterator[tuple[Key, str]]:
        for key in storage.lost_keys():
            yield key, "its page is damaged"
        by_index = storage.keys_at(self._refused)
        for place, (key, reason) in self._refused.items():
            yield by_index.get(place, key), reason

    def _take(self, row: StoredRow) -> str:
        """Take a row; returns its fault, in words, or nothing."""
        try:
            if row.partition.startswith(storage_keys.CATALOG):
                self._take_catalog_row(row)
            elif row.partition.startswith(storage_keys.ENTITIES):
                return self._take_entity(row)
        except (ValueError, KeyError, TypeError, AttributeError, AssertionError):
            return "it is not in the form that the server writes"
        return ""

    def _take_catalog_row(self, row: StoredRow) -> None:
        is_table = storage_keys.is_table_row(row.row)
        if not is_table and not storage_keys.is_deleted_row(row.row):
            return
        record = read_record(row.value)
        table = self._table(record.table_id)
        table.is_deleted = not is_table
        account = storage_keys.account_of(row.partition)
        # The names become names of files.
        if _ACCOUNT_NAME.fullmatch(account) and TABLE_NAME.fullmatch(record.name):
            table.account, table.name = account, record.name

    def _take_entity(self, row: StoredRow) -> str:
        faults = entity_faults(row)
        if faults:
            return faults[0]
        table = self._table(storage_keys.table_id_of(row.partition))
        table.entities += 1
        self._store(table.table_id, row.value)
        return ""

    def _lose(self, key: Key, reason: str) -> str | None:
        """Note a lost entity; returns words for a row of another kind."""
        if key.partition.startswith(storage_keys.ENTITIES):
            table = self._table(storage_keys.table_id_of(key.partition))
            try:
                entity = storage_keys.entity_key(key)
            except UnicodeDecodeError:
                return in_words(key, {})
            table.lost.append(LostEntity(entity.partition_key, entity.row_key, reason))
            return None
        return in_words(key, {})

    def _table(self, table_id: bytes) -> SalvagedTable:
        return self._tables.setdefault(table_id, SalvagedTable(table_id))
