"""The place of a row in words, for messages: the entity, the table or the document that a key stands for."""

from __future__ import annotations

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
    if key.partition.startswith(storage_keys.CATALOG):
        return f"the catalog's {_shown(key.row)} of account {key.partition[1:].decode('ascii', 'replace')}"
    if key.partition.startswith(storage_keys.DOCUMENTS):
        kind = key.partition.removeprefix(storage_keys.DOCUMENTS).decode("ascii", "replace")
        return f"the document {_shown(key.row)} of kind {kind!r}"
    return _row(key)


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
