"""Bad input to a real server: each request gets its error, the next request works, and no data changes."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from server_process import start_server
from wire.bad_input import bodies, envelopes
from wire.bad_input.bad_request import ENTITY, INSERT, JSON, TABLE, BadRequest
from wire.bad_input.envelopes import NOT_HTTP
from wire.bad_input.raw_http import PIECE_BYTES, Answer, RawClient, in_pieces, read_answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENDLESS_BYTES_MAX = 128 * 1024 * 1024
"""The server must have answered before it has received this much of an endless body."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    """A server of our own, because its whole content is compared."""
    server = start_server(tmp_path_factory.mktemp("bad_input"))
    try:
        client = RawClient(server)
        table = client.ask("POST", "/Tables", f'{{"TableName":"{TABLE}"}}'.encode())
        assert table.status == 201, table
        for row_key in ("kept", "also kept"):
            body = f'{{"PartitionKey":"p","RowKey":"{row_key}","n":1,"s":"x"}}'.encode()
            assert client.ask("POST", f"/{TABLE}", body).status == 201
        yield client
        assert server.stop() == 0
        assert "Traceback" not in server.stderr
    finally:
        server.kill()


@pytest.fixture
def unchanged(client: RawClient) -> Iterator[None]:
    """After every test, the next request works and the data is unchanged."""
    before = client.everything()
    yield
    read = client.ask("GET", ENTITY)
    assert read.status == 200, read
    assert client.everything() == before


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("case", bodies.CASES + envelopes.CASES, ids=lambda case: case.name)
def test_bad_input_gets_its_error(client: RawClient, case: BadRequest) -> None:
    answer = client.send(in_pieces(client.bytes_of(case)), torn=case.torn)
    if answer is None:
        assert not case.codes, "the server hung up without an answer"
        return
    assert answer.status in case.statuses, answer
    if case.codes:
        assert_is_the_services_error(answer, case.codes)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("content", [c for _, c in NOT_HTTP], ids=[name for name, _ in NOT_HTTP])
def test_what_is_no_http_is_refused(client: RawClient, content: bytes) -> None:
    answer = client.send(in_pieces(content), torn=True)
    assert answer is None or 400 <= answer.status < 500 or answer.status == 505, answer


@pytest.mark.usefixtures("unchanged")
def test_an_endless_body_with_a_length_is_refused(client: RawClient) -> None:
    """The head announces one tebibyte, and sending begins (wire 9: 413 over 4 MiB)."""
    case = BadRequest("endless", "wire 9", content_length=str(1024**4))
    answer = client.send(endless(client.bytes_of(case), b"x" * PIECE_BYTES))
    assert_is_too_large(answer)


@pytest.mark.usefixtures("unchanged")
def test_an_endless_body_in_chunks_is_refused(client: RawClient) -> None:
    case = BadRequest(
        "endless", "wire 9", content_length="", more_headers=(("Transfer-Encoding", "chunked"),)
    )
    chunk = b"%x\r\n%b\r\n" % (PIECE_BYTES, b"x" * PIECE_BYTES)
    answer = client.send(endless(client.bytes_of(case), chunk))
    assert_is_too_large(answer)


@pytest.mark.usefixtures("unchanged")
def test_endless_headers_are_refused(client: RawClient) -> None:
    start = b"GET / HTTP/1.1\r\nHost: x\r\nx-ms-client-request-id: "
    answer = client.send(endless(start, b"x" * PIECE_BYTES))
    assert answer is None or 400 <= answer.status < 500, answer


@pytest.mark.usefixtures("unchanged")
def test_a_client_that_hangs_up_within_its_body_changes_nothing(client: RawClient) -> None:
    """A reset, not an orderly end: the server gets it while it reads (RFC 9112 8)."""
    case = BadRequest("reset", "RFC 9112 8", body=INSERT[:20], content_length="41")
    with socket.create_connection(client.address) as connection:
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # struct linger: on, 0 s; close sends RST
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.sendall(client.bytes_of(case))


@pytest.mark.usefixtures("unchanged")
def test_a_slow_body_holds_nobody_up(client: RawClient) -> None:
    """Ten clients stop within their bodies, and another's request is answered."""
    case = BadRequest("stalled", "RFC 9112 8", body=INSERT[:20], content_length="41")
    stalled = [socket.create_connection(client.address) for _ in range(10)]
    try:
        for connection in stalled:
            connection.sendall(client.bytes_of(case))
        assert client.ask("GET", ENTITY).status == 200
    finally:
        for connection in stalled:
            connection.close()


UNREAD_BODIES = (
    BadRequest("JSON cut short", "wire 5.5", body=INSERT[:-1]),
    BadRequest(
        "a body nobody may send",
        "auth 5.2; RFC 9112 9.3",
        codes=("InvalidHeaderValue",),
        body=INSERT,
        more_headers=(("x-ms-version", "2020-12-06"),),
    ),
    BadRequest(
        "a body for a resource that takes none",
        "wire 3.10; RFC 9112 9.3",
        codes=("MethodNotAllowed",),
        statuses=(405,),
        path="/Tables('x')",
        body=INSERT * 1000,
    ),
)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("case", UNREAD_BODIES, ids=lambda case: case.name)
def test_the_next_request_on_the_same_connection_works(client: RawClient, case: BadRequest) -> None:
    """The rest of a refused body is not read as the next request."""
    good = BadRequest("good", "wire 3.9", method="GET", path=ENTITY, content_type="")
    with socket.create_connection(client.address) as connection:
        connection.sendall(client.bytes_of(case))
        refused = read_answer(connection)
        assert refused is not None
        assert refused.status in case.statuses, refused
        assert_is_the_services_error(refused, case.codes)
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(client.bytes_of(good))
        answer = read_answer(connection)
    assert answer is None or answer.status == 200, answer  # None: it may also hang up


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[RawClient]:
    """A server whose time limit of half a minute is a second; nothing else is changed."""
    server = start_server(
        tmp_path / "data",
        constants={
            "tablestone.limits.BODY_READ_SECONDS_MAX": 1,
            "tablestone.limits.REQUEST_HEAD_SECONDS_MAX": 1,
        },
    )
    try:
        yield RawClient(server)
    finally:
        server.kill()


