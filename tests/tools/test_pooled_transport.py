"""The tools' own transport: every form of an answer, reused connections, and every way to lose one."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from azure.core.exceptions import AzureError, IncompleteReadError, ServiceResponseError
from azure.core.rest import HttpRequest

from tablestone.model.keys import EntityKey
from tablestone.tools.client import Query, TableEndpoint
from tablestone.tools.connection import LOCAL_ACCOUNT, LOCAL_KEY, Connection, Scheme
from tablestone.tools.errors import ServiceError, TransferFailed
from tablestone.tools.queries import TableReader
from tablestone.tools.transport import AnswerLimits, PooledTransport

HEAD = b"HTTP/1.1 202 Accepted\r\nContent-Type: multipart/mixed; boundary=b\r\n"
WHOLE = HEAD + b"Content-Length: 5\r\n\r\nhello"
END, RESET = b"END", b"RESET"
"""Instead of answering, the service closes the connection, or resets it."""


class Service:
    """Sends these pieces of bytes for each request, a list for each connection; `requests` has what it received."""

    def __init__(self, *connections: list[bytes]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/account/Table()?$top=1"
        self.requests: list[bytes] = []
        self.closed = threading.Event()
        self._connections = connections
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for answers in self._connections:
            connection, _ = self.listener.accept()
            with connection:
                connection.settimeout(30)
                self._answer(connection, answers)
            self.closed.set()

    def _answer(self, connection: socket.socket, answers: list[bytes]) -> None:
        for answer in answers:
            if answer == END:
                return
            request = b""
            while not request.endswith(b"body" if request.startswith(b"POST") else b"\r\n\r\n"):
                request += connection.recv(65536)
            self.requests.append(request)
            if answer == RESET:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                return
            for piece in (answer[:20], answer[20:]):
                connection.sendall(piece)


@contextmanager
def served(*connections: list[bytes]) -> Iterator[tuple[Service, PooledTransport]]:
    service = Service(*connections)
    with PooledTransport(service.url) as transport:
        yield service, transport
    service.listener.close()


def get(url: str) -> HttpRequest:
    return HttpRequest("GET", url, headers={"Accept": "x", "User-Agent": "y"})


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (WHOLE, b"hello"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", b"hello"),
        (HEAD + b"Content-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE, b"hello"),
        (HEAD + b"Content-Length: 300000\r\n\r\n" + b"x" * 300_000, b"x" * 300_000),
    ],
)
def test_an_answer_is_read_and_its_connection_used_again(answer: bytes, body: bytes) -> None:
    with served([answer, answer]) as (service, transport):
        for _ in range(2):
            response = transport.send(get(service.url))
            assert response.content == body
            assert response.status_code == (204 if b" 204 " in answer else 202)
    expected = (
        f"GET /account/Table()?$top=1 HTTP/1.1\r\nHost: {service.url.split('/')[2]}\r\n"
        "Accept-Encoding: identity\r\nAccept: x\r\nUser-Agent: y\r\n\r\n"
    )
    assert service.requests == [expected.encode()] * 2


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello",
        HEAD + b"\r\nhello",
        b"HTTP/1.0 202 Accepted\r\nContent-Length: 5\r\n\r\nhello",
        WHOLE,
    ],
)
def test_a_connection_that_the_service_closes_is_not_used_again(answer: bytes) -> None:
    with served([answer], [WHOLE]) as (service, transport):
        for _ in range(2):
            assert transport.send(get(service.url)).content == b"hello"
            assert service.closed.wait(30)
    assert len(service.requests) == 2


def test_a_body_is_sent_with_its_length() -> None:
    with served([WHOLE]) as (service, transport):
        transport.send(HttpRequest("POST", service.url, content=b"the body"))
    head, _, body = service.requests[0].partition(b"\r\n\r\n")
    assert (head.split(b"\r\n").count(b"Content-Length: 8"), body) == (1, b"the body")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (WHOLE[:-1], IncompleteReadError),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n", IncompleteReadError),
        (HEAD, IncompleteReadError),
        (RESET, ServiceResponseError),
        (b"SMTP 220 hello, this is no HTTP\r\n\r\n", ServiceResponseError),
        (b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", AzureError),
        (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", ServiceResponseError),
    ],
)
def test_an_answer_that_is_lost(answer: bytes, error: type[Exception]) -> None:
    """The next request gets a connection of its own."""
    with served([answer], [WHOLE]) as (service, transport):
        with pytest.raises(error):
            transport.send(get(service.url))
        assert transport.send(get(service.url)).content == b"hello"


def test_no_service() -> None:
    with served() as (service, transport):
        service.listener.close()
        with pytest.raises(
            AzureError, match=r"^127\.0\.0\.1:\d+: Connection refused, so no server runs there$"
        ):
            transport.send(get(service.url))


def test_a_page_that_is_asked_for_after_the_end_is_not_asked_for_again() -> None:
    """A command that ends early, as for `| head`, closes its endpoint while a thread reads a page ahead."""
    given = Connection("http://127.0.0.1:9/account", LOCAL_ACCOUNT, Scheme.ACCOUNT_KEY, LOCAL_KEY)
    with TableEndpoint(given) as endpoint:
        reader = TableReader(endpoint)
    with pytest.raises(TransferFailed, match=r"^Stopped\.$"):
        reader.page(Query("Weather"), None)


def test_a_service_without_tls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(
            AzureError, match="is not TLS; for a server of plain HTTP, use an http:"
        ):
            PooledTransport(url).send(get(url))


def test_a_service_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        transport = PooledTransport(url, limits=AnswerLimits(0.05))
        with (
            transport,
            pytest.raises(ServiceResponseError, match=r"^no answer came within 0\.05 s$"),
        ):
            transport.send(get(url))


DRIPPED = [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[b"1\r\nx\r\n"] * 400]
LIMITS: list[tuple[str, AnswerLimits, str]] = [
    # what never ends, the limits, the sentence
    (
        "the bytes come slowly",
        AnswerLimits(0.3, of_whole_answer=True),
        "no whole answer came within 0.3 s",
    ),
    ("the body is large", AnswerLimits(30, bytes_max=1024), "the answer is larger than 0 MiB"),
]


@pytest.mark.parametrize(
    ("limits", "sentence"), [each[1:] for each in LIMITS], ids=[each[0] for each in LIMITS]
)
def test_an_answer_that_does_not_end(limits: AnswerLimits, sentence: str) -> None:
    """The service sends a byte every 50 ms: no pause is too long, and the body never ends."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                for piece in DRIPPED:
                    connection.sendall(
                        piece if limits.bytes_max > 1024 else piece + b"1\r\nx\r\n" * 300
                    )
                    if ended.wait(0.05):
                        return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        transport = PooledTransport(url, limits=limits)
        with (
            transport,
            pytest.raises((ServiceResponseError, IncompleteReadError), match=f"^{sentence}$"),
        ):
            transport.send(get(url))
        ended.set()
        thread.join(30)


