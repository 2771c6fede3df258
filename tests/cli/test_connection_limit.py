"""More connections than a server allows: idle ones are closed; if none is idle, the server says that it is busy."""

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from cli.worker_processes import wait_until
from server_process import ServerProcess
from stress.crash.writers import Connection, UnexpectedAnswerError

StartServer = Callable[..., ServerProcess]

LIMIT = 12
IDLE_SECONDS = 0.2
LIMITED = (f"--max-connections={LIMIT}",)
CONSTANTS = {
    "tablestone.server.admission.IDLE_SECONDS_MIN": IDLE_SECONDS,
    "tablestone.server.admission.PAUSE_SECONDS": 0.0,
}
SECONDS_MAX = 10.0
TOLD = "as many as this process serves: a new connection closes an idle one; if none is idle, requests are refused."
HALF_A_BODY = (
    b"POST /devstoreaccount1/Tables HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\nAuthorization: SharedKey devstoreaccount1:AAAA\r\n\r\n{"
)
"""A request that stays open until the rest of its body arrives, whatever the answer will be."""


def connected(server: ServerProcess, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(server.address, timeout=SECONDS_MAX)
    connection.sendall(sent)
    return connection


def has_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def sockets_of(server: ServerProcess) -> int:
    opened = Path(f"/proc/{server.process.pid}/fd").iterdir()
    return sum(each.is_symlink() and str(each.readlink()).startswith("socket:") for each in opened)


def ask(server: ServerProcess) -> int:
    with Connection(server) as one:
        one.send("GET", "/Tables", expected=200)
    return 200


def has_room(server: ServerProcess) -> bool:
    """The server notices a closed connection a little later than the client that closed it."""
    try:
        return ask(server) == 200
    except UnexpectedAnswerError as answer:
        if ": 503 " not in str(answer):
            raise
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    "begun", [b"", b"\r\n", b"GET /devsto"], ids=["silent", "an empty line", "half a head"]
)
@pytest.mark.parametrize("workers", [1, 2])
def test_connections_idle_for_longest_are_closed_first(
    private_server: StartServer, tmp_path: Path, workers: int, begun: bytes
) -> None:
    server = private_server(tmp_path, *LIMITED, f"--workers={workers}", constants=CONSTANTS)
    with ExitStack() as stack:
        opened = [stack.enter_context(connected(server, begun)) for _ in range(3 * LIMIT)]
        time.sleep(2 * IDLE_SECONDS)
        wait_until(lambda: has_room(server))  # a busy machine accepts the connections late
        for _ in range(LIMIT):
            assert ask(server) == 200
        ended = [has_ended(each) for each in opened]
        assert any(ended)
        younger = [stack.enter_context(connected(server)) for _ in range(LIMIT // 2)]
        assert ask(server) == 200
        assert not any(map(has_ended, younger)), "others are idle for longer"
    assert server.stop() == 0
    assert "Traceback" not in server.stderr
    assert TOLD in server.stderr


def test_a_connection_that_was_used_is_idle_from_its_answer_on(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, *LIMITED, "--workers=1", constants=CONSTANTS)
    with ExitStack() as stack:
        used = stack.enter_context(Connection(server))
        silent = [stack.enter_context(connected(server)) for _ in range(LIMIT - 3)]
        time.sleep(2 * IDLE_SECONDS)
        used.send("GET", "/Tables", expected=200)
        silent += [stack.enter_context(connected(server)) for _ in range(LIMIT // 2)]
        used.send("GET", "/Tables", expected=200)
        wait_until(lambda: any(map(has_ended, silent)))
    assert server.stop() == 0


def test_a_tls_peer_is_not_waited_for(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(
        tmp_path, *LIMITED, "--workers=1", "--tls=self-signed", constants=CONSTANTS
    )
    context = ssl.create_default_context(cafile=tmp_path / "tls" / "certificate.pem")
    with ExitStack() as stack:

        def handshaken() -> ssl.SSLSocket:
            return stack.enter_context(
                context.wrap_socket(connected(server), server_hostname="localhost")
            )

        before = sockets_of(server)
        for _ in range(2 * LIMIT):  # none of which the client closes
            handshaken()
        time.sleep(2 * IDLE_SECONDS)
        late = handshaken()
        late.sendall(b"GET /nobody HTTP/1.1\r\nHost: here\r\n\r\n")
        assert late.recv(65536).startswith(b"HTTP/1.1 404 ")
        wait_until(lambda: sockets_of(server) < before + LIMIT)
    assert server.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_connections_without_a_handshake_count_and_end_first(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    server = private_server(
        tmp_path, *LIMITED, f"--workers={workers}", "--tls=self-signed", constants=CONSTANTS
    )
    context = ssl.create_default_context(cafile=tmp_path / "tls" / "certificate.pem")
    with ExitStack() as stack:

        def handshaken() -> ssl.SSLSocket:
            return stack.enter_context(
                context.wrap_socket(connected(server), server_hostname="localhost")
            )

        begun = [b"", b"\x16\x03\x01\x02\x00\x01"]
        silent = [stack.enter_context(connected(server, each)) for each in begun * LIMIT]
        time.sleep(2 * IDLE_SECONDS)
        complete = [handshaken() for _ in range(LIMIT // 2)]
        for each in complete:
            each.sendall(b"GET /nobody HTTP/1.1\r\nHost: here\r\n\r\n")
            assert each.recv(65536).startswith(b"HTTP/1.1 404 ")
        wait_until(lambda: sum(not has_ended(each) for each in silent) < LIMIT)
    assert server.stop() == 0
    assert "Traceback" not in server.stderr
    assert TOLD in server.stderr


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_handshake_has_as_long_as_a_head(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    server = private_server(
        tmp_path,
        f"--workers={workers}",
        "--tls=self-signed",
        constants={"tablestone.limits.REQUEST_HEAD_SECONDS_MAX": 1},
    )
    with connected(server) as silent:
        assert silent.recv(1) == b""
    assert server.stop() == 0
    assert "Traceback" not in server.stderr


@pytest.fixture(params=[1, 2])
def full(
    private_server: StartServer, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[ServerProcess, ExitStack]]:
    """A server whose connections all have a request in progress."""
    server = private_server(tmp_path, *LIMITED, f"--workers={request.param}", constants=CONSTANTS)
    with ExitStack() as stack:
        for _ in range(LIMIT):
            stack.enter_context(connected(server, HALF_A_BODY))
        time.sleep(2 * IDLE_SECONDS)
        yield server, stack


def refused(server: ServerProcess, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(*server.address, timeout=SECONDS_MAX)
    try:
        connection.request("POST", "/devstoreaccount1/Tables", b"{}" * 100, headers)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def test_a_server_without_room_says_that_it_is_busy(full: tuple[ServerProcess, ExitStack]) -> None:
    server, stack = full
    response, body = refused(
        server, Accept="application/json;odata=nometadata", **{"x-ms-client-request-id": "mine"}
    )
    error = json.loads(body)["odata.error"]
    assert (response.status, error["code"]) == (503, "ServerBusy")
    assert error["message"]["value"].startswith("The server is busy.\nRequestId:")
    assert response.headers["x-ms-error-code"] == "ServerBusy"
    assert response.headers["x-ms-request-id"] in error["message"]["value"]
    assert response.headers["x-ms-client-request-id"] == "mine"
    assert response.headers["Connection"] == "close"
    parsedate_to_datetime(response.headers["Date"])
    response, body = refused(server)
    assert response.status == 503
    assert ET.fromstring(body)[0].text == "ServerBusy"  # noqa: S314 - our own server's
    assert TOLD in server.stderr
    stack.close()
    wait_until(lambda: has_room(server))
    assert server.stop() == 0
    assert "Traceback" not in server.stderr


def test_a_connection_that_has_just_become_idle_is_not_closed(
    private_server: StartServer, tmp_path: Path
) -> None:
    """A client between two requests, or one that has just connected, keeps its connection."""
    constants = {**CONSTANTS, "tablestone.server.admission.IDLE_SECONDS_MIN": 60.0}
    server = private_server(tmp_path, *LIMITED, "--workers=1", constants=constants)
    with ExitStack() as stack:
        opened = [stack.enter_context(connected(server)) for _ in range(LIMIT)]
        response, _ = refused(server)
        assert response.status == 503
        assert not any(map(has_ended, opened))
    assert server.stop() == 0
