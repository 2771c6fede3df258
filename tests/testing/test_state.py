"""The state of a storage: emptied, filled, dumped, and restored with the same ETags."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from azure.core import MatchConditions
from azure.data.tables import EdmType, EntityProperty, TableServiceClient

from tablestone.testing import (
    SeedRefused,
    Snapshot,
    StateRefused,
    StorageAccount,
    StorageRefused,
    TableStorage,
)

ORDERS = [
    {"PartitionKey": "2026", "RowKey": "1", "total": 5},
    {"PartitionKey": "2026", "RowKey": "2", "total": 7},
    {"PartitionKey": "2027", "RowKey": "1", "total": 9},
]


@pytest.fixture(params=["memory", "sqlite"])
def storage(request: pytest.FixtureRequest) -> Iterator[TableStorage]:
    with TableStorage(engine=request.param) as storage:
        yield storage


@pytest.fixture
def memory() -> Iterator[TableStorage]:
    with TableStorage() as storage:
        yield storage


def tables_of(account: StorageAccount) -> dict[str, list[Any]]:
    """The tables and their entities, as a client reads them."""
    with TableServiceClient.from_connection_string(account.connection_string) as service:
        return {
            table.name: list(service.get_table_client(table.name).list_entities())
            for table in service.list_tables()
        }


def test_what_is_seeded_is_there_and_is_dumped(storage: TableStorage) -> None:
    assert storage.seed({"Orders": ORDERS, "Empty": []}) == 3
    assert tables_of(storage.account) == {"Orders": ORDERS, "Empty": []}
    assert storage.dump() == {"Orders": ORDERS, "Empty": []}
    other = storage.create_account()
    assert storage.dump(other) == {}
    storage.seed(storage.dump(), account=other)
    assert storage.dump(other) == storage.dump()


def test_every_type_of_python_is_seeded_as_the_sdk_reads_it(memory: TableStorage) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    entity = {
        "PartitionKey": "p",
        "RowKey": "r",
        "text": "Ω",
        "flag": True,
        "small": 5,
        "large": 2**40,
        "chosen": (7, EdmType.INT64),
        "number": 1.5,
        "endless": float("-inf"),
        "bytes": b"\0\xff",
        "moment": moment,
        "guid": UUID(int=5),
    }
    memory.seed({"Orders": [entity]})
    (read,) = tables_of(memory.account)["Orders"]
    assert read["moment"] == moment
    assert read["large"] == EntityProperty(2**40, EdmType.INT64)
    assert read["chosen"] == EntityProperty(7, EdmType.INT64)
    same = ("text", "flag", "small", "number", "endless", "bytes", "guid")
    assert [read[name] for name in same] == [entity[name] for name in same]


LINES = '{"PartitionKey":"p","RowKey":"1","total":5}\n{"PartitionKey":"p","RowKey":"2","total":6}\n'


def test_files_are_seeded(memory: TableStorage, tmp_path: Path) -> None:
    (tmp_path / "Orders.jsonl").write_text(LINES)
    (tmp_path / "Prices.csv").write_text("PartitionKey,RowKey,price:Double\np,1,2.5\n")
    assert memory.seed(tmp_path) == 3
    assert memory.seed(tmp_path / "Orders.jsonl", table="Copies") == 2
    found = memory.dump()
    assert sorted(found) == ["Copies", "Orders", "Prices"]
    assert found["Copies"] == found["Orders"]
    assert found["Prices"][0]["price"] == 2.5


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("Orders.jsonl", LINES + "{", r"Orders\.jsonl, line 3: not JSON"),
        ("Orders.jsonl", LINES + '{"RowKey":"r"}', r"Orders\.jsonl, line 3: .*PartitionKey"),
        (
            "Orders.jsonl",
            LINES + '{"PartitionKey":"p/","RowKey":"r"}',
            r"line 3: OutOfRangeInput: .* is out of range\.$",
        ),
        ("x.jsonl", LINES, "'x': OutOfRangeInput: The specified resource name length"),
        ("Orders.txt", "", r"Orders\.txt does not end in \.jsonl"),
    ],
)
def test_of_a_bad_file_nothing_is_stored(
    memory: TableStorage, tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SeedRefused, match=sentence):
        memory.seed(tmp_path / name)
    assert memory.dump() == {}


@pytest.mark.parametrize(
    ("entity", "sentence"),
    [
        ({"RowKey": "r"}, "entity 1 of Orders has no PartitionKey."),
        ({"PartitionKey": "p", "rowKey": "r"}, "entity 1 of Orders has no RowKey."),
        ({"PartitionKey": "p", "RowKey": "a/b"}, "entity 1 of Orders: OutOfRangeInput"),
        (
            {"PartitionKey": "p", "RowKey": "r", "a": "b" * 70_000},
            "entity 1 of Orders: PropertyValueTooLarge",
        ),
        ({"PartitionKey": "p", "RowKey": "r", "a": []}, "a: a property cannot have the type list"),
        ({"PartitionKey": "p", "RowKey": "r", "a": (1, "Edm.Byte")}, "'Edm.Byte' is not a type"),
        ("PartitionKey", "entity 1 of Orders is not a dict"),
        (
            {"PartitionKey": "p", "RowKey": "r", "x": "a\ud800"},
            "^entity 1 of Orders: x: 'a.ud800' has half of a surrogate pair, which UTF-8 cannot",
        ),
        (
            {"PartitionKey": "p", "RowKey": "r", "\ud800": 1},
            "^entity 1 of Orders: the name of a property must be a str, not '.ud800'",
        ),
        (
            {"PartitionKey": "p", "RowKey": "r", 5: 1},
            "^entity 1 of Orders: the name of a property must be a str, not 5",
        ),
        (
            {"PartitionKey": "p", "RowKey": "r", "x": 2**63},
            "^entity 1 of Orders: x: an Edm.Int64 is from -9223372036854775808 to 9223372036854775807, not 92233",
        ),
        (
            {"PartitionKey": "p", "RowKey": "r", "x": (-(10**5000), "Edm.Int64")},
            "x: an Edm.Int64 is from .* not a number of 16610 bits",
        ),
        (
            {"PartitionKey": "p", "RowKey": "r", "x": (2**31, "Edm.Int32")},
            "x: an Edm.Int32 is from -2147483648 to 2147483647, not 2147483648",
        ),
        (
            {"PartitionKey": 5, "RowKey": "r"},
            "^entity 1 of Orders: PartitionKey must be a str, not 5",
        ),
        ({"PartitionKey": "p", "RowKey": 2**40}, "RowKey must be a str, not 1099511627776"),
        ({"PartitionKey": "p", "RowKey": True}, "RowKey must be a str, not True"),
        ({"PartitionKey": "p", "RowKey": "r", "a": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001
    ],
)
def test_a_bad_entity_is_refused_with_its_place(
    memory: TableStorage, entity: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SeedRefused, match=sentence):
        memory.seed({"Good": ORDERS, "Orders": [entity]})
    assert memory.dump() == {}


def test_a_key_occurs_once_in_a_seed(memory: TableStorage, tmp_path: Path) -> None:
    with pytest.raises(SeedRefused) as refused:
        memory.seed({"Prices": ORDERS, "Orders": [*ORDERS, ORDERS[1] | {"total": 8}]})
    assert str(refused.value) == (
        "entity 4 of Orders: entity 2 of Orders has this key too, PartitionKey '2026' and RowKey '2'."
    )
    (tmp_path / "Orders.jsonl").write_text(LINES + LINES)
    with pytest.raises(SeedRefused, match=r"line 3: .*jsonl, line 1 has this key too"):
        memory.seed(tmp_path)
    with pytest.raises(SeedRefused, match=r"entity 1 of orders: entity 1 of Orders has this key"):
        memory.seed({"Orders": ORDERS, "orders": ORDERS[:1]})
    assert memory.dump() == {}


@pytest.mark.parametrize(
    "seed", [5, [{"PartitionKey": "p", "RowKey": "r"}], {"Orders": 5}, {"Orders": ORDERS[0]}]
)
def test_a_seed_of_another_kind_is_refused(memory: TableStorage, seed: Any) -> None:
    with pytest.raises(SeedRefused, match=r"^(A seed is a dict such as|'Orders' must have a list)"):
        memory.seed(seed)


def test_a_reset_empties_what_it_names(storage: TableStorage) -> None:
    first, second = storage.create_account(), storage.create_account()
    for account in (first, second):
        storage.seed({"Orders": ORDERS, "Prices": ORDERS}, account=account)
    with TableServiceClient.from_connection_string(first.connection_string) as service:
        service.get_table_client("Orders").set_table_access_policy({"readers": None})
        storage.reset(first, "Orders")
        assert storage.dump(first) == {"Orders": [], "Prices": ORDERS}
        assert "readers" in service.get_table_client("Orders").get_table_access_policy()
        storage.reset(first)
        assert (storage.dump(first), len(storage.dump(second))) == ({}, 2)
        service.create_table("Orders")
    storage.reset()
    assert (storage.dump(first), storage.dump(second), storage.dump()) == ({}, {}, {})
    assert tables_of(first) == {}
    with pytest.raises(StateRefused, match=r"^The account devstoreaccount1 has no table Gone\.$"):
        storage.reset(table="Gone")


def test_a_restored_snapshot_has_the_same_etags(memory: TableStorage) -> None:
    account = memory.create_account()
    memory.seed({"Orders": ORDERS}, account=account)
    with TableServiceClient.from_connection_string(account.connection_string) as service:
        table = service.get_table_client("Orders")
        before = [(dict(each), each.metadata["etag"]) for each in table.list_entities()]
        snapshot = memory.snapshot()
        for _ in range(2):
            later = memory.create_account()
            memory.clock.advance(timedelta(days=1))
            table.upsert_entity(ORDERS[0] | {"total": 0})
            table.delete_entity("2026", "2")
            service.create_table("Later")
            memory.restore(snapshot)
            assert [(dict(each), each.metadata["etag"]) for each in table.list_entities()] == before
            assert [each.name for each in service.list_tables()] == ["Orders"]
            with pytest.raises(StorageRefused, match=f"There is no account '{later.name}'"):
                memory.dump(later)
        table.update_entity(
            ORDERS[0] | {"total": 1},
            etag=before[0][1],
            match_condition=MatchConditions.IfNotModified,
        )


def test_new_accounts_do_not_meet_those_of_a_snapshot(memory: TableStorage) -> None:
    account = memory.create_account()
    with TableStorage() as other:
        other.restore(memory.snapshot())
        assert other.create_account().name != account.name
        with pytest.raises(StorageRefused, match=f"^There is an account {account.name} already"):
            other.create_account(account.name)
        other.delete_account(account.name)
        with pytest.raises(StorageRefused, match=f"^There is no account '{account.name}' that was"):
            other.delete_account(account.name)


def test_a_table_is_deleted_without_a_request(storage: TableStorage) -> None:
    account = storage.create_account()
    storage.seed({"Orders": ORDERS, "Prices": []}, account=account)
    for _ in range(2):
        storage.delete_table("Orders", account)
        assert storage.dump(account) == {"Prices": []}
    with pytest.raises(StorageRefused, match="There is no account 'nobody'"):
        storage.delete_table("Orders", "nobody")
    assert storage.requests == []


def test_a_snapshot_of_another_engine_is_refused() -> None:
    with (
        TableStorage(engine="sqlite") as storage,
        pytest.raises(StateRefused, match="A snapshot needs the memory engine"),
    ):
        storage.snapshot()


def test_a_path_is_no_snapshot(memory: TableStorage) -> None:
    path: Any = "x.snap"
    with pytest.raises(
        StateRefused, match=r"^restore\(\) takes a Snapshot, not 'x.snap': Snapshot.load"
    ):
        memory.restore(path)


def test_a_snapshot_is_kept_in_a_file(memory: TableStorage, tmp_path: Path) -> None:
    account = memory.create_account()
    memory.seed(
        {"Orders": [*ORDERS, {"PartitionKey": "é", "RowKey": "", "b": b"\n\0"}]}, account=account
    )
    file = tmp_path / "snapshot"
    memory.snapshot().save(file)
    with TableStorage() as other:
        other.restore(Snapshot.load(file))
        assert other.dump(account) == memory.dump(account)
        assert other.snapshot().contents == memory.snapshot().contents


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ((b'snapshot":1', b'snapshot":2'), "has version 2, and this Tablestone reads version 1"),
        ((b'"rows":', b'"rows":1'), "is cut off: it has "),
        ((b"tablestone", b"something"), "This is not a snapshot of the test kit"),
        ((b"\n[", b"\n{"), "Line 2 of this snapshot is not a row"),
    ],
)
def test_a_file_that_is_no_snapshot_is_refused(
    memory: TableStorage, tmp_path: Path, change: tuple[bytes, bytes], sentence: str
) -> None:
    file = tmp_path / "snapshot"
    memory.seed({"Orders": ORDERS})
    memory.snapshot().save(file)
    written = file.read_bytes()
    assert change[0] in written
    file.write_bytes(written.replace(*change))
    with pytest.raises(StateRefused, match=sentence):
        Snapshot.load(file)
    with pytest.raises(StateRefused, match="No such file"):
        Snapshot.load(tmp_path / "gone")


def test_an_empty_file_makes_an_empty_table(memory: TableStorage, tmp_path: Path) -> None:
    (tmp_path / "Nothing.jsonl").write_text("")
    memory.seed(tmp_path)
    assert memory.dump() == {"Nothing": []}