def test_a_request_that_is_refused_before_it_is_read() -> None:
    """The client is still sending when the answer comes and the connection ends."""
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(refusal)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1_000_000):
                    pass

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with PooledTransport(url) as transport:
            answer = transport.send(HttpRequest("POST", url, content=b"x" * 5_000_000))
        thread.join(30)
    assert (answer.status_code, answer.content) == (413, b"no")


def test_a_proxy_of_the_environment_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests handles that; the tools' own transport does not support proxies."""
    missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    service = Service([missing])
    monkeypatch.setenv("http_proxy", "/".join(service.url.split("/")[:3]))
    monkeypatch.setenv("no_proxy", "")
    url = "http://tables.invalid/account"
    given = Connection(url, LOCAL_ACCOUNT, Scheme.ACCOUNT_KEY, LOCAL_KEY)
    with TableEndpoint(given) as endpoint:
        assert not endpoint.table_exists("Weather")
    service.listener.close()
    assert service.requests[0].startswith(b"GET http://tables.invalid/account/Weather()?")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            b"<?xml version='1.0'?><Error><Code>InvalidUri</Code><Message>It&apos;s no name.\n"
            b"RequestId:1</Message></Error>",
            "InvalidUri: It's no name.",
        ),
        (b"<m:error><m:code>A</m:code><m:message xml:lang='en'>B</m:message></m:error>", "A: B"),
        (b"<Error><Code/><Message>Only this.</Message></Error>", "HTTP status 400: Only this."),
        (b"<html>", "HTTP status 400"),
    ],
)
def test_an_error_in_xml_is_shown(body: bytes, told: str) -> None:
    """The service answers so before it knows the requested format, and Azurite for a bad name."""
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(body)
    with served([head + body]) as (service, _):
        url = service.url.rpartition("/")[0]
        given = Connection(url, LOCAL_ACCOUNT, Scheme.ACCOUNT_KEY, LOCAL_KEY)
        with TableEndpoint(given) as endpoint, pytest.raises(ServiceError) as raised:
            endpoint.get("Weather", EntityKey("p", "r"))
    assert str(raised.value) == told
