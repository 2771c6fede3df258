"""The layout of storage: a range of a table, a kind or an account holds its own rows and no neighbour's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestone.engines.contract import Key, KeyRange
from tablestone.model.keys import EntityKey
from tablestone.query.plan import EVERY_KEY
from tablestone.tables import storage_keys
from tablestone.tables.storage_keys import TABLE_ID_LENGTH

IDS = st.binary(min_size=TABLE_ID_LENGTH, max_size=TABLE_ID_LENGTH)
KEYS = st.builds(EntityKey, st.text("a\uffff", max_size=2), st.text("a\uffff", max_size=2))


def holds(key_range: KeyRange, key: Key) -> bool:
    return key_range.start <= key < key_range.end


def next_after(table_id: bytes) -> bytes:
    """The nearest greater id: its last byte is one more."""
    number = int.from_bytes(table_id, "big") + 1
    return (number % 256**TABLE_ID_LENGTH).to_bytes(TABLE_ID_LENGTH, "big")


@given(IDS, KEYS)
def test_a_table_is_its_own_entities(table_id: bytes, key: EntityKey) -> None:
    place = storage_keys.entity_place(table_id, key)
    assert storage_keys.entity_key(place) == key
    neighbour = storage_keys.entity_place(next_after(table_id), key)
    for whole in (
        storage_keys.table_range(table_id),
        *storage_keys.key_ranges(table_id, EVERY_KEY),
    ):
        assert holds(whole, place)
        assert not holds(whole, neighbour)


@given(IDS, st.sampled_from(["Readings", "a", "zzz"]))
def test_a_catalog_begins_with_its_sentinel_and_ends_with_marks(table_id: bytes, name: str) -> None:
    rows = [
        storage_keys.SENTINEL_ROW,
        *sorted({*storage_keys.deleted_slots(table_id), storage_keys.deleted_row(table_id)}),
        storage_keys.table_row(name),
        storage_keys.taken_row(name),
        storage_keys.INCARNATION_ROW,
        storage_keys.mark_row(b"\0"),
    ]
    assert rows == sorted(rows)
    partition = storage_keys.catalog_partition("account")
    for_leases = [row for row in rows if storage_keys.is_for_leases(Key(partition, row))]
    assert for_leases == [rows[0], rows[-1]]
    entities = storage_keys.entity_partition(table_id, "p")
    assert not any(storage_keys.is_for_leases(Key(entities, row)) for row in rows)


def test_documents_of_a_kind_are_neither_its_sentinel_nor_its_marks() -> None:
    whole = storage_keys.documents_of(b"kind")
    partition = storage_keys.documents_partition(b"kind")
    for row in (storage_keys.SENTINEL_ROW, storage_keys.mark_row(b"\0")):
        assert storage_keys.is_for_leases(Key(partition, row))
        assert not holds(whole, Key(partition, row))
    for name in ("a", "~", "0"):
        assert holds(whole, storage_keys.document_place(b"kind", name))


@given(IDS)
def test_each_note_of_a_deleted_table_is_in_one_part(table_id: bytes) -> None:
    whole = storage_keys.deleted_rows("account")
    parts = [
        storage_keys.deleted_rows("account", part) for part in range(storage_keys.DELETED_PARTS)
    ]
    assert [part.start for part in parts[1:]] == [part.end for part in parts[:-1]]
    assert parts[-1].end == whole.end
    for row in (storage_keys.deleted_row(table_id), *storage_keys.deleted_slots(table_id)):
        place = Key(storage_keys.catalog_partition("account"), row)
        assert holds(whole, place)
        assert sum(holds(part, place) for part in parts) == 1


@pytest.mark.parametrize("table_id", [b"\0" * 8, b"\xff" * 8, b"a" * 7 + b"\xff"])
def test_a_table_at_the_end_of_its_bytes(table_id: bytes) -> None:
    whole = storage_keys.table_range(table_id)
    assert holds(whole, storage_keys.entity_place(table_id, EntityKey("\uffff", "\uffff")))
    assert not holds(whole, storage_keys.document_place(b"kind", "name"))
    assert not holds(whole, storage_keys.table_place("account", "table"))
