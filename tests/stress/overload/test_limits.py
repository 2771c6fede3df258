"""Each limit of a server, reached: the answer is ServerBusy, metrics name the limit, and other clients are served."""

import re
import select
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline import PipelineResponse
from azure.data.tables import TableServiceClient

from cli.worker_processes import wait_until
from server_process import ServerProcess
from signing import signed_headers
from stress.crash.writers import Connection
from stress.overload.crowd import transaction

StartServer = Callable[..., ServerProcess]

CROWD: Final = "127.0.0.2"
"""The address of the crowd; the quiet client has that of every other test."""
SECONDS_MAX: Final = 20.0
FILES: Final = 300
WITH_FEW_FILES: Final = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))
from tablestone.cli.main import main
sys.exit(main())
"""
REFUSED: Final = re.compile(
    r'^tablestone_requests_refused_total\{limit="(\w+)"\} (\d+)', re.MULTILINE
)
pytestmark = pytest.mark.slow


class Limited:
    """A server with an admin address, and a crowd's connections to it."""

    def __init__(self, server: ServerProcess, stack: ExitStack) -> None:
        self.server = server
        self._stack = stack

    def connected(self, sent: bytes = b"", address: str = CROWD) -> socket.socket:
        connection = self._stack.enter_context(
            socket.create_connection(self.server.address, SECONDS_MAX, (address, 0))
        )
        connection.sendall(sent)
        return connection

    def request(self, method: str, path: str, length: int | None = None) -> bytes:
        """The head of a signed request."""
        target = urlsplit(self.server.endpoint).path.rstrip("/") + path
        headers = [
            *signed_headers(
                self.server.account_name,
                self.server.account_key,
                method=method,
                target=target,
                content_type="application/json",
            ),
            ("Host", "here"),
        ]
        if length is not None:
            headers.append(("Content-Length", str(length)))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode()

    def refused(self) -> dict[str, int]:
        """The refused requests by limit, from the metrics."""
        admin = next(line for line in self.server.stdout if line.startswith("Admin"))
        with urllib.request.urlopen(f"{admin.split()[-1]}/metrics") as answer:
            return {name: int(number) for name, number in REFUSED.findall(answer.read().decode())}

    def count(self, limit: str) -> None:
        """Wait until the metrics count a refused request of this limit."""
        wait_until(lambda: self.refused().get(limit, 0) > 0, SECONDS_MAX)


def answered(connection: socket.socket) -> tuple[HTTPResponse, bytes]:
    response = HTTPResponse(connection)
    response.begin()
    return response, response.read()


def require_busy(response: HTTPResponse, body: bytes) -> None:
    """Require the service's error, which asks the client to try again."""
    assert response.status == 503
    assert response.headers["Retry-After"] == "1"
    assert b"ServerBusy" in body


def require_served(server: ServerProcess, times: int = 5) -> None:
    """Require that another client is served, each time over a new connection too."""
    for _ in range(times):
        with Connection(server) as quiet:
            quiet.send("GET", "/Tables", expected=200)


@pytest.fixture
def limited(private_server: StartServer, tmp_path: Path) -> Iterator[Callable[..., Limited]]:
    with ExitStack() as stack:

        def start(*options: str, **more: Any) -> Limited:
            server = private_server(tmp_path, "--workers=1", "--admin=0", *options, **more)
            return Limited(server, stack)

        yield start


def test_requests_under_way(limited: Callable[..., Limited]) -> None:
    crowd = limited("--max-requests=10")
    slow = crowd.request("POST", "/Tables", 100)
    under_way = [crowd.connected(slow) for _ in range(10)]
    wait_until(lambda: is_refused(crowd), SECONDS_MAX)
    crowd.count("requests")
    for each in under_way:
        each.close()
    wait_until(lambda: not is_refused(crowd), SECONDS_MAX)
    require_served(crowd.server)


def is_refused(crowd: Limited) -> bool:
    """Whether another request of the crowd is refused."""
    with socket.create_connection(crowd.server.address, SECONDS_MAX, (CROWD, 0)) as connection:
        connection.sendall(crowd.request("GET", "/Tables"))
        response, body = answered(connection)
    if response.status == 200:
        return False
    require_busy(response, body)
    return True


