"""`serve --archive` with real stores: moto's server of S3, and the blobs of Azurite.

Each is skipped, with its reason, where it is not installed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from azure.data.tables import TableServiceClient

from cli.command_line import tablestone
from server_process import free_ports, start_server
from tablestone.configuration import DEVELOPMENT_ACCOUNT_KEY, DEVELOPMENT_ACCOUNT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS_MAX = 60
AZURITE = Path(__file__).parents[2] / "bench" / ".work" / "azurite" / "node_modules" / "azurite"
VERSION = "2021-12-02"


class CloudPlace(NamedTuple):
    """A bucket or container, with the variables that reach it."""

    url: str
    environment: dict[str, str]


@pytest.fixture(scope="module")
def s3() -> Iterator[CloudPlace]:
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    try:
        endpoint = "http://{}:{}".format(*running.get_host_and_port())
        put(f"{endpoint}/bucket", {})
        yield CloudPlace(
            "s3://bucket/tables",
            {
                "AWS_ENDPOINT": endpoint,
                "AWS_ALLOW_HTTP": "true",
                "AWS_ACCESS_KEY_ID": "any",
                "AWS_SECRET_ACCESS_KEY": "any secret",
            },
        )
    finally:
        running.stop()


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudPlace]:
    node = shutil.which("node")
    if node is None or not AZURITE.exists():
        pytest.skip("Azurite is not installed: `python -m bench` installs it")
    (port,) = free_ports(1)
    program = AZURITE / "dist" / "src" / "blob" / "main.js"
    line = [node, str(program), "--blobPort", str(port), "--silent", "--disableTelemetry"]
    line += ["--location", str(tmp_path_factory.mktemp("azurite")), "--skipApiVersionCheck"]
    running = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    try:
        wait_for_port(port)
        endpoint = f"http://127.0.0.1:{port}/{DEVELOPMENT_ACCOUNT_NAME}"
        make_container(endpoint, "archive")
        yield CloudPlace(
            "az://archive/tables",
            {
                "AZURE_ENDPOINT": endpoint,
                "AZURE_ALLOW_HTTP": "true",
                "AZURE_STORAGE_ACCOUNT_NAME": DEVELOPMENT_ACCOUNT_NAME,
                "AZURE_STORAGE_ACCOUNT_KEY": DEVELOPMENT_ACCOUNT_KEY,
            },
        )
    finally:
        running.terminate()
        running.wait()


def wait_for_port(port: int) -> None:
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    pytest.fail("Azurite does not listen")


def put(url: str, headers: dict[str, str]) -> None:
    request = urllib.request.Request(url, b"", headers=headers, method="PUT")
    with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
        assert answer.status in (200, 201)


def make_container(endpoint: str, name: str) -> None:
    """Signed by the rules of the blob service, of which the project has no client."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": VERSION}
    account = DEVELOPMENT_ACCOUNT_NAME
    text = (
        "PUT\n\n\n\n\napplication/octet-stream\n\n\n\n\n\n\n"
        + "".join(f"{key}:{value}\n" for key, value in sorted(headers.items()))
        + f"/{account}/{account}/{name}\nrestype:container"
    )
    key = base64.b64decode(DEVELOPMENT_ACCOUNT_KEY)
    signature = base64.b64encode(hmac.digest(key, text.encode(), hashlib.sha256)).decode()
    headers |= {"Authorization": f"SharedKey {account}:{signature}"}
    headers |= {"Content-Type": "application/octet-stream"}
    put(f"{endpoint}/{name}?restype=container", headers)


@pytest.mark.parametrize("store", ["s3", "azurite"])
def test_a_cloud_archive(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Written, listed, checked, restored, continued from the restored directory, and pruned."""
    place: CloudPlace = request.getfixturevalue(store)
    data, new = tmp_path / "data", tmp_path / "new"
    archived = (f"--archive={place.url}", "--workers=1")
    server = start_server(data, *archived, environment=place.environment)
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        table = service.create_table("Orders")
        for number in range(20):
            table.create_entity({"PartitionKey": "p", "RowKey": f"{number}"})
        until = time.monotonic() + SECONDS_MAX
        while "can be restored: 2" not in listed(place):
            assert time.monotonic() < until, server.stderr
            time.sleep(0.2)
        checked = tablestone(
            "archive", "check", place.url, "--data", data, environment=place.environment
        )
        assert (checked.status, checked.stderr) == (0, ""), checked
        table.create_entity({"PartitionKey": "p", "RowKey": "the last"})
    assert server.stop() == 0
    life = listed(place).split()[1].rstrip(":")

    restored = tablestone(
        *("restore", "--quiet", "--archive", place.url, "--data", new),
        environment=place.environment,
    )
    assert (restored.status, restored.stderr) == (0, ""), restored
    assert f"life {life}" in restored.lines[0]
    server = start_server(new, *archived, environment=place.environment)
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        assert len(list(service.get_table_client("Orders").list_entities())) == 21
    assert server.stop() == 0
    assert listed(place).count("life ") == 1  # it went on

    pruned = tablestone(
        "archive", "prune", place.url, "--life", life, environment=place.environment
    )
    assert pruned.status == 2
    assert "is the only one of this archive" in pruned.stderr


def listed(place: CloudPlace) -> str:
    ended = tablestone("archive", "list", place.url, environment=place.environment)
    assert (ended.status, ended.stderr) == (0, ""), ended
    return "\n".join(ended.lines)
