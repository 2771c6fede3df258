"""The changes of a storage, as a test reads them."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from azure.core.rest import HttpRequest
from azure.data.tables import TableServiceClient

from tablestone.testing import StorageAccount, StorageRefused, StorageTransport, TableStorage
from tablestone.tools.transport import PooledTransport

ORDERS = [{"PartitionKey": "p", "RowKey": str(n)} for n in range(3)]


@pytest.fixture(params=["memory", "sqlite"])
def storage(request: pytest.FixtureRequest) -> Iterator[TableStorage]:
    with TableStorage(engine=request.param, keep_changes=True) as storage:
        yield storage


def shown(changes: Any) -> list[tuple[str, ...]]:
    names = ("kind", "table", "RowKey")
    merged = [{**change.get("entity", {}), **change} for change in changes]
    return [tuple(change[name] for name in names if name in change) for change in merged]


def insert(account: StorageAccount, row: str) -> None:
    with TableServiceClient.from_connection_string(account.connection_string) as service:
        orders = service.create_table_if_not_exists("Orders")
        orders.create_entity({"PartitionKey": "p", "RowKey": row})


@pytest.mark.parametrize("is_own", [True, False])
def test_requests_seeds_and_emptying_are_recorded(storage: TableStorage, is_own: bool) -> None:  # noqa: FBT001
    account = storage.create_account() if is_own else storage.account
    insert(account, "before")
    changes = storage.changes(account)
    assert shown(changes) == []
    insert(account, "1")
    other = storage.create_account()
    storage.seed({"Other": ORDERS}, account=other)
    assert shown(changes) == [("put", "Orders", "1")]
    storage.seed({"Stock": ORDERS[:2]}, account=account)
    assert shown(changes) == [
        ("table-created", "Stock"),
        ("put", "Stock", "0"),
        ("put", "Stock", "1"),
    ]
    storage.reset(account, "Stock")
    assert shown(changes) == [("delete", "Stock", "0"), ("delete", "Stock", "1")]
    storage.delete_table("Stock", account)
    storage.reset(account)
    assert shown(changes) == [("table-deleted", "Stock"), ("table-deleted", "Orders")]


def test_a_loop_that_is_left_loses_nothing(storage: TableStorage) -> None:
    changes = storage.changes()
    storage.seed({"Orders": ORDERS})
    assert next(iter(changes))["kind"] == "table-created"
    assert shown(changes) == [("put", "Orders", "0"), ("put", "Orders", "1"), ("put", "Orders", "2")]  # fmt: skip


def test_async_for_waits_for_the_next(storage: TableStorage) -> None:
    account = storage.create_account()
    changes = storage.changes(account)

    later: list[threading.Timer] = []

    def do_later(what: Any, *arguments: Any) -> None:
        later.append(threading.Timer(0.1, what, arguments))
        later[-1].start()

    async def program() -> list[tuple[str, ...]]:
        found = []
        async for change in changes:
            found.append(change)
            if len(found) == 1:
                do_later(insert, account, "1")
            elif len(found) == 3:
                do_later(storage.delete_account, account.name)
        return shown(found)

    storage.seed({"Stock": []}, account=account)
    found = asyncio.run(asyncio.wait_for(program(), 20))
    for timer in later:
        timer.join()
    assert found[:3] == [
        ("table-created", "Stock"),
        ("table-created", "Orders"),
        ("put", "Orders", "1"),
    ]


def test_restore_begins_a_record_and_ends_those_who_read_the_last() -> None:
    with TableStorage(keep_changes=True) as storage:
        storage.seed({"Orders": ORDERS[:1]})
        snapshot = storage.snapshot()
        changes = storage.changes()
        storage.seed({"Orders": ORDERS})
        storage.restore(snapshot)
        assert list(changes) == []
        storage.seed({"Orders": ORDERS[:1]})
        assert list(changes) == []

        async def waits() -> None:
            assert [change async for change in changes] == []

        asyncio.run(asyncio.wait_for(waits(), 20))
        later = storage.changes()
        storage.seed({"Orders": ORDERS[1:2]})
        assert shown(later) == [("put", "Orders", "1")]


def test_a_storage_without_changes_says_so() -> None:
    with TableStorage() as storage:
        with pytest.raises(StorageRefused, match="keep_changes=True"):
            storage.changes()
        storage.restore(storage.snapshot())
        with pytest.raises(StorageRefused, match="keep_changes=True"):
            storage.changes()


@pytest.mark.parametrize("without_socket", [False, True])
def test_a_request_that_waits_is_answered_with_the_next_change(
    storage: TableStorage,
    without_socket: bool,  # noqa: FBT001
) -> None:
    storage.seed({"Orders": []})
    timer = threading.Timer(0.3, storage.seed, ({"Orders": ORDERS[:1]},))
    timer.start()
    transport = StorageTransport(storage) if without_socket else PooledTransport(storage.endpoint)
    with TableServiceClient.from_connection_string(
        storage.connection_string, transport=transport
    ) as service:
        address = f"{storage.endpoint}/Orders?comp=changes&since="
        answer = service._client.send_request(HttpRequest("GET", f"{address}now"))
        address += answer.headers["x-tablestone-cursor"]
        answer = service._client.send_request(HttpRequest("GET", f"{address}&wait=20"), stream=True)
        assert orjson.loads(answer.read())["entity"]["RowKey"] == "0"
    timer.join()
