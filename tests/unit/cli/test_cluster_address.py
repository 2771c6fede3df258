"""The cluster that a command works on, when the environment names a directory."""

import pytest

from tablestone.cli.commands.cluster import cluster_address
from tablestone.cli.options import BrokenOption

URL = "cassandra://node1,node2/tables?datacenter=dc1"


@pytest.mark.parametrize("is_in_environment", [False, True])
def test_what_the_environment_says_of_a_directory_is_no_option_of_a_cluster(
    monkeypatch: pytest.MonkeyPatch, *, is_in_environment: bool
) -> None:
    """It was set for the server on one machine, before the move to three."""
    monkeypatch.setenv("TABLESTONE_DATA", "/var/lib/tablestone")
    monkeypatch.setenv("TABLESTONE_ENCRYPTION_KEY_FILE", "/etc/tablestone.key")
    if is_in_environment:
        monkeypatch.setenv("TABLESTONE_ENGINE", URL)
    address = cluster_address({"engine": None if is_in_environment else URL})
    assert [host for host, _ in address.hosts] == ["node1", "node2"]
    assert address.keyspace == "tables"


@pytest.mark.parametrize("engine", [None, "sqlite", "memory"])
def test_another_engine_is_not_a_cluster(
    monkeypatch: pytest.MonkeyPatch, engine: str | None
) -> None:
    monkeypatch.delenv("TABLESTONE_ENGINE", raising=False)
    with pytest.raises(BrokenOption, match=r"^Say which cluster: --engine 'cassandra://"):
        cluster_address({"engine": engine})
