"""Batches in the simulation, whose nodes accept what real ones do: one partition, and up to a length."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from stress.simulation.simulated_cluster import MESSAGE_BYTES_MAX, SimulatedCluster, Trouble
from stress.simulation.simulated_loop import SimulatedLoop
from stress.simulation.simulated_server import SimulatedServer, simulated_time
from tablestone import limits
from tablestone.engines.cassandra.connection import CALLS_MAX
from tablestone.engines.cassandra.directory import FIRST, LEAF, make_root
from tablestone.engines.contract import EngineUnavailable
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import Entity
from tablestone.model.entity_json import member
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey
from tablestone.model.operations import EntityGroupTransaction, InsertEntity
from tablestone.tables.account_incarnation import Named
from tablestone.tables.storage_keys import TABLE_ID_LENGTH, entity_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

ENTRIES = 900


def longest_partitions() -> list[bytes]:
    """As many partitions as a leaf may have, with keys of the greatest length, in order."""
    table = bytes(TABLE_ID_LENGTH)
    rest = "\ufffd" * (limits.KEY_LENGTH_MAX - 4)
    return [entity_partition(table, f"{number:04}{rest}") for number in range(ENTRIES)]


def carry_out(work: Callable[[SimulatedServer], Coroutine[Any, Any, None]]) -> SimulatedCluster:
    """Run `work(server)` on a server with a directory; returns the cluster afterwards."""
    loop = SimulatedLoop()

    async def live() -> SimulatedCluster:
        cluster = SimulatedCluster(Random(1), Trouble())
        server = SimulatedServer("one", cluster, Random(2), ahead=0.0, rate=1.0)
        await server.start(make_root(server.engine.connection))
        try:
            await server.start(work(server))
        finally:
            server.engine.connection.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return cluster

    try:
        with simulated_time(Random(3)):
            return loop.run_until_complete(live())
    finally:
        loop.close()


def test_a_leaf_of_the_longest_keys_is_split() -> None:
    """Entries of 3 KiB, each in a call that also names the node: a thousand of them made one batch of 6 MiB."""
    partitions = longest_partitions()

    async def split(server: SimulatedServer) -> None:
        directory = server.engine.directory
        directory._calls_max = CALLS_MAX
        directory._count_every = 1 << 62
        for partition in partitions:
            await directory.enlist(partition, 0)
        await directory._split_if_large(LEAF, FIRST)
        leaves = [low async for level, low, _ in directory.nodes() if level == LEAF]
        assert leaves == [FIRST, partitions[ENTRIES // 2]]
        found = [each async for some in directory.partitions(b"", None, None) for each in some]
        assert found == partitions

    carry_out(split)


def test_a_batch_that_is_too_long_is_refused() -> None:
    async def send(server: SimulatedServer) -> None:
        add = server.engine.directory._statements.add
        calls = [(add, (LEAF, FIRST, bytes(MESSAGE_BYTES_MAX // 2), 1, 1))] * 2
        with pytest.raises(EngineUnavailable, match="exceeds allowed maximum"):
            await server.engine.connection.write(calls)
        await server.engine.connection.write(calls[:1])

    assert carry_out(send).faults == []


def test_a_transaction_that_the_nodes_never_take_is_refused_by_name() -> None:
    """At once, where ServerBusy would have the client try it again."""

    async def send(server: SimulatedServer) -> None:
        server.engine.connection.write_bytes_max = 100_000
        owner = Named("acct")
        await server.service.catalog.create(owner, "Table")
        values = {"V": member("V", EdmValue(EdmType.STRING, "x" * 30_000))}
        writes = [InsertEntity("Table", Entity(EntityKey("p", str(n)), values)) for n in range(4)]
        began = asyncio.get_running_loop().time()
        with pytest.raises(StorageError, match="RequestBodyTooLarge") as caught:
            await server.service.execute(owner, EntityGroupTransaction("Table", "p", writes))
        assert asyncio.get_running_loop().time() - began < 1
        assert "the nodes of the cluster take 100,000" in caught.value.text
        await server.service.execute(owner, EntityGroupTransaction("Table", "p", writes[:3]))

    assert carry_out(send).faults == []


def test_a_batch_for_several_partitions_is_found() -> None:
    async def send(server: SimulatedServer) -> None:
        add = server.engine.directory._statements.add
        calls = [(add, (LEAF, low, b"entry", 1, 1)) for low in (FIRST, b"m")]
        await server.engine.connection.write(calls)

    [fault] = carry_out(send).faults
    assert fault.startswith("a batch for several partitions: ")
