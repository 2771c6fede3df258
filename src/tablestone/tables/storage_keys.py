"""The layout of storage: accounts, tables and entities as ordered byte keys, and back.

The id of a table is new at every creation, so the entities of a deleted table are never seen in a new table of its
name. docs/storage-format.md shows the rows.
"""

import functools
import secrets
from typing import Final

from tablestone.engines.contract import Key, KeyRange, StoredRow
from tablestone.model.keys import EntityKey, KeyBounds, decode_key, encode_key
from tablestone.query.plan import EVERY_KEY, KeyInterval

# The first byte of a partition says its kind.
CATALOG: Final = b"\x01"
"""Before the account: its catalog, with rows for tables, deleted tables and reserved names, and one incarnation."""
ENTITIES: Final = b"\x02"
"""Before a table's id and a PartitionKey: a partition of entities, with a row for each encoded RowKey."""
DOCUMENTS: Final = b"\x03"
"""Before a kind: documents beside the tables (`metadata`), with a row for each, by its name."""
EVERYTHING: Final = KeyRange(Key(b"", b""), Key(b"\xff" * 16, b""))
TABLE_ID_LENGTH: Final = 8


def fresh_table_id() -> bytes:
    return secrets.token_bytes(TABLE_ID_LENGTH)


SENTINEL_ROW: Final = b"\0"
"""The first row of a catalog or of documents, where an engine gives leases: it sorts before all others and is never
deleted. A read of the first row ends with it, and meets no row that was deleted (`cache_invalidation`)."""
# Deleted tables sort before the others: without a sentinel, the first row of a catalog says whether there is one.
_DELETED_ROW: Final = b"d"
DELETED_PARTS: Final = 16
"""Parts in which the notes of deleted tables can be read, by the first four bits of their names."""
_TABLE_ROW: Final = b"t"
_TAKEN_ROW: Final = b"u"
INCARNATION_ROW: Final = b"v"
"""The catalog row whose version is the incarnation of the account's name (`account_incarnation`)."""
_MARK: Final = b"\xff"
"""Before rows that mark a change under way (`cache_invalidation`). They come last, because no name has this byte."""


def catalog_partition(account: str) -> bytes:
    return CATALOG + account.encode("ascii")


def catalogs_after(partition: bytes) -> KeyRange:
    """The catalogs of all accounts that come after this partition; after an empty one, of all."""
    start = partition + b"\0" if partition else CATALOG
    return KeyRange(Key(start, b""), Key(_after_prefix(CATALOG), b""))


def account_of(partition: bytes) -> str:
    return partition.removeprefix(CATALOG).decode("ascii")


def table_row(table: str) -> bytes:
    """The catalog row of a table, found whatever the case of its name (wire 1.4)."""
    return _TABLE_ROW + table.lower().encode("utf-8", "surrogatepass")


def deleted_row(table_id: bytes) -> bytes:
    """The catalog row that notes that the entities of this table id are to be swept."""
    return _DELETED_ROW + table_id


def deleted_slots(table_id: bytes) -> list[bytes]:
    """Two of 256 rows that note the same, each named by one byte of the id. Another table may have taken them."""
    return [_DELETED_ROW + table_id[-1:], _DELETED_ROW + table_id[-2:-1]]


def taken_row(table: str) -> bytes:
    """The catalog row that says that a table of this name, in whatever case, was deleted: the name may be reserved."""
    return _TAKEN_ROW + table_row(table)


def table_place(account: str, table: str) -> Key:
    return Key(catalog_partition(account), table_row(table))


def table_ranges(account: str, intervals: tuple[KeyInterval, ...]) -> list[KeyRange]:
    """Ranges of the catalog for the intervals of a plan whose partitions are names of tables in lower case."""
    partition = catalog_partition(account)
    end_of_tables = Key(partition, bytes((_TABLE_ROW[0] + 1,)))
    return [
        KeyRange(
            Key(partition, _TABLE_ROW + start[0]),
            end_of_tables if end is None else Key(partition, _TABLE_ROW + end[0]),
        )
        for start, end in intervals
    ]


def table_rows_from(account: str, table: str) -> KeyRange:
    (everything,) = table_ranges(account, EVERY_KEY)
    return KeyRange(table_place(account, table), everything.end)


