"""An indexed table: near indexes are exact, far ones after one sweep, and a reader never gets a wrong entity."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.data.tables import (
    EdmType,
    EntityProperty,
    TableClient,
    TableSasPermissions,
    generate_table_sas,
)

from patterns.conftest import Half
from patterns.stopping import Stopped, stopped_at
from table_patterns import Built, Checked, Conflicts, IndexedTable, KeyPartError, OutcomeUnknown
from tablestone.testing.storage import StorageAccount, TableStorage

SMITH = {"PartitionKey": "sales", "RowKey": "1", "Name": "Smith", "City": "Oslo", "Age": 5}


def people(half: Half, **options: Any) -> tuple[Any, Any]:
    table = half.table(**options)
    return table, half.IndexedTable(table, near=("Name",), far=("City", "Age"))


def places(table: Any) -> list[tuple[str, str]]:
    """The keys of the index entities."""
    keys = [(entity["PartitionKey"], entity["RowKey"]) for entity in table.list_entities()]
    return [place for place in keys if "~" in (place[0][0], place[1][0])]


def rows(found: Iterator[Any]) -> list[str]:
    return sorted(entity["RowKey"] for entity in found)


def test_entities_are_found_by_other_properties(half: Half) -> None:
    _, indexed = people(half)
    indexed.insert(SMITH)
    indexed.put({**SMITH, "RowKey": "2"})
    indexed.put({**SMITH, "PartitionKey": "law", "Age": 6})
    assert rows(indexed.find("Name", "Smith", "sales")) == ["1", "2"]
    assert rows(indexed.find("City", "Oslo")) == ["1", "1", "2"]
    assert rows(indexed.find("City", "Oslo", "law")) == ["1"]
    assert rows(indexed.find("Age", 6)) == ["1"]
    assert rows(indexed.find("Age", 7)) == []
    (found,) = indexed.find("Age", 6)
    assert dict(found) == {**SMITH, "PartitionKey": "law", "Age": 6}
    assert indexed.check() == Checked(3, [], [])


def test_what_changes_is_found_by_its_new_value_only(half: Half) -> None:
    _, indexed = people(half)
    indexed.insert(SMITH)
    indexed.merge({"PartitionKey": "sales", "RowKey": "1", "Name": "Jones", "City": "Rome"})
    assert rows(indexed.find("Name", "Smith", "sales")) == rows(indexed.find("City", "Oslo")) == []
    assert (
        rows(indexed.find("Name", "Jones", "sales")) == rows(indexed.find("City", "Rome")) == ["1"]
    )
    assert rows(indexed.find("Age", 5)) == ["1"]
    indexed.put({"PartitionKey": "sales", "RowKey": "1"})
    assert rows(indexed.find("City", "Rome")) == []
    indexed.delete("sales", "1")
    indexed.delete("sales", "1")
    assert indexed.check() == Checked(0, [], [])


VALUES = ["a", "", "x" * 500, "ü/#", 5, EntityProperty(2**40, EdmType.INT64), 0.5, True, b"\0"]
VALUES += [UUID(int=5), datetime(2026, 1, 1, tzinfo=UTC)]


@pytest.mark.parametrize("value", VALUES, ids=[str(number) for number in range(len(VALUES))])
def test_every_type_has_an_index(half: Half, value: Any) -> None:
    _, indexed = people(half)
    indexed.insert({"PartitionKey": "p'", "RowKey": "1'", "Name": value, "City": value})
    indexed.insert({"PartitionKey": "p'", "RowKey": "2", "Name": "another", "City": "another"})
    assert rows(indexed.find("Name", value, "p'")) == rows(indexed.find("City", value)) == ["1'"]
    assert indexed.check() == Checked(2, [], [])


def test_conditions_hold(half: Half) -> None:
    table, indexed = people(half)
    indexed.insert(SMITH)
    etag = table.get_entity("sales", "1").metadata["etag"]
    with pytest.raises(ResourceExistsError):
        indexed.insert(SMITH)
    indexed.put({**SMITH, "City": "Rome"}, etag=etag)
    for write, arguments in (("put", [SMITH]), ("merge", [SMITH]), ("delete", ["sales", "1"])):
        with pytest.raises(ResourceModifiedError):
            getattr(indexed, write)(*arguments, etag=etag)
    with pytest.raises(ResourceNotFoundError):
        indexed.merge({"PartitionKey": "sales", "RowKey": "2", "Name": "x"})
    assert rows(indexed.find("City", "Rome")) == ["1"]
    assert indexed.check() == Checked(1, [], [])


@pytest.mark.parametrize("reset", ["before", "within", "after"])
@pytest.mark.parametrize("write", ["insert", "put", "merge", "delete"])
def test_a_lost_answer_is_settled(
    half: Half, table_storage: TableStorage, write: str, reset: str
) -> None:
    table, indexed = people(half, retry_backoff_factor=0.01)
    if write != "insert":
        indexed.insert(SMITH)
    etag = table.get_entity("sales", "1").metadata["etag"] if write != "insert" else None
    table_storage.faults.add(operation="EntityGroupTransaction", count=1, reset=reset)
    changed = {**SMITH, "Name": "Jones", "City": "Rome"}
    if write == "insert":
        indexed.insert(changed)
    elif write == "delete":
        indexed.delete("sales", "1", etag=etag)
    else:
        getattr(indexed, write)(changed, etag=etag)
    expected = [] if write == "delete" else ["1"]
    assert (
        rows(indexed.find("Name", "Jones", "sales"))
        == rows(indexed.find("City", "Rome"))
        == expected
    )
    assert indexed.check() == Checked(len(expected), [], [])
    assert [
        row["RowKey"] for row in table.query_entities("RowKey ge '~outbox' and RowKey lt '~p'")
    ] == []


@pytest.mark.parametrize("write", ["put", "merge", "insert"])
def test_a_mark_settles_a_lost_answer_where_there_is_no_outbox(
    half: Half, table_storage: TableStorage, write: str
) -> None:
    table = half.table(retry_backoff_factor=0.01)
    indexed = half.IndexedTable(table, near=("Name",))
    etag = {}
    if write != "insert":
        indexed.insert(SMITH)
        etag = {"etag": table.get_entity("sales", "1").metadata["etag"]}
    table_storage.faults.add(operation="EntityGroupTransaction", count=1, reset="after")
    getattr(indexed, write)({**SMITH, "Name": "Jones"}, **etag)
    assert rows(indexed.find("Name", "Jones", "sales")) == ["1"]


def test_a_write_does_without_an_index_entity_that_others_deleted(half: Half) -> None:
    table, indexed = people(half)
    indexed.insert(SMITH)
    table.delete_entity("sales", "~index!Name!sSmith!1")
    indexed.put({**SMITH, "Name": "Jones"})
    assert indexed.check() == Checked(1, [], [])


def test_an_index_entity_follows_a_writer_that_comes_between(
    table_account: StorageAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer changes the entity after it was read for its index entity."""
    with TableClient.from_connection_string(table_account.connection_string, "Things") as table:
        table.create_table()
        upsert = table.upsert_entity

        def change_first(*arguments: Any, **options: Any) -> Any:
            monkeypatch.undo()
            with TableClient.from_connection_string(
                table_account.connection_string, "Things"
            ) as other:
                IndexedTable(other, far=("City",)).put({**SMITH, "City": "Rome"})
            return upsert(*arguments, **options)

        monkeypatch.setattr(table, "upsert_entity", change_first)
        indexed = IndexedTable(table, far=("City",))
        indexed.insert(SMITH)
        assert indexed.check() == Checked(1, [], [])


