"""What every directory of tests may use: the session's server, a way to start others, a fixed Hypothesis profile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from server_process import ServerProcess, start_server

# Seeds are fixed, so that a failure here is a failure everywhere; HYPOTHESIS_PROFILE=explore looks for new ones,
# `thorough` for many.
# No deadline: the machine may be busy with other work.
settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", parent=settings.get_profile("fixed"), derandomize=False)
settings.register_profile("thorough", parent=settings.get_profile("explore"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

StartServer = Callable[..., ServerProcess]


@pytest.fixture(scope="session")
def tablestone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One real server for all tests that do not disturb each other: they take tables of their own."""
    server = start_server(tmp_path_factory.mktemp("data"))
    yield server
    assert server.stop() == 0, server.stderr


@pytest.fixture
def private_server() -> Iterator[StartServer]:
    """`start_server`, whose servers are gone when the test is."""
    started: list[ServerProcess] = []

    def start(
        data_dir: Path, *arguments: str, environment: dict[str, str] | None = None
    ) -> ServerProcess:
        server = start_server(data_dir, *arguments, environment=environment)
        started.append(server)
        return server

    yield start
    for server in started:
        if server.process.poll() is None:
            server.kill()
