"""The directory of partitions: ordered, in small nodes, and complete during a split and after an interrupted one.

Needs the cluster that ENGINE_UNDER_TEST names; the tests create their own keyspace in it.
"""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from storage.cluster_engine import URL, drop_keyspace
from storage.conftest import HeldClock
from tablestone.engines.contract import EngineUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from tablestone.engines.cassandra.cluster_url import ClusterAddress
    from tablestone.engines.cassandra.connection import Connection
    from tablestone.engines.cassandra.directory import Directory
    from tablestone.engines.cassandra.session import Answer

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(
        URL is None,
        reason="no cluster: python -m tests.storage.cluster up, then set ENGINE_UNDER_TEST",
    ),
]

ENTRIES_MAX = 8
CALLS_MAX = 3


@pytest.fixture(scope="module")
def address() -> Iterator[ClusterAddress]:
    """A keyspace for the tests of this file."""
    from tablestone.engines.cassandra.cluster_url import parse_address  # noqa: PLC0415
    from tablestone.engines.cassandra.opening import initialize  # noqa: PLC0415

    assert URL is not None
    keyspace = f"directory_{os.getpid()}"
    address = parse_address(URL.replace("/tablestone?", f"/{keyspace}?") + "&replication=1")
    initialize(address)
    yield address
    drop_keyspace(address)


@pytest_asyncio.fixture
async def connection(address: ClusterAddress) -> AsyncIterator[Connection]:
    """A connection to a directory without entries."""
    from tablestone.engines.cassandra.connection import Connection  # noqa: PLC0415
    from tablestone.engines.cassandra.directory import make_root  # noqa: PLC0415
    from tablestone.engines.cassandra.layout import DIRECTORY, DIRECTORY_NODES  # noqa: PLC0415

    connection = Connection(address)
    for table in (DIRECTORY, DIRECTORY_NODES):
        connection.define(f"TRUNCATE {table}")
    await make_root(connection)
    yield connection
    connection.close()


def directory_on(connection: Connection) -> Directory:
    """The directory of one server. It counts a node at every addition, and splits one with more than `ENTRIES_MAX`.

    A split copies `CALLS_MAX` entries at a time.
    """
    from tablestone.engines.cassandra.directory import Directory  # noqa: PLC0415

    directory = Directory(connection, HeldClock())
    directory._entries_max = ENTRIES_MAX
    directory._count_every = 1
    directory._calls_max = CALLS_MAX
    return directory


async def listed(directory: Directory, first: bytes = b"", end: bytes | None = None) -> list[bytes]:
    return [entry async for entries in directory.partitions(first, None, end) for entry in entries]


def keys(number: int, seed: int) -> list[bytes]:
    chosen = [b"%06d" % index for index in range(number)]
    Random(seed).shuffle(chosen)
    return chosen


async def test_it_is_in_order_and_no_node_is_large(connection: Connection) -> None:
    servers = [directory_on(connection) for _ in range(3)]
    entries = keys(150, 1)

    async def add(server: Directory, some: Sequence[bytes]) -> None:
        for entry in some:
            await server.enlist(entry, 0)

    await asyncio.gather(*(add(server, entries[index::3]) for index, server in enumerate(servers)))
    newcomer = directory_on(connection)
    assert await listed(newcomer) == sorted(entries)
    assert await listed(servers[0], b"000040", b"000050") == [b"%06d" % n for n in range(40, 50)]
    nodes = [found async for found in newcomer.nodes()]
    assert len([level for level, _, _ in nodes if level == 0]) >= 150 / ENTRIES_MAX
    assert len([level for level, _, _ in nodes if level == 1]) > 1
    for level, low, node in nodes:
        assert node.split is None
        if level < 2:
            rows = await newcomer._entries(level, low, b"", None, 1000)
            assert len(rows) <= ENTRIES_MAX + 3


async def test_what_was_acknowledged_is_found_whatever_is_being_split(
    connection: Connection,
) -> None:
    acknowledged: set[bytes] = set()
    is_adding = True

    async def add(some: Sequence[bytes]) -> None:
        server = directory_on(connection)
        for entry in some:
            await server.enlist(entry, 0)
            acknowledged.add(entry)

    async def look() -> int:
        server = directory_on(connection)
        looks = 0
        while is_adding:
            before = set(acknowledged)
            found = await listed(server)
            assert before <= set(found)
            assert found == sorted(set(found))
            looks += 1
        return looks

    entries = keys(120, 2)
    readers = [asyncio.ensure_future(look()) for _ in range(2)]
    await asyncio.gather(*(add(entries[index::4]) for index in range(4)))
    is_adding = False
    assert min(await asyncio.gather(*readers)) > 3


class CutOff:
    """A connection that dies after some calls, as if its server died."""

    def __init__(self, connection: Connection, calls: int) -> None:
        self._connection = connection
        self.left = calls

    def __getattr__(self, name: str) -> object:
        found = getattr(self._connection, name)
        if name not in {"read", "write", "write_if"}:
            return found

        async def call(*arguments: object) -> Answer | None:
            if self.left == 0:
                raise EngineUnavailable("died")
            self.left -= 1
            answer: Answer | None = await found(*arguments)
            return answer

        return call


