"""A storage inside this process: its start and end, its accounts, its refusals, and that it leaves nothing behind."""

import ast
import asyncio
import inspect
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.data.tables import TableServiceClient
from azure.data.tables.aio import TableServiceClient as AsyncTableServiceClient

from tablestone.server.worker import StartRefused
from tablestone.testing import StorageRefused, TableStorage

ENTITY = {"PartitionKey": "p", "RowKey": "r", "total": 5}


@pytest.fixture(params=["memory", "sqlite"])
def storage(request: pytest.FixtureRequest) -> Iterator[TableStorage]:
    with TableStorage(engine=request.param) as storage:
        yield storage


def client(connection_string: str) -> TableServiceClient:
    return TableServiceClient.from_connection_string(connection_string)


def of_version(version: str) -> Callable[[Any], None]:
    """What a newer SDK sends. This one sets the header itself, and only a hook can change it."""

    def changed(request: Any) -> None:
        request.http_request.headers["x-ms-version"] = version

    return changed


def test_the_sdk_works_with_it(storage: TableStorage) -> None:
    with client(storage.connection_string) as service:
        table = service.create_table("Orders")
        table.create_entity(ENTITY)
        assert table.get_entity("p", "r") == ENTITY
        table.submit_transaction([("upsert", ENTITY | {"RowKey": str(n)}) for n in range(3)])
        assert len(list(table.query_entities("total eq 5"))) == 4


def test_an_account_has_nothing_of_another(storage: TableStorage) -> None:
    first, second = storage.create_account(), storage.create_account()
    with client(first.connection_string) as one, client(second.connection_string) as other:
        one.create_table("Orders")
        assert [table.name for table in one.list_tables()] == ["Orders"]
        assert list(other.list_tables()) == []
    crossed = second.connection_string.replace(second.key, first.key)
    with client(crossed) as wrong, pytest.raises(ClientAuthenticationError):
        list(wrong.list_tables())


def test_a_deleted_account_is_not_there(storage: TableStorage) -> None:
    account = storage.create_account("orders")
    with client(account.connection_string) as service:
        service.create_table("Orders")
        storage.delete_account("orders")
        with pytest.raises(ResourceNotFoundError):
            list(service.list_tables())
    again = storage.create_account("orders")
    with client(again.connection_string) as service:
        assert list(service.list_tables()) == []


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    threads, handlers = set(threading.enumerate()), signal.getsignal(signal.SIGTERM)
    with TableStorage(engine="sqlite") as storage:
        with client(storage.connection_string) as service:
            service.create_table("Orders")
        address = storage.address
        assert len(list(tmp_path.iterdir())) == 1
        assert signal.getsignal(signal.SIGTERM) is handlers
    assert set(threading.enumerate()) == threads
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=5)
    storage.close()  # a second time


def test_it_stops_with_a_connection_open() -> None:
    with TableStorage() as storage:
        service = client(storage.connection_string)
        service.create_table("Orders")
    service.close()


def test_it_starts_inside_a_running_loop() -> None:
    async def main() -> list[str]:
        with TableStorage() as storage:
            connection_string = storage.create_account().connection_string
            async with AsyncTableServiceClient.from_connection_string(connection_string) as service:
                await service.create_table("Orders")
                return [table.name async for table in service.list_tables()]

    assert asyncio.run(main()) == ["Orders"]


def test_it_starts_and_ends_with_async_with() -> None:
    async def main() -> int:
        async with TableStorage() as storage:
            return storage.port

    assert asyncio.run(main()) > 0


CELLS = (
    "from tablestone.testing import TableStorage\nstorage = TableStorage().start()",
    "from azure.data.tables import TableServiceClient\n"
    "with TableServiceClient.from_connection_string(storage.connection_string) as service:\n"
    "    service.create_table('Orders')",
    "from azure.data.tables.aio import TableServiceClient as AsyncClient\n"
    "async with AsyncClient.from_connection_string(storage.connection_string) as service:\n"
    "    names = [table.name async for table in service.list_tables()]",
    "storage.reset()\nraise ValueError('a cell that fails')",
    "async with TableStorage() as second:\n    empty = second.dump()",
    "left = storage.dump()\nstorage.close()",
)
"""The cells of a notebook. Its kernel runs them in the main thread, inside a loop, and goes on after an error."""


