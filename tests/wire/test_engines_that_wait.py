"""The HTTP server over an engine that waits: each of its calls may suspend, at once or late, and use a time-out.

`asyncio.timeout` raises outside a task, and the HTTP server runs the first step of a read outside any task if the
engine does not wait. So these tests fail if a call of a waiting engine is made there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from storage.slow_engine import SlowEngine
from tablestone.engines import registry
from tablestone.engines.contract import EngineUnavailable, Key, OutcomeUnknown
from wire.served_bytes import ServedBytes
from wire.service_under_test import ACCOUNT, Clock

ENTITY = f"/{ACCOUNT}/tab(PartitionKey='p',RowKey='r')"


async def at_once() -> None:
    await asyncio.sleep(0.01)


async def late() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)


async def in_time() -> None:
    async with asyncio.timeout(10):
        await asyncio.sleep(0)


async def not_in_time() -> None:
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(10)
    except TimeoutError:
        raise EngineUnavailable("no node answers") from None


async def in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(asyncio.sleep(0))


async def never() -> None:
    """Most calls find what they need without waiting."""


WAITS = [at_once, late, in_time, in_a_group, never]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedBytes]:
    """A server over the engine of the scheme `slow`, with one entity in the table `tab`."""
    monkeypatch.setitem(registry.OWN_KINDS, "slow", "storage.slow_engine")
    server = ServedBytes(Clock(), "slow:")
    made = server.exchange("POST", f"/{ACCOUNT}/Tables", (), b'{"TableName":"tab"}')
    assert made.status == 201
    body = b'{"PartitionKey":"p","RowKey":"r","n":5}'
    assert server.exchange("POST", f"/{ACCOUNT}/tab", (), body).status == 201
    yield server
    server.close()


def when_a_get_begins(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], Awaitable[None]]
) -> None:
    get = SlowEngine.get

    async def waiting(engine: SlowEngine, key: Key) -> bytes | None:
        await before()
        return await get(engine, key)

    monkeypatch.setattr(SlowEngine, "get", waiting)


@pytest.mark.parametrize("wait", WAITS)
def test_a_read_may_wait_in_any_way(
    server: ServedBytes, monkeypatch: pytest.MonkeyPatch, wait: Callable[[], Awaitable[None]]
) -> None:
    when_a_get_begins(monkeypatch, wait)
    for _ in range(5):
        answer = server.exchange("GET", ENTITY)
        assert (answer.status, b'"n":5' in answer.body) == (200, True)
    assert server.exchange("GET", f"/{ACCOUNT}/tab()?$filter=n%20eq%205").status == 200


def test_a_time_out_of_the_engine_is_a_busy_server(
    server: ServedBytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    when_a_get_begins(monkeypatch, not_in_time)
    assert server.exchange("GET", ENTITY).status == 503


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (EngineUnavailable("no node answers"), 503, b"ServerBusy"),
        (OutcomeUnknown("no node answered in time"), 500, b"OperationTimedOut"),
    ],
)
def test_what_a_commit_that_fails_is_answered(
    server: ServedBytes,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    status: int,
    code: bytes,
) -> None:
    """The answer says that nothing was changed only if that is certain."""

    async def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(SlowEngine, "commit", fail)
    answer = server.exchange("DELETE", ENTITY, [("If-Match", "*")])
    assert (answer.status, code in answer.body) == (status, True)
