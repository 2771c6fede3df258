"""Which questions go to every datacenter, and which only to the near one: two sessions with stand-in nodes.

`tests/storage/cluster/test_datacenters.py` has real nodes.
"""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from cassandra.cluster import NoHostAvailable

from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS
from tablestone.engines.cassandra.checks import Examination, _examine_node
from tablestone.engines.cassandra.connection import READ_SECONDS_MAX, Connection, EveryNode
from tablestone.engines.cassandra.placement import node_uses, nodes_of
from tablestone.engines.cassandra.session import Nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = UNIX_EPOCH_TICKS + 1_800_000_000 * TICKS_PER_SECOND


class Host:
    """A node as the driver describes it, as a separate object for each session."""

    address = "10.0.0.1"
    rack = "rack1"
    release_version = "5.0.6"

    def __init__(self, endpoint: str, datacenter: str, *, is_up: bool | None = None) -> None:
        self.endpoint = endpoint
        self.datacenter = datacenter
        self.is_up = is_up

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Host) and other.endpoint == self.endpoint

    def __hash__(self) -> int:
        return hash(self.endpoint)


class Session:
    """A session with connections to some nodes, whose clocks are off by so many seconds."""

    keyspace = "k"

    def __init__(self, hosts: Sequence[Host], **seconds_off: int) -> None:
        self._seconds_off = seconds_off
        self._hosts = hosts
        self.asked: list[str] = []
        self.is_open = True
        self.clients: dict[str, list[tuple[str, str]]] = {}
        self.copies: list[Host] = []
        self.cluster = SimpleNamespace(metadata=self, shutdown=self._shut_down)
        self.token_map = None

    def all_hosts(self) -> Sequence[Host]:
        return self._hosts

    def get_replicas(self, _keyspace: str, _partition: bytes) -> list[Host]:
        return self.copies

    def get_pool_state(self) -> dict[Host, dict[str, Any]]:
        return {
            Host(host.endpoint, host.datacenter): {
                "open_count": int(host.endpoint in self._seconds_off)
            }
            for host in self._hosts
            if host.endpoint != "lost"
        }

    def execute(self, text: str, _parameters: object = (), host: Host | None = None) -> list[Any]:
        assert host is not None
        self.asked.append(host.endpoint)
        if host.endpoint not in self._seconds_off:
            raise NoHostAvailable("none", {})
        if "now()" in text:
            seconds = (NOW - UNIX_EPOCH_TICKS) // TICKS_PER_SECOND
            return [((seconds + self._seconds_off[host.endpoint]) * 1000,)]
        if "system_views.clients" in text:
            return self.clients.get(host.endpoint, [])
        if "system_views.settings" in text:
            return [
                ("authenticator.class_name", None if host.endpoint == "far1" else "Password"),
                ("commitlog_sync", "group"),
                ("paxos_variant", "v2"),
            ]
        return [(3,)]

    def _shut_down(self) -> None:
        self.is_open = False


class Cluster:
    """Nodes of three datacenters, with the one in dc3 and one in dc1 down, and the sessions opened for far ones."""

    def __init__(self, **far_seconds_off: int) -> None:
        self.hosts = [
            Host("lost", "dc3"),
            Host("near2", "dc1", is_up=False),
            Host("near1", "dc1", is_up=True),
            Host("far1", "dc2"),
        ]
        self.near = Session(self.hosts, near1=0)
        self.opened: list[Session] = []
        self._far_seconds_off = far_seconds_off or {"far1": 0}
        self.order = Nodes(lambda: 0.0, "dc1")
        self.every_node = EveryNode(self.near, self.order, self._open_far)

    def connection(self) -> Connection:
        connection = object.__new__(Connection)
        connection.keyspace = "k"
        connection.is_open = True
        connection.names_user = False
        connection._seconds = count(0.0, READ_SECONDS_MAX / 2).__next__
        connection._nodes = self.order
        connection.session = self.near
        connection.cluster = self.near.cluster
        connection.every_node = self.every_node
        return connection

    def host(self, endpoint: str) -> Host:
        return next(host for host in self.hosts if host.endpoint == endpoint)

    def _open_far(self) -> Session:
        self.opened.append(Session(self.hosts, near1=0, **self._far_seconds_off))
        return self.opened[-1]