def test_it_works_in_the_cells_of_a_notebook() -> None:
    threads = set(threading.enumerate())
    names: dict[str, object] = {}
    failures = []

    async def kernel() -> None:
        for cell in CELLS:
            code = compile(cell, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            try:
                result = FunctionType(code, names)()
                if inspect.iscoroutine(result):
                    await result
            except ValueError as error:
                failures.append(str(error))

    asyncio.run(kernel())
    assert (names["names"], names["empty"], names["left"]) == (["Orders"], {}, {})
    assert failures == ["a cell that fails"]
    assert set(threading.enumerate()) == threads


def test_it_starts_on_another_thread() -> None:
    def use() -> list[str]:
        with TableStorage() as storage, client(storage.connection_string) as service:
            service.create_table("Orders")
            return [table.name for table in service.list_tables()]

    with ThreadPoolExecutor(4) as threads:
        assert [each.result() for each in [threads.submit(use) for _ in range(4)]] == [
            ["Orders"]
        ] * 4


def test_a_process_ends_with_a_storage_that_was_never_closed() -> None:
    program = "from tablestone.testing import TableStorage\nprint(TableStorage().start().port)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 0


def test_requests_are_recorded() -> None:
    with TableStorage() as storage:
        account = storage.create_account()
        with client(account.connection_string) as service:
            table = service.create_table("Orders")
            table.create_entity(ENTITY)
            list(table.query_entities("PartitionKey eq 'p' and total gt 7"))
            with pytest.raises(ResourceNotFoundError):
                table.get_entity("p", "gone")
        *_, query, read = storage.requests
        assert str(query).partition(" ")[2] == (
            "QueryEntities Orders [partition: 1 read, 0 returned] -> 200"
        )
        assert query.filter == "PartitionKey eq 'p' and total gt 7"
        assert (read.operation, read.status, read.error) == ("GetEntity", 404, "ResourceNotFound")
        assert {record.account for record in storage.requests} == {account.name}
        assert storage.requests_count == len(storage.requests) == 4


@pytest.mark.parametrize(
    ("any_version", "later", "between"),
    [("later", None, 400), ("true", None, None), ("false", 400, 400)],
)
def test_which_versions_are_served(
    any_version: str, later: int | None, between: int | None
) -> None:
    with TableStorage(any_version=any_version) as storage, client(storage.connection_string) as own:
        for version, refusal in (("2099-01-01", later), ("2019-02-03", between)):
            status = None
            try:
                own.create_table(f"At{version[:4]}", raw_request_hook=of_version(version))
            except HttpResponseError as error:
                status = error.status_code
            assert status == refusal


def test_a_refusal_is_one_sentence() -> None:
    with pytest.raises(
        StorageRefused, match=r"^There is no engine 'disk': use memory, sqlite or a URL\.$"
    ):
        TableStorage(engine="disk")
    for port in (-1, 65_536, "10002"):
        with pytest.raises(StorageRefused, match=r"^A port is a number from 0 to 65535, not "):
            TableStorage(port=port)  # type: ignore[arg-type]
    with pytest.raises(
        StorageRefused, match=r"^any_version is 'later', 'true' or 'false', not True\.$"
    ):
        TableStorage(any_version=True)  # type: ignore[arg-type]
    idle = TableStorage()
    with pytest.raises(StorageRefused, match="not running"):
        idle.create_account()
    with TableStorage() as storage:
        with pytest.raises(StorageRefused, match="started already"):
            storage.start()
        with pytest.raises(StorageRefused, match=r"^There is an account devstoreaccount1 "):
            storage.create_account("devstoreaccount1")
        with pytest.raises(StorageRefused, match="is not an account name"):
            storage.create_account("Not a name")
        with pytest.raises(StartRefused, match="Cannot listen on 127"):
            TableStorage(port=storage.port).start()
