"""The directory in simulated worlds in which nodes are split and joined: no read misses a row, whatever happens.

`python -m tests.stress.simulation --directory --seeds 10000` is the long form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from stress.simulation.directory_world import live_in_directory

if TYPE_CHECKING:
    from stress.simulation.simulated_server import SimulatedServer
    from tablestone.engines.cassandra.directory import Node

pytestmark = pytest.mark.slow

SEEDS = 30
SEEDS_WITH_A_BUG = 200


def test_no_reading_misses_a_row_while_nodes_split_and_are_joined() -> None:
    lives = [live_in_directory(seed) for seed in range(SEEDS)]
    assert [f"seed {life.seed}: {line}" for life in lives for line in life.wrong] == []
    assert sum(life.leaves for life in lives) > 5 * SEEDS
    assert sum(life.joined for life in lives) > SEEDS


def one_sided(server: SimulatedServer) -> None:
    """The right leaf does not announce that it is taken over."""
    directory = server.engine.directory
    apply = directory._apply

    async def without_the_right(statement: Any, parameters: Any) -> bool:
        if statement is directory._statements.begin_leaving:
            return True
        return await apply(statement, parameters)

    directory._apply = without_the_right  # type: ignore[method-assign]


def unchecked(server: SimulatedServer) -> None:
    """The entries of the right leaf are read before it announces anything, and not again."""
    directory = server.engine.directory
    is_empty = directory.is_empty
    looked: set[bytes] = set()

    async def once(low: bytes, high: bytes | None) -> bool:
        if low in looked:
            looked.discard(low)
            return True
        found = await is_empty(low, high)
        if found:
            looked.add(low)
        return found

    directory.is_empty = once  # type: ignore[method-assign]


def early_epochs(server: SimulatedServer) -> None:
    """An entry may have an epoch that a deletion beyond an earlier bound hides."""
    directory = server.engine.directory
    node = directory.node

    async def without_epoch(level: int, low: bytes, *, exactly: bool = False) -> Node:
        return (await node(level, low, exactly=exactly))._replace(epoch_min=None)

    directory.node = without_epoch  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "bug", [one_sided, unchecked, early_epochs], ids=lambda bug: str(bug.__name__)
)
def test_a_planted_bug_of_a_join_is_found(bug: Any) -> None:
    for seed in range(SEEDS_WITH_A_BUG):
        life = live_in_directory(seed, bug)
        if life.wrong:
            print(f"seed {seed}: {life.wrong[0]}")
            assert live_in_directory(seed, bug).wrong == life.wrong
            return
    pytest.fail(f"{bug.__name__} was not found")
