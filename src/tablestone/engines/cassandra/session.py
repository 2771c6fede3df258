"""Opens a session of the driver on a cluster: its contact points and time-outs, and the order in which nodes are asked.

Sends no statement. The driver is imported here.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    HostDistance,
    HostStateListener,
    LoadBalancingPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)

import cassandra
from cassandra import ConsistencyLevel
from tablestone.engines.cassandra.answers import Answer
from tablestone.engines.cassandra.cluster_url import ClusterAddress
from tablestone.engines.cassandra.credentials import credentials, tls_context
from tablestone.engines.cassandra.unreached import refusal
from tablestone.engines.contract import EngineRefused

log = logging.getLogger(__name__)
# The driver logs every attempt to reach a node with its stack. The sentences below say what matters of it.
logging.getLogger("cassandra").setLevel(logging.CRITICAL)

CONNECT_SECONDS_MAX: Final = 10.0
"""How long opening a connection may take."""
FAR_CONNECT_SECONDS_MAX: Final = 5.0
"""How long it may take to a node of another datacenter, which may be out of this machine's reach."""
FAR_CONNECTS_AT_ONCE: Final = 16
"""Each takes a thread for a moment. The driver has two, and nodes that are out of reach would be waited for in turn."""
REQUEST_SECONDS_MAX: Final = 3.0
"""How long one statement may take: longer than the nodes' own time-outs for writes, which say more."""
AVOIDED_SECONDS: Final = 10.0
"""How long a node is avoided that did not answer in time. Then one request tries it, and the others wait as long again.

Longer than `REQUEST_SECONDS_MAX`, so a node has one such trial at a time.
"""

RECONNECT_SECONDS_MAX: Final = 10.0
"""A node that is gone is tried again at least this often; the driver's own limit is ten minutes."""


class Nodes(TokenAwarePolicy):  # type: ignore[misc]
    """The order in which nodes are asked: those that hold the partition first, those that seem to hang last.

    The driver takes a node for lost when its connections break. A node that is paused, or cut off, keeps them. So a
    node that was late is avoided until it answers, and one request at a time tries whether it does.
    """

    def __init__(self, seconds: Callable[[], float], datacenter: str | None) -> None:
        # Shuffled, so that a busy partition is not the work of the first node that holds it.
        super().__init__(DCAwareRoundRobinPolicy(local_dc=datacenter), shuffle_replicas=True)
        self._seconds = seconds
        self._avoided: dict[Any, float] = {}
        """The nodes that were late, and when each is tried next. Several threads change it, each in one step."""

    def is_near(self, host: Any) -> bool:
        """Whether requests may go to this node: it is in the near datacenter."""
        return bool(self.distance(host) != HostDistance.IGNORED)

    def avoid(self, host: Any) -> None:
        """This node did not answer in time."""
        if host is not None:
            self._avoided[host] = self._seconds() + AVOIDED_SECONDS

    def heard(self, host: Any) -> None:
        """This node has answered a request, whenever that was sent."""
        if self._avoided:
            self._avoided.pop(host, None)

    def make_query_plan(self, working_keyspace: Any = None, query: Any = None) -> Iterator[Any]:
        plan = super().make_query_plan(working_keyspace, query)
        if not self._avoided:
            return iter(plan)
        hosts = list(plan)
        first = next(filter(self._may_be_asked, hosts), None)
        return iter(sorted(hosts, key=lambda host: (host is not first, host in self._avoided)))

    def on_up(self, host: Any) -> None:
        super().on_up(host)
        self.heard(host)

    def on_remove(self, host: Any) -> None:
        super().on_remove(host)
        self.heard(host)  # it is asked no more

    def _may_be_asked(self, host: Any) -> bool:
        """Whether this node was not late, or is to be tried now. Then the request that asks for this is the trial."""
        trial = self._avoided.get(host)
        if trial is None:
            return True
        now = self._seconds()
        if now < trial:
            return False
        self._avoided[host] = now + AVOIDED_SECONDS
        return True


class _Told(HostStateListener):  # type: ignore[misc]
    """Says which nodes go and come."""

    def on_up(self, host: Any) -> None:
        log.warning("the Cassandra node %s answers again", host.endpoint)

    def on_down(self, host: Any) -> None:
        log.warning("the Cassandra node %s does not answer", host.endpoint)

    def on_add(self, host: Any) -> None:
        log.info("the Cassandra node %s has joined the cluster", host.endpoint)

    def on_remove(self, host: Any) -> None:
        log.info("the Cassandra node %s has left the cluster", host.endpoint)


def open_session(address: ClusterAddress, nodes: Nodes) -> tuple[Cluster, Session]:
    """A session that is connected; `EngineRefused` says why there is none."""
    cluster = _cluster(address, nodes)
    try:
        session = cluster.connect()
    except Exception as error:
        there = sorted({str(host.datacenter) for host in cluster.metadata.all_hosts()} - {"None"})
        cluster.shutdown()
        if there and address.datacenter not in {None, *there}:
            raise EngineRefused(
                f"The cluster has no datacenter {address.datacenter!r}: there is {', '.join(there)}."
            ) from error
        raise refusal(address, error) from error
    cluster.register_listener(_Told())
    return cluster, session


def open_far_session(address: ClusterAddress) -> Session:
    """A session that has tried to connect to the nodes of all datacenters; `EngineRefused` if none can be reached.

    It belongs to a `Cluster` of its own, so that nothing else goes to far nodes.
    """
    cluster = _cluster(
        address,
        RoundRobinPolicy(),
        connect_seconds=FAR_CONNECT_SECONDS_MAX,
        threads=FAR_CONNECTS_AT_ONCE,
    )
    try:
        return cluster.connect(wait_for_all_pools=True)
    except Exception as error:
        cluster.shutdown()
        raise refusal(address, error) from error


def _cluster(
    address: ClusterAddress,
    order: LoadBalancingPolicy,
    *,
    connect_seconds: float = CONNECT_SECONDS_MAX,
    threads: int = 2,
) -> Cluster:
    profile = ExecutionProfile(
        load_balancing_policy=order,
        # This module decides about retries: the driver does not know which statements may be repeated.
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=ConsistencyLevel.QUORUM,
        serial_consistency_level=ConsistencyLevel.SERIAL,
        request_timeout=REQUEST_SECONDS_MAX,
        row_factory=Answer.of,
    )
    try:
        return Cluster(
            list(address.hosts),
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            auth_provider=credentials(address),
            ssl_context=tls_context(address),
            reconnection_policy=ExponentialReconnectionPolicy(1.0, RECONNECT_SECONDS_MAX),
            connect_timeout=connect_seconds,
            control_connection_timeout=connect_seconds,
            executor_threads=threads,
            compression=False,
            # Of Cassandra 4.0; without it the driver asks for newer ones.
            protocol_version=cassandra.ProtocolVersion.V5,
            sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        )
    except cassandra.UnresolvableContactPoints as error:
        names = ", ".join(name for name, _ in address.hosts)
        raise EngineRefused(f"No Cassandra node has an address under {names}.") from error
