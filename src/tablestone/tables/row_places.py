"""The place of a row in words, for messages: the entity, the table or the document that a key stands for."""

from __future__ import annotations

from typing import Final

from tablestone.engines.contract import Key
from tablestone.tables import storage_keys

Tables = dict[bytes, str]
"""Names of the tables that were found so far, by their ids."""


def in_words(key: Key, tables: Tables) -> str:
    """A place in storage in the words of the service, if the service has words for it."""
    if key.partition.startswith(storage_keys.ENTITIES):
        try:
            partition_key, row_key = storage_keys.entity_key(key)
        except UnicodeDecodeError:
            return _row(key)
        table_id = key.partition[1 : 1 + storage_keys.TABLE_ID_LENGTH]
        table = tables.get(table_id, f"of id {table_id.hex()}")
        return f"the entity PartitionKey={partition_key!r}, RowKey={row_key!r} of table {table}"
    if storage_keys.is_for_leases(key):
        kind = "first row" if key.row == storage_keys.SENTINEL_ROW else "mark of a change"
        return f"the {kind} in {partition_in_words(key.partition, tables)}"
    if key.partition.startswith(storage_keys.CATALOG):
        account = key.partition[1:].decode("ascii", "replace")
        return f"{_catalog_row(key.row)} of account {account}"
    if key.partition.startswith(storage_keys.DOCUMENTS):
        kind = key.partition.removeprefix(storage_keys.DOCUMENTS).decode("ascii", "replace")
        known = _DOCUMENTS.get(kind)
        name = key.row.decode("ascii", "replace")
        if known is None or not name.isprintable():
            return f"the document {_shown(key.row)} of kind {kind!r}"
        return known.format(name)
    return _row(key)


_DOCUMENTS: Final = {
    "account": "the stored account {} with its keys",
    "properties": "the service properties of account {}",
    "roles": "the roles of account {}",
    "secrets": "the server's own secret {}",
    "probe": "the row that /health/{} writes",
}
"""The documents by the values of `DocumentKind`."""


def _catalog_row(row: bytes) -> str:
    """A row of an account's catalog; tables have their names in lower case there."""
    name = storage_keys.named_table(row)
    if name is None and storage_keys.is_deleted_row(row):
        return "the note of a deleted table"
    if name is None:
        return "the incarnation" if row == storage_keys.INCARNATION_ROW else f"row {_shown(row)}"
    what = "the reserved name" if storage_keys.is_taken_row(row) else "the description of table"
    return f"{what} {name}"


def _row(key: Key) -> str:
    return f"row {_shown(key.row)} of partition {_shown(key.partition)}"


def _shown(raw: bytes) -> str:
    """Bytes for a message: as text if they are text, else in hexadecimal."""
    text = raw.decode("ascii", "replace")
    return f"'{text}'" if raw.isascii() and text.isprintable() else raw.hex()


def partition_in_words(partition: bytes, tables: Tables) -> str:
    """A partition in the words of the service, if the service has words for it."""
    if partition.startswith(storage_keys.ENTITIES):
        try:
            key = storage_keys.entity_key(Key(partition, b""))
        except UnicodeDecodeError:
            return f"partition {_shown(partition)}"
        table_id = partition[1 : 1 + storage_keys.TABLE_ID_LENGTH]
        table = tables.get(table_id, f"of id {table_id.hex()}")
        return f"PartitionKey {key.partition_key!r} of table {table}"
    if partition.startswith(storage_keys.CATALOG):
        return f"the catalog of account {partition[1:].decode('ascii', 'replace')}"
    return f"documents of kind {partition[1:].decode('ascii', 'replace')!r}"