WRITES: dict[str, Any] = {
    "insert": lambda indexed: indexed.insert({**SMITH, "RowKey": "2"}),
    "change": lambda indexed: indexed.put({**SMITH, "Name": "Jones", "City": "Rome", "Age": 9}),
    "delete": lambda indexed: indexed.delete("sales", "1"),
}


@pytest.mark.parametrize("write", WRITES)
def test_after_a_stop_at_any_step_one_sweep_is_enough(
    table_account: StorageAccount,
    table_storage: TableStorage,
    monkeypatch: pytest.MonkeyPatch,
    write: str,
) -> None:
    table = TableClient.from_connection_string(table_account.connection_string, "Things")
    table.create_table()
    indexed = IndexedTable(table, near=("Name",), far=("City", "Age"))
    for step in range(1, 40):
        indexed.delete("sales", "2")
        indexed.put(SMITH)
        with monkeypatch.context() as patched:
            made = stopped_at(step, patched)
            with suppress(Stopped):
                WRITES[write](indexed)
        if made() < step:
            break
        for name, value in (("City", "Oslo"), ("City", "Rome"), ("Age", 5), ("Age", 9)):
            assert all(entity[name] == value for entity in indexed.find(name, value))
        table_storage.clock.advance(minutes=11)
        # The sweep is stopped too, at each of its steps.
        for sweep_step in range(1, 40):
            with monkeypatch.context() as patched:
                made = stopped_at(sweep_step, patched)
                with suppress(Stopped):
                    indexed.sweep()
            if made() < sweep_step:
                break
            table_storage.clock.advance(minutes=11)
        checked = indexed.check()
        assert (checked.missing, checked.wrong) == ([], [])
    assert 5 < step < 40


