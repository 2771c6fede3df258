"""TLS with a real server: who can connect, new certificates, and requests over plain HTTP."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.data.tables import TableServiceClient

from certificates import (
    certificate_pem,
    key_pem,
    make_key,
    served_certificate,
    subject_of,
    trusting,
    write_pair,
)
from cli.worker_processes import workers_of
from server_process import COMMAND, ServerProcess, clean_environment
from signing import signed_headers
from tablestone.server import admission, supervisor, tls_certificate

StartServer = Callable[..., ServerProcess]

SECONDS_MAX = 20.0
"""How long a server may take to notice changed files, on a busy machine."""
LOOK_SECONDS = 0.3
"""How often these servers check the files, instead of every second."""
LOOKING = {
    f"{module.__name__}.LOOK_SECONDS": LOOK_SECONDS for module in (tls_certificate, supervisor)
}
TLS_CLOSE_SECONDS_MAX = 0.5
"""For how long they wait for a client to close, instead of two seconds."""


def self_signed_of(data: Path) -> Path:
    return data / "tls" / "certificate.pem"


def list_tables(server: ServerProcess, connection: http.client.HTTPConnection, **more: str) -> int:
    """The status of a signed Query Tables."""
    target = f"{urlsplit(server.endpoint).path}/Tables"
    headers = signed_headers(server.account_name, server.account_key, method="GET", target=target)
    connection.request("GET", target, headers=dict(headers) | more)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def wait_for(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_file_is_there_before_the_server_listens(tmp_path: Path, workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    command = [COMMAND, "serve", "--tls", "self-signed", "--workers", workers]
    command += ["--data", str(tmp_path / "data"), "--port", str(address[1])]
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment()
    )
    try:
        ends = time.monotonic() + SECONDS_MAX
        while True:
            with suppress(ConnectionRefusedError), socket.create_connection(address):
                assert self_signed_of(tmp_path / "data").exists()
                break
            assert time.monotonic() < ends
            assert server.poll() is None
            time.sleep(0.001)
    finally:
        server.kill()  # SIGTERM may come before it is handled
        server.wait(SECONDS_MAX)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_sdk_over_tls_with_the_self_signed_certificate(
    private_server: StartServer, tmp_path: Path, workers: str
) -> None:
    server = private_server(tmp_path, "--tls", "self-signed", "--workers", workers)
    assert server.endpoint.startswith("https://127.0.0.1:")
    assert server.connection_string.startswith("DefaultEndpointsProtocol=https;")
    with TableServiceClient.from_connection_string(
        server.connection_string, connection_verify=str(self_signed_of(tmp_path))
    ) as service:
        table = service.create_table("made")
        table.create_entity({"PartitionKey": "p", "RowKey": "r", "text": "x" * 30_000})
        assert table.get_entity("p", "r")["text"] == "x" * 30_000
        metadata = table.get_entity("p", "r").metadata
        assert metadata["etag"]
    assert server.stop() == 0
    assert server.stderr == ""


CLIENT = """
import asyncio, sys
from azure.data.tables import TableServiceClient
from azure.data.tables.aio import TableServiceClient as AsyncTableServiceClient

async def ask():
    async with AsyncTableServiceClient.from_connection_string(sys.argv[1]) as service:
        return [table.name async for table in service.list_tables()]

with TableServiceClient.from_connection_string(sys.argv[1]) as service:
    service.create_table("made")
