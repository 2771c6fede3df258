"""Thousands of entities: deleted under the ETags that were read, copied in order, and never more than was asked."""

import datetime as dt
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.data.tables import (
    EdmType,
    EntityProperty,
    TableClient,
    TableTransactionError,
    UpdateMode,
)

from patterns.conftest import Half
from patterns.test_large_value import noise
from table_patterns import Checked, Copied, Deleted, bulk_delete
from tablestone.testing.storage import StorageAccount, TableStorage


def fill(table: Any, partitions: int = 3, rows: int = 250) -> None:
    for partition in range(partitions):
        for start in range(0, rows, 100):
            table.submit_transaction(
                [
                    (
                        "create",
                        {"PartitionKey": f"p{partition}'", "RowKey": f"{row:04}", "Value": row},
                    )
                    for row in range(start, min(start + 100, rows))
                ]
            )


def keys_of(table: Any) -> set[tuple[str, str]]:
    return {(entity["PartitionKey"], entity["RowKey"]) for entity in table.list_entities()}


def test_what_a_filter_finds_is_deleted(half: Half) -> None:
    table = half.table()
    fill(table, rows=130)
    seen: list[Deleted] = []
    done = half.bulk_delete(table, "Value ge 20", progress=seen.append)
    assert done == Deleted(330, 330) == seen[-1]
    assert [each.deleted for each in seen] == sorted(each.deleted for each in seen)
    assert {row for _, row in keys_of(table)} == {f"{row:04}" for row in range(20)}
    assert half.bulk_delete(table, "").deleted == 60
    assert half.bulk_delete(table, "") == Deleted()


@pytest.mark.parametrize(
    "fault", [{"reset": "after"}, {"reset": "before"}, {"reset": "within"}, {"error": "ServerBusy"}]
)
def test_a_lost_answer_deletes_nothing_else(
    half: Half, table_storage: TableStorage, fault: dict[str, str]
) -> None:
    table = half.table(retry_backoff_factor=0.01)
    fill(table, 2, 105)
    table_storage.faults.add(operation="EntityGroupTransaction", count=2, **fault)
    assert half.bulk_delete(table, "Value lt 102").deleted == 204
    assert len(keys_of(table)) == 6