def deleted_rows(account: str, part: int | None = None) -> KeyRange:
    """All catalog rows of tables that are being swept, or one of `DELETED_PARTS` of them, which follow each other."""
    partition = catalog_partition(account)
    end = Key(partition, bytes((_DELETED_ROW[0] + 1,)))
    if part is None:
        return KeyRange(Key(partition, _DELETED_ROW), end)
    starts = [Key(partition, _DELETED_ROW + bytes((first,))) for first in range(0, 256, 16)]
    return KeyRange(starts[part], [*starts, end][part + 1])


def is_table_row(row: bytes) -> bool:
    return row.startswith(_TABLE_ROW)


def is_deleted_row(row: bytes) -> bool:
    """True for the catalog row of a table that is being swept."""
    return row.startswith(_DELETED_ROW)


def is_taken_row(row: bytes) -> bool:
    """True for the catalog row of a name that may not be free yet."""
    return row.startswith(_TAKEN_ROW)


@functools.lru_cache(maxsize=4096)
def document_place(kind: bytes, name: str) -> Key:
    return Key(DOCUMENTS + kind, name.encode("utf-8"))


def documents_partition(kind: bytes) -> bytes:
    return DOCUMENTS + kind


def documents_of(kind: bytes) -> KeyRange:
    partition = documents_partition(kind)
    return KeyRange(Key(partition, SENTINEL_ROW + b"\0"), Key(partition, _MARK))


def mark_row(name: bytes) -> bytes:
    return _MARK + name


def marks(partition: bytes) -> KeyRange:
    """All rows of a partition that say that a change is under way."""
    return KeyRange(Key(partition, _MARK), Key(partition + b"\0", b""))


def is_for_leases(key: Key) -> bool:
    """True for a sentinel or a mark: only changes under leases need them, and no server reads them as data."""
    partition, row = key
    if partition.startswith(ENTITIES):
        return False
    return row == SENTINEL_ROW or row.startswith(_MARK)


def after(key_range: KeyRange, last: Key | StoredRow) -> KeyRange:
    return KeyRange(Key(last.partition, last.row + b"\0"), key_range.end)


def entity_partition(table_id: bytes, partition_key: str) -> bytes:
    return ENTITIES + table_id + encode_key(partition_key)


def table_id_of(partition: bytes) -> bytes:
    return partition[1 : 1 + TABLE_ID_LENGTH]


def table_range(table_id: bytes) -> KeyRange:
    start = ENTITIES + table_id
    return KeyRange(Key(start, b""), Key(_after_prefix(start), b""))


def key_ranges(table_id: bytes, intervals: tuple[KeyInterval, ...]) -> list[KeyRange]:
    prefix = ENTITIES + table_id
    end_of_table = Key(_after_prefix(prefix), b"")
    return [
        KeyRange(
            Key(prefix + start[0], start[1]),
            end_of_table if end is None else Key(prefix + end[0], end[1]),
        )
        for start, end in intervals
    ]


def ranges_within(table_id: bytes, ranges: list[KeyRange], bounds: KeyBounds) -> list[KeyRange]:
    """The parts of ascending ranges of a table that are within the bounds."""
    start, end = table_range(table_id)
    if bounds.start_partition_key is not None:
        first = EntityKey(bounds.start_partition_key, bounds.start_row_key or "")
        start = entity_place(table_id, first)
    if bounds.end_partition_key is not None:
        partition = entity_partition(table_id, bounds.end_partition_key)
        if bounds.end_row_key is None:
            end = Key(partition + b"\0", b"")
        else:
            end = Key(partition, encode_key(bounds.end_row_key) + b"\0")
    return [
        KeyRange(max(key_range.start, start), min(key_range.end, end))
        for key_range in ranges
        if max(key_range.start, start) < min(key_range.end, end)
    ]


def ranges_from(ranges: list[KeyRange], start: Key) -> list[KeyRange]:
    """The rest of ascending ranges from a key on, inclusive."""
    return [
        KeyRange(max(key_range.start, start), key_range.end)
        for key_range in ranges
        if start < key_range.end
    ]


