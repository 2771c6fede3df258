"""The time for which a deleted table's name stays reserved, if a server has the option (wire 3.4, 14 row 19)."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from server_process import ServerProcess
from signing import signed_headers
from tablestone.engines.contract import Key, KeyRange
from tablestone.model.errors import StorageError
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog
from tablestone.tables.sweeping import Sweeper
from wire.case_tables import error_of
from wire.overtaken import OvertakenEngine
from wire.service_under_test import Clock, Response, ServiceUnderTest

SECONDS = 40
OWNER = Named("account")
EVERYTHING = KeyRange(Key(b"", b""), Key(b"\xff" * 16, b""))
CREATE = b'{"TableName":"tab"}'
ENTITY = b'{"PartitionKey":"p","RowKey":"r"}'

StartServer = Callable[..., ServerProcess]


@pytest.fixture
def slow() -> Iterator[ServiceUnderTest]:
    """A service with the option, and a table that was just deleted."""
    service = ServiceUnderTest(table_deletion_seconds=SECONDS)
    assert service.send("POST", "/Tables", body=CREATE).status == 201
    assert service.send("POST", "/tab", body=ENTITY).status == 201
    assert service.send("DELETE", "/Tables('tab')").status == 204
    yield service
    service.close()


def create(service: ServiceUnderTest, name: str = "tab") -> Response:
    return service.send("POST", "/Tables", body=CREATE.replace(b"tab", name.encode()))


@pytest.mark.parametrize("name", ["tab", "TAB"])
def test_the_name_of_a_deleted_table_is_free_after_its_time(
    slow: ServiceUnderTest, name: str
) -> None:
    for seconds in (0, SECONDS - 1):
        slow.clock.now += timedelta(seconds=seconds)
        refused = create(slow, name)
        assert refused.status == 409
        code, text, _ = error_of(refused)
        assert (code, text) == (
            "TableBeingDeleted",
            "The specified table is being deleted. Try operation later.",
        )
    slow.clock.now += timedelta(seconds=1)
    assert create(slow, name).status == 201
    assert slow.send("GET", "/tab()").body.endswith(b'"value":[]}')


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/tab()", b"", "TableNotFound"),
        ("GET", "/tab(PartitionKey='p',RowKey='r')", b"", "TableNotFound"),
        ("POST", "/tab", ENTITY, "TableNotFound"),
        ("PUT", "/tab(PartitionKey='p',RowKey='r')", b"{}", "TableNotFound"),
        ("GET", "/tab?comp=acl", b"", "TableNotFound"),
        ("GET", "/Tables('tab')", b"", "ResourceNotFound"),
        ("DELETE", "/Tables('tab')", b"", "ResourceNotFound"),
    ],
)
def test_for_all_else_it_is_not_there(
    slow: ServiceUnderTest, method: str, path: str, body: bytes, code: str
) -> None:
    refused = slow.send(method, path, body=body)
    assert refused.status == 404
    assert error_of(refused)[0] == code


def test_it_is_not_listed_and_other_names_are_free(slow: ServiceUnderTest) -> None:
    assert slow.send("GET", "/Tables").body.endswith(b'"value":[]}')
    assert create(slow, "tabb").status == 201
    assert create(slow, "tabb").status == 409


def test_each_deletion_has_its_time(slow: ServiceUnderTest) -> None:
    """Even if many tables were deleted, more than fit a page of them."""
    slow.clock.now += timedelta(seconds=SECONDS)
    for _ in range(3):
        assert create(slow).status == 201
        assert create(slow).status == 409
        assert error_of(create(slow))[0] == "TableAlreadyExists"
        assert slow.send("DELETE", "/Tables('tab')").status == 204
        assert error_of(create(slow))[0] == "TableBeingDeleted"
        slow.clock.now += timedelta(seconds=SECONDS)
    for number in range(1100):
        assert create(slow, f"tab{number}").status == 201
        assert slow.send("DELETE", f"/Tables('tab{number}')").status == 204
    assert {create(slow, f"tab{number}").status for number in range(0, 1100, 100)} == {409}
    assert create(slow).status == 201


DELETED = [("delete", "tab")]
MADE_AND_DELETED = [("create", "TAB"), ("delete", "tab")]


@pytest.mark.parametrize(
    ("before", "meanwhile", "code"),
    [
        ([("create", "tab")], DELETED, "TableBeingDeleted"),
        ([], MADE_AND_DELETED, "TableBeingDeleted"),
        ([("create", "tab"), ("delete", "tab"), ("wait", "")], MADE_AND_DELETED, "TableBeingDeleted"),
        ([], [("create", "Tab")], "TableAlreadyExists"),
        ([("create", "tab"), ("delete", "tab"), ("wait", "")], [("create", "Tab")], "TableAlreadyExists"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("calls", [0, 1])
def test_a_create_that_others_overtake_does_not_get_the_name(
    before: list[tuple[str, str]], meanwhile: list[tuple[str, str]], code: str, calls: int
) -> None:
    """Wherever they do: before it checks whether the name is free, and before it commits."""
    clock = Clock()
    engine = OvertakenEngine(clock.ticks)
    ids = (number.to_bytes(8, "big") for number in count(1))
    catalog = Catalog(engine, clock.ticks, lambda: next(ids), deletion_seconds=SECONDS)

    async def do(steps: list[tuple[str, str]]) -> None:
        for step, name in steps:
            if step == "create":
                await catalog.create(OWNER, name)
            elif step == "delete":
                await catalog.delete(OWNER, name)
            else:
                clock.now += timedelta(seconds=SECONDS)

    async def create_overtaken() -> None:
        await do(before)
        engine.overtake(lambda: do(meanwhile), calls)
        try:
            await catalog.create(OWNER, "tab")
        finally:
            assert engine.is_overtaken

    with pytest.raises(StorageError, match=code):
        asyncio.run(create_overtaken())


def test_an_account_has_no_deletion_times_of_an_earlier_one_of_its_name() -> None:
    clock = Clock()
    engine = OvertakenEngine(clock.ticks)
    ids = (number.to_bytes(8, "big") for number in count(1))
    catalog = Catalog(engine, clock.ticks, lambda: next(ids), deletion_seconds=SECONDS)

    async def scene() -> None:
        await catalog.create(OWNER, "tab")
        await catalog.delete(OWNER, "tab")
        with pytest.raises(StorageError, match="TableBeingDeleted"):
            await catalog.create(OWNER, "tab")
        clock.now += timedelta(seconds=1)
        owner = Named(OWNER.name, await catalog.incarnations.end(OWNER.name))
        clock.now += timedelta(seconds=1)
        await catalog.create(owner, "tab")
        await catalog.delete(owner, "tab")
        with pytest.raises(StorageError, match="TableBeingDeleted"):
            await catalog.create(owner, "tab")

    asyncio.run(scene())


def test_a_table_that_was_made_while_there_was_no_such_time_is_there() -> None:
    """The option may be given at one start and not at the next."""
    clock = Clock()
    engine = OvertakenEngine(clock.ticks)
    ids = (number.to_bytes(8, "big") for number in count(1))

    def catalog(seconds: int) -> Catalog:
        return Catalog(engine, clock.ticks, lambda: next(ids), deletion_seconds=seconds)

    async def scene() -> None:
        await catalog(SECONDS).create(OWNER, "Tab")
        await catalog(SECONDS).delete(OWNER, "tab")
        await catalog(0).create(OWNER, "tab")
        with pytest.raises(StorageError, match="TableAlreadyExists"):
            await catalog(SECONDS).create(OWNER, "tab")
        await catalog(0).delete(OWNER, "tab")
        clock.now += timedelta(seconds=SECONDS)
        await catalog(SECONDS).create(OWNER, "tab")

    asyncio.run(scene())


def test_a_deletion_without_such_a_time_has_none_at_the_next_start() -> None:
    clock = Clock()
    engine = OvertakenEngine(clock.ticks)
    ids = (number.to_bytes(8, "big") for number in count(1))

    async def scene() -> None:
        at_once = Catalog(engine, clock.ticks, lambda: next(ids))
        await at_once.create(OWNER, "tab")
        await at_once.delete(OWNER, "tab")
        later = Catalog(engine, clock.ticks, lambda: next(ids), deletion_seconds=SECONDS)
        await later.create(OWNER, "tab")

    asyncio.run(scene())


def test_what_is_known_of_a_deleted_table_is_forgotten_once_its_name_is_free() -> None:
    """And so is that the name was taken, unless a later table has it."""
    clock = Clock()
    engine = OvertakenEngine(clock.ticks)
    ids = (number.to_bytes(8, "big") for number in count(1))
    catalog = Catalog(engine, clock.ticks, lambda: next(ids), deletion_seconds=SECONDS)
    sweeper = Sweeper(engine, clock.ticks, lambda: b"a server", deletion_seconds=SECONDS)

    async def scene() -> None:
        await catalog.create(OWNER, "tab")
        await catalog.delete(OWNER, "tab")
        clock.now += timedelta(seconds=SECONDS)
        await catalog.create(OWNER, "tab")
        await catalog.delete(OWNER, "tab")
        clock.now += timedelta(seconds=1)
        assert not await sweeper.sweep(OWNER.name)
        with pytest.raises(StorageError, match="TableBeingDeleted"):
            await catalog.create(OWNER, "tab")
        clock.now += timedelta(seconds=2 * SECONDS)
        assert not await sweeper.sweep(OWNER.name)
        assert await engine.scan(EVERYTHING, rows_max=10) == []

    asyncio.run(scene())


def test_by_default_the_name_is_free_at_once() -> None:
    service = ServiceUnderTest()
    with closing(service):
        assert create(service).status == 201
        assert service.send("DELETE", "/Tables('tab')").status == 204
        assert create(service).status == 201


def test_a_deletion_by_default_stays_one_for_a_server_that_has_the_window() -> None:
    """The name was free at once, and stays free under any option of the next server."""
    service = ServiceUnderTest()
    with closing(service):
        assert create(service).status == 201
        assert service.send("DELETE", "/Tables('tab')").status == 204
        later = ServiceUnderTest(service, table_deletion_seconds=SECONDS)
        with closing(later):
            assert create(later).status == 201


@pytest.mark.slow
def test_every_process_agrees_and_a_restart_changes_nothing(
    private_server: StartServer, tmp_path: Path
) -> None:
    """On real servers, whose clock the test cannot set."""

    def asked(server: ServerProcess, method: str, target: str, body: str = "") -> set[int]:
        parts = urlsplit(server.endpoint)
        found = set()
        for _ in range(8):  # connections rotate through the processes
            with closing(HTTPConnection(parts.netloc, timeout=20)) as connection:
                headers = signed_headers(
                    server.account_name,
                    server.account_key,
                    method=method,
                    target=parts.path + target,
                    content_type="application/json" if body else "",
                )
                connection.request(method, parts.path + target, body or None, dict(headers))
                found.add(connection.getresponse().status)
        return found

    options = ("--workers", "3", "--table-deletion-seconds", "4")
    server = private_server(tmp_path, *options)
    assert asked(server, "POST", "/Tables", CREATE.decode()) == {201, 409}
    before = time.monotonic()
    assert asked(server, "DELETE", "/Tables('tab')") == {204, 404}
    deleted = time.monotonic()
    statuses = asked(server, "POST", "/Tables", CREATE.decode())
    assert statuses == {409} or time.monotonic() - before > 4
    assert server.stop() == 0
    server = private_server(tmp_path, *options)
    statuses = asked(server, "POST", "/Tables", CREATE.decode())
    assert statuses == {409} or time.monotonic() - before > 4
    time.sleep(max(0.0, 4.5 - (time.monotonic() - deleted)))
    assert 409 in asked(server, "POST", "/Tables", CREATE.decode())
    assert asked(server, "GET", "/tab()") == {200}