@pytest.mark.parametrize("workers", [1, 2])
def test_where_few_files_may_be_open_there_are_fewer_connections(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    """One address opens more connections than there are descriptors, all at once, and sends nothing."""
    command = [sys.executable, "-c", WITH_FEW_FILES]
    server = private_server(tmp_path, f"--workers={workers}", "--admin=0", command=command)
    assert f"is {150 * workers} and not 8192" in server.stderr
    with ExitStack() as stack:
        crowd = Limited(server, stack)
        silent = [crowd.connected() for _ in range(FILES * workers + 50)]
        wait_until(lambda: is_served(server), SECONDS_MAX)
        require_served(server)
        crowd.count("open_files")
        for each in silent:
            each.setblocking(False)
        wait_until(lambda: sum(map(is_open, silent)) <= 150 * workers, SECONDS_MAX)
    assert server.stop() == 0
    assert "Traceback" not in server.stderr


def is_served(server: ServerProcess) -> bool:
    """False while the crowd's connections, which come all at once, are still on their way to a worker."""
    try:
        require_served(server, 1)
    except (ConnectionError, HTTPException):
        return False
    return True


def is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_bytes_in_memory(limited: Callable[..., Limited]) -> None:
    crowd = limited("--max-buffers=10")
    head, part = crowd.request("POST", "/Tables", 1024 * 1024), b" " * 1024 * 900
    connections = [crowd.connected(head) for _ in range(12)]
    for each in connections:
        each.sendall(part)
        time.sleep(0.2)
    (refused, *_), _, _ = select.select(connections, [], [], SECONDS_MAX)
    require_busy(*answered(refused))
    require_served(crowd.server)
    crowd.count("buffers")


def test_a_client_that_does_not_read(limited: Callable[..., Limited]) -> None:
    crowd = limited(constants={"tablestone.limits.ANSWER_READ_SECONDS_MAX": 1})
    fill(crowd.server)
    reader = crowd.connected()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.sendall(crowd.request("GET", "/Overloaded()") * 20)
    crowd.count("slow_reader")
    require_served(crowd.server)


def fill(server: ServerProcess) -> None:
    """A table with a page that does not fit into the buffers of a connection."""
    with Connection(server) as connection:
        connection.send("POST", "/Tables", b'{"TableName":"Overloaded"}', expected=201)
        for first in range(0, 1000, 100):
            connection.send(
                "POST",
                "/$batch",
                transaction(server.endpoint, 0, list(range(first, first + 100))),
                expected=202,
                content_type="multipart/mixed; boundary=batch_o",
            )


def test_requests_before_their_answers(limited: Callable[..., Limited]) -> None:
    crowd = limited()
    connection = crowd.connected(crowd.request("GET", "/Tables") * 300)
    stream = connection.makefile("rb")
    answers = stream.read()
    assert answers.count(b"HTTP/1.1 200 ") == answers.count(b"HTTP/1.1 ") - 1
    assert answers.count(b"HTTP/1.1 503 ") == 1
    crowd.count("pipelined")


@pytest.mark.parametrize(
    ("targets", "limit"), [("1,0", "account_target"), ("0,1", "partition_target")]
)
def test_targets(limited: Callable[..., Limited], targets: str, limit: str) -> None:
    """The SDK retries what was refused, and gets its answer in the end."""
    crowd = limited(f"--targets={targets}")
    with TableServiceClient.from_connection_string(
        crowd.server.connection_string, retry_total=20
    ) as service:
        table = service.create_table("Targeted")
        for number in range(4):
            table.upsert_entity({"PartitionKey": "p", "RowKey": "r", "Number": number})
        assert table.get_entity("p", "r")["Number"] == 3
    crowd.count(limit)


def test_the_sdk_tries_again_until_there_is_room(limited: Callable[..., Limited]) -> None:
    crowd = limited("--max-requests=2")
    slow = crowd.request("POST", "/Tables", 100)
    under_way = [crowd.connected(slow) for _ in range(2)]
    wait_until(lambda: is_refused(crowd), SECONDS_MAX)
    connect = partial(TableServiceClient.from_connection_string, crowd.server.connection_string)
    with connect(retry_total=0) as impatient, pytest.raises(HttpResponseError, match="ServerBusy"):
        impatient.create_table("Refused")

    def make_room(answer: PipelineResponse[Any, Any]) -> None:
        statuses.append(answer.http_response.status_code)
        for each in under_way:
            each.close()

    statuses: list[int] = []
    with connect() as patient:
        patient.create_table("Made", raw_response_hook=make_room)
        assert [each.name for each in patient.list_tables()] == ["Made"]
    assert statuses[0] == 503
