"""Entities of 2 MiB in the explorer: the server decides, and its refusal is shown; without a browser."""

import html

import pytest
from azure.data.tables import TableServiceClient

from explorer.test_explorer_kept_forms import post
from tablestone.testing import TableStorage
from tablestone.tools.connection import parse_connection_string

LARGEST = "\u20ac" * ((1 << 20) - 20)
"""2 MiB: nine bytes a character in a form."""
REFUSED = "The entity is larger than the maximum allowed size (1MB)."


@pytest.mark.parametrize(
    ("size", "text", "told"),
    [("2MiB", LARGEST, "The entity is inserted."), ("1MiB", "x" * 600_000, REFUSED)],
    ids=["2MiB", "1MiB"],
)
def test_the_server_decides_how_large_an_entity_may_be(size: str, text: str, told: str) -> None:
    form = {"is_new": "1", "pk": "p", "rk": "r", "name": "V", "kind": "String", "text": text}
    with TableStorage(entity_size=size) as storage:
        storage.seed({"Table": []})
        connection = parse_connection_string(storage.connection_string)
        answer = post(connection, "/tables/Table/new", form)
        service = TableServiceClient.from_connection_string(storage.connection_string)
        found = [each["V"] for each in service.get_table_client("Table").list_entities()]
    assert told in html.unescape(answer.text)
    assert found == ([text] if told != REFUSED else [])
