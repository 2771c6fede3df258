"""Asks single nodes about themselves, in whichever datacenter they are.

Requests go to the near datacenter only, so the driver has no connections to the nodes of the others and does not know
whether they are up. Where a cluster has such far nodes, a second session is opened for these questions, when the first
of them is asked. It sends nothing else. Knows no statement; the driver is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cassandra.cluster import Session

from tablestone.engines.cassandra.answers import Row
from tablestone.engines.cassandra.session import Nodes


class EveryNode:
    """The nodes of all datacenters. `open_far` gives a session that has tried to connect to each of them."""

    def __init__(self, near: Session, nodes: Nodes, open_far: Callable[[], Session]) -> None:
        self._near = near
        self._nodes = nodes
        self._open_far = open_far
        self._far: Session | None = None

    def all(self) -> list[Any]:
        """Every node that the cluster tells of, by address."""
        hosts = self._near.cluster.metadata.all_hosts()
        return sorted(hosts, key=lambda host: str(host.endpoint))

    def is_near(self, host: Any) -> bool:
        """Whether requests may go to this node."""
        return self._nodes.is_near(host)

    def is_up(self, host: Any) -> bool:
        """Whether there is a connection to this node. May open the second session, and wait for it."""
        if self.is_near(host):
            return bool(host.is_up)
        pool = self._far_session().get_pool_state().get(host, {})
        return bool(pool.get("open_count", 0))

    def silent_datacenters(self) -> list[str]:
        """The datacenters of which no node is up."""
        hosts = self.all()
        heard = {str(host.datacenter) for host in hosts if self.is_up(host)}
        return sorted({str(host.datacenter) for host in hosts} - heard)

    def ask(self, host: Any, text: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """The answer of one node to a question about itself, asked once; the error is the driver's."""
        session = self._near if self.is_near(host) else self._far_session()
        return list(session.execute(text, parameters, host=host))

    def leave(self) -> None:
        """Close the second session; the next question to a far node opens it again."""
        if self._far is not None:
            self._far.cluster.shutdown()
            self._far = None

    def _far_session(self) -> Session:
        if self._far is None:
            self._far = self._open_far()
        return self._far