def test_a_sweep_leaves_young_writers_alone(
    table_account: StorageAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableClient.from_connection_string(table_account.connection_string, "Things")
    table.create_table()
    indexed = IndexedTable(table, far=("City",))
    with monkeypatch.context() as patched:
        stopped_at(4, patched)
        with pytest.raises(Stopped):
            indexed.insert(SMITH)
    assert indexed.sweep() == 0
    assert [len(indexed.check().missing), rows(indexed.find("City", "Oslo"))] == [1, []]


def test_many_writers_and_sweepers_leave_the_index_right(
    table_account: StorageAccount, table_storage: TableStorage
) -> None:
    connection = table_account.connection_string
    with TableClient.from_connection_string(connection, "Things") as table:
        table.create_table()
    faults = (
        {"reset": "after"},
        {"reset": "before"},
        {"error": "OperationTimedOut", "committed": True},
    )
    for fault in faults:
        table_storage.faults.add(operation="EntityGroupTransaction", probability=0.03, **fault)
    stops = random.Random(7)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        with TableClient.from_connection_string(
            connection, "Things", retry_backoff_factor=0.01
        ) as table:
            indexed = IndexedTable(table, near=("Name",), far=("City",))
            for _ in range(25):
                key = {"PartitionKey": "p", "RowKey": str(chance.randrange(3))}
                values = {"Name": chance.choice("abc"), "City": chance.choice("xyz")}
                match chance.randrange(6):
                    case 0:
                        with suppress(Conflicts, OutcomeUnknown):
                            indexed.delete("p", key["RowKey"])
                    case 1:
                        table_storage.clock.advance(minutes=chance.randrange(8))
                        indexed.sweep()
                    case 2:
                        city = chance.choice("xyz")
                        for found in indexed.find("City", city):
                            assert found["City"] == city
                    case _:
                        with suppress(Conflicts, OutcomeUnknown):
                            indexed.put({**key, **values})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, stops.sample(range(1000), 4)))
    table_storage.faults.clear()
    table_storage.clock.advance(minutes=11)
    with TableClient.from_connection_string(connection, "Things") as table:
        indexed = IndexedTable(table, near=("Name",), far=("City",))
        indexed.sweep()
        checked = indexed.check()
        assert (checked.missing, checked.wrong) == ([], [])


def test_a_wrong_index_entity_gives_no_wrong_entity(half: Half) -> None:
    table, indexed = people(half)
    indexed.insert(SMITH)
    for row in ("sales!1", "sales!2"):
        table.create_entity({"PartitionKey": "~index!City!sRome", "RowKey": row})
    assert len(indexed.check().wrong) == 2
    assert rows(indexed.find("City", "Rome")) == []
    assert indexed.check() == Checked(1, [], [])