async def test_a_split_that_was_cut_off_anywhere_is_ended_by_others(connection: Connection) -> None:
    """A server dies during its split, one call later each time. Other servers finish the split."""
    entries = keys(ENTRIES_MAX * 2, 3)
    finished = False
    calls = 0
    while not finished:
        for table in ("directory", "directory_nodes"):
            connection.define(f"TRUNCATE {table}")
        from tablestone.engines.cassandra.directory import make_root  # noqa: PLC0415

        await make_root(connection)
        careful = directory_on(connection)
        careful._count_every = 1 << 30
        careful._chance = lambda: 1.0
        for entry in entries:
            await careful.enlist(entry, 0)
        dying = directory_on(CutOff(connection, 10_000))  # type: ignore[arg-type]
        dying._connection.left = calls  # type: ignore[attr-defined]
        try:
            await dying._split_if_large(0, b"")
            finished = True
        except EngineUnavailable:
            calls += 1
        assert await listed(directory_on(connection)) == sorted(entries)
        late = b"000007.5"
        await careful.enlist(late, 0)
        last = b"999999"
        await careful.enlist(last, 0)
        assert await listed(directory_on(connection)) == sorted([*entries, late, last])
    assert calls > 8


async def test_finding_a_place_takes_a_few_reads_however_many_nodes_there_are(
    connection: Connection,
) -> None:
    server = directory_on(connection)
    for entry in keys(100, 4):
        await server.enlist(entry, 0)
    counted = CutOff(connection, 1 << 30)
    newcomer = directory_on(counted)  # type: ignore[arg-type]
    assert await listed(newcomer, b"000099") == [b"000099"]
    assert (1 << 30) - counted.left <= 9
    counted.left = 1 << 30
    assert await listed(newcomer, b"000099") == [b"000099"]
    assert (1 << 30) - counted.left == 2


async def test_a_split_in_the_middle_of_a_reading_hides_nothing(connection: Connection) -> None:
    server = directory_on(connection)
    server._chance = lambda: 1.0
    entries = keys(ENTRIES_MAX * 2, 5)
    for entry in entries:
        await server.enlist(entry, 0)
    reader = directory_on(connection)
    assert await listed(reader) == sorted(entries)
    read = connection.read
    calls = 0

    async def split_after_the_first(*arguments: object) -> Answer:
        nonlocal calls
        calls += 1
        answer = await read(*arguments)  # type: ignore[arg-type]
        if calls == 1:
            await server._split_if_large(0, b"")
        return answer

    connection.read = split_after_the_first  # type: ignore[assignment,method-assign]
    assert await listed(reader) == sorted(entries)


async def leaves(directory: Directory) -> list[bytes]:
    return [low async for level, low, _ in directory.nodes() if level == 0]


async def emptied(
    connection: Connection, seed: int, number: int = 40
) -> tuple[Directory, list[bytes]]:
    """A directory of several leaves whose entries are all removed, and the low keys of the leaves."""
    server = directory_on(connection)
    entries = keys(number, seed)
    epochs = {entry: await server.enlist(entry, 0) for entry in entries}
    for entry, epoch in epochs.items():
        await server.remove(entry, epoch)
    assert await listed(directory_on(connection)) == []
    return server, await leaves(server)


async def test_leaves_that_were_emptied_are_joined(connection: Connection) -> None:
    """All but the first leaf of each node one level up."""
    server, before = await emptied(connection, 6)
    assert len(before) >= 40 / ENTRIES_MAX
    for _ in range(2):
        await server.join_empty()
    after = await leaves(server)
    above = {low async for level, low, _ in server.nodes() if level == 1}
    assert set(after) == above & set(before)
    newcomer = directory_on(connection)
    for entry in keys(40, 7):
        await newcomer.enlist(entry, 0)
    assert await listed(server) == await listed(directory_on(connection)) == sorted(keys(40, 7))


async def test_a_reader_has_the_empty_leaves_joined_that_it_met(connection: Connection) -> None:
    _, before = await emptied(connection, 8)
    reader = directory_on(connection)
    await listed(reader)
    await reader.join_empty()
    assert len(await leaves(reader)) < len(before)


async def test_an_entry_of_a_clock_that_is_behind_is_seen_after_a_join(
    connection: Connection,
) -> None:
    """A split deletes with a later timestamp; the entry gets one that is later still."""
    server, _ = await emptied(connection, 9)
    await server.join_empty()
    behind = directory_on(connection)
    behind.epoch_now = lambda: 1  # type: ignore[method-assign]
    epochs = [await behind.enlist(entry, 0) for entry in keys(40, 10)]
    assert await listed(directory_on(connection)) == sorted(keys(40, 10))
    assert max(epochs) > 1


async def test_a_join_that_was_cut_off_anywhere_is_ended_by_others(connection: Connection) -> None:
    """A server dies during a join, one call later each time. A writer to the leaf and a reader finish it."""
    finished = False
    calls = 0
    while not finished:
        for table in ("directory", "directory_nodes"):
            connection.define(f"TRUNCATE {table}")
        from tablestone.engines.cassandra.directory import make_root  # noqa: PLC0415

        await make_root(connection)
        _, before = await emptied(connection, 11, ENTRIES_MAX + 2)
        writer, reader = directory_on(connection), directory_on(connection)
        assert await listed(writer) == []  # it knows all leaves
        dying = directory_on(CutOff(connection, calls))  # type: ignore[arg-type]
        try:
            assert await dying.join_if_empty(before[1])
            finished = True
        except EngineUnavailable:
            calls += 1
        await writer.enlist(before[1] + b"'", 0)
        assert await listed(reader) == [before[1] + b"'"]
        assert await listed(writer) == [before[1] + b"'"]
        assert [node async for _, _, node in reader.nodes() if node.taken is not None] == []
    assert calls > 8
