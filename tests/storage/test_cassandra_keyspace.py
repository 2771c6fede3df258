"""Whose keyspace it is, and how many copies it has, from a driver's description. `cluster/` tests this on a node."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from tablestone.engines.cassandra.checks import (
    few_copies,
    held_copies,
    other_copies,
    too_many_copies,
    wanted_copies,
)
from tablestone.engines.cassandra.cluster_url import parse_address
from tablestone.engines.cassandra.layout import (
    COLUMNS,
    LAYOUT,
    RULES_LAYOUT,
    keep_rules,
    require_own,
)
from tablestone.engines.contract import EngineRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

OURS = dict(COLUMNS) | {"loading": COLUMNS["loading"]}
THEIRS = {"rows": "a int"}


class Cluster:
    """A connection to nodes in some datacenters, and a keyspace whose layout has a number."""

    keyspace = "k"

    def __init__(self, number: int | None = None, **nodes: int) -> None:
        self._number = number
        self._nodes = nodes
        self.cluster = SimpleNamespace(metadata=self)

    def execute(self, text: str) -> list[tuple[int]]:
        assert text == "SELECT number FROM k.about WHERE name = 'layout'"
        return [] if self._number is None else [(self._number,)]

    def nodes_in(self, datacenter: str, _wanted: int) -> int:
        return self._nodes.get(datacenter, 0)

    def all_hosts(self) -> list[Any]:
        return [
            SimpleNamespace(datacenter=name)
            for name, count in self._nodes.items()
            for _ in range(count)
        ]


def described(tables: Mapping[str, str]) -> Any:
    """A keyspace with these columns, as the driver describes it."""
    columns = {}
    for table, text in tables.items():
        parts = [part.split(" ", 1) for part in re.split(r", (?![^<]*>)", text)]
        columns[table] = SimpleNamespace(
            columns={
                name: SimpleNamespace(
                    cql_type=kind.removesuffix(" static"), is_static=kind.endswith(" static")
                )
                for name, kind in parts
            }
        )
    return SimpleNamespace(tables=columns)


def without(tables: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: columns for name, columns in tables.items() if name not in names}


@pytest.mark.parametrize(
    ("tables", "number"),
    [
        ({}, None),
        (OURS, LAYOUT),
        (OURS, None),
        (OURS, 1),
        (OURS, RULES_LAYOUT),
        (OURS | {"of_the_operator": "a int"}, LAYOUT),
        (without(OURS, "about"), None),
    ],
)
def test_a_keyspace_of_ours_is_known(tables: Mapping[str, str], number: int | None) -> None:
    assert require_own(Cluster(number), described(tables)) == number  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tables", "number", "why"),
    [
        ({"theirs": "a int"}, None, "another program: it has the table 'theirs'."),
        (OURS | {"theirs": "a int"}, None, "another program: it has the table 'theirs'."),
        (THEIRS, None, "another program: it has a table 'rows' with other columns"),
        (
            dict.fromkeys(OURS, "a int"),
            None,
            "another program: it has a table 'rows' with other columns",
        ),
        ({"loading": "id int"}, None, "a table 'loading' with other columns"),
        ({"about": "name text, number int"}, None, "a table 'about' with other columns"),
        (
            OURS | {"rows": OURS["rows"].replace(" static", "")},
            LAYOUT,
            "a table 'rows' with other columns",
        ),
        (
            OURS | {"directory_nodes": OURS["directory_nodes"].removesuffix(", taken bigint")},
            LAYOUT,
            "a table 'directory_nodes' with other columns",
        ),
        (OURS, 9, "k has layout 9, and this version of Tablestone knows layout 3: use the version"),
        (without(OURS, "directory_nodes") | {"tree": "a int"}, 9, "k has layout 9"),
    ],
)
def test_a_keyspace_of_another_program_or_version_is_refused(
    tables: Mapping[str, str], number: int | None, why: str
) -> None:
    with pytest.raises(EngineRefused) as refused:
        require_own(Cluster(number), described(tables))  # type: ignore[arg-type]
    assert why in str(refused.value)


def keyspace(options: str) -> Any:
    strategy = SimpleNamespace(export_for_schema=lambda: options)
    return SimpleNamespace(replication_strategy=strategy)


def test_the_copies_of_a_keyspace_are_read() -> None:
    held = held_copies(
        Cluster(dc1=3),  # type: ignore[arg-type]
        keyspace("{'class': 'NetworkTopologyStrategy', 'dc1': '3', 'dc2': '3/1'}"),
    )
    assert held == {"dc1": 3, "dc2": 3}


def test_copies_that_are_not_by_datacenter_are_refused() -> None:
    """The class went unchecked, and its option was taken for a datacenter of that name."""
    with pytest.raises(EngineRefused) as refused:
        held_copies(
            Cluster(dc1=3),  # type: ignore[arg-type]
            keyspace("{'class': 'SimpleStrategy', 'replication_factor': '1'}"),
        )
    assert str(refused.value) == (
        "The keyspace k has the replication SimpleStrategy, and needs NetworkTopologyStrategy: ALTER KEYSPACE k WITH "
        "replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}, or the number of copies that it is to have."
    )


@pytest.mark.parametrize(
    ("copies_in", "is_made", "sentences"),
    [
        ({"dc1": 2}, False, []),
        (
            {"dc1": 3},
            False,
            [
                "Datacenter dc1 has 2 nodes, and is to hold 3 copies of each row: start more nodes, or make the "
                "keyspace with replication=dc1:2."
            ],
        ),
        (
            {"dc1": 2, "dc2": 2},
            True,
            [
                "Datacenter dc2 has 1 node, and is to hold 2 copies of each row: start more nodes, or ALTER KEYSPACE k "
                "WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 2, 'dc2': 1}."
            ],
        ),
        (
            {"dc9": 1},
            False,
            [
                "The cluster has no datacenter 'dc9', which is to hold 1 copy of each row: there is dc1, dc2."
            ],
        ),
    ],
)
def test_more_copies_than_nodes_are_a_sentence(
    copies_in: dict[str, int], sentences: list[str], *, is_made: bool
) -> None:
    nodes: Any = Cluster(dc1=2, dc2=1)
    assert too_many_copies(nodes, copies_in, is_made=is_made) == sentences


@pytest.mark.parametrize(
    ("copies_in", "words"),
    [
        ({"dc1": 1}, "1 copy in dc1"),
        ({"dc1": 2}, "2 copies in dc1"),
        ({"dc1": 3}, None),
        ({"dc1": 4}, None),
        ({"dc1": 5}, None),
        ({"dc1": 1, "dc2": 1}, "1 copy in dc1 and 1 copy in dc2"),
        ({"dc1": 2, "dc2": 0}, "2 copies in dc1 and 0 copies in dc2"),
        ({"dc1": 3, "dc2": 0}, None),
        ({"dc1": 2, "dc2": 1}, None),
        ({"dc1": 2, "dc2": 2}, None),
        ({"dc1": 3, "dc2": 3}, None),
        ({"dc1": 1, "dc2": 1, "dc3": 1}, None),
        ({"dc1": 2, "dc2": 2, "dc3": 1}, None),
        ({"dc1": 3, "dc2": 3, "dc3": 3}, None),
        ({}, "no copies"),
    ],
)
def test_few_copies_are_a_sentence(copies_in: dict[str, int], words: str | None) -> None:
    """A majority of the copies of all datacenters must be up: of 1 one, of 2 both, of 3 two."""
    assert few_copies(copies_in) == (
        []
        if words is None
        else [
            f"Each row has {words}: with fewer than 3 in all datacenters together, every node that stops takes rows "
            "out of service."
        ]
    )


@pytest.mark.parametrize(
    ("options", "copies_in", "said"),
    [
        ("", {"dc1": 2}, None),
        ("?replication=2", {"dc1": 2}, None),
        ("?replication=dc1:2", {"dc1": 2}, None),
        ("?replication=2", {"dc1": 3}, "k has 3 copies in dc1, and not 2 copies in dc1: "),
        (
            "?replication=dc1:1,dc2:1",
            {"dc1": 1},
            "k has 1 copy in dc1, and not 1 copy in dc1 and 1 copy in dc2: ",
        ),
        ("?replication=1", {}, "k has no copies, and not 1 copy in dc1: "),
    ],
)
def test_other_copies_than_the_url_asks_for_are_a_sentence(
    options: str, copies_in: dict[str, int], said: str | None
) -> None:
    nodes: Any = Cluster(dc1=3)
    found = other_copies(parse_address("cassandra://h/k" + options), nodes, copies_in)
    if said is None:
        assert found == []
    else:
        assert [said in sentence for sentence in found] == [True]


def test_several_datacenters_have_to_be_named() -> None:
    nodes: Any = Cluster(dc1=3, dc2=3)
    with pytest.raises(EngineRefused, match="say replication=dc1:3,dc2:3 or another number"):
        wanted_copies(parse_address("cassandra://h/k"), nodes)
    assert wanted_copies(parse_address("cassandra://h/k?datacenter=dc2"), nodes) == {"dc2": 3}


class Used(Cluster):
    """A keyspace with clients, one of which may come while the layout changes."""

    def __init__(self, *clients: list[str]) -> None:
        super().__init__(LAYOUT)
        self._clients = iter(clients)

    def other_clients(self) -> list[str]:
        return next(self._clients)

    def execute(self, text: str) -> list[tuple[int]]:
        if text.startswith("UPDATE about SET number = 3"):
            assert text.endswith(f"IF number = {LAYOUT}")
            self._number = RULES_LAYOUT
            return []
        assert text == "SELECT number FROM about WHERE name = 'layout'"
        return [(self._number or 0,)]


def test_the_first_rule_of_an_account_changes_the_layout() -> None:
    used = Used([], [])
    assert keep_rules(used, all_upgraded=False) == "The keyspace k has layout 3 now"  # type: ignore[arg-type]
    assert keep_rules(used, all_upgraded=False) is None  # type: ignore[arg-type]


def test_a_client_may_be_a_server_that_does_not_know_rules() -> None:
    before, meanwhile = Used(["10.0.0.1"]), Used([], ["10.0.0.1"])
    for used in (before, meanwhile):
        with pytest.raises(EngineRefused, match=r"10\.0\.0\.1.*--all-servers-upgraded"):
            keep_rules(used, all_upgraded=False)  # type: ignore[arg-type]
    assert before.execute("SELECT number FROM about WHERE name = 'layout'") == [(LAYOUT,)]
    assert keep_rules(Used(), all_upgraded=True) is not None  # type: ignore[arg-type]
