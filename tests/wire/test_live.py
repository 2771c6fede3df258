"""Rows of the tables that are marked `live`, against a real process: the socket sends what the pipeline returned.

HTTP itself adds Date, and adds or drops Content-Length depending on the body; it changes nothing else.
"""

from collections.abc import Iterator
from email.utils import formatdate, parsedate_to_datetime
from http import HTTPStatus
from http.client import HTTPConnection
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from server_process import start_server
from spec_tables import Row
from tablestone import limits
from wire.case_tables import check, error_of, parameters, prepare, send
from wire.service_under_test import ACCOUNT, Headers, Response, default_headers

_TABLES = (
    *("address", "hosts", "negotiate", "etag", "continuation", "select", "table_names"),
    *("headers", "table_acl", "service_properties", "versions", "point_filter"),
)
_NOT_COMPARED = ("ETag", "Location", "DataServiceId", "Content-Length")
"""The headers that depend on the clock and the port, and those that HTTP itself decides."""


class LiveServer:
    """A real server through several connections, used in turn: consecutive requests meet different workers."""

    def __init__(self, endpoint: str, connections: int) -> None:
        self._connections = [HTTPConnection(urlsplit(endpoint).netloc) for _ in range(connections)]
        self._turns = cycle(self._connections)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def exchange(
        self, method: str, target: str, headers: Headers = (), body: bytes = b""
    ) -> Response:
        pairs = default_headers(method, target, formatdate(usegmt=True), headers, body)
        connection = next(self._turns)
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in pairs:
            connection.putheader(name, value)
        if body:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        assert len(found) == len(response.getheaders()), "a header was sent twice"
        answer = Response(response.status, found, response.read())
        # From the front door, and in XML answers, it is the error's text (wire 8.2).
        if answer.status < 400 or "x-content-type-options" in found:
            assert response.reason == HTTPStatus(answer.status).phrase
        elif method != "HEAD":
            assert response.reason == error_of(answer)[1]
        return answer


_SERVERS = {
    "memory": ("--engine", "memory:"),
    "one worker": ("--workers", "1"),
    "two workers": ("--workers", "2"),
    "three workers": ("--workers", "3"),
}


@pytest.fixture(scope="module", params=list(_SERVERS.values()), ids=list(_SERVERS))
def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    data_dir: Path = tmp_path_factory.mktemp("live")
    server = start_server(data_dir, *request.param)
    client = LiveServer(server.endpoint, connections=4)
    yield client
    client.close()
    assert server.stop() == 0


def _emptied(live: LiveServer) -> LiveServer:
    for table in ("tab", "new", "zzz"):
        live.exchange("DELETE", f"/{ACCOUNT}/Tables('{table}')")
    return live


def _without_times(row: Row) -> Row:
    """The row without its parts that depend on the clock, which a test of a real server cannot set."""
    answer = {
        name: value
        for name, value in row.get("answer", {}).items()
        if name not in _NOT_COMPARED and value != "*"
    }
    kept = {name: value for name, value in row.items() if name not in ("content", "holds")}
    if not any(word in row.get("content", "TAG") for word in ("TAG", "TIME", "BASE")):
        kept["content"] = row["content"]
    return kept | {"answer": answer}


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(*case.values, id=f"{name}: {case.id}")
        for name in _TABLES
        for case in parameters(f"{name}.toml", live_only=True)
    ],
)
def test_a_real_server_answers_the_same(live: LiveServer, row: Row) -> None:
    prepare(_emptied(live), row)
    response = send(live, row)
    check(_without_times(row), response)
    assert parsedate_to_datetime(response.headers["date"]).tzinfo is not None
    if response.status == 204:
        assert response.body == b""
        assert response.headers["content-length"] == "0"
    elif row.get("send", "").startswith("HEAD"):
        assert response.body == b""
        assert int(response.headers["content-length"]) > 0
    else:
        assert response.headers["content-length"] == str(len(response.body))
    assert "transfer-encoding" not in response.headers


def test_the_host_of_an_absolute_target_wins(live: LiveServer) -> None:
    """RFC 9112 3.2.2: the target wins over any Host header."""
    for target_host, host, status in (
        (f"{ACCOUNT}.table.localhost", "nobody.table.localhost", 200),
        (f"{ACCOUNT}.table.localhost:10002", "nobody.table.localhost", 200),
        ("nobody.table.localhost", f"{ACCOUNT}.table.localhost", 404),
        ("[::1]:10002", f"{ACCOUNT}.table.localhost", 404),
    ):
        signed = default_headers("GET", "/Tables", formatdate(usegmt=True), [("Host", host)], b"")
        answer = live.exchange("GET", f"http://{target_host}/Tables", signed)
        assert answer.status == status, target_host


def test_a_request_for_http_2_is_carried_out_with_its_body(live: LiveServer) -> None:
    """RFC 9110 7.8 lets a server ignore Upgrade. Java's HttpClient asks for it over plain HTTP."""
    asked = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA"),
    ]
    written = [("Content-Type", "application/json"), *asked]
    _emptied(live)
    created = live.exchange("POST", f"/{ACCOUNT}/Tables", written, b'{"TableName":"tab"}')
    assert created.status == 201
    entity = b'{"PartitionKey":"p","RowKey":"r","n":5}'
    assert live.exchange("POST", f"/{ACCOUNT}/tab", written, entity).status == 201
    read = live.exchange("GET", f"/{ACCOUNT}/tab(PartitionKey='p',RowKey='r')", asked)
    assert read.status == 200
    assert b'"n":5' in read.body


@pytest.mark.parametrize("path", ["/tab", "/$batch", "/tab?comp=acl"])
@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("application/json", "json"),
        ("*/*", "json"),
        ("-", "json"),
        ("application/atom+xml, application/json", "json"),
        ("application/xml", "storage"),
        ("application/atom+xml,application/xml", "storage"),
    ],
)
def test_a_body_that_is_too_long_is_refused_before_its_form(
    live: LiveServer, accept: str, form: str, path: str
) -> None:
    """Wire 8.3: the front door refuses it, in JSON unless Accept names XML or Atom and no JSON."""
    body = b"x" * (limits.BODY_BYTES_MAX + 1)
    method = "PUT" if "comp" in path else "POST"
    answer = live.exchange(method, f"/{ACCOUNT}{path}", [("Accept", accept)], body)
    assert (answer.status, *error_of(answer)[::2]) == (413, "RequestBodyTooLarge", form)
    assert answer.headers["x-ms-error-code"] == "RequestBodyTooLarge"
