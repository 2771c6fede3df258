"""Large values: the whole of one version or nothing, and no part that stays for ever."""

import datetime as dt
import json
import random
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.data.tables import EdmType, EntityProperty, TableClient

from patterns.conftest import Half
from patterns.stopping import Stopped, stopped_at
from table_patterns import Conflicts, KeyPartError, LargeValues, OutcomeUnknown, Swept, ValueDamaged
from table_patterns.sync import large_value
from tablestone.testing.storage import StorageAccount, TableStorage

MEBIBYTE = 1024 * 1024


def noise(size: int, seed: int = 5) -> bytes:
    """Bytes that no compression makes smaller."""
    return random.Random(seed).randbytes(size)


VALUES: dict[str, Any] = {
    "nothing": b"",
    "a text": "à\ud83d\ude00 " * 100_000,
    "what compresses": bytes(20 * MEBIBYTE),
    "64 KiB and one": noise(64 * 1024 + 1),
    "as much as a row has": noise(11 * 64 * 1024),
    "one byte more than a row has": noise(11 * 64 * 1024 + 1),
    "3 MiB": noise(3 * MEBIBYTE),
    "many properties": {
        **{f"p{number}": number for number in range(1000)},
        "text": "é",
        "bytes": b"\0\xff",
        "float": 0.5,
        "whole": 5.0,
        "infinite": float("-inf"),
        "true": True,
        "time": dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC),
        "id": UUID(int=5),
        "int64": EntityProperty(2**40, EdmType.INT64),
    },
}


def rows_of(table: Any) -> list[str]:
    return [entity["RowKey"] for entity in table.list_entities()]


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back(half: Half, name: str) -> None:
    table = half.table()
    values = half.LargeValues(table)
    values.put("p", "a b!~ü", VALUES[name])
    assert values.get("p", "a b!~ü") == VALUES[name]
    values.put("p", "a b!~ü", b"short")
    assert values.get("p", "a b!~ü") == b"short"
    assert rows_of(table) == ["a b!~ü"]
    assert (values.delete("p", "a b!~ü"), values.get("p", "a b!~ü")) == (True, None)
    assert (values.delete("p", "a b!~ü"), rows_of(table)) == (False, [])


def test_the_parts_of_a_deleted_value_go_with_it(half: Half) -> None:
    table = half.table()
    values = half.LargeValues(table)
    values.put("p", "1", noise(2 * MEBIBYTE))
    assert len(rows_of(table)) == 4
    values.delete("p", "1")
    assert rows_of(table) == []


