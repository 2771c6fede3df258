"""The check of an archive (`archive/comparing.py`), while a server writes: what it names, and what it leaves out."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest
import pytest_asyncio

from tablestone.archive import comparing, going_back
from tablestone.archive.going_back import MomentRefused, unix_of_ticks
from tablestone.archive.store import StoreUnavailable
from tablestone.engines.contract import EngineFull
from tablestone.engines.sqlite.restored_directory import RestoredDirectory
from tablestone.tables import storage_keys
from tablestone.tables.metadata import DocumentKind
from unit.archive.archived_server import ArchivedServer, restored
from unit.archive.stores import MemoryStore, flipped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

pytestmark = pytest.mark.asyncio
DAY = 86_400
TABLE = b"12345678"
ENTITIES = storage_keys.ENTITIES + TABLE + b"p"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest_asyncio.fixture
async def server(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ArchivedServer]:
    """Its rows are read some at a time."""
    monkeypatch.setattr(comparing, "READ_BYTES", 30)
    opened = ArchivedServer(tmp_path / "data", store)
    for number in range(40):
        await opened.commit(b"p%d" % (number % 4), {b"r%d" % number: b"value"})
    await opened.catch_up()
    yield opened
    await opened.close()


async def check(server: ArchivedServer) -> comparing.Checked:
    try:
        return await comparing.check(
            server.store, [], None, server.source, server.data.parent / "scratch", None
        )
    finally:
        shutil.rmtree(server.data.parent / "scratch", ignore_errors=True)


async def test_it_holds_while_a_server_writes(
    server: ArchivedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows change, come and go between its reads, and before those of the other side."""
    reads = 0
    began = server.last
    monkeypatch.setattr(going_back, "LISTS_AGAIN_SECONDS", 0.01)
    compare = comparing._differing
    loop = asyncio.get_running_loop()

    def writes_first(*given: object) -> object:
        nonlocal reads
        reads += 1
        asyncio.run_coroutine_threadsafe(write(reads), loop).result()
        return compare(*given)  # type: ignore[arg-type]

    async def write(number: int) -> None:
        for partition in range(4):
            rows = {b"r%d" % each: b"%d" % number for each in range(partition, 40, 4)}
            rows[b"r%d" % (50 - number)] = None  # type: ignore[assignment]
            await server.commit(b"p%d" % partition, rows)  # type: ignore[arg-type]
            if partition == 2:  # the next object has later records too, which do not count yet
                await server.turn()

    monkeypatch.setattr(comparing, "_differing", writes_first)
    found = await check(server)
    assert found.differing == 0
    assert found.number > began
    assert reads > 10


class Planted(NamedTuple):
    statement: str
    names: str | None
    """What is named; None for what is left out."""


