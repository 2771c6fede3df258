"""Storage has one time budget for all that a request needs, and a new one for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tablestone.engines import request_time
from tablestone.engines.memory import MemoryEngine
from tablestone.limits import STORAGE_SECONDS_MAX
from unit.engines.leased_storage import Elapsed
from wire.case_tables import prepare

if TYPE_CHECKING:
    import pytest

    from tablestone.engines.contract import Key
    from wire.service_under_test import ServiceUnderTest


def test_each_read_of_a_request_has_what_is_left(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Elapsed()
    monkeypatch.setattr(request_time, "monotonic_seconds", now)
    prepare(service, {"given": ['POST /Tables {"TableName":"tab"}']})
    left: list[float] = []
    get, read = MemoryEngine.get, MemoryEngine.read

    async def slow_get(engine: MemoryEngine, key: Key) -> bytes | None:
        left.append(request_time.left())
        now.now += 3
        return await get(engine, key)

    async def slow_read(engine: MemoryEngine, *arguments: Any, **named: Any) -> Any:
        left.append(request_time.left())
        now.now += 3
        return await read(engine, *arguments, **named)

    monkeypatch.setattr(MemoryEngine, "get", slow_get)
    monkeypatch.setattr(MemoryEngine, "read", slow_read)
    for _ in range(2):
        left.clear()
        assert service.send("GET", "/tab(PartitionKey='p',RowKey='r')").status == 404
        assert left == [STORAGE_SECONDS_MAX - 3 * number for number in range(len(left))]
        assert left
