"""Nodes that require no password, as Cassandra is delivered: the checks warn where that matters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from storage.cluster.keyspaces import made_keyspace, on_a_cluster
from tablestone.clock import system_clock
from tablestone.engines.cassandra.cluster_url import parse_address

if TYPE_CHECKING:
    from pathlib import Path


@on_a_cluster
def test_a_user_whom_no_node_asks_for_a_password_is_a_warning(tmp_path: Path) -> None:
    """The test nodes require none, and only this machine reaches them: without a user in the URL that is fine."""
    from tablestone.engines.cassandra.opening import examine_cluster  # noqa: PLC0415 - needs the driver

    password = tmp_path / "password"
    password.write_text("wrong")
    with made_keyspace("open_nodes") as url:
        for user, is_warned in ((None, False), ("bob", True)):
            file = None if user is None else str(password)
            address = replace(parse_address(url), user=user, password_file=file)
            said = " ".join(examine_cluster(address, system_clock).warnings)
            assert ("asks for no password" in said) == is_warned


@pytest.mark.parametrize(
    ("authenticator", "address", "names_user", "is_warned"),
    [
        (None, "10.0.0.1", False, True),
        (None, "127.0.0.1", False, False),
        (None, "127.0.0.1", True, True),
        (None, "::1", False, False),
        ("AllowAllAuthenticator", "10.0.0.1", False, True),
        ("org.apache.cassandra.auth.AllowAllAuthenticator", "10.0.0.1", False, True),
        ("PasswordAuthenticator", "10.0.0.1", False, False),
        ("PasswordAuthenticator", "127.0.0.1", True, False),
        ("org.example.Ours", "10.0.0.1", True, False),
    ],
)
def test_a_node_that_asks_for_no_password_is_found(
    authenticator: str | None, address: str, *, names_user: bool, is_warned: bool
) -> None:
    pytest.importorskip("cassandra.cluster", reason="the driver of Cassandra is not installed")
    from tablestone.engines.cassandra.checks import is_open_to_all  # noqa: PLC0415 - as above

    settings = {"authenticator.class_name": authenticator}
    assert is_open_to_all(settings, address, names_user=names_user) == is_warned
    assert not is_open_to_all({}, address, names_user=names_user)  # unknown
