"""The order in which nodes are asked while one of them does not answer in time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from tablestone.engines.cassandra.session import AVOIDED_SECONDS, Nodes

KEYSPACE, PARTITION = "tables", b"partition"


class Host:
    """A node as the driver describes it."""

    datacenter = "dc1"
    is_up = True

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Setting:
    """Nodes that all hold the partition, and a clock that a test moves."""

    def __init__(self, count: int = 3) -> None:
        self.now = 100.0
        self.hosts = [Host(name) for name in "ABCDEF"[:count]]
        self.nodes = Nodes(lambda: self.now, "dc1")
        metadata = SimpleNamespace(get_replicas=lambda *_: list(self.hosts))
        self.nodes.populate(SimpleNamespace(metadata=metadata), self.hosts)

    def holders(self, requests: int = 6) -> list[str]:
        """The nodes that these direct requests are sent to; "-" for a request that goes the driver's way."""
        found = [self.nodes.holder(KEYSPACE, PARTITION) for _ in range(requests)]
        return [host.name if host else "-" for host in found]


def test_direct_requests_alone_ask_a_node_again_that_was_late() -> None:
    """Only a plan of the driver ended its time, and direct requests make none: it was not asked any more."""
    setting = Setting()
    late = setting.hosts[0]
    setting.nodes.avoid(late)
    assert set(setting.holders()) == {"B", "C"}
    setting.now += AVOIDED_SECONDS - 0.1
    assert set(setting.holders()) == {"B", "C"}
    setting.now += 0.2
    assert "A" in setting.holders()
