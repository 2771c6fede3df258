"""Servers on the cluster or the database that ENGINE_UNDER_TEST names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server_process import ServerProcess, start_server
from storage.engines_under_test import SHARED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Two servers that share nothing but this storage."""
    assert SHARED is not None
    directory: Path = tmp_path_factory.mktemp("servers")
    servers = [start_server(directory, "--engine", SHARED, "--workers", "1") for _ in range(2)]
    yield servers[0], servers[1]
    for server in servers:
        if server.process.poll() is None:
            server.kill()