print(asyncio.run(ask()))
"""


def test_what_it_prints_is_all_a_client_needs(private_server: StartServer, tmp_path: Path) -> None:
    """In its own program, because a process's trust is fixed at its start."""
    server = private_server(tmp_path, "--tls", "self-signed")
    line = next(line for line in server.stdout if "SSL_CERT_FILE" in line)
    settings = dict(setting.split("=") for setting in line.partition("#")[0].split()[1:])
    assert settings.keys() == {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"}
    ended = subprocess.run(
        [sys.executable, "-c", CLIENT, server.connection_string],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "['made']\n"), ended.stderr


def test_who_does_not_trust_it_does_not_connect(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--tls", "self-signed")
    client = http.client.HTTPSConnection(*server.address, timeout=20)
    with closing(client), pytest.raises(ssl.SSLCertVerificationError):
        client.connect()


@pytest.mark.parametrize(
    "name",
    [
        *("localhost", "127.0.0.1", "::1", "devstoreaccount1.table.localhost"),
        *("devstoreaccount1-secondary.table.localhost", "tables.example.com", "10.1.2.3"),
    ],
)
def test_the_names_it_is_for(private_server: StartServer, tmp_path: Path, name: str) -> None:
    given = ["--tls-name", "tables.example.com", "--tls-name", "10.1.2.3"]
    server = private_server(tmp_path, "--tls", "self-signed", *given)
    served_certificate(server.address, name=name, trusted=self_signed_of(tmp_path))


def test_other_names_it_is_not_for(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--tls", "self-signed")
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        served_certificate(
            server.address, name="tables.example.com", trusted=self_signed_of(tmp_path)
        )


def test_it_is_the_same_at_the_next_start(private_server: StartServer, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shown = []
    for _ in range(2):
        server = private_server(data, "--tls", "self-signed")
        shown.append(served_certificate(server.address).serial_number)
        assert server.stop() == 0
    assert shown[0] == shown[1]


def test_nobody_else_reads_its_key(private_server: StartServer, tmp_path: Path) -> None:
    private_server(tmp_path, "--tls", "self-signed")
    assert stat.S_IMODE((tmp_path / "tls" / "key.pem").stat().st_mode) == 0o600
    assert "PRIVATE KEY" not in self_signed_of(tmp_path).read_text()


def test_an_engine_without_a_directory_keeps_it_where_caches_are(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(
        tmp_path,
        *("--tls", "self-signed", "--engine", "memory"),
        environment={"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "caches")},
    )
    line = next(line for line in server.stdout if line.startswith("Self-signed certificate: "))
    certificate = Path(line.partition(": ")[2].strip())
    assert certificate.is_relative_to(tmp_path)
    served_certificate(server.address, trusted=certificate)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, ...]:
    certificate, key = write_pair(tmp_path, "first", "rsa")
    return ("--tls-certificate", str(certificate), "--tls-key", str(key))


def shown_subject(server: ServerProcess) -> str:
    return subject_of(served_certificate(server.address))


def test_certificate_and_key_in_one_file(private_server: StartServer, tmp_path: Path) -> None:
    key = make_key()
    file = tmp_path / "both.pem"
    file.write_bytes(certificate_pem(key, "both") + key_pem(key))
    server = private_server(tmp_path / "data", "--tls-certificate", str(file))
    assert shown_subject(server) == "both"
    assert "Self-signed" not in "".join(server.stdout)


def shown_by_all(server: ServerProcess, subject: str) -> bool:
    """Whether every worker shows it to new connections."""
    return all(shown_subject(server) == subject for _ in range(10))


class Load:
    """Clients that send requests all the time, on a new connection each or on one for all; counts what failed."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.asked = 0
        self.failures: list[object] = []
        self._ends = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(requests,)) for requests in (1, 1, 1_000_000)
        ]

    def _ask(self, requests_of_a_connection: int) -> None:
        while not self._ends.is_set():
            context = trusting(None)
            client = http.client.HTTPSConnection(*self.server.address, timeout=20, context=context)
            with closing(client):
                for _ in range(requests_of_a_connection):
                    if self._ends.is_set():
                        break
                    try:
                        status = list_tables(self.server, client)
                    except OSError as error:
                        self.failures.append(error)
                        break
                    self.asked += 1
                    time.sleep(0.02)
                    if status != 200:
                        self.failures.append(status)

    @classmethod
    @contextmanager
    def on(cls, server: ServerProcess) -> Iterator[Load]:
        load = cls(server)
        for thread in load._threads:
            thread.start()
        try:
            yield load
        finally:
            load._ends.set()
            for thread in load._threads:
                thread.join()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_new_certificate_under_load(
    private_server: StartServer, tmp_path: Path, pair: tuple[str, ...], workers: str
) -> None:
    """The kind of key changes each time, and clients that prefer the old kind must not get the old certificate."""
    server = private_server(tmp_path / "data", *pair, "--workers", workers, constants=LOOKING)
    with Load.on(server) as load:
        for subject, kind in (("second", "ec"), ("third", "rsa"), ("fourth", "rsa")):
            write_pair(tmp_path, subject, kind)
            wait_for(partial(shown_by_all, server, subject))
        asked = load.asked
        wait_for(lambda: load.asked > asked + 10)
    assert load.failures == []
    assert server.stop() == 0
    assert server.stderr == ""


BROKEN_PAIRS: dict[str, Callable[[Path], object]] = {
    "another key": lambda place: (place / "key.pem").write_bytes(key_pem(make_key())),
    "half a certificate": lambda place: os.truncate(place / "certificate.pem", 300),
    "no certificate": lambda place: (place / "certificate.pem").unlink(),
    "an encrypted key": lambda place: (place / "key.pem").write_bytes(
        key_pem(make_key(), b"secret")
    ),
}


@pytest.mark.parametrize(
    ("break_pair", "workers"),
    [*((change, "1") for change in BROKEN_PAIRS.values()), (BROKEN_PAIRS["another key"], "2")],
    ids=[*BROKEN_PAIRS, "another key, seen by two workers"],
)
def test_a_broken_pair_is_logged_and_the_one_before_stays(
    private_server: StartServer,
    tmp_path: Path,
    pair: tuple[str, ...],
    break_pair: Callable[[Path], object],
    workers: str,
) -> None:
    server = private_server(tmp_path / "data", *pair, "--workers", workers, constants=LOOKING)
    with Load.on(server) as load:
        break_pair(tmp_path)
        wait_for(lambda: "The previous certificate stays in use: " in server.stderr)
        assert shown_by_all(server, "first")
        write_pair(tmp_path, "mended")
        wait_for(partial(shown_by_all, server, "mended"))
    assert load.failures == []
    server.stop()
    assert server.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_worker_that_replaces_another_has_the_last_pair_that_could_be_used(
    private_server: StartServer, tmp_path: Path, pair: tuple[str, ...]
) -> None:
    server = private_server(tmp_path / "data", *pair, "--workers", "2", constants=LOOKING)
    write_pair(tmp_path, "second")
    wait_for(partial(shown_by_all, server, "second"))
    time.sleep(2 * LOOK_SECONDS)  # until the supervisor has seen it too
    BROKEN_PAIRS["half a certificate"](tmp_path)
    wait_for(lambda: "The previous certificate stays in use: " in server.stderr)
    before = workers_of(server)
    os.kill(min(before), signal.SIGKILL)
    wait_for(lambda: len(workers_of(server) - before) == 1)
    ends = time.monotonic() + 4 * LOOK_SECONDS
    while time.monotonic() < ends:
        assert shown_by_all(server, "second")
        time.sleep(0.2)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_no_version_before_1_2(
    private_server: StartServer, tmp_path: Path, pair: tuple[str, ...]
) -> None:
    server = private_server(tmp_path / "data", *pair)
    spoken = {}
    for version in (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = trusting(None)
        context.set_ciphers("ALL:@SECLEVEL=0")  # the client would speak it
        context.minimum_version = context.maximum_version = version
        with socket.create_connection(server.address, timeout=20) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                    spoken[version.name] = connection.version()
            except ssl.SSLError:
                spoken[version.name] = None
    assert spoken == {"TLSv1_1": None, "TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}


NO_TLS = {
    "http": b"GET /devstoreaccount1/Tables HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "nothing": b"",
    "noise": bytes(range(256)),
    "half a greeting": bytes.fromhex("1603010200010001fc0303"),
}


@pytest.mark.parametrize("sent", NO_TLS.values(), ids=NO_TLS)
def test_what_is_no_tls_is_a_closed_connection_and_no_error_in_the_log(
    private_server: StartServer, tmp_path: Path, pair: tuple[str, ...], sent: bytes
) -> None:
    server = private_server(tmp_path / "data", *pair, "--log-level", "warning")
    with socket.create_connection(server.address, timeout=20) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            assert not connection.recv(1000).startswith(b"HTTP/")
    assert shown_subject(server) == "first"
    assert server.stop() == 0
    assert [" plain HTTP " in line for line in server.stderr_lines] == [True] * (b"GET " in sent)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_client_that_does_not_close_does_not_delay_a_stop(
    private_server: StartServer, tmp_path: Path, pair: tuple[str, ...], workers: str
) -> None:
    """Every idle connection in an SDK's pool is like that."""
    server = private_server(
        tmp_path / "data",
        *(*pair, "--workers", workers),
        constants={f"{admission.__name__}.TLS_CLOSE_SECONDS_MAX": TLS_CLOSE_SECONDS_MAX},
    )
    client = http.client.HTTPSConnection(*server.address, timeout=20, context=trusting(None))
    with closing(client):
        assert list_tables(server, client) == 200
        started = time.monotonic()
        assert server.stop(signal.SIGTERM) == 0
        assert time.monotonic() - started < TLS_CLOSE_SECONDS_MAX + 3
    assert server.stderr == ""


def test_https_only_over_https(
    private_server: StartServer, tmp_path: Path, pair: tuple[str, ...]
) -> None:
    server = private_server(tmp_path / "data", *pair, "--https-only", "true")
    client = http.client.HTTPSConnection(*server.address, timeout=20, context=trusting(None))
    with closing(client):
        assert list_tables(server, client) == 200
        lying = {"X-Forwarded-Proto": "http"}
        assert list_tables(server, client, **lying) == 200
    server.stop()
    assert server.stderr == ""
