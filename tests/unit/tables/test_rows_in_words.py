"""The place of a row in the words of the service, for each kind of row in the storage format."""

import pytest

from tablestone.engines.contract import Key
from tablestone.model.keys import EntityKey
from tablestone.tables import storage_keys
from tablestone.tables.metadata import DocumentKind
from tablestone.tables.storage_keys import in_words

TABLE_ID = bytes(range(8))
CATALOG = storage_keys.CATALOG + b"weather"
PLACES = {
    "an entity": (
        Key(*storage_keys.entity_place(TABLE_ID, EntityKey("EWR", "1"))),
        "the entity PartitionKey='EWR', RowKey='1' of table Readings",
    ),
    "a table": (
        Key(CATALOG, storage_keys.table_row("Readings")),
        "the description of table readings of account weather",
    ),
    "a name that is reserved": (
        Key(CATALOG, storage_keys.taken_row("Readings")),
        "the reserved name readings of account weather",
    ),
    "a deleted table": (
        Key(CATALOG, storage_keys.deleted_row(TABLE_ID)),
        "the note of a deleted table of account weather",
    ),
    "a deleted table, in a row of many": (
        Key(CATALOG, storage_keys.deleted_slots(TABLE_ID)[0]),
        "the note of a deleted table of account weather",
    ),
    "a sentinel": (
        Key(CATALOG, storage_keys.SENTINEL_ROW),
        "the first row in the catalog of account weather",
    ),
    "a mark": (
        Key(storage_keys.documents_partition(b"roles"), storage_keys.mark_row(b"x")),
        "the mark of a change in documents of kind 'roles'",
    ),
    "an incarnation": (
        Key(CATALOG, storage_keys.INCARNATION_ROW),
        "the incarnation of account weather",
    ),
    "a row that has no meaning": (Key(CATALOG, b"x"), "row 'x' of account weather"),
    "an account": (
        storage_keys.document_place(DocumentKind.ACCOUNT.value, "weather"),
        "the stored account weather with its keys",
    ),
    "roles": (
        storage_keys.document_place(DocumentKind.ROLES.value, "weather"),
        "the roles of account weather",
    ),
    "service properties": (
        storage_keys.document_place(DocumentKind.SERVICE_PROPERTIES.value, "weather"),
        "the service properties of account weather",
    ),
    "a secret": (
        storage_keys.document_place(DocumentKind.SECRETS.value, "token-key"),
        "the server's own secret token-key",
    ),
    "the probe": (
        storage_keys.document_place(DocumentKind.PROBE.value, "ready"),
        "the row that /health/ready writes",
    ),
    "a kind of a later version": (
        storage_keys.document_place(b"later", "name"),
        "the document 'name' of kind 'later'",
    ),
}


@pytest.mark.parametrize(("key", "words"), PLACES.values(), ids=PLACES)
def test_the_place_in_words(key: Key, words: str) -> None:
    assert in_words(Key(*key), {TABLE_ID: "Readings"}) == words


def test_every_kind_of_document_has_words() -> None:
    for kind in DocumentKind:
        assert " of kind " not in in_words(storage_keys.document_place(kind.value, "x"), {})