PUT = "INSERT INTO stored_rows (partition, row, version, value) VALUES"
PROBE, LEASES, ROLES = (
    storage_keys.documents_partition(kind.value).hex()
    for kind in (DocumentKind.PROBE, DocumentKind.LEASES, DocumentKind.ROLES)
)
CATALOG = (storage_keys.CATALOG + b"account").hex()
DELETED_ROW, TAKEN_ROW = storage_keys._DELETED_ROW, storage_keys._TAKEN_ROW
DELETED, TAKEN = (DELETED_ROW + TABLE).hex(), (TAKEN_ROW + b"name").hex()
PLANTED = {
    "a value": Planted("UPDATE stored_rows SET value = x'78' WHERE row = x'7237'", "r7"),
    "a version": Planted("UPDATE stored_rows SET version = version + 1 WHERE row = x'7238'", "r8"),
    "a row is missing here": Planted("DELETE FROM stored_rows WHERE row = x'7239'", "r9"),
    "a row is only here": Planted(f"{PUT} (x'7032', x'7278', 1, x'78')", "rx"),
    "the first row": Planted(f"{PUT} (x'00', x'', 1, x'78')", "row"),
    "the last row": Planted(f"{PUT} (x'{'ff' * 8}', x'72', 1, x'78')", "row"),
    "a role": Planted(f"{PUT} (x'{ROLES}', x'72', 1, x'78')", "roles"),
    "the probe": Planted(f"{PUT} (x'{PROBE}', x'72', 1, x'78')", None),
    "leases": Planted(f"{PUT} (x'{LEASES}', x'72', 1, x'78')", None),
    "swept entities": Planted(
        f"DELETE FROM stored_rows WHERE partition = x'{ENTITIES.hex()}'", None
    ),
    "the note of a swept table": Planted(f"DELETE FROM stored_rows WHERE row = x'{DELETED}'", None),
    "a name that is free again": Planted(f"DELETE FROM stored_rows WHERE row = x'{TAKEN}'", None),
    "an entity of a deleted table": Planted(
        f"{PUT} (x'{ENTITIES.hex()}', x'7a', 1, x'78')", TABLE.hex()
    ),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
async def test_what_differs_without_a_record(server: ArchivedServer, planted: Planted) -> None:
    """What the server's own work leaves without a record is left out: see `_NO_RECORDS` and `_is_swept`."""
    catalog = bytes.fromhex(CATALOG)
    await server.commit(catalog, {DELETED_ROW + TABLE: b"{}", TAKEN_ROW + b"name": b"{}"})
    await server.commit(ENTITIES, {b"e1": b"{}", b"e2": b"{}"})
    await server.catch_up()
    with closing(server.engine._directory.connect_writer()) as writer:
        writer.execute(planted.statement)
        assert writer.changes() > 0
    found = await check(server)
    assert found.differing == (planted.names is not None)
    assert planted.names is None or planted.names in found.named[0]


async def test_many_rows_that_differ_are_counted(server: ArchivedServer) -> None:
    with closing(server.engine._directory.connect_writer()) as writer:
        writer.execute("UPDATE stored_rows SET value = x'78'")
    found = await check(server)
    assert found.differing == 40
    assert len(found.named) == comparing.NAMED_MAX


async def test_it_does_not_wait_for_ever(
    server: ArchivedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(going_back, "STOPPED_SECONDS", 0.2)
    monkeypatch.setattr(going_back, "LISTS_AGAIN_SECONDS", 0.1)
    archived = server.last
    await server.write(2)
    with pytest.raises(
        MomentRefused,
        match=f"Nothing is archived after record {archived:,}, and the data has {archived + 2:,}",
    ):
        await check(server)


async def test_no_room_for_a_copy(server: ArchivedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(server.data)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=4096))
    with pytest.raises(EngineFull, match="MiB for a copy of the data"):
        await check(server)


@pytest.mark.parametrize("full", ["apply", "keep_record"])
async def test_the_disk_is_full_while_it_is_restored(
    server: ArchivedServer, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """It ends with a sentence; when there is room, it goes on."""
    for number in range(4):
        await server.write(2, b"%d" % number * 3_000)
        await server.turn()
    works: Callable[..., None] = getattr(RestoredDirectory, full)

    def is_full(target: RestoredDirectory, *given: object) -> None:
        target._connection.pragma("max_page_count", 1)
        works(target, *given)

    into = server.data.parent / "restored"
    with monkeypatch.context() as patched:
        patched.setattr(RestoredDirectory, full, is_full)
        with pytest.raises(EngineFull, match="There is no room in"):
            await restored(store, into=into)
    number, rows = await restored(store, into=into)
    assert (number, rows) == (server.last, server.rows())


async def checking(server: ArchivedServer) -> ArchivedServer:
    """Start again with `--archive-check 24h`."""
    server = await server.again()
    server.settings = replace(server.settings, check_seconds=DAY)
    server.archiver = server.new_archiver()
    return server


async def after(server: ArchivedServer, seconds: float) -> None:
    server.clock.move(seconds)
    await server.catch_up()


@pytest.fixture
def wall(server: ArchivedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of checks is that of the server."""
    monkeypatch.setattr(comparing, "unix_seconds", lambda: unix_of_ticks(server.clock()))


@pytest.mark.usefixtures("wall")
async def test_a_server_that_is_restarted_each_hour_is_checked_each_day(
    server: ArchivedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health says when it held last, also after a restart."""
    checks = list[float]()
    real = comparing.check

    async def check(*given: object) -> comparing.Checked:
        checks.append(server.clock.seconds)
        return await real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(comparing, "check", check)
    began = server.clock.seconds
    for _hour in range(50):
        server = await checking(server)
        assert bool(server.archiver.check.held_at) == bool(checks)
        await after(server, 3_600)
    assert [round(at - began) // 3_600 for at in checks] == [1, 25, 49]
    assert server.archiver.check.failed is None
    server.clock.move(-400 * DAY)  # the clock was wrong when it was checked
    server = await checking(server)
    await after(server, comparing.RETRY_SECONDS + 1)
    assert len(checks) == 4
    await server.close()


@pytest.mark.usefixtures("wall")
async def test_a_damaged_object_fails_the_check_alone(
    server: ArchivedServer, store: MemoryStore
) -> None:
    """The archiver is not failing; the next start checks again soon."""
    server = await checking(server)
    await server.write(2)
    await server.catch_up()
    damaged = store.names("changes")[-1]
    store.damage(damaged, flipped)
    await after(server, DAY + 1)
    (warning,) = server.warnings
    assert warning.startswith(
        f"The check of the archive {server.settings.url} failed: {damaged} is damaged."
    )
    assert server.archiver.errors == 0
    assert server.archiver.check.due == server.clock.seconds + DAY
    server = await checking(server)
    assert server.archiver.check.due == server.clock.seconds + comparing.RETRY_SECONDS
    await server.close()


@pytest.mark.usefixtures("wall")
async def test_a_check_that_cannot_run_is_no_failure(
    server: ArchivedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await checking(server)
    await server.catch_up()
    held = server.archiver.check.held_at

    async def fails(*_given: object) -> None:
        raise StoreUnavailable("503.")

    with monkeypatch.context() as patched:
        patched.setattr(comparing, "find_goal", fails)
        await after(server, DAY + 1)
    url = server.settings.url
    assert server.warnings == [f"The archive {url} could not be checked: 503."]
    assert (server.archiver.failing, server.archiver.check.held_at) == (None, held)
    await after(server, comparing.RETRY_SECONDS + 1)
    assert server.warnings == []
    assert server.archiver.check.held_at > held
    await server.close()
