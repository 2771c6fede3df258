"""The order in which nodes are asked while one of them answers late."""

from types import SimpleNamespace

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from tablestone.engines.cassandra.session import AVOIDED_SECONDS, REQUEST_SECONDS_MAX, Nodes

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

    def plan(self) -> str:
        """The order in which the driver asks the nodes; those that hold the partition are shuffled."""
        query = SimpleNamespace(keyspace=KEYSPACE, routing_key=PARTITION)
        return "".join(host.name for host in self.nodes.make_query_plan(None, query))

    def first(self, requests: int = 100) -> str:
        """The first nodes that these requests ask."""
        return "".join(self.plan()[0] for _ in range(requests))


def late_setting(late: str, count: int = 3) -> Setting:
    setting = Setting(count)
    for host in setting.hosts:
        if host.name in late:
            setting.nodes.avoid(host)
    return setting


def test_the_nodes_that_hold_a_partition_take_turns() -> None:
    """A popular partition is not the work of one node."""
    setting = Setting()
    assert set(setting.first()) == set("ABC")
    assert {len(setting.plan()) for _ in range(10)} == {3}


def test_a_node_that_was_late_is_asked_last_until_its_time_is_over() -> None:
    setting = late_setting("A")
    assert {setting.plan()[-1] for _ in range(100)} == {"A"}
    setting.now += AVOIDED_SECONDS - 0.1
    assert "A" not in setting.first()
    setting.now += 0.2
    assert "A" in setting.first()


def test_one_request_at_a_time_tries_a_node_that_was_late() -> None:
    setting = late_setting("A")
    for _ in range(3):  # even if no trial is ever answered
        setting.now += AVOIDED_SECONDS
        assert setting.first().count("A") == 1
        setting.now += REQUEST_SECONDS_MAX
        assert setting.first().count("A") == 0
    assert AVOIDED_SECONDS > REQUEST_SECONDS_MAX, "a second trial would begin before the first ends"


def test_a_trial_that_is_late_begins_a_new_time() -> None:
    setting = late_setting("A")
    setting.now += AVOIDED_SECONDS
    assert "A" in setting.first()
    setting.now += REQUEST_SECONDS_MAX
    setting.nodes.avoid(setting.hosts[0])
    setting.now += AVOIDED_SECONDS - 0.1
    assert "A" not in setting.first()
    setting.now += 0.1
    assert setting.first().count("A") == 1


@pytest.mark.parametrize("news", ["heard", "on_up", "on_remove"])
@pytest.mark.parametrize("seconds", [1.0, AVOIDED_SECONDS], ids=["before a trial", "of a trial"])
def test_a_node_that_answers_is_asked_as_the_others(news: str, seconds: float) -> None:
    """The answer may be to an earlier request. The driver itself leaves out a removed node."""
    setting = late_setting("ABC")
    setting.now += seconds
    setting.first(1 if seconds < AVOIDED_SECONDS else 100)  # each node is tried
    getattr(setting.nodes, news)(setting.hosts[0])
    assert set(setting.first()) == {"A"}
    for host in setting.hosts[1:]:
        getattr(setting.nodes, news)(host)
    assert not setting.nodes._avoided, "each request would look for nodes that were late"


def test_an_answer_of_another_node_ends_nothing() -> None:
    setting = late_setting("A")
    setting.nodes.heard(setting.hosts[1])
    setting.nodes.heard(None)
    assert "A" not in setting.first()


@pytest.mark.parametrize("count", [1, 3])
def test_where_all_nodes_are_late_all_are_asked(count: int) -> None:
    names = "ABC"[:count]
    setting = late_setting(names, count)
    assert set(setting.plan()) == set(names)
    setting.nodes.heard(setting.hosts[0])
    assert set(setting.first()) == {"A"}


def test_a_request_that_times_out_without_a_node_avoids_none() -> None:
    setting = Setting()
    setting.nodes.avoid(None)
    assert set(setting.plan()) == set("ABC")
    assert not setting.nodes._avoided