@pytest.mark.slow
def test_a_body_that_stops_coming_is_given_up(impatient: RawClient) -> None:
    """The connection stays open and nothing comes (wire 9: OperationTimedOut)."""
    before = impatient.everything()
    case = BadRequest("stalled", "RFC 9112 8", body=INSERT[:20], content_length="41")
    answer = impatient.send([impatient.bytes_of(case)])
    assert answer is not None
    assert answer.status == 500, answer
    assert_is_the_services_error(answer, ("OperationTimedOut",))
    assert impatient.everything() == before


@pytest.mark.slow
@pytest.mark.parametrize("is_expected", [False, True], ids=["stalled", "not sent"])
def test_a_connection_ends_after_an_answer_to_half_a_body(
    impatient: RawClient, *, is_expected: bool
) -> None:
    """Bytes that come later are no request: neither the rest of the body nor one that a client hides in it."""
    given = impatient.bytes_of(
        BadRequest("half", "RFC 9112 9.6", body=INSERT[:20], content_length="41")
    )
    if is_expected:  # a client that waits for 100 (Continue), and is refused before
        given = (
            b"POST /nobody/Tables HTTP/1.1\r\nHost: somewhere\r\nContent-Length: 41\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
    request = b"GET /nobody/Tables HTTP/1.1\r\nHost: somewhere\r\n\r\n"
    with socket.create_connection(impatient.address, timeout=20) as connection:
        connection.sendall(given)
        said = connection.recv(65536)
        assert said.startswith(b"HTTP/1.1 404 " if is_expected else b"HTTP/1.1 500 ")
        assert b"\r\nconnection: close\r\n" in said.lower()
        connection.sendall(b" " * 41 + request)
        rest = b""
        with suppress(ConnectionResetError):
            while piece := connection.recv(65536):
                rest += piece
        assert b"HTTP/1.1" not in rest


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"\r\n", b"\r\n\r\n"])
def test_a_connection_that_asks_nothing_is_ended(impatient: RawClient, sent: bytes) -> None:
    """Some thousands of them would leave no room for other clients."""
    with socket.create_connection(impatient.address, timeout=10) as connection:
        connection.sendall(sent)
        assert connection.recv(1) == b""


@pytest.mark.slow
def test_an_empty_line_after_an_answer_does_not_keep_the_connection(impatient: RawClient) -> None:
    request = b"GET /nobody/Tables HTTP/1.1\r\nHost: somewhere\r\n\r\n"
    with socket.create_connection(impatient.address, timeout=10) as connection:
        for _ in range(2):
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 404 ")
            time.sleep(1.5)  # one that has been answered is kept for longer
        connection.sendall(b"\r\n")
        assert connection.recv(1) == b""


@pytest.mark.slow
def test_a_head_that_does_not_come_ends_its_connection(impatient: RawClient) -> None:
    """A request line and half a header, and then nothing: the server closes the connection, and answers others."""
    with socket.create_connection(impatient.address, timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: somewhere\r\nx-half: ")
        impatient.everything()
        assert connection.recv(1) == b""


def test_a_valid_request_sent_in_the_same_way_is_accepted(client: RawClient) -> None:
    """The cases fail because of what is wrong with them, not because of how they are sent."""
    case = BadRequest(
        "good",
        "wire 3.10",
        method="PUT",
        path=f"/{TABLE}(PartitionKey='p',RowKey='canary')",
        body=b'{"n":1}',
        content_type=JSON,
    )
    before = client.everything()
    answer = client.send(in_pieces(client.bytes_of(case)))
    assert answer is not None
    assert answer.status == 204, answer
    assert client.everything() != before


def endless(start: bytes, piece: bytes) -> Iterator[bytes]:
    yield start
    for _ in range(ENDLESS_BYTES_MAX // len(piece)):
        yield piece
    pytest.fail(f"no answer after {ENDLESS_BYTES_MAX} bytes")


def assert_is_too_large(answer: Answer | None) -> None:
    assert answer is not None, "the server hung up without an answer"
    assert answer.status == 413, answer
    assert answer.headers["x-ms-error-code"] == "RequestBodyTooLarge"
    assert_is_the_services_error(answer, ("RequestBodyTooLarge",))


def assert_is_the_services_error(answer: Answer, codes: tuple[str, ...]) -> None:
    """Its code, and the form of wire 8.1: text, request id and time on a line each."""
    assert answer.code in codes, answer
    text, request_id, time = answer.message.rsplit("\n", 2)
    assert text
    assert request_id == f"RequestId:{answer.headers['x-ms-request-id']}"
    assert time.startswith("Time:20")
