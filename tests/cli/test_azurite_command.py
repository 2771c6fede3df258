"""`tablestone azurite`: servers started with the command lines of Azurite."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.data.tables import TableServiceClient
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from certificates import certificate_pem, make_key, served_certificate, subject_of, write_pair
from cli.test_refusals import run_command
from server_process import COMMAND, clean_environment

SECONDS_MAX = 40.0


class Started:
    """A server, with a file of everything it has printed."""

    def __init__(self, directory: Path, *words: str, environment: dict[str, str]) -> None:
        self._printed = directory / "printed"
        with self._printed.open("w") as file:
            self.process = subprocess.Popen(
                [COMMAND, *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env=clean_environment() | environment,
            )

    @property
    def printed(self) -> str:
        return self._printed.read_text(encoding="utf-8")

    def line_with(self, text: str) -> str:
        """The first line that contains this text; waits for it."""
        end = time.monotonic() + SECONDS_MAX
        while True:
            ended = self.process.poll() is not None
            for line in self.printed.splitlines(keepends=True):
                if text in line and line.endswith("\n"):
                    return line.rstrip("\n")
            if ended or time.monotonic() > end:
                raise AssertionError(self.printed)
            time.sleep(0.05)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(SECONDS_MAX)


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Started] = []

    def start_one(*words: str, environment: dict[str, str] | None = None) -> Started:
        started.append(Started(tmp_path, *words, environment=environment or {}))
        return started[-1]

    yield start_one
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def client_of(started: Started) -> TableServiceClient:
    line = started.line_with("Connection string: ")
    return TableServiceClient.from_connection_string(line.partition(": ")[2])


@pytest.mark.slow
def test_a_workspace_with_other_files(start: Start, tmp_path: Path) -> None:
    """`azurite --silent --location DIR --debug FILE` comes from Azurite's own documentation."""
    (tmp_path / "package.json").write_text("{}")
    (tmp_path / "__azurite_db_table__.json").write_text("{}")
    line = ("--silent", "--location", ".", "--debug", "log/debug.log", "--tablePort", "0")
    first = start("azurite", *line)
    listening = first.line_with("successfully listening")
    address = first.line_with("Table endpoint: ").removeprefix("Table endpoint: ")
    assert (
        f"Azurite Table service is successfully listening at {address.rpartition('/')[0]}"
        == listening
    )
    client_of(first).create_table("Kept")
    assert first.stop() == 0
    assert "has tables of Azurite and is not read: `tablestone import " in first.printed
    assert "operation=CreateTable" not in first.printed
    assert " DEBUG " in (tmp_path / "log" / "debug.log").read_text(encoding="utf-8")
    assert " DEBUG " not in first.printed
    again = start("azurite-table", *line)
    again.line_with("Azurite Table service successfully started on 127.0.0.1:")
    assert [table.name for table in client_of(again).list_tables()] == ["Kept"]
    assert (tmp_path / "__tablestone__" / "tablestone.db").exists()
    assert again.stop() == 0


@pytest.mark.slow
def test_the_command_of_azurites_image(start: Start, tmp_path: Path) -> None:
    hosts = ("--blobHost", "0.0.0.0", "--queueHost", "0.0.0.0", "--tableHost", "0.0.0.0")
    environment = {
        "TABLESTONE_DATA": str(tmp_path / "data"),
        "AZURITE_ACCOUNTS": "weather:a2V5",
        "TABLESTONE_PORT": "0",
    }
    started = start("azurite", *hosts, environment=environment)
    started.line_with("is successfully listening at http://127.0.0.1:")
    assert "/weather" in started.line_with("Table endpoint: ")
    assert (tmp_path / "data" / "tablestone.db").exists()
    assert started.printed.count("--blobHost and --queueHost are ignored.") == 1
    assert started.stop() == 0


def between_known_versions(request: Any) -> None:
    """The SDK sets the header itself, so only a hook can change it."""
    request.http_request.headers["x-ms-version"] = "2019-02-03"


@pytest.mark.slow
def test_memory_with_an_access_log_and_an_unknown_version(start: Start, tmp_path: Path) -> None:
    line = ("--inMemoryPersistence", "--tablePort=0", "-L", "--skipApiVersionCheck")
    started = start("azurite", *line, environment={"TABLESTONE_DATA": str(tmp_path / "data")})
    with client_of(started) as client:
        client.create_table("Forgotten", raw_request_hook=between_known_versions)
    started.line_with("operation=CreateTable")
    assert started.stop() == 0
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_tls(start: Start, tmp_path: Path) -> None:
    write_pair(tmp_path, "pem")
    key = make_key()
    chain = x509.load_pem_x509_certificate(certificate_pem(key, "pfx"))
    encryption = serialization.BestAvailableEncryption(b"secret")
    (tmp_path / "both.pfx").write_bytes(
        pkcs12.serialize_key_and_certificates(b"tables", key, chain, None, encryption)
    )
    own = {"TMPDIR": str(tmp_path)}
    for words, subject in (
        (("--cert", "certificate.pem", "--key", "key.pem"), "pem"),
        (("--cert", "both.pfx", "--pwd", "secret"), "pfx"),
    ):
        started = start(
            "azurite", "--inMemoryPersistence", "--tablePort", "0", *words, environment=own
        )
        line = started.line_with("successfully listening at https://127.0.0.1:")
        port = int(line.rpartition(":")[2])
        assert subject_of(served_certificate(("127.0.0.1", port))) == subject
        readable = [path.stat().st_mode & 0o077 for path in tmp_path.glob("tablestone-*")]
        assert readable == ([0] if subject == "pfx" else [])
        assert started.stop() == 0
    assert list(tmp_path.glob("tablestone-*")) == [], "the key is not left behind"


@pytest.mark.slow
def test_a_pfx_file_that_is_none() -> None:
    line = (
        "azurite",
        "--inMemoryPersistence",
        "--tablePort",
        "0",
        "--cert",
        __file__,
        "--pwd",
        "x",
    )
    told = f"{__file__} is no PFX file, or --pwd is not its password; a PEM file needs --key."
    assert run_command(*line) == (2, "", f"tablestone: {told}\n")


def test_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, _, told = run_command("azurite", "--inMemoryPersistence", "--tablePort", port)
    assert (status, told) == (
        2,
        f"tablestone: Cannot listen on 127.0.0.1:{port}: address already in use. --tablePort 0 takes a free port.\n",
    )


def test_the_list_of_commands_has_one_of_the_two() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "tablestone", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "200"},
    ).stdout
    assert "  azurite  " in listed
    assert "azurite-table" not in listed
