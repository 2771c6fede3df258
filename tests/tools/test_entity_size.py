"""Entities of 2 MiB between servers: the SDK and the tools move them, and name those that the other side refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import RequestTooLargeError, TableClient, TableServiceClient

from tablestone.testing.state import SeedRefused, StorageRefused
from tablestone.testing.storage import TableStorage
from tools.data_tools import DataTools, entity

TABLE = "Large"
LARGE = entity("p", "large", Text="\x01" * ((1 << 20) - 20))
"""An entity of 2 MiB, which has 6 MiB as JSON: too many for a batch."""
LONG = entity("p", "long", Text="x" * 40_000)
SMALL = entity("p", "small", Text="x")


@pytest.fixture(scope="module")
def large() -> Iterator[TableStorage]:
    with TableStorage(entity_size="2MiB") as storage:
        storage.seed({TABLE: [LARGE, LONG, SMALL]})
        yield storage


@pytest.fixture
def usual() -> Iterator[TableStorage]:
    with TableStorage() as storage:
        yield storage


def place(tools: DataTools, name: str, storage: TableStorage) -> str:
    path = tools.directory / name
    path.write_text(storage.connection_string)
    return f"@{path}"


def table_of(storage: TableStorage) -> TableClient:
    service = TableServiceClient.from_connection_string(storage.connection_string)
    return service.create_table_if_not_exists(TABLE)


@pytest.mark.sdk
@pytest.mark.parametrize(
    "value", ["\x01" * ((1 << 20) - 20), bytes((1 << 21) - 40)], ids=["str", "bytes"]
)
def test_the_sdk_writes_and_reads_it(large: TableStorage, value: str | bytes) -> None:
    with table_of(large) as table:
        whole: dict[str, Any] = {"PartitionKey": "q", "RowKey": "r", "V": value}
        table.upsert_entity(whole)
        assert dict(table.get_entity("q", "r")) == whole
        assert [dict(each) for each in table.query_entities("PartitionKey eq 'q'")] == [whole]
        with pytest.raises(HttpResponseError, match="maximum allowed size "):
            table.upsert_entity(whole | {"More": "x" * 100})
        table.delete_entity("q", "r")


@pytest.mark.sdk
def test_the_sdk_is_told_that_a_transaction_is_too_large(large: TableStorage) -> None:
    with table_of(large) as table:
        rows = [{"PartitionKey": "m", "RowKey": str(n)} for n in range(9)]
        for row in rows:
            table.upsert_entity(row | {"V": bytes((1 << 21) - 100)})
        with pytest.raises(RequestTooLargeError, match="more than 16 MiB as they are stored"):
            table.submit_transaction([("upsert", row | {"Other": 1}) for row in rows])
        table.submit_transaction([("upsert", row | {"Other": 1}) for row in rows[:4]])
        for row in rows:
            table.delete_entity(row)


def test_the_test_kit_has_the_option(usual: TableStorage) -> None:
    with pytest.raises(StorageRefused, match="entity_size is '1MiB' or '2MiB', not '3MiB'"):
        TableStorage(entity_size="3MiB")
    with pytest.raises(SeedRefused, match="EntityTooLarge"):
        usual.seed({TABLE: [LARGE]})


def test_a_copy_is_whole_or_names_the_entity(
    tools: DataTools, large: TableStorage, usual: TableStorage
) -> None:
    source = place(tools, "source", large)
    with TableStorage(entity_size="2MiB") as other:
        told = tools.run(
            "copy", "--from", source, "--to", place(tools, "other", other), TABLE
        ).lines
        assert "  Verified: 3 entities on both sides, and they are equal." in told
    failed = tools.run(
        "copy", "--from", source, "--to", place(tools, "usual", usual), TABLE, status=1
    )
    name = "The target does not take the entity with PartitionKey 'p' and RowKey 'l"
    assert name in failed.stderr
    assert "PropertyValueTooLarge" in failed.stderr or "RequestBodyTooLarge" in failed.stderr


def test_a_followed_transaction_that_is_too_long_for_a_batch(tools: DataTools) -> None:
    """Merges made it, and its entities are whole in the feed: they are sent one by one."""
    with (
        TableStorage(entity_size="2MiB", keep_changes=True) as source,
        TableStorage(entity_size="2MiB") as target,
    ):
        text = LARGE["Text"][50:]
        source.seed({TABLE: [LARGE | {"RowKey": row, "Text": text} for row in "ab"]})
        ends = ("--from", place(tools, "from", source), "--to", place(tools, "to", target))
        follow = ("copy", *ends, TABLE, "--follow", "--until-caught-up", "--quiet")
        tools.run(*follow)
        with table_of(source) as table:
            merges = [("upsert", {"PartitionKey": "p", "RowKey": row, "Other": 1}) for row in "ab"]
            table.submit_transaction(merges)
        tools.run(*follow)
        with table_of(target) as table:
            assert [each["Other"] for each in table.list_entities()] == [1, 1]


def test_an_import_rejects_the_row(tools: DataTools, usual: TableStorage) -> None:
    file = tools.write_lines("rows.jsonl", [LARGE, LONG, SMALL])
    with TableStorage(entity_size="2MiB") as other:
        tools.run("import", file, TABLE, "--connection-string", place(tools, "other", other))
        stored = tools.run(
            "query", TABLE, "--connection-string", place(tools, "other", other), "--output", "jsonl"
        )
        assert stored.entities == [LARGE, LONG, SMALL]
    tools.run("import", file, TABLE, "--connection-string", place(tools, "usual", usual), status=1)
    lines = Path(f"{file}.rejects.jsonl").read_bytes().splitlines()
    rejects = {each["row"]: each for each in map(json.loads, lines)}
    assert {row: each["reason"].partition(":")[0] for row, each in rejects.items()} == {
        1: "RequestBodyTooLarge",
        2: "PropertyValueTooLarge",
    }
    assert json.loads(rejects[2]["text"]) == LONG
