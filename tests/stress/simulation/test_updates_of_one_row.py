"""Updates of one row by one server take turns, so that no commit is in vain."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from stress.simulation.simulated_server import SimulatedServer
from stress.simulation.test_batches import carry_out
from tablestone.engines.cassandra.engine import CassandraEngine
from tablestone.engines.contract import ANY, Change, Key, Put, Update, WriteSet

CLIENTS = 16
UPDATES = 5


def test_no_commit_is_in_vain() -> None:
    """Without turns, each round lets one update through: 80 updates would make 680 commits."""
    attempts = 0

    async def work(server: SimulatedServer) -> None:
        nonlocal attempts

        async def client(letter: bytes) -> None:
            append = Update(lambda value: Put(lambda _version: (value or b"") + letter))
            for _ in range(UPDATES):
                await server.engine.commit(WriteSet(b"p", [Change(b"r", ANY, append)]))

        await asyncio.gather(*(client(bytes([97 + number])) for number in range(CLIENTS)))
        attempts = server.engine._commits._attempts
        value = await server.engine.get(Key(b"p", b"r"))
        assert value is not None
        assert len(value) == CLIENTS * UPDATES

    carry_out(work)
    assert (
        attempts == CLIENTS * UPDATES + 1
    )  # the first one finds that the partition is not listed yet


def test_no_update_of_two_servers_is_lost() -> None:
    async def work(server: SimulatedServer) -> None:
        commits = server.engine._commits
        other = CassandraEngine(
            server.engine.connection, commits._clock, commits._seconds, writer=7
        )

        async def client(engine: CassandraEngine, letter: bytes) -> None:
            append = Update(lambda value: Put(lambda _version: (value or b"") + letter))
            for _ in range(UPDATES):
                await engine.commit(WriteSet(b"p", [Change(b"r", ANY, append)]))

        await asyncio.gather(client(server.engine, b"a"), client(other, b"b"))
        value = await other.get(Key(b"p", b"r"))
        assert value is not None
        assert sorted(value) == sorted(b"ab" * UPDATES)

    carry_out(work)