def test_a_writer_stopped_at_any_step_leaves_no_half_value(
    table_account: StorageAccount, table_storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableClient.from_connection_string(table_account.connection_string, "Things")
    table.create_table()
    values = LargeValues(table)
    old, new = noise(MEBIBYTE, 1), noise(3 * MEBIBYTE // 2, 2)
    for step in range(1, 20):
        values.put("p", "1", old)
        with monkeypatch.context() as patched:
            made = stopped_at(step, patched)
            with suppress(Stopped):
                values.put("p", "1", new)
        if made() < step:
            break
        stored = values.get("p", "1")
        assert stored in (old, new)
        table_storage.clock.advance(hours=1, seconds=10)
        values.sweep()
        assert values.get("p", "1") == stored
        head = table.get_entity("p", "1")
        rows = [row for row in rows_of(table) if row != "1"]
        assert len(rows) == head["Parts"]
        assert all(head["Version"] in row for row in rows)
    else:
        pytest.fail("the writer did not end")
    assert step > 7


@pytest.mark.parametrize("reset", ["before", "within", "after"])
@pytest.mark.parametrize(
    "operation", ["EntityGroupTransaction", "InsertOrReplaceEntity", "GetEntity"]
)
def test_a_lost_answer_loses_no_value(
    half: Half, table_storage: TableStorage, operation: str, reset: str
) -> None:
    values = half.LargeValues(half.table(retry_backoff_factor=0.01))
    values.put("p", "1", noise(MEBIBYTE))
    table_storage.faults.add(operation=operation, count=1, reset=reset)
    new = noise(2 * MEBIBYTE, 3)
    values.put("p", "1", new)
    assert values.get("p", "1") == new
    assert values.sweep() == Swept(0, 0)


def test_a_writer_that_took_too_long_is_told(
    half: Half, table_storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep comes between its parts and its transaction."""
    table = half.table()
    values = half.LargeValues(table)
    values.put("p", "1", b"old")
    client = getattr(table, "driven", table)
    submit, sweeping = client.submit_transaction, half.LargeValues(half.table())

    def late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        table_storage.clock.advance(hours=2)
        with TableClient.from_connection_string(connection, "Things") as other:
            assert LargeValues(other).sweep("p") == Swept(1, 5)
        return submit(*arguments, **options)

    connection = half.connection_string
    assert sweeping.sweep() == Swept(0, 0)
    monkeypatch.setattr(client, "submit_transaction", late)
    with pytest.raises(OutcomeUnknown, match="took too long"):
        values.put("p", "1", noise(2 * MEBIBYTE + 900_000))
    assert (values.get("p", "1"), rows_of(table)) == (b"old", ["1"])


def test_a_sweep_leaves_a_writer_alone(half: Half, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep comes between its parts and its transaction, too early to give it up."""
    table = half.table()
    client, value = getattr(table, "driven", table), noise(2 * MEBIBYTE)
    submit = client.submit_transaction

    def sweep_first(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        with TableClient.from_connection_string(half.connection_string, "Things") as other:
            assert LargeValues(other).sweep() == Swept(0, 0)
        return submit(*arguments, **options)

    monkeypatch.setattr(client, "submit_transaction", sweep_first)
    half.LargeValues(table).put("p", "1", value)
    assert half.LargeValues(table).get("p", "1") == value


def test_readers_see_whole_versions_while_others_write(table_account: StorageAccount) -> None:
    connection = table_account.connection_string
    with TableClient.from_connection_string(connection, "Things") as table:
        table.create_table()
        versions = [noise(size, seed) for seed, size in enumerate((MEBIBYTE, 10, 2 * MEBIBYTE))]
        LargeValues(table).put("p", "1", versions[0])

    def write(seed: int) -> None:
        with TableClient.from_connection_string(connection, "Things") as table:
            for number in range(6):
                LargeValues(table).put("p", "1", versions[(number + seed) % 3])

    def read(_: int) -> None:
        with TableClient.from_connection_string(connection, "Things") as table:
            for _ in range(8):
                assert LargeValues(table).get("p", "1") in versions

    with ThreadPoolExecutor(5) as pool:
        done = [*pool.map(write, range(3)), *pool.map(read, range(2))]
    assert len(done) == 5
    with TableClient.from_connection_string(connection, "Things") as table:
        LargeValues(table).sweep()
        parts = table.get_entity("p", "1")["Parts"]
        assert len(rows_of(table)) == parts + 1


@pytest.mark.parametrize("change", ["delete", "shorten"])
def test_a_damaged_value_is_told(half: Half, change: str) -> None:
    table = half.table()
    values = half.LargeValues(table)
    values.put("p", "1", noise(2 * MEBIBYTE))
    part = max(rows_of(table))
    if change == "delete":
        table.delete_entity("p", part)
    else:
        table.update_entity({"PartitionKey": "p", "RowKey": part, "Chunk00": b"x"})
    with pytest.raises(ValueDamaged, match="not those of its version"):
        values.get("p", "1")


REFUSED = [
    # the row key, the value, the error, its words
    (5, b"x", TypeError, "5 is no text"),
    ("1", 5, TypeError, "no bytes, str or mapping"),
    ("1", {"a": 2**31}, TypeError, "a: 2147483648 needs an EntityProperty"),
    ("1", {"a": dt.datetime(2026, 1, 1)}, TypeError, "a: .* has no EDM type"),  # noqa: DTZ001 - the case
    ("1", {"a": [1]}, TypeError, "a: .* has no EDM type"),
    ("1", {5: 1}, TypeError, "5 is no name"),
    ("1", {"a": EntityProperty("2026", EdmType.DATETIME)}, TypeError, "a: '2026' is no"),
    ("1", {"a": EntityProperty(5, EdmType.DOUBLE)}, TypeError, "a: 5 is no"),
    ("1", {"a": EntityProperty("5", EdmType.INT64)}, TypeError, "a: '5' is no"),
    ("1", {"a": EntityProperty(2**63, EdmType.INT64)}, TypeError, "a: 9223372036854775808 is no"),
    ("x" * 500, noise(2 * MEBIBYTE), KeyPartError, "more than 512"),
    ("~part!1!v!00000", b"x", ValueError, "are those of parts"),
    ("~writing!1!v", noise(2 * MEBIBYTE), ValueError, "are those of parts"),
    ("a/b", noise(2 * MEBIBYTE), ValueError, "the service forbids"),
    ("a\x85", b"x", ValueError, "the service forbids"),
]


@pytest.mark.parametrize(("row_key", "value", "error", "words"), REFUSED)
def test_what_cannot_be_stored_is_refused_before_anything_is_written(
    half: Half, row_key: Any, value: Any, error: type[Exception], words: str
) -> None:
    table = half.table()
    with pytest.raises(error, match=words):
        half.LargeValues(table).put("p", row_key, value)
    assert rows_of(table) == []


def test_numbers_without_digits_are_stored_as_the_service_has_them(half: Half) -> None:
    """JSON has none of them, so a reader in another language would refuse Python's."""
    table = half.table()
    numbers = {"a": float("nan"), "b": float("inf"), "c": float("-inf")}
    half.LargeValues(table).put("p", "1", {**numbers, "pad": "x" * 500})
    stored = zlib.decompress(table.get_entity("p", "1")["Chunk00"])
    told = json.loads(stored, parse_constant=pytest.fail)
    assert [told[name][1] for name in numbers] == ["NaN", "Infinity", "-Infinity"]
    read = half.LargeValues(table).get("p", "1")
    assert [str(read[name]) for name in numbers] == ["nan", "inf", "-inf"]


def test_a_sweep_leaves_rows_of_others(half: Half, table_storage: TableStorage) -> None:
    table = half.table()
    for row in ("~part!mine", "~writing!mine"):
        table.create_entity({"PartitionKey": "p", "RowKey": row})
    table_storage.clock.advance(hours=2)
    assert half.LargeValues(table).sweep() == Swept()
    assert rows_of(table) == ["~part!mine", "~writing!mine"]


def test_what_is_no_large_value_is_told(half: Half) -> None:
    table = half.table()
    table.create_entity({"PartitionKey": "p", "RowKey": "1"})
    with pytest.raises(ValueDamaged, match="no large value"):
        half.LargeValues(table).get("p", "1")
    table.delete_table()
    with pytest.raises(ResourceNotFoundError):
        half.LargeValues(table).get("p", "1")
    with pytest.raises(AzureError):
        half.LargeValues(table).sweep()


@pytest.mark.parametrize("row_key", ["", " ", "it's", "100%", "+ &", "!~", "..", "名"])
@pytest.mark.parametrize("size", [1, 1_500_000])
def test_every_row_key_holds_a_value(half: Half, row_key: str, size: int) -> None:
    table = half.table()
    values = half.LargeValues(table)
    values.put("p'", row_key, noise(size))
    values.sweep()
    assert values.get("p'", row_key) == noise(size)
    assert (values.delete("p'", row_key), rows_of(table)) == (True, [])


def test_rows_of_others_are_left_alone(half: Half) -> None:
    """A row that begins like a part, a part itself, and entities with properties of the same names."""
    table = half.table()
    values = half.LargeValues(table)
    table.create_entity({"PartitionKey": "p", "RowKey": "~part!mine"})
    table.create_entity({"PartitionKey": "p", "RowKey": "2", "Version": 5, "Parts": 3})
    values.put("p", "1", noise(MEBIBYTE))
    assert values.sweep() == Swept(0, 0)
    for row_key in ("2", min(row for row in rows_of(table) if row.startswith("~part!1"))):
        with pytest.raises(ValueDamaged, match="no large value"):
            values.get("p", row_key)
    values.put("p", "2", b"x")
    assert values.get("p", "2") == b"x"
    assert "~part!mine" in rows_of(table)


def test_a_value_is_stored_though_the_parts_before_cannot_be_deleted(
    half: Half, table_storage: TableStorage
) -> None:
    values = half.LargeValues(half.table(retry_total=0))
    values.put("p", "1", noise(2 * MEBIBYTE))
    fault = {"operation": "EntityGroupTransaction", "count": 1, "error": "AuthorizationFailure"}
    table_storage.faults.add(**fault)
    values.put("p", "1", b"new")
    assert values.get("p", "1") == b"new"
    assert values.sweep() == Swept(0, 3)
    values.put("p", "1", noise(2 * MEBIBYTE))
    table_storage.faults.add(**fault)
    assert values.delete("p", "1") is True
    assert values.sweep() == Swept(0, 3)


@pytest.mark.slow
def test_a_thousand_parts_are_more_than_a_page(
    table_account: StorageAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_value, "ROW_BYTES", 100)
    with TableClient.from_connection_string(table_account.connection_string, "Things") as table:
        table.create_table()
        values, stored = LargeValues(table), noise(100_100)
        values.put("p", "1", stored)
        assert (values.sweep(), values.get("p", "1") == stored) == (Swept(0, 0), True)
        values.put("p", "1", b"x")
        assert rows_of(table) == ["1"]


def test_a_value_that_is_replaced_while_it_is_read(
    table_account: StorageAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, with a deletion between: the last version. Each time: `Conflicts`, for it is not damaged."""
    monkeypatch.setattr(large_value, "ROW_BYTES", 1000)
    connection = table_account.connection_string
    with (
        TableClient.from_connection_string(connection, "Things") as table,
        TableClient.from_connection_string(connection, "Things") as other,
    ):
        table.create_table()
        values, writing = LargeValues(table), LargeValues(other)
        one, another = noise(1500, 1), noise(1500, 2)
        values.put("p", "1", one)
        query, left = table.query_entities, [3]

        def replace_first(*arguments: Any, **options: Any) -> Any:
            if left[0]:
                left[0] -= 1
                writing.put("p", "1", one)
                writing.delete("p", "1")
                writing.put("p", "1", another)
            return query(*arguments, **options)

        monkeypatch.setattr(table, "query_entities", replace_first)
        assert values.get("p", "1") == another
        left[0] = 100
        with pytest.raises(Conflicts, match="each of the 20 times"):
            values.get("p", "1")


@pytest.mark.parametrize("step", range(1, 9))
def test_two_sweepers_at_once_and_a_writer(
    table_account: StorageAccount,
    table_storage: TableStorage,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
) -> None:
    """Another client sweeps and writes before one of the sweeper's requests."""
    monkeypatch.setattr(large_value, "ROW_BYTES", 1000)
    connection = table_account.connection_string
    with (
        TableClient.from_connection_string(connection, "Things") as table,
        TableClient.from_connection_string(connection, "Things") as other,
    ):
        table.create_table()
        values, others = LargeValues(table), LargeValues(other)
        old, new = noise(1500, 1), noise(1500, 2)
        values.put("p", "1", old)
        with monkeypatch.context() as patched:
            stopped_at(4, patched)
            with pytest.raises(Stopped):
                values.put("p", "1", new)
        table_storage.clock.advance(hours=2)
        requests = 0

        def acted(send: Any) -> Any:
            def sent(*arguments: Any, **options: Any) -> Any:
                nonlocal requests
                requests += 1
                if requests == step:
                    others.sweep()
                    others.put("p", "1", new)
                    others.put("p", "1", old)
                return send(*arguments, **options)

            return sent

        for name in ("get_entity", "delete_entity", "query_entities", "submit_transaction"):
            monkeypatch.setattr(table, name, acted(getattr(table, name)))
        values.sweep()
        assert others.get("p", "1") == old
        assert len(rows_of(other)) == 3