def test_an_entity_that_changed_is_asked_again(
    table_account: StorageAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One change makes an entity leave the filter; another leaves it in; a third entity is deleted by others."""
    with TableClient.from_connection_string(table_account.connection_string, "Things") as table:
        table.create_table()
        fill(table, 1, 150)
        submit = table.submit_transaction

        def change_first(operations: list[Any]) -> Any:
            monkeypatch.undo()
            for row, value in (("0003", -5), ("0007", 70)):
                entity = {"PartitionKey": "p0'", "RowKey": row, "Value": value}
                table.update_entity(entity, UpdateMode.REPLACE)
            table.delete_entity("p0'", "0010")
            return submit(operations)

        monkeypatch.setattr(table, "submit_transaction", change_first)
        done = bulk_delete(table, "Value ge 0")
        assert done == Deleted(150, 149, left=1)
        assert keys_of(table) == {("p0'", "0003")}


def test_two_that_delete_at_once_count_right(
    table_account: StorageAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one deletes a row before the first transaction of this one, and all rows while it asks again."""
    with (
        TableClient.from_connection_string(table_account.connection_string, "Things") as table,
        TableClient.from_connection_string(table_account.connection_string, "Things") as other,
    ):
        table.create_table()
        fill(table, 1, 60)
        submit, query = table.submit_transaction, table.query_entities
        queries = 0

        def submit_second(*arguments: Any, **options: Any) -> Any:
            other.delete_entity("p0'", "0000")
            return submit(*arguments, **options)

        def delete_before_the_third(*arguments: Any, **options: Any) -> Any:
            nonlocal queries
            queries += 1
            if queries == 3:
                bulk_delete(other, "")
            return query(*arguments, **options)

        monkeypatch.setattr(table, "submit_transaction", submit_second)
        monkeypatch.setattr(table, "query_entities", delete_before_the_third)
        assert bulk_delete(table, "Value ge 0") == Deleted(60, 60)


def test_entities_that_always_change_are_told(
    table_account: StorageAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TableClient.from_connection_string(table_account.connection_string, "Things") as table:
        table.create_table()
        fill(table, 1, 5)
        submit = table.submit_transaction

        def change(operations: list[Any]) -> Any:
            if operations[0][0] == "delete":
                table.update_entity({"PartitionKey": "p0'", "RowKey": "0002", "More": 1})
            return submit(operations)

        monkeypatch.setattr(table, "submit_transaction", change)
        assert bulk_delete(table, "") == Deleted(5, 4, changing=1)
        assert keys_of(table) == {("p0'", "0002")}


def test_a_wrong_filter_deletes_nothing(half: Half) -> None:
    table = half.table()
    fill(table, 1, 5)
    with pytest.raises(HttpResponseError, match="InvalidInput"):
        half.bulk_delete(table, "Value ge")
    assert len(keys_of(table)) == 5
    with pytest.raises(TypeError, match="None is no filter"):
        half.bulk_delete(table, None)
    assert len(keys_of(table)) == 5


WIDE = {
    "Text": "é" * 30_000,
    "Bytes": bytes(60_000),
    "Int64": EntityProperty(2**50, EdmType.INT64),
    "Time": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "True": True,
}


def test_a_partition_is_copied_with_its_types(half: Half) -> None:
    source, target = half.table(), half.table("Others")
    for row in range(60):  # some 15 MB as JSON
        source.create_entity({"PartitionKey": "p", "RowKey": f"{row:03}", **WIDE})
    source.create_entity({"PartitionKey": "q", "RowKey": "1"})
    target.create_entity({"PartitionKey": "r", "RowKey": "002", "Old": 1})
    seen: list[Copied] = []
    done = half.copy_partition(source, target, "p", "r", progress=seen.append)
    assert done == Copied(60, "059") == seen[-1]
    assert len(seen) > 4
    copied = {entity["RowKey"]: dict(entity) for entity in target.list_entities()}
    assert copied == {
        f"{row:03}": {"PartitionKey": "r", "RowKey": f"{row:03}", **WIDE} for row in range(60)
    }


@pytest.mark.parametrize("arguments", [["p"], ["p", "p"]])
def test_a_partition_is_not_copied_onto_itself(half: Half, arguments: list[str]) -> None:
    """It would replace what others write by what was read before."""
    table, same = half.table(), half.table()
    table.create_entity({"PartitionKey": "p", "RowKey": "1"})
    with pytest.raises(ValueError, match="onto itself"):
        half.copy_partition(table, same, *arguments)
    assert half.copy_partition(table, same, "p", "q") == Copied(1, "1")


def test_a_copy_goes_on_after_an_error(half: Half, table_storage: TableStorage) -> None:
    source, target = half.table(), half.table("Others", retry_total=0)
    fill(source, 1, 450)
    table_storage.faults.add(
        operation="EntityGroupTransaction", nth=3, error="AuthorizationFailure"
    )
    seen = [Copied()]
    with pytest.raises(TableTransactionError, match="AuthorizationFailure"):
        half.copy_partition(source, target, "p0'", progress=seen.append)
    table_storage.faults.clear()
    assert seen[-1] == Copied(200, "0199")
    assert half.copy_partition(source, target, "p0'", after=seen[-1].row_key) == Copied(250, "0449")
    assert keys_of(target) == keys_of(source)


def test_a_table_that_is_not_there_is_an_error(half: Half) -> None:
    none = half.table("None", create=False)
    with pytest.raises(ResourceNotFoundError):
        half.bulk_delete(none, "")
    with pytest.raises(ResourceNotFoundError):
        half.copy_partition(none, half.table(), "p")


@pytest.mark.parametrize("page", [{"page_max": 1}, {"page_max": 7}, {"page_max": 0, "count": 3}])
def test_short_and_empty_pages_change_nothing(
    half: Half, table_storage: TableStorage, page: dict[str, Any]
) -> None:
    """Of every pattern that reads pages."""
    table, target, parts = half.table(), half.table("Others"), half.table("Parts")
    indexed = half.IndexedTable(table, near=("Name",), far=("City",))
    for row in range(12):
        indexed.insert({"PartitionKey": "p", "RowKey": f"{row}", "Name": "Smith", "City": "Oslo"})
    values, value = half.LargeValues(parts), noise(3_000_000)
    values.put("p", "1", value)
    table_storage.faults.add(**page)
    assert len(list(indexed.find("City", "Oslo"))) == 12
    assert len(list(indexed.find("Name", "Smith", "p"))) == 12
    assert indexed.check() == Checked(12, [], [])
    assert values.get("p", "1") == value
    assert half.copy_partition(table, target, "p").copied == 24
    assert half.bulk_delete(target, "Name eq 'Smith'") == Deleted(12, 12)
    values.delete("p", "1")
    table_storage.faults.clear()
    assert (len(keys_of(target)), keys_of(parts)) == (12, set())