def test_far_nodes_are_asked_by_a_session_of_their_own() -> None:
    cluster = Cluster()
    nodes = cluster.every_node
    assert [host.endpoint for host in nodes.all()] == ["far1", "lost", "near1", "near2"]
    assert nodes.ask(cluster.host("near1"), "SELECT") == [(3,)]
    assert cluster.opened == []
    assert nodes.ask(cluster.host("far1"), "SELECT") == [(3,)]
    [far] = cluster.opened
    assert (cluster.near.asked, far.asked) == (["near1"], ["far1"])


def test_a_far_node_is_up_if_there_is_a_connection_to_it() -> None:
    """The driver does not say whether it is up, or repeats what a near node once said."""
    cluster = Cluster()
    nodes = cluster.every_node
    up = {host.endpoint: nodes.is_up(host) for host in nodes.all()}
    assert up == {"far1": True, "lost": False, "near1": True, "near2": False}
    assert nodes.silent_datacenters() == ["dc3"]
    cluster = Cluster(none=0)
    cluster.host("far1").is_up = True
    assert not cluster.every_node.is_up(cluster.host("far1"))
    assert cluster.every_node.silent_datacenters() == ["dc2", "dc3"]


def test_a_cluster_of_one_datacenter_has_no_second_session() -> None:
    cluster = Cluster()
    del cluster.hosts[3], cluster.hosts[0]
    assert cluster.every_node.silent_datacenters() == []
    assert [use.is_up for use in node_uses(cluster.connection())] == [True, False]
    assert cluster.opened == []


def test_the_second_session_ends_with_the_connection() -> None:
    cluster = Cluster()
    connection = cluster.connection()
    for times in (1, 2):
        assert connection.every_node.is_up(cluster.host("far1"))
        assert len(cluster.opened) == times
        connection.every_node.leave()
        connection.every_node.leave()
        assert not cluster.opened[-1].is_open
    assert connection.every_node.is_up(cluster.host("far1"))
    connection.close()
    assert not cluster.opened[-1].is_open
    assert not cluster.near.is_open


def test_clients_of_every_datacenter_are_seen() -> None:
    """`cluster unload` through dc1 did not see the servers in dc2."""
    cluster = Cluster()
    connection = cluster.connection()
    assert connection.other_clients() == []
    cluster.opened[0].clients["far1"] = [("10.2.0.9", "k"), ("10.2.0.8", "other")]
    assert connection.other_clients() == ["10.2.0.9"]


def test_the_nodes_of_a_server_are_those_that_it_asks() -> None:
    """Its figures always counted the nodes of other datacenters as down."""
    cluster = Cluster()
    assert cluster.connection().nodes() == (2, 1)
    assert cluster.opened == []


def test_the_checks_ask_the_nodes_of_every_datacenter() -> None:
    cluster = Cluster(far1=100)
    connection = cluster.connection()
    found = Examination()
    for host in connection.every_node.all():
        _examine_node(connection, host, lambda: NOW, found)
    assert found.refusals == []
    assert found.warnings == [
        "Node far1 of datacenter dc2 and this machine have clocks 100 s apart: set them by NTP. Writes become slower "
        "by it.",
        "Node far1 of datacenter dc2 asks for no password: each program that reaches it reads and changes everything, "
        "the keys of the accounts too. Set authenticator: PasswordAuthenticator and authorizer: CassandraAuthorizer.",
        "Node lost of datacenter dc3 does not answer.",
        "Node near2 does not answer.",
    ]


def test_status_shows_the_nodes_of_every_datacenter() -> None:
    uses = node_uses(Cluster().connection())
    assert [(use.address, use.datacenter, use.is_up, use.partitions) for use in uses] == [
        ("far1", "dc2", True, 3),
        ("lost", "dc3", False, None),
        ("near1", "dc1", True, 3),
        ("near2", "dc1", False, None),
    ]


def test_copies_are_shown_by_datacenter() -> None:
    cluster = Cluster()
    cluster.near.copies = [cluster.host(name) for name in ("far1", "near2", "near1")]
    assert nodes_of(cluster.connection(), b"p") == {"dc1": ["near1", "near2"], "dc2": ["far1"]}