def test_a_reader_without_write_rights_filters(table_account: StorageAccount) -> None:
    with TableClient.from_connection_string(table_account.connection_string, "Things") as table:
        table.create_table()
        IndexedTable(table, far=("City",)).insert(SMITH)
        table.create_entity({"PartitionKey": "~index!City!sRome", "RowKey": "sales!1"})
        key = AzureNamedKeyCredential(table_account.name, table_account.key)
        signature = generate_table_sas(
            key,
            "Things",
            permission=TableSasPermissions(read=True),
            expiry=datetime(2099, 1, 1, tzinfo=UTC),
        )
        address = table.url.removesuffix("/")
    with TableClient(address, "Things", credential=AzureSasCredential(signature)) as reading:
        indexed = IndexedTable(reading, far=("City",))
        assert rows(indexed.find("City", "Rome")) == []
        assert rows(indexed.find("City", "Oslo")) == ["1"]
        assert len(indexed.check().wrong) == 1
        with pytest.raises(HttpResponseError):
            indexed.insert({**SMITH, "RowKey": "2"})


def test_entities_from_before_are_taken_over(half: Half) -> None:
    table, indexed = people(half)
    for number in range(5):
        table.create_entity({**SMITH, "RowKey": str(number)})
    assert len(indexed.check().missing) == 15
    told: list[Built] = []
    assert indexed.build(progress=told.append) == Built(5, 0)
    assert told == [Built(number) for number in range(1, 6)]
    assert indexed.check() == Checked(5, [], [])
    assert indexed.build() == Built(0, 0)
    wider = half.IndexedTable(table, near=("Name", "Age"), far=("City",))
    assert wider.build() == Built(5)
    assert wider.check() == Checked(5, [], [])


