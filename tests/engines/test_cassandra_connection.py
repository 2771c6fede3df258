"""The connection to a cluster, as far as it needs none: what becomes of statements after it was closed."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install 'tablestone[cassandra]'")

from tablestone.engines.cassandra.connection import Connection, OutcomeInDoubt
from tablestone.engines.contract import EngineUnavailable


class Bound:
    """A statement that binds to itself."""

    def bind(self, _parameters: object) -> Bound:
        return self


@pytest.mark.parametrize("calls", [1, 2])
def test_a_write_to_a_closed_connection_was_certainly_not_sent(
    monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """It is in no doubt, so nothing tries it again and again."""
    connection = object.__new__(Connection)
    connection.is_open = False
    monkeypatch.setattr("cassandra.query.BatchStatement.add", lambda *_: None)

    async def write() -> None:
        await connection.write_if([(Bound(), ())] * calls)

    with pytest.raises(EngineUnavailable):
        asyncio.run(write())
    assert not issubclass(EngineUnavailable, OutcomeInDoubt)
