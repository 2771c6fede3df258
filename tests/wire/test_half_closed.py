"""A client that closes its sending side after a request still gets the answers to all complete requests."""

import json
import socket
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from server_process import ServerProcess, start_server
from wire.service_under_test import ACCOUNT, default_headers

_SECONDS_MAX = 20.0


@pytest.fixture(scope="module", params=["1", "2"], ids=["one worker", "two workers"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    data_dir: Path = tmp_path_factory.mktemp("half")
    started = start_server(data_dir, "--workers", request.param)
    yield started
    assert started.stop() == 0


def _request(method: str, path: str, body: bytes = b"") -> bytes:
    target = f"/{ACCOUNT}{path}"
    headers = [*default_headers(method, target, formatdate(usegmt=True), (), body)]
    if body:
        headers.append(("Content-Length", str(len(body))))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + body


def _answered(server: ServerProcess, sent: bytes) -> bytes:
    """All that comes back until the server ends the connection, which it must do soon."""
    with socket.create_connection(server.address, timeout=_SECONDS_MAX) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def test_a_read_and_a_write_are_answered(server: ServerProcess) -> None:
    for number in range(20):
        body = json.dumps({"TableName": f"half{number}"}).encode()
        assert _answered(server, _request("POST", "/Tables", body)).startswith(b"HTTP/1.1 201 ")
    answer = _answered(server, _request("GET", "/Tables"))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b'"TableName"') == 20
    for number in range(20):
        answer = _answered(server, _request("DELETE", f"/Tables('half{number}')"))
        assert answer.startswith(b"HTTP/1.1 204 ")


@pytest.mark.parametrize("rest", [b"", b"GET /devsto", _request("POST", "/Tables", b"{}")[:-1]])
def test_what_came_whole_is_answered_and_no_more(server: ServerProcess, rest: bytes) -> None:
    whole = _request("GET", "/Tables") if rest else _request("GET", "/Tables") * 2
    answer = _answered(server, whole + rest)
    assert answer.count(b"HTTP/1.1 200 ") == (1 if rest else 2)
    assert answer.count(b"HTTP/1.1 ") == answer.count(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"", b"GET /devsto", _request("POST", "/Tables", b"{}")[:-1]])
def test_what_did_not_come_whole_ends(server: ServerProcess, sent: bytes) -> None:
    assert _answered(server, sent) == b""
