"""The order in which nodes are asked while one of them does not answer in time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from tablestone.engines.cassandra.session import (
    AVOIDED_SECONDS,
    REQUEST_SECONDS_MAX,
    Nodes,
)

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

    def holders(self, requests: int = 6) -> str:
        """The nodes that these direct requests are sent to; "-" for a request that goes the driver's way."""
        found = [self.nodes.holder(KEYSPACE, PARTITION) for _ in range(requests)]
        return "".join(host.name if host else "-" for host in found)

    def plan(self) -> str:
        """The nodes in the order in which the driver asks them."""
        query = SimpleNamespace(keyspace=KEYSPACE, routing_key=PARTITION)
        return "".join(host.name for host in self.nodes.make_query_plan(None, query))


def late_setting(late: str, count: int = 3) -> Setting:
    setting = Setting(count)
    for host in setting.hosts:
        if host.name in late:
            setting.nodes.avoid(host)
    return setting


def test_direct_requests_alone_ask_a_node_again_that_was_late() -> None:
    """Only a plan of the driver ended its time, and direct requests make none: it was not asked any more."""
    setting = late_setting("A")
    assert "A" not in setting.holders()
    setting.now += AVOIDED_SECONDS - 0.1
    assert "A" not in setting.holders()
    setting.now += 0.2
    assert "A" in setting.holders()


def test_one_direct_request_at_a_time_tries_a_node_that_was_late() -> None:
    setting = late_setting("A")
    for _ in range(3):  # also if nothing ever says what became of a trial
        setting.now += AVOIDED_SECONDS
        assert setting.holders().count("A") == 1
        setting.now += REQUEST_SECONDS_MAX
        assert setting.holders().count("A") == 0
    assert AVOIDED_SECONDS > REQUEST_SECONDS_MAX, "a second trial would begin before the first ends"


def test_one_plan_at_a_time_tries_a_node_that_was_late() -> None:
    setting = late_setting("A")
    assert [setting.plan() for _ in range(3)] == ["BCA"] * 3
    setting.now += AVOIDED_SECONDS
    assert [setting.plan() for _ in range(3)] == ["ABC", "BCA", "BCA"]


def test_a_plan_and_a_direct_request_do_not_both_try_a_node() -> None:
    setting = late_setting("A")
    setting.now += AVOIDED_SECONDS
    assert setting.plan() == "ABC"
    assert "A" not in setting.holders()
    setting.now += AVOIDED_SECONDS
    assert "A" in setting.holders()
    assert setting.plan() == "BCA"


def test_a_plan_that_asks_another_node_first_is_no_trial() -> None:
    setting = late_setting("B")
    setting.now += AVOIDED_SECONDS
    assert setting.plan() == "ACB"
    assert setting.holders().count("B") == 1


def test_a_trial_that_is_late_begins_a_new_time() -> None:
    setting = late_setting("A")
    setting.now += AVOIDED_SECONDS
    assert "A" in setting.holders()
    setting.now += REQUEST_SECONDS_MAX
    setting.nodes.avoid(setting.hosts[0])
    setting.now += AVOIDED_SECONDS - 0.1
    assert "A" not in setting.holders()
    setting.now += 0.1
    assert setting.holders().count("A") == 1


@pytest.mark.parametrize("news", ["heard", "on_up", "on_remove"])
@pytest.mark.parametrize("seconds", [1.0, AVOIDED_SECONDS], ids=["before a trial", "of a trial"])
def test_a_node_that_answers_is_asked_as_the_others(news: str, seconds: float) -> None:
    """Also if the answer is that of a request from before. The driver itself leaves out a node that is removed."""
    setting = late_setting("ABC")
    setting.now += seconds
    setting.holders()
    getattr(setting.nodes, news)(setting.hosts[0])
    assert setting.holders() == "AAAAAA"
    for host in setting.hosts[1:]:
        getattr(setting.nodes, news)(host)
    assert not setting.nodes._avoided, "each request would look for nodes that were late"


def test_an_answer_of_another_node_ends_nothing() -> None:
    setting = late_setting("A")
    setting.nodes.heard(setting.hosts[1])
    setting.nodes.heard(None)
    assert "A" not in setting.holders()


@pytest.mark.parametrize("count", [1, 3])
def test_where_all_nodes_are_late_all_are_asked(count: int) -> None:
    """A single node is not avoided: the requests go the driver's way, and the first answer ends that."""
    names = "ABC"[:count]
    setting = late_setting(names, count)
    assert setting.holders(3) == "---"
    assert setting.plan() == names
    setting.nodes.heard(setting.hosts[0])
    assert setting.holders(3) == "AAA"


def test_a_request_that_times_out_without_a_node_avoids_none() -> None:
    setting = Setting()
    setting.nodes.avoid(None)
    assert setting.plan() == "ABC"
    assert not setting.nodes._avoided
