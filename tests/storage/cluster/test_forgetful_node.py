"""Reads at consistency ONE, which a single node cannot show: found within a minute on three nodes, one of them stopped.

The test starts its own cluster of three nodes with a gibibyte each, and runs only where ENGINE_UNDER_TEST is set.
"""

from __future__ import annotations

import os
from random import SystemRandom
from typing import TYPE_CHECKING

import pytest

from storage.cluster.distribution import missing
from storage.cluster.faults import three_nodes
from storage.cluster.forgetful_node import runs_without_a_node
from storage.cluster_engine import URL
from stress.histories.bug_search import SECONDS_MAX, search
from stress.histories.checker import missing as no_checker
from stress.histories.on_cluster import servers_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.cluster.nodes import Cluster

pytestmark = [
    pytest.mark.skipif(URL is None, reason="no cluster is wanted: set ENGINE_UNDER_TEST"),
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.skipif(no_checker() is not None, reason=str(no_checker())),
    pytest.mark.slow,
    pytest.mark.crash,
]

SEED = os.environ.get("TABLESTONE_CRASH_SEED", str(SystemRandom().getrandbits(32)))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster") / "nodes"
    with three_nodes(directory, keeps_hints=False) as cluster:
        yield cluster


def test_a_read_at_consistency_one_is_found_within_a_minute(
    cluster: Cluster, tmp_path: Path
) -> None:
    print(f"TABLESTONE_CRASH_SEED={SEED}")
    bug = "read at consistency ONE"
    with servers_on(cluster.url, tmp_path, bug, loss=0.0) as servers:
        look = runs_without_a_node(cluster, [server.target for server in servers], SEED)
        found = search(look)
    print(f"{bug}: {found}")
    assert found.is_found, found


def test_the_same_run_finds_nothing_in_the_real_servers(cluster: Cluster, tmp_path: Path) -> None:
    print(f"TABLESTONE_CRASH_SEED={SEED}")
    with servers_on(cluster.url, tmp_path, None, loss=0.0) as servers:
        look = runs_without_a_node(cluster, [server.target for server in servers], SEED)
        assert look(1, SECONDS_MAX) == []
