"""The operators' guide to the nodes: repair, backup, restore, and the upgrade of nodes, each with the guide's commands.

The test starts two nodes of its own, and runs only where ENGINE_UNDER_TEST is set.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.data.tables import TableServiceClient

from server_process import start_server
from storage.cluster.guide import GUIDE, nodetool
from storage.cluster.keyspaces import on_own_nodes, tablestone
from storage.cluster.nodes import Cluster
from tablestone.engines.cassandra.cluster_url import parse_address
from tablestone.engines.cassandra.layout import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = on_own_nodes

PARTITIONS = 12
ROWS = 5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster.create(tmp_path / "nodes", 2)
    try:
        made = tablestone("cluster", "init", "--engine", cluster.url + "&replication=2")
        assert made.returncode == 0, made
        yield cluster
    finally:
        cluster.remove()


class Data:
    """Entities on a server that runs only to write and read them."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._url = cluster.url
        self._directory = directory

    def write(self, partitions: range, value: int) -> None:
        server = start_server(self._directory, "--engine", self._url, "--workers", "1")
        service = TableServiceClient.from_connection_string(server.connection_string)
        table = service.create_table_if_not_exists("Readings")
        for partition in partitions:
            table.submit_transaction(
                [
                    (
                        "upsert",
                        {"PartitionKey": f"{partition:03}", "RowKey": str(row), "value": value},
                    )
                    for row in range(ROWS)
                ]
            )
        server.stop()

    def delete_half(self) -> None:
        server = start_server(self._directory, "--engine", self._url, "--workers", "1")
        service = TableServiceClient.from_connection_string(server.connection_string)
        table = service.get_table_client("Readings")
        for partition in range(0, PARTITIONS, 2):
            for row in range(ROWS):
                table.delete_entity(f"{partition:03}", str(row))
        server.stop()

    def read(self) -> list[tuple[str, str, int, str]]:
        server = start_server(self._directory, "--engine", self._url, "--workers", "1")
        service = TableServiceClient.from_connection_string(server.connection_string)
        entities = service.get_table_client("Readings").list_entities()
        found = [
            (each["PartitionKey"], each["RowKey"], each["value"], str(each.metadata["etag"]))
            for each in entities
        ]
        server.stop()
        return found


def truncate(cluster: Cluster) -> None:
    """The guide's statements, which cqlsh would send."""
    from tablestone.engines.cassandra.connection import Connection  # noqa: PLC0415 - needs the driver

    statements = [f"TRUNCATE tablestone.{table}" for table in TABLES]
    assert f'    cqlsh -e "{"; ".join(statements)}"' in GUIDE
    connection = Connection(parse_address(cluster.url), in_keyspace=False)
    for statement in statements:
        connection.define(statement)
    connection.close()


def test_the_lines_of_the_guide_back_up_restore_repair_and_upgrade(
    cluster: Cluster, tmp_path: Path
) -> None:
    data = Data(cluster, tmp_path)
    data.write(range(PARTITIONS), 1)
    before = data.read()
    assert len(before) == PARTITIONS * ROWS

    copies: dict[str, dict[str, Path]] = {}
    for node in cluster.nodes:
        nodetool(node, "snapshot --tag monday tablestone")
        copies[node.address] = {}
        for table in TABLES:
            [taken] = Path(node.directory, "data", "tablestone").glob(f"{table}-*/snapshots/monday")
            # Not by the address: `nodetool import` ignores all files below a directory with such a name.
            kept = tmp_path / "kept" / Path(node.directory).name / table
            shutil.copytree(taken, kept)
            copies[node.address][table] = kept
        nodetool(node, "clearsnapshot -t monday tablestone")

    data.delete_half()
    data.write(range(PARTITIONS, PARTITIONS + 3), 2)
    assert data.read() != before

    truncate(cluster)
    for node in cluster.nodes:
        for table in TABLES:
            nodetool(
                node,
                "import --copy-data tablestone TABLE COPY",
                TABLE=table,
                COPY=copies[node.address][table],
            )
    for node in cluster.nodes:
        nodetool(node, "repair --full tablestone")
    checked = tablestone("check", "--engine", cluster.url)
    assert checked.returncode == 0, checked
    assert data.read() == before

    for node in cluster.nodes:
        nodetool(node, "repair --paxos-only tablestone")
        nodetool(node, "drain")
        node.stop()
        cluster.start(node)
        assert nodetool(node, "status").count("UN ") == 2
    data.write(range(3), 3)
    assert [value for partition, _, value, _ in data.read() if partition < "003"] == [3] * 3 * ROWS
