"""Three nodes, two servers, and clients that write all the time; nodes and a server are killed and paused.

Afterwards every acknowledged write is stored, and no transaction in part. The service goes on without one of the nodes.
Without two of them it answers that it is busy, and recovers when they are back. The test starts its own cluster of
three nodes with a gibibyte each, and runs only where ENGINE_UNDER_TEST is set.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient, TableTransactionError

from server_process import COMMAND, ServerProcess, clean_environment, start_server
from storage.cluster.distribution import missing
from storage.cluster.nodes import Cluster
from storage.cluster_engine import URL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(URL is None, reason="no cluster is wanted: set ENGINE_UNDER_TEST"),
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.slow,
    pytest.mark.sdk,
    pytest.mark.crash,
]

CLIENTS = 6
ROWS = 5
TABLE = "journal"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster.create(tmp_path_factory.mktemp("cluster") / "nodes", 3)
    try:
        subprocess.run(
            [COMMAND, "cluster", "init", "--engine", cluster.url + "&replication=3"],
            check=True,
            env=clean_environment(),
        )
        yield cluster
    finally:
        cluster.remove()


@pytest.fixture
def servers(cluster: Cluster, tmp_path: Path) -> Iterator[list[ServerProcess]]:
    servers = [start_server(tmp_path, "--engine", cluster.url, "--workers", "1") for _ in range(2)]
    yield servers
    for server in servers:
        if server.process.poll() is None:
            server.kill()


class Clients:
    """Writers that record each acknowledged write; each moves to the other server when its own fails."""

    def __init__(self, servers: list[ServerProcess]) -> None:
        self._tables = [
            TableServiceClient.from_connection_string(
                server.connection_string, retry_total=0, read_timeout=30
            ).get_table_client(TABLE)
            for server in servers
        ]
        self._is_going = True
        self.inserted: list[tuple[str, str]] = []
        self.transactions: list[tuple[str, int]] = []
        self.acknowledged: dict[str, int] = defaultdict(int)
        self.phase = "before"
        self._threads = [
            threading.Thread(target=self._write, args=(number,)) for number in range(CLIENTS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_going = False
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        count = 0
        at = number
        partition = f"writer {number}"
        while self._is_going:
            count += 1
            table = self._tables[at % 2]
            key = (partition, f"row {count:06}")
            stamped = [
                ("upsert", {"PartitionKey": f"group {number}", "RowKey": str(row), "n": count})
                for row in range(ROWS)
            ]
            try:
                table.create_entity({"PartitionKey": key[0], "RowKey": key[1]})
                self.inserted.append(key)
                table.submit_transaction(stamped)
                self.transactions.append((f"group {number}", count))
                self.acknowledged[self.phase] += 1
            except (HttpResponseError, TableTransactionError, OSError):
                at += 1
            except Exception:  # noqa: BLE001 - the SDK has errors of its own for a lost connection
                at += 1


def test_nothing_acknowledged_is_lost_and_the_service_goes_on(
    cluster: Cluster, servers: list[ServerProcess]
) -> None:
    service = TableServiceClient.from_connection_string(servers[1].connection_string)
    table = service.create_table(TABLE)
    clients = Clients(servers)
    clients.start()

    def phase(name: str, seconds: float) -> None:
        clients.phase = name
        time.sleep(seconds)
        until = time.monotonic() + 60
        while not clients.acknowledged.get(name) and time.monotonic() < until:
            time.sleep(0.1)

    try:
        phase("all nodes", 4)
        cluster.nodes[1].kill()
        phase("a node was killed", 8)
        servers[0].kill()
        phase("a server was killed too", 6)
        cluster.start(cluster.nodes[1])
        phase("the node is back", 4)
        cluster.nodes[2].pause()
        phase("a node is paused", 20)
        cluster.nodes[2].resume()
        phase("the node goes on", 4)
    finally:
        cluster.nodes[2].resume()
        clients.stop()
    print(dict(clients.acknowledged))
    assert set(clients.acknowledged) >= {
        *("all nodes", "a node was killed", "a server was killed too"),
        *("the node is back", "a node is paused", "the node goes on"),
    }
    found: dict[str, list[tuple[str, int | None]]] = defaultdict(list)
    for entity in table.list_entities():
        found[entity["PartitionKey"]].append((entity["RowKey"], entity.get("n")))
    for partition, row in clients.inserted:
        assert (row, None) in found[partition], f"{partition}, {row} was acknowledged and is lost"
    latest: dict[str, int] = {}
    for partition, count in clients.transactions:
        latest[partition] = max(latest.get(partition, 0), count)
    for partition, count in latest.items():
        stamps = {n for _, n in found[partition]}
        assert len(found[partition]) == ROWS
        assert len(stamps) == 1, f"a transaction is there in part: {found[partition]}"
        assert (stamps.pop() or 0) >= count
    service.delete_table(TABLE)


def test_without_a_quorum_the_server_is_busy_and_recovers_by_itself(
    cluster: Cluster, servers: list[ServerProcess]
) -> None:
    service = TableServiceClient.from_connection_string(
        servers[0].connection_string, retry_total=0, read_timeout=60
    )
    table = service.create_table("quorum")
    table.create_entity({"PartitionKey": "p", "RowKey": "before"})
    for node in cluster.nodes[1:]:
        node.kill()
    for act in (
        lambda: table.create_entity({"PartitionKey": "p", "RowKey": "during"}),
        lambda: table.get_entity("p", "before"),
    ):
        begun = time.monotonic()
        with pytest.raises(HttpResponseError) as refused:
            act()
        response: Any = refused.value.response
        answered = (response.status_code, response.headers.get("Retry-After"))
        assert answered in {(500, None), (503, "1")}
        assert time.monotonic() - begun < 30
    for command, status in (("check", 1), ("status", 1)):
        ended = subprocess.run(
            [COMMAND, "cluster", command, "--engine", cluster.url],
            capture_output=True,
            text=True,
            check=False,
            env=clean_environment(),
        )
        said = ended.stdout + ended.stderr
        assert ended.returncode == status, said
        assert "too few of the nodes that have the data are up" in said
        # It names the nodes, too.
        silent = [
            line for line in said.splitlines() if "does not answer." in line or "down" in line
        ]
        assert len(silent) == 2, said
    for node in cluster.nodes[1:]:
        cluster.start(node)
    deadline = time.monotonic() + 60
    while True:
        try:
            table.upsert_entity({"PartitionKey": "p", "RowKey": "after"})
            break
        except HttpResponseError:
            assert time.monotonic() < deadline, "the server did not recover"
            time.sleep(1)
    assert table.get_entity("p", "before")["RowKey"] == "before"
    assert servers[0].stop(signal.SIGTERM) == 0
