"""A base copy is gentle: what it reads at once is short, and it rests for the processor time that it took."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tablestone.archive import base_copy
from tablestone.archive.archiver import BESIDE_RETRY_SECONDS, LATE_SECONDS
from tablestone.archive.store import StoreUnavailable
from unit.archive.archived_server import ArchivedServer, restored
from unit.archive.stores import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.asyncio
ROW_BYTES = 5_000


@pytest.mark.parametrize(
    ("cores", "least", "most"), [(0.0, 9, 9), (0.5, 139, 140), (1.0, 270, 270), (2.0, 270, 270)]
)
async def test_it_rests_longer_while_the_process_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: float, least: float, most: float
) -> None:
    """An idle server gives it a tenth of a core, and a busy one a 270th. Its own time is not that of others."""
    now, own = [0.0], [0.0]
    monkeypatch.setattr(base_copy, "monotonic_seconds", lambda: now[0])
    monkeypatch.setattr(base_copy, "process_seconds", lambda: 7.0 + own[0] + cores * now[0])
    server = ArchivedServer(tmp_path / "data", MemoryStore())
    for _piece in range(3):
        now[0] += 0.02
        own[0] += 0.002
        rest = server.archiver.base_copies._rest(0.002)
        assert least * 0.00199 <= rest <= most * 0.00201
    await server.close()


async def test_each_piece_is_short_and_has_its_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ArchivedServer(tmp_path / "data", MemoryStore())
    for number in range(100):
        await server.commit(b"p", {b"r%d" % number: b"v" * ROW_BYTES})
    copies, source = server.archiver.base_copies, server.source
    events: list[str] = []
    real, slept = source.rows, asyncio.sleep

    def rows(*given: object) -> object:
        found = real(*given)  # type: ignore[arg-type]
        assert sum(len(row.value) for row in found) <= base_copy.READ_BYTES + ROW_BYTES
        events.append("read" if found else "nothing")
        server.clock.move(10)
        return found

    async def sleep(seconds: float) -> None:
        events.append("rest" if seconds > 0 else "none")
        await slept(0)

    monkeypatch.setattr(source, "rows", rows)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    body = await copies._read(None)
    assert (body.rows, body.last is None) == (len(server.model), False)
    assert server.clock.seconds - copies.went_on_at <= 10
    assert events[:-1] == ["read", "rest"] * (len(events) // 2)
    assert len(events) > 100 * ROW_BYTES / base_copy.READ_BYTES
    await server.close()


async def test_a_copy_of_much_data_ends_within_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ArchivedServer(tmp_path / "data", MemoryStore())
    await server.write(10)
    monkeypatch.setattr(base_copy, "REST", 1e9)
    monkeypatch.setattr(base_copy, "COPY_SECONDS", 0.001)
    await asyncio.wait_for(server.catch_up(), 10)
    assert await restored(server.store) == (server.last, server.rows())
    await server.close()


async def test_a_copy_ends_within_its_time_though_data_is_loaded_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ArchivedServer(tmp_path / "data", MemoryStore())
    await server.write(1)
    sizes = iter([1e6, 1e9])
    monkeypatch.setattr(server.source, "database_bytes", lambda: next(sizes))
    monkeypatch.setattr(base_copy, "REST", 1e9)
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    parts = [await server.archiver.base_copies._read(None) for _part in range(2)]
    assert [
        part.size * base_copy.COPY_SECONDS / rest for part, rest in zip(parts, rests, strict=True)
    ] == [pytest.approx(1e6), pytest.approx(1e9)]
    await server.close()


async def test_a_copy_that_looks_at_its_old_parts_for_long_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one has thousands of them."""
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    monkeypatch.setattr(base_copy, "PART_BYTES", ROW_BYTES)
    monkeypatch.setattr(base_copy, "REST", 0.0)
    await server.commit(b"p", {b"r%d" % number: b"v" * ROW_BYTES for number in range(9)})

    def ends(what: str, name: str) -> None:
        if what == "create" and name.endswith(("/000008", "/end")):
            raise StoreUnavailable("503.")

    store.before = ends
    copies = server.archiver.base_copies
    while copies not in server.archiver.problems:
        await server.turn()
        await asyncio.sleep(0)
    old = len(store.names("base"))
    warned: list[str] = []

    def takes_long(what: str, name: str) -> None:
        if what == "read" and "/base/" in name:
            server.clock.move(20)
            warned.extend(each for each in server.warnings if "does not go on" in each)

    store.before = takes_long
    server.clock.move(BESIDE_RETRY_SECONDS + 1)
    await server.catch_up()
    assert old > LATE_SECONDS / 20
    assert warned == []
    assert await restored(server.store) == (server.last, server.rows())
    await server.close()


async def test_a_copy_that_hangs_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, answers = MemoryStore(), asyncio.Event()
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    server.clock.move(base_copy.EVERY_SECONDS + 1)
    await server.write(3)
    create, asked = store.create, asyncio.Event()

    async def hangs(name: str, data: bytes) -> None:
        if "/base/" in name:
            asked.set()
            await answers.wait()
        await create(name, data)

    store.create = hangs  # type: ignore[method-assign]
    await server.archiver.turn()
    await asked.wait()
    caplog.clear()
    for second in range(70):
        server.clock.move(1)
        await server.archiver.turn()  # changes are archived meanwhile
        await server.archiver.watch()
        warns = [warning for warning in server.warnings if "does not go on" in warning]
        assert len(warns) == int(second >= 59)
    assert caplog.text.count("The base copy in s3://bucket/tables does not go on: ") == 1
    answers.set()
    await server.catch_up()
    assert server.warnings == []
    await server.close()


async def test_a_part_that_came_twice_is_known(tmp_path: Path) -> None:
    """The store wrote it, and said that it did not: what it holds is compared with what was compressed."""
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.write(3)
    create = store.create

    async def twice(name: str, data: bytes) -> None:
        if "/base/" in name and name not in store.objects:
            await create(name, data)
        await create(name, data)

    store.create = twice  # type: ignore[method-assign]
    await server.catch_up()
    assert server.term.term.number == 1
    assert await restored(server.store) == (server.last, server.rows())
    await server.close()
