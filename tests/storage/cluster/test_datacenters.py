"""A cluster of two datacenters with one real node each: what every node is asked, and what only the near one is.

The test starts the two nodes, and runs only where ENGINE_UNDER_TEST is set.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from azure.data.tables import TableServiceClient

from server_process import start_server
from storage.cluster.keyspaces import on_own_nodes, tablestone
from storage.cluster.nodes import KEYSPACE, Cluster
from tablestone.engines.cassandra.cluster_url import parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = on_own_nodes

IN_DC1 = "only_in_dc1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes; one keyspace has a copy of each row in each datacenter, another has all copies in dc1."""
    directory = tmp_path_factory.mktemp("cluster") / "nodes"
    cluster = Cluster.create(directory, 2, datacenters=2)
    try:
        run("init", f"{cluster.url}&replication=dc1:1,dc2:1")
        run("init", f"{in_dc1(cluster)}&replication=dc1:1")
        yield cluster
    finally:
        cluster.remove()


def in_dc1(cluster: Cluster) -> str:
    return cluster.url.replace(f"/{KEYSPACE}?", f"/{IN_DC1}?")


def run(command: str, url: str, *arguments: str) -> str:
    ended = tablestone("cluster", command, "--engine", url, *arguments)
    assert ended.returncode == 0, ended
    return ended.stdout


def places(cluster: Cluster) -> list[str]:
    return [f"{node.address}:{cluster.native_port}" for node in cluster.nodes]


def states(url: str) -> dict[str, tuple[str, str]]:
    """The datacenter and the state of each node, as `status` prints them."""
    lines = [line.split() for line in run("status", url).splitlines()[1:]]
    return {line[0]: (line[1], line[4]) for line in lines if ":" in line[0]}


def clients(cluster: Cluster, node: int) -> list[Any]:
    """The connections to a node that use the keyspace, from the node itself."""
    from tablestone.engines.cassandra.connection import Connection  # noqa: PLC0415 - needs the driver

    url = cluster.url_in(cluster.nodes[node].datacenter)
    connection = Connection(parse_address(url), in_keyspace=False)
    try:
        text = "SELECT address, keyspace_name FROM system_views.clients"
        return [row for row in connection.execute(text) if row[1] == KEYSPACE]
    finally:
        connection.close()


def test_a_directory_is_loaded_and_a_server_in_either_datacenter_is_seen(
    cluster: Cluster, tmp_path: Path
) -> None:
    """`cluster unload` through dc1 went on while a server in dc2 was writing."""
    at_home = start_server(tmp_path / "data")
    table = TableServiceClient.from_connection_string(at_home.connection_string).create_table(
        "Readings"
    )
    table.create_entity({"PartitionKey": "p", "RowKey": "r", "n": 1})
    at_home.stop(signal.SIGTERM)
    run("load", cluster.url, "--from", str(tmp_path / "data"))
    held = run("status", cluster.url, "--table", "Readings", "--partition-key", "p")
    near, far = places(cluster)
    assert held == f"{near}  dc1\n{far}  dc2\n"
    assert f"on dc1: {near}; dc2: {far}" in run("status", cluster.url, "--count", "--quiet")

    for node, url in enumerate((cluster.url_in("dc1"), cluster.url_in("dc2"))):
        server = start_server(tmp_path, "--engine", url, "--workers", "1")
        try:
            service = TableServiceClient.from_connection_string(server.connection_string)
            service.get_table_client("Readings").upsert_entity(
                {"PartitionKey": "p", "RowKey": "r", "n": 2 + node}
            )
            assert clients(cluster, node)
            assert not clients(cluster, 1 - node), "a request may go to a far node"
            refused = tablestone(
                "cluster", "unload", "--engine", cluster.url, "--to", str(tmp_path / "new")
            )
            assert refused.returncode == 2, refused
            assert "is in use from 127.0.0." in refused.stderr
        finally:
            server.stop(signal.SIGTERM)
    unloaded = run("unload", cluster.url, "--to", str(tmp_path / "new"), "--quiet")
    assert "1 table, 1 entity" in unloaded


def test_a_far_node_is_down_when_it_is_down(cluster: Cluster, tmp_path: Path) -> None:
    """It was always reported as down."""
    near, far = places(cluster)
    url = in_dc1(cluster)
    assert states(url) == {near: ("dc1", "up"), far: ("dc2", "up")}
    assert "does not answer" not in run("check", url)
    cluster.nodes[1].stop()
    try:
        assert states(url) == {near: ("dc1", "up"), far: ("dc2", "down")}
        assert f"warning: Node {far} of datacenter dc2 does not answer.\n" in run("check", url)
        unloaded = tablestone("cluster", "unload", "--engine", url, "--to", str(tmp_path / "new"))
        assert unloaded.returncode == 0, unloaded
        assert "No node of datacenter dc2 answers, so a server there would" in unloaded.stderr
    finally:
        cluster.start(cluster.nodes[1])
    assert states(cluster.url_in("dc2")) == {near: ("dc1", "up"), far: ("dc2", "up")}
