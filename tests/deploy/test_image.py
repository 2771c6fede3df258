"""The image that `deploy/image/build` makes, in podman: what docs/guides/containers.md promises of a container.

ENGINE_UNDER_TEST names another engine for the test of a start on one, as in tests/storage.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.data.tables import TableServiceClient

from deploy.deployed import DEPLOY, IMAGE, ROOT, needs
from deploy.packaged import BUILD_SECONDS_MAX, LIMITS, SECONDS_MAX, Podman, built_twice
from server_process import free_ports
from storage.engines_under_test import URL
from storage.formats.make import answers
from tablestone import __version__
from tablestone.cli.stored_data import connection_string
from tablestone.configuration import DEVELOPMENT_ACCOUNT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    needs("buildah", "mmdebstrap", "podman", "runc"),
]
BUILD = DEPLOY / "image" / "build"
STOP_SECONDS_MAX = 10.0
BYTES_MAX = 120_000_000
USER = 10002
FORMATS = ROOT / "tests" / "storage" / "formats"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return built_twice(BUILD, tmp_path_factory)


RESTRICTED = (
    "--network=host",
    "--read-only",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    *LIMITS,
)


@pytest.fixture(scope="module")
def podman(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """Podman with the image."""
    engine = Podman(tmp_path_factory.mktemp("podman"))
    loaded = engine("load", "--input", files[0])
    for tag in ("latest", __version__):
        assert f"Loaded image: {IMAGE}:{tag}" in loaded
    yield engine
    engine.end()


def run(podman: Podman, place: Path | str, *words: str, status: int = 0) -> str:
    """Run a command of the image with this volume, to its end."""
    return podman("run", "--rm", *RESTRICTED, f"--volume={place}:/data", *words, status=status)


class Container:
    """A container that is ready."""

    def __init__(self, podman: Podman, volume: Path | str, *words: str) -> None:
        self.port, self.admin = free_ports(2)
        self._podman = podman
        addresses = {
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "ADMIN": f"127.0.0.1:{self.admin}",
        }
        options = [f"--env=TABLESTONE_{name}={value}" for name, value in addresses.items()]
        options += RESTRICTED
        started = podman("run", "--detach", f"--volume={volume}:/data", *options, IMAGE, *words)
        self.name = started.splitlines()[-1]
        end = time.monotonic() + SECONDS_MAX
        while "Connection string: " not in (printed := self.printed()):
            assert self.state() == "running", printed
            assert time.monotonic() < end, printed
            time.sleep(0.1)
        name = DEVELOPMENT_ACCOUNT.name
        self.endpoint = f"http://127.0.0.1:{self.port}/{name}"
        self.connection_string = connection_string(name, DEVELOPMENT_ACCOUNT.keys[0], self.endpoint)

    def printed(self) -> str:
        return self._podman("logs", self.name)

    def state(self) -> str:
        return self._podman("inspect", "--format={{.State.Status}}", self.name)

    def exec(self, *words: str, status: int = 0) -> str:
        return self._podman("exec", self.name, *words, status=status)

    def stop(self) -> None:
        """Send SIGTERM: the server ends by itself, and in time."""
        began = time.monotonic()
        self._podman("stop", "--time=30", self.name)
        assert time.monotonic() - began < STOP_SECONDS_MAX
        assert self._podman("inspect", "--format={{.State.ExitCode}}", self.name) == "0"


def test_two_builds_at_once_make_the_same_bytes(files: list[Path]) -> None:
    first, second = files
    assert first.name == f"tablestone-{__version__}-image-amd64.tar"
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size <= BYTES_MAX


def test_it_serves_as_a_user_without_rights_and_writes_only_its_data(podman: Podman) -> None:
    container = Container(podman, "its-data")
    assert container.exec("id", "-u") == str(USER)
    assert container.exec("tablestone", "--version") == (
        f"Tablestone {__version__}, compiled, filters in C, image build"
    )
    assert "Read-only" in container.exec("touch", "/opt/tablestone/file", status=1)
    assert container.exec("find", "/opt", "-name", ".git") == ""
    with TableServiceClient.from_connection_string(container.connection_string) as service:
        service.create_table("Kept").create_entity({"PartitionKey": "p", "RowKey": "r"})
    container.stop()
    again = Container(podman, "its-data")
    with TableServiceClient.from_connection_string(again.connection_string) as service:
        assert [each["RowKey"] for each in service.get_table_client("Kept").list_entities()] == [
            "r"
        ]
    again.stop()


def test_a_stop_during_the_start_ends_it(podman: Podman) -> None:
    """Also before the program has a handler: a stop that is lost takes until the kill, and the status is 137."""
    for seconds in (0.0, 0.02, 0.05, 0.1, 0.2):
        name = podman("run", "--detach", *RESTRICTED, IMAGE, "serve", "--engine=memory").split()[-1]
        time.sleep(seconds)
        podman("stop", "--time=10", name)
        assert podman("inspect", "--format={{.State.ExitCode}}", name) in {"0", "143"}


def test_its_health(podman: Podman) -> None:
    """Of a server that is ready, and of one that is about to start on data that another uses."""
    container = Container(podman, "health")
    assert container.exec("tablestone", "health").startswith("ready")
    assert podman("healthcheck", "run", container.name) == ""
    address = f"--admin=127.0.0.1:{container.admin}"
    container.stop()
    assert "ready" not in run(podman, "health", IMAGE, "health", address, status=1)


def test_a_second_one_on_a_volume_is_refused(podman: Podman) -> None:
    first = Container(podman, "shared")
    port, admin = free_ports(2)
    words = (IMAGE, "serve", f"--port={port}", f"--admin=127.0.0.1:{admin}")
    said = run(podman, "shared", *words, status=2).splitlines()[-1]
    assert said == "tablestone: The data directory /data is in use by another Tablestone server."
    assert first.exec("tablestone", "health").startswith("ready")
    first.stop()


@pytest.mark.parametrize(
    "name", sorted(each.parent.name for each in FORMATS.glob("*/expected.json"))
)
def test_data_of_an_older_format_is_served(podman: Podman, name: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(FORMATS / name, data, ignore=shutil.ignore_patterns("expected.json"))
    for place in (data, *data.rglob("*")):
        shutil.chown(place, USER, USER)
    assert run(podman, data, IMAGE, "upgrade").startswith("/data: format ")
    assert run(podman, data, IMAGE, "check") == "/data: healthy"
    container = Container(podman, data)
    expected = json.loads((FORMATS / name / "expected.json").read_text(encoding="utf-8"))
    assert answers(container.connection_string) == expected["tables"]
    container.stop()


IN_A_CONTAINER = re.compile(
    r"^    (?:docker (?:run|compose) .*[ /]tablestone|kubectl .* -- tablestone) (.+)$", re.MULTILINE
)


def test_the_commands_of_the_guide(podman: Podman) -> None:
    """Each once, in order; a server without arguments is another test."""
    page = (ROOT / "docs" / "guides" / "containers.md").read_text(encoding="utf-8")
    commands = [each.split() for each in dict.fromkeys(IN_A_CONTAINER.findall(page))]
    assert [words[0] for words in commands] == ["account", "account", "azurite", "backup"]
    for words in commands:
        if words[0] == "azurite":
            host = words.index("--tableHost") + 1
            words[host] = "127.0.0.1"
            (port,) = free_ports(1)
            container = Container(podman, "commands", *words, f"--tablePort={port}")
            assert "data in memory" in container.printed()
            container.stop()
        else:
            run(podman, "commands", "--tmpfs=/tmp", IMAGE, *words)


@pytest.mark.parametrize("suite", ["python", "test_go.py", "test_javascript.py"])
def test_an_sdk(podman: Podman, suite: str) -> None:
    container = Container(podman, f"sdk-{suite}")
    words = ["-m", "pytest", "--numprocesses=0", "-p", "no:cacheprovider", f"tests/sdk/{suite}"]
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | {"TABLESTONE_TEST_ENDPOINT": container.endpoint, "SLOW": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    if " passed" not in ended.stdout and " skipped" in ended.stdout:
        pytest.skip(ended.stdout.strip().splitlines()[-2])
    assert ended.returncode == 0, ended.stdout
    container.stop()


@pytest.mark.skipif(URL is None, reason="ENGINE_UNDER_TEST names no engine")
def test_a_start_on_another_engine(podman: Podman, engine_arguments: tuple[str, ...]) -> None:
    container = Container(podman, "unused", "serve", *engine_arguments)
    assert container.exec("tablestone", "health").startswith("ready")
    with TableServiceClient.from_connection_string(container.connection_string) as service:
        table = service.create_table("Elsewhere")
        table.create_entity({"PartitionKey": "p", "RowKey": "r"})
        assert [each["RowKey"] for each in table.list_entities()] == ["r"]
    container.stop()
