"""Keyspaces for tests on the cluster that ENGINE_UNDER_TEST names, and commands that use them."""

from __future__ import annotations

import secrets
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from server_process import COMMAND, clean_environment
from storage.cluster.distribution import missing
from storage.cluster_engine import URL, drop_keyspace
from storage.postgresql_engine import made_schema
from tablestone.engines.cassandra.cluster_url import parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator

on_a_cluster = pytest.mark.skipif(
    URL is None, reason="no cluster: python -m tests.storage.cluster up, then set ENGINE_UNDER_TEST"
)
on_own_nodes = [
    on_a_cluster,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.slow,
    pytest.mark.sdk,
]
"""The marks of a file whose tests start their own nodes."""
KEYSPACE = "checked"

EngineArguments = tuple[str, ...]
"""`--engine URL`, or nothing: then a program keeps its data in a directory."""


def tablestone(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=clean_environment() | (environment or {}),
    )


def url_of(name: str) -> str:
    """The engine's URL for a keyspace on the cluster."""
    assert URL is not None
    return URL.replace("/tablestone?", f"/{name}?")


@contextmanager
def made_keyspace(name: str) -> Iterator[str]:
    """A keyspace made by `cluster init` and dropped at the end; its URL."""
    url = url_of(name)
    made = tablestone("cluster", "init", "--engine", url + "&replication=1")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.splitlines()[0] == f"Keyspace {name}: made."
    assert "warning: Each row has 1 copy in datacenter1" in made.stdout
    try:
        yield url
    finally:
        drop_keyspace(parse_address(url))


@contextmanager
def server_arguments() -> Iterator[EngineArguments]:
    """The arguments for servers with an empty store of their own: a keyspace or a schema, if such is under test."""
    if URL is None:
        yield ()
    elif URL.startswith("postgresql:"):
        with made_schema(URL) as url:
            yield "--engine", url
    else:
        with made_keyspace(f"tests_{secrets.token_hex(4)}") as url:
            yield "--engine", url
