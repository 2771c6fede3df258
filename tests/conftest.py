"""Fixtures for all tests: the session's server, a way to start others, and a fixed Hypothesis profile."""

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from server_process import ServerProcess, start_server
from storage.cluster.keyspaces import server_arguments

# Seeds are fixed, so that a failure here is a failure everywhere; HYPOTHESIS_PROFILE=explore looks for new ones,
# `thorough` for many. There is no deadline: the machine may be busy.
settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", parent=settings.get_profile("fixed"), derandomize=False)
settings.register_profile("thorough", parent=settings.get_profile("explore"), max_examples=2000)
# For tests that should fail (tests/stress/mutations): nobody reads their smallest example.
settings.register_profile("unshrunk", parent=settings.get_profile("fixed"), phases=[Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# A command in the background of a shell, or under nohup, ignores these signals, and so does every process that it
# starts. The tests send them to servers.
for _number, _action in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _action)

# Up to this many named files run in this process: starting others would take longer.
FILES_IN_ONE_PROCESS_MAX = 3


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes run the tests: they wait for servers and disks, so more than there are processors."""
    named = [Path(argument.partition("::")[0]) for argument in config.args]
    few = len(set(named)) <= FILES_IN_ONE_PROCESS_MAX and all(path.is_file() for path in named)
    return 0 if few else (os.cpu_count() or 1) * 3 // 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Stop Python's garbage collector while modules and tests load: they all stay, and it took a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the slow tests of a run that names no files, unless SLOW is set, and put the longest files first.

    When several processes share the files, none of them should wait for a long last one.
    """
    named = any(Path(argument.partition("::")[0]).is_file() for argument in config.args)
    if "SLOW" not in os.environ and not named:
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: set SLOW=1, or name the file"))
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)


StartServer = Callable[..., ServerProcess]


@pytest.fixture(scope="session")
def engine_arguments() -> Iterator[tuple[str, ...]]:
    """The arguments of a server under test: none, or a keyspace if a cluster is under test.

    Each pytest process has its own keyspace, because some tests list all tables or set the properties of the service.
    """
    with server_arguments() as arguments:
        yield arguments


@pytest.fixture(scope="session")
def tablestone_server(
    tmp_path_factory: pytest.TempPathFactory, engine_arguments: tuple[str, ...]
) -> Iterator[ServerProcess]:
    """One real server for all tests that do not disturb each other: each uses its own tables."""
    server = start_server(tmp_path_factory.mktemp("data"), *engine_arguments)
    yield server
    assert server.stop() == 0, server.stderr


@pytest.fixture
def private_server() -> Iterator[StartServer]:
    """`start_server`; its servers end with the test."""
    started: list[ServerProcess] = []

    def start(
        data_dir: Path,
        *arguments: str,
        environment: dict[str, str] | None = None,
        constants: Mapping[str, float] | None = None,
        command: Sequence[str] | None = None,
    ) -> ServerProcess:
        server = start_server(
            data_dir, *arguments, environment=environment, constants=constants, command=command
        )
        started.append(server)
        return server

    yield start
    for server in started:
        if server.process.poll() is None:
            server.kill()
