"""A fourth node joins three, with three copies of each row, after each of them missed writes: no write is lost.

The new node takes each row from the node that gives it up, so a row that was on two nodes is on two afterwards. No
repair runs before, which would hide a node that takes nothing. The test starts its own nodes, and runs only where
ENGINE_UNDER_TEST is set.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables import TableClient, TableServiceClient

from server_process import ServerProcess, start_server
from storage.cluster.faults import FORGETFUL, NODES
from storage.cluster.guide import nodetool
from storage.cluster.keyspaces import on_own_nodes, tablestone
from storage.cluster.nodes import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = on_own_nodes

PARTITIONS = [f"{number:03}" for number in range(300)]
"""Each has one row. Each of the nodes' 32 token ranges has some of them."""
AT_ONCE = 8


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes without hints: a node that was away does not get what it missed."""
    cluster = Cluster.create(tmp_path / "nodes", NODES, FORGETFUL)
    try:
        made = tablestone("cluster", "init", "--engine", f"{cluster.url}&replication={NODES}")
        assert made.returncode == 0, made
        yield cluster
    finally:
        cluster.remove()


@pytest.fixture
def server(cluster: Cluster, tmp_path: Path) -> Iterator[ServerProcess]:
    server = start_server(tmp_path, "--engine", cluster.url, "--workers", "1")
    yield server
    server.stop()


def write(table: TableClient, partitions: list[str]) -> None:
    """Write the row of each partition; a write is acknowledged, or raises."""

    def write_row(partition: str) -> None:
        table.upsert_entity({"PartitionKey": partition, "RowKey": "0"})

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(write_row, partitions))


def rows_read(table: TableClient) -> list[str]:
    """The partitions whose row a point read finds."""

    def is_there(partition: str) -> bool:
        try:
            table.get_entity(partition, "0")
        except ResourceNotFoundError:
            return False
        return True

    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = list(threads.map(is_there, PARTITIONS))
    return [partition for partition, there in zip(PARTITIONS, found, strict=True) if there]


def test_every_acknowledged_write_is_there_after_a_node_was_added(
    cluster: Cluster, server: ServerProcess
) -> None:
    service = TableServiceClient.from_connection_string(server.connection_string)
    table = service.create_table("Readings")
    before = cluster.nodes[:]
    # Each misses a third, so the node that gives a row to the new one has missed some.
    for number, node in enumerate(before):
        node.stop()
        write(table, PARTITIONS[number::NODES])
        cluster.start(node)

    added = cluster.add_node()
    assert re.search(r"Receiving [1-9]\d* files", added.log.read_text()), "it has taken nothing"
    for node in before:
        nodetool(node, "cleanup tablestone")

    # The listing comes first: it reads the directory, while a point read repairs the nodes that it asks.
    listed = [entity["PartitionKey"] for entity in table.list_entities()]
    read = rows_read(table)
    print(len(listed), "rows are listed,", len(read), "are read")
    assert listed == PARTITIONS
    assert read == PARTITIONS
    checked = tablestone("check", "--engine", cluster.url)
    assert checked.returncode == 0, checked
    status = tablestone("cluster", "status", "--engine", cluster.url)
    assert re.findall(r"  (up|down)  ", status.stdout) == ["up"] * (NODES + 1), status