def ranges_back_from(ranges: list[KeyRange], last: Key) -> list[KeyRange]:
    """The rest of ascending ranges from a key back, inclusive."""
    return ranges_before(ranges, Key(last.partition, last.row + b"\0"))


def ranges_before(ranges: list[KeyRange], end: Key) -> list[KeyRange]:
    """The parts of ascending ranges before a key."""
    return [
        KeyRange(key_range.start, min(key_range.end, end))
        for key_range in ranges
        if key_range.start < end
    ]


def entity_place(table_id: bytes, key: EntityKey) -> Key:
    return Key(entity_partition(table_id, key.partition_key), encode_key(key.row_key))


def encoded_partition_key(partition: bytes) -> bytes:
    return partition[1 + TABLE_ID_LENGTH :]


def partition_key_of(partition: bytes) -> str:
    return decode_key(encoded_partition_key(partition))


def entity_key(key: Key) -> EntityKey:
    return EntityKey(partition_key_of(key.partition), decode_key(key.row))


def _after_prefix(prefix: bytes) -> bytes:
    """The first bytes after everything that begins with the prefix."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,))


# Keys in words, for messages.

Tables = dict[bytes, str]
"""Names of the tables that were found so far, by their ids."""


def in_words(key: Key, tables: Tables) -> str:
    """The row with this key, as the service names it; else as bytes."""
    partition, row = key
    if partition.startswith(ENTITIES):
        try:
            partition_key, row_key = entity_key(key)
        except UnicodeDecodeError:
            return _row(key)
        table = _table(partition, tables)
        return f"the entity PartitionKey={partition_key!r}, RowKey={row_key!r} of table {table}"
    if is_for_leases(key):
        kind = "first row" if row == SENTINEL_ROW else "mark of a change"
        return f"the {kind} in {partition_in_words(partition, tables)}"
    if partition.startswith(CATALOG):
        return f"{_catalog_row(row)} of account {_name(partition)}"
    if partition.startswith(DOCUMENTS):
        known = _DOCUMENTS.get(_name(partition))
        name = row.decode("ascii", "replace")
        if known is None or not name.isprintable():
            return f"the document {_shown(row)} of kind {_name(partition)!r}"
        return known.format(name)
    return _row(key)


def partition_in_words(partition: bytes, tables: Tables) -> str:
    if partition.startswith(ENTITIES):
        try:
            key = entity_key(Key(partition, b""))
        except UnicodeDecodeError:
            return f"partition {_shown(partition)}"
        return f"PartitionKey {key.partition_key!r} of table {_table(partition, tables)}"
    if partition.startswith(CATALOG):
        return f"the catalog of account {_name(partition)}"
    return f"documents of kind {_name(partition)!r}"


_DOCUMENTS: Final = {
    "account": "the stored account {} with its keys",
    "properties": "the service properties of account {}",
    "roles": "the roles of account {}",
    "secrets": "the server's own secret {}",
    "probe": "the row that /health/{} writes",
    "leases": "the lease of the server that sweeps, for {}",
    "counts": "the count of what an expiry policy hides, {}",
}
"""The documents by the values of `DocumentKind`."""


def _catalog_row(row: bytes) -> str:
    """A row of an account's catalog; tables have their names in lower case there."""
    if is_deleted_row(row):
        return "the note of a deleted table"
    if row == INCARNATION_ROW:
        return "the incarnation"
    what = "the reserved name" if is_taken_row(row) else "the description of table"
    table = row.removeprefix(_TAKEN_ROW)
    if not is_table_row(table):
        return f"row {_shown(row)}"
    return f"{what} {table.removeprefix(_TABLE_ROW).decode('utf-8', 'replace')}"


def _table(partition: bytes, tables: Tables) -> str:
    table_id = table_id_of(partition)
    return tables.get(table_id, f"of id {table_id.hex()}")


def _name(partition: bytes) -> str:
    """The account of a catalog, or the kind of documents."""
    return partition[1:].decode("ascii", "replace")


def _row(key: Key) -> str:
    return f"row {_shown(key.row)} of partition {_shown(key.partition)}"


def _shown(raw: bytes) -> str:
    """Bytes for a message: as text if they are text, else in hexadecimal."""
    text = raw.decode("ascii", "replace")
    return f"'{text}'" if raw.isascii() and text.isprintable() else raw.hex()