def test_a_build_leaves_out_what_others_keep_changing(
    table_account: StorageAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on with the others."""
    table, indexed = people(Half(None, table_account.connection_string))
    for number in range(3):
        table.create_entity({**SMITH, "RowKey": str(number)})
    submit = TableClient.submit_transaction

    def after_another_writer(client: TableClient, operations: Any, **options: Any) -> Any:
        if operations[0][1]["RowKey"] == "1":
            table.upsert_entity({**SMITH, "RowKey": "1"})
        return submit(client, operations, **options)

    monkeypatch.setattr(TableClient, "submit_transaction", after_another_writer)
    assert indexed.build() == Built(2, 1)
    monkeypatch.undo()
    assert indexed.build() == Built(1, 0)
    assert indexed.check() == Checked(3, [], [])


@pytest.mark.parametrize("call", ["build", "check", "repair"])
def test_an_entity_that_cannot_be_indexed_is_named(half: Half, call: str) -> None:
    table, indexed = people(half)
    table.create_entity({**SMITH, "RowKey": "x" * 510})
    with pytest.raises(KeyPartError, match=r"The entity sales, x{510}: .*more than 512"):
        getattr(indexed, call)()


def test_a_merge_of_none_changes_nothing(half: Half) -> None:
    """As in the service's own merge, which a program may have used before."""
    _, indexed = people(half)
    indexed.insert(SMITH)
    indexed.merge({"PartitionKey": "sales", "RowKey": "1", "City": None, "Age": 6})
    assert [dict(each) for each in indexed.find("City", "Oslo")] == [{**SMITH, "Age": 6}]
    assert indexed.check() == Checked(1, [], [])


FOREIGN = [("~index!City!sOslo", "somebody's"), ("sales", "~index!Name!sSmith!a b")]


@pytest.mark.parametrize("place", FOREIGN)
def test_a_foreign_row_among_index_entities_is_taken_out(
    half: Half, place: tuple[str, str]
) -> None:
    table, indexed = people(half)
    indexed.insert(SMITH)
    row = {"PartitionKey": place[0], "RowKey": place[1]}
    table.create_entity(row)
    assert (
        rows(indexed.find("City", "Oslo")) == rows(indexed.find("Name", "Smith", "sales")) == ["1"]
    )
    table.upsert_entity(row)
    assert indexed.repair() == Checked(1, [], [place])
    assert indexed.check() == Checked(1, [], [])


def test_what_others_have_left_wrong_is_repaired(half: Half) -> None:
    """Somebody else changed an entity, deleted index entities, and left one for an entity that never was."""
    table, indexed = people(half)
    for number in range(3):
        indexed.insert({**SMITH, "RowKey": str(number)})
    table.update_entity({**SMITH, "RowKey": "0", "Name": "Jones", "City": "Rome"})
    for place in sorted(places(table))[::3]:
        table.delete_entity(*place)
    table.create_entity({"PartitionKey": "~index!City!sRome", "RowKey": "sales!9"})
    before = indexed.check()
    assert before.missing
    assert before.wrong
    assert indexed.repair() == before
    assert indexed.check() == Checked(3, [], [])


def test_a_foreign_row_does_not_stop_a_sweep(half: Half) -> None:
    table, indexed = people(half)
    for row in ("~outbox!", "~outbox!1!2!3", "~outbox!1!0123456789abcdef"):
        table.create_entity({"PartitionKey": "sales", "RowKey": row})
    assert indexed.sweep(given_up_after=timedelta(seconds=-60)) == 0


REFUSED = [
    # what is called, the error, its words
    (lambda indexed: indexed.insert({**SMITH, "RowKey": "~1"}), ValueError, "begin with ~"),
    (lambda indexed: indexed.delete("~p", "1"), ValueError, "begin with ~"),
    (lambda indexed: indexed.insert({**SMITH, "RowKey": 5}), TypeError, "5 is no text"),
    (lambda indexed: indexed.insert({**SMITH, "RowKey": "a/b"}), HttpResponseError, "Bad Request"),
    (lambda indexed: indexed.insert({**SMITH, "RowKey": "x" * 510}), KeyPartError, "more than 512"),
    (lambda indexed: indexed.insert({**SMITH, "City": [1]}), TypeError, "City: .* no type"),
    (lambda indexed: list(indexed.find("Street", "x")), ValueError, "Street has no index"),
    (lambda indexed: list(indexed.find("Name", "x")), ValueError, "is near: give the partition"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_what_cannot_be_is_refused_before_a_write(
    half: Half, call: Any, error: type[Exception], words: str
) -> None:
    table, indexed = people(half)
    with pytest.raises(error, match=words):
        call(indexed)
    assert list(table.list_entities()) == []


@pytest.mark.parametrize("names", [(), ("a", "a"), tuple("abcdefghijklmnop")])
def test_names_of_indexes_are_few_and_different(half: Half, names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="Give 1 to 15 properties"):
        half.IndexedTable(half.table(), near=names)


def test_a_name_is_no_tuple_of_names(half: Half) -> None:
    for index in ("near", "far"):
        with pytest.raises(TypeError, match="Give tuples of names"):
            half.IndexedTable(half.table(), **{index: "Name"})


def test_a_table_that_is_not_there_is_an_error(half: Half) -> None:
    indexed = half.IndexedTable(half.table("None", create=False), near=("Name",))
    for call, arguments in (
        ("insert", [SMITH]),
        ("delete", ["p", "1"]),
        ("sweep", []),
        ("check", []),
    ):
        with pytest.raises(ResourceNotFoundError):
            getattr(indexed, call)(*arguments)


KEYS = [("", ""), ("it's", "100%"), ("+ &", "a'b'"), (" ", "!~"), ("a!b", '"q'), ("ü", "名")]


@pytest.mark.parametrize(("partition", "row"), KEYS)
def test_every_key_is_found(half: Half, partition: str, row: str) -> None:
    table, indexed = people(half)
    entity = {"PartitionKey": partition, "RowKey": row, "Name": "a'b", "City": "c'!~d"}
    indexed.insert(entity)
    indexed.merge({**entity, "Age": 5})
    for found in (indexed.find("Name", "a'b", partition), indexed.find("City", "c'!~d")):
        assert [dict(each) for each in found] == [{**entity, "Age": 5}]
    indexed.delete(partition, row)
    assert list(table.list_entities()) == []


def between(
    table: TableClient, monkeypatch: pytest.MonkeyPatch, act: Any, *, after: bool = False
) -> None:
    """Let another client act before (or after) the next transaction of this one."""
    submit = table.submit_transaction

    def submitted(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        if not after:
            act()
        try:
            return submit(*arguments, **options)
        finally:
            if after:
                act()

    monkeypatch.setattr(table, "submit_transaction", submitted)


def test_a_write_that_was_refused_is_known_not_to_be_carried_out(
    table_account: StorageAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others delete the entity and make it anew: no answer was lost, so nothing is unknown."""
    connection = table_account.connection_string
    with (
        TableClient.from_connection_string(connection, "Things") as table,
        TableClient.from_connection_string(connection, "Things") as other,
    ):
        table.create_table()
        indexed = IndexedTable(table, near=("Name",))
        indexed.insert(SMITH)

        def make_anew() -> None:
            IndexedTable(other, near=("Name",)).delete("sales", "1")
            IndexedTable(other, near=("Name",)).insert(SMITH)

        between(table, monkeypatch, make_anew)
        indexed.put({**SMITH, "Name": "Jones"})
        assert rows(indexed.find("Name", "Jones", "sales")) == ["1"]
        assert indexed.check() == Checked(1, [], [])


@pytest.mark.parametrize("write", ["put", "merge", "delete"])
def test_a_condition_holds_when_others_come_between(
    table_account: StorageAccount, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """They write after the ETag was compared and before the transaction: the error is the same one."""
    connection = table_account.connection_string
    with (
        TableClient.from_connection_string(connection, "Things") as table,
        TableClient.from_connection_string(connection, "Things") as other,
    ):
        table.create_table()
        indexed = IndexedTable(table, near=("Name",))
        indexed.insert(SMITH)
        etag = table.get_entity("sales", "1").metadata["etag"]
        changed = {**SMITH, "Name": "Jones"}
        between(table, monkeypatch, lambda: IndexedTable(other, near=("Name",)).put(changed))
        arguments = ["sales", "1"] if write == "delete" else [SMITH]
        with pytest.raises(ResourceModifiedError):
            getattr(indexed, write)(*arguments, etag=etag)
        assert rows(indexed.find("Name", "Jones", "sales")) == ["1"]


def test_an_insert_whose_answer_was_lost_stays_deleted(
    table_account: StorageAccount, table_storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The insert is carried out; another client deletes the entity before the first one asks."""
    connection = table_account.connection_string
    with (
        TableClient.from_connection_string(connection, "Things") as table,
        TableClient.from_connection_string(connection, "Things") as other,
    ):
        table.create_table()
        delete = IndexedTable(other, far=("City",)).delete
        table_storage.faults.add(operation="EntityGroupTransaction", count=1, reset="after")
        between(table, monkeypatch, lambda: delete("sales", "1"), after=True)
        IndexedTable(table, far=("City",)).insert(SMITH)
        assert list(table.list_entities()) == []


def test_a_sweep_follows_what_it_has_claimed_though_the_answer_was_lost(
    table_account: StorageAccount, table_storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TableClient.from_connection_string(
        table_account.connection_string, "Things", retry_backoff_factor=0.01
    ) as table:
        table.create_table()
        indexed = IndexedTable(table, far=("City",))
        with monkeypatch.context() as patched:
            stopped_at(3, patched)
            with pytest.raises(Stopped):
                indexed.insert(SMITH)
        table_storage.clock.advance(minutes=11)
        assert len(indexed.check().missing) == 1
        table_storage.faults.add(operation="UpdateEntity", count=1, reset="after")
        assert indexed.sweep() == 1
        assert indexed.check() == Checked(1, [], [])


def test_two_sweepers_at_once_finish_each_row_once(
    table_account: StorageAccount, table_storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one sweeps when the first has found the row, and has not claimed it."""
    connection = table_account.connection_string
    with (
        TableClient.from_connection_string(connection, "Things") as table,
        TableClient.from_connection_string(connection, "Things") as other,
    ):
        table.create_table()
        indexed = IndexedTable(table, far=("City",))
        with monkeypatch.context() as patched:
            stopped_at(3, patched)
            with pytest.raises(Stopped):
                indexed.insert(SMITH)
        table_storage.clock.advance(minutes=11)
        update = table.update_entity

        def sweep_first(*arguments: Any, **options: Any) -> Any:
            monkeypatch.undo()
            assert IndexedTable(other, far=("City",)).sweep() == 1
            return update(*arguments, **options)

        monkeypatch.setattr(table, "update_entity", sweep_first)
        assert indexed.sweep() == 0
        assert indexed.check() == Checked(1, [], [])
