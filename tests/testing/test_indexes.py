"""Indexes in the test kit: made without a request, kept by all that changes the state of a storage."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.data.tables import TableServiceClient

from tablestone.accounts.stored_accounts import DOCUMENT_READERS
from tablestone.tables.integrity import check_rows
from tablestone.testing import Snapshot, StateRefused, TableStorage
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import parse_connection_string
from tablestone.tools.own_forms import change_expiry, counted, done_index

ORDERS = [
    {"PartitionKey": str(number % 3), "RowKey": f"{number:03}", "customer": f"c{number % 5}"}
    for number in range(30)
]


@pytest.fixture(params=["memory", "sqlite"])
def storage(request: pytest.FixtureRequest) -> Iterator[TableStorage]:
    with TableStorage(engine=request.param) as running:
        running.seed({"Orders": ORDERS})
        yield running
        assert faults(running) == []


def faults(storage: TableStorage) -> list[str]:
    return storage.begin(
        lambda service: check_rows(service.state.primary, DOCUMENT_READERS)
    ).result()


@pytest.fixture
def memory() -> Iterator[TableStorage]:
    with TableStorage() as running:
        running.seed({"Orders": ORDERS})
        yield running


def found(storage: TableStorage, *, secondary: bool = False) -> tuple[list[str], str]:
    """The orders of a customer, and the plan of the request."""
    text = storage.connection_string
    mode = "secondary" if secondary else "primary"
    if secondary:
        text = text.replace("devstoreaccount1;", "devstoreaccount1-secondary;").replace(
            "AccountName=devstoreaccount1-secondary", "AccountName=devstoreaccount1"
        )
    with TableServiceClient.from_connection_string(text) as service:
        client = service.get_table_client("Orders")
        rows = [each["RowKey"] for each in client.query_entities("customer eq 'c1'")]
    request = storage.requests[-1]
    assert request.is_secondary == secondary, mode
    return rows, request.plan


ROWS = ["006", "021", "001", "016", "011", "026"]


def test_an_index_is_made_and_dropped(storage: TableStorage) -> None:
    assert found(storage) == (ROWS, "table")
    storage.create_index("Orders", "customer")
    assert found(storage) == (ROWS, "index")
    assert storage.requests[-1].rows_read == len(ROWS)
    with storage.expect(scans=0):
        found(storage)
    storage.drop_index("Orders", "customer")
    assert found(storage) == (ROWS, "table")


def test_seeds_and_resets(storage: TableStorage) -> None:
    storage.create_index("Orders", "customer")
    storage.seed({"Orders": [{"PartitionKey": "9", "RowKey": "new", "customer": "c1"}]})
    assert found(storage) == ([*ROWS, "new"], "index")
    storage.reset(table="Orders")
    assert found(storage) == ([], "index")
    assert faults(storage) == []
    storage.seed({"Orders": ORDERS})
    assert found(storage) == (ROWS, "index")
    storage.reset()
    storage.seed({"Orders": ORDERS})
    assert found(storage) == (ROWS, "table")


def test_snapshots_have_them_in_files_too(memory: TableStorage, tmp_path: Path) -> None:
    memory.create_index("Orders", "customer")
    snapshot = memory.snapshot()
    snapshot.save(tmp_path / "kept")
    assert Snapshot.load(tmp_path / "kept") == snapshot
    for restored in (snapshot, Snapshot.load(tmp_path / "kept")):
        memory.reset()
        memory.restore(restored)
        assert found(memory) == (ROWS, "index")
    memory.seed({"Orders": [{"PartitionKey": "9", "RowKey": "new", "customer": "c1"}]})
    assert found(memory) == ([*ROWS, "new"], "index")


@pytest.mark.parametrize("before", [True, False])
def test_the_secondary_has_its_own(storage: TableStorage, *, before: bool) -> None:
    if before:
        storage.create_index("Orders", "customer")
    storage.secondary.freeze()
    storage.seed({"Orders": [{"PartitionKey": "9", "RowKey": "new", "customer": "c1"}]})
    if not before:
        storage.create_index("Orders", "customer")
    assert found(storage) == ([*ROWS, "new"], "index")
    assert found(storage, secondary=True)[0] == ROWS
    storage.secondary.follow(5)
    storage.seed({"Orders": [{"PartitionKey": "9", "RowKey": "newer", "customer": "c1"}]})
    assert found(storage, secondary=True)[0] == [*ROWS, "new", "newer"]


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_pages_of_realism_end_where_they_do_without_an_index(engine: str) -> None:
    with TableStorage(engine=engine, realism=True) as storage:
        storage.seed({"Orders": [{**each, "PartitionKey": each["RowKey"]} for each in ORDERS]})

        def pages() -> list[list[str]]:
            with TableServiceClient.from_connection_string(storage.connection_string) as service:
                found = service.get_table_client("Orders").query_entities("customer eq 'c1'")
                return [[each["RowKey"] for each in page] for page in found.by_page()]

        without = pages()
        storage.create_index("Orders", "customer")
        assert pages() == without
        assert len(without) > 1


@pytest.mark.parametrize(
    ("table", "name", "sentence"),
    [
        ("Orders", "Timestamp", "An index on Timestamp is not possible"),
        ("Nothing", "customer", "The account devstoreaccount1 has no table Nothing."),
    ],
)
def test_what_is_not_possible(storage: TableStorage, table: str, name: str, sentence: str) -> None:
    with pytest.raises(StateRefused, match=sentence):
        storage.create_index(table, name)


def test_the_requests_of_a_server_work_here_too(storage: TableStorage) -> None:
    """A test in another language sends them; the kit never makes an index by itself."""
    with TableEndpoint(parse_connection_string(storage.connection_string)) as endpoint:
        endpoint.create_table("Made")
        endpoint.own_form("PUT", "Made", "indexes", {"property": "color"})
        found = done_index(endpoint, "Made", "color", lambda _entities: None, pytest.fail)
        assert found is not None
        assert found["state"] == "ready"
        endpoint.own_form("DELETE", "Made", "indexes", property="color")
        assert done_index(endpoint, "Made", "color", lambda _entities: None, pytest.fail) is None
        policy = {"after": 60, "suspended": False}
        change_expiry(endpoint, "Made", policy, counted(endpoint, "Made", policy)["token"])
        assert endpoint.own_form("GET", "Made", "expiry").members == policy
