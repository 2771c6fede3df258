"""The data tools' requests, compared with those that the live service answered in recordings, and its answers read.

`tests/wire/replay` has the recordings: exchanges of a release of Python's SDK with Azure. Each form of a request was
sent to Azure there, with the same method, headers and version, and succeeded; each answer of Azure is read here.
"""

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qsl

import orjson
import pytest

from tablestone.model.keys import EntityKey
from tablestone.tools import odata
from tablestone.tools.client import ContinuationToken, Operation, Query, TableEndpoint
from tablestone.tools.connection import LOCAL_ACCOUNT, LOCAL_KEY, Connection, Scheme
from tablestone.tools.errors import ServiceError
from wire.replay.archive import ArchiveUnavailableError, recordings_archive
from wire.replay.cassettes import Exchange, load_recordings
from wire.replay.outgoing import INNER_REQUEST

pytestmark = pytest.mark.network

KEY = EntityKey("it's a b", "é/1")
BODY = b'{"PartitionKey":"p","RowKey":"r","n":1}'
SIGNED_ANEW = {"date", "x-ms-date", "authorization", "x-ms-client-request-id"}
OF_THE_CONNECTION = {
    *("host", "user-agent", "connection", "content-length", "transfer-encoding", "accept-encoding")
}
_INNER_ANSWER = re.compile(rb"HTTP/1\.1 (\d{3})")


class Form(NamedTuple):
    """The form of a request: everything but its names, values and dates."""

    kind: str
    method: str
    headers: tuple[tuple[str, str], ...]


def form_of(method: str, path: str, headers: Mapping[str, str]) -> Form:
    ignored = SIGNED_ANEW | OF_THE_CONNECTION
    shown = {name.lower(): value for name, value in headers.items() if name.lower() not in ignored}
    if "if-match" in shown:
        shown["if-match"] = "an ETag"
    if "content-type" in shown:
        shown["content-type"] = shown["content-type"].partition("; boundary=")[0]
    return Form(kind_of(path), method, tuple(sorted(shown.items())))


def kind_of(path: str) -> str:
    if path == "/$batch":
        return "batch"
    if path.startswith("/Tables"):
        return "a table" if "(" in path else "the tables"
    if path.endswith("()"):
        return "a query"
    return "an entity" if "(" in path else "the entities"


def inner_forms(body: str) -> list[Form]:
    """The forms of the operations in a transaction, without the numbers of the parts."""
    found = []
    for part in INNER_REQUEST.finditer(body):
        lines = [line.partition(": ") for line in part["headers"].splitlines() if line]
        path = re.sub(r"https?://[^/]+", "", part["uri"]).removeprefix(f"/{LOCAL_ACCOUNT}")
        found.append(form_of(part["method"], path, {name: text for name, _, text in lines}))
    return found


@dataclass
class Recorded:
    """The recorded exchanges, and the forms of the requests that succeeded."""

    exchanges: list[Exchange]
    forms: set[Form] = field(default_factory=set)
    inner: set[Form] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    try:
        recordings = load_recordings(recordings_archive())
    except ArchiveUnavailableError as unavailable:
        pytest.skip(str(unavailable))
    found = Recorded([each for recording in recordings for each in recording.exchanges])
    for each in found.exchanges:
        if each.status >= 300:
            continue
        found.forms.add(form_of(each.method, each.path, each.request_headers))
        if each.path == "/$batch":
            found.inner.update(inner_forms(each.request_body.decode()))
        found.parameters.update(name for name, _ in parse_qsl(each.query))
    return found


@dataclass
class Canned:
    """A service that gives one answer to everything, and keeps the requests."""

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.body = status, body
        self.headers = {
            name: value for name, value in headers.items() if name not in OF_THE_CONNECTION
        }


@pytest.fixture(scope="module")
def canned() -> Iterator[tuple[Canned, TableEndpoint]]:
    service = Canned()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Otherwise each body waits 40 ms for the acknowledgement of its head.
        disable_nagle_algorithm = True

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.removeprefix(f"/{LOCAL_ACCOUNT}")
            service.requests.append((self.command, path, dict(self.headers.items()), body))
            self.send_response_only(service.status)
            for name, value in service.headers.items():
                self.send_header(name, value)
            if service.status != 204:
                self.send_header("Content-Length", str(len(service.body)))
            self.end_headers()
            self.wfile.write(service.body)

        def log_message(self, *_: object) -> None:
            """Keep standard error for the test."""

    for method in ("GET", "POST", "PUT", "DELETE", "MERGE", "PATCH"):
        setattr(Handler, f"do_{method}", Handler._any)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/{LOCAL_ACCOUNT}"
    with TableEndpoint(Connection(url, LOCAL_ACCOUNT, Scheme.ACCOUNT_KEY, LOCAL_KEY)) as endpoint:
        yield service, endpoint
    server.shutdown()
    server.server_close()
    thread.join()


def test_every_request_has_a_form_that_azure_answered(
    recorded: Recorded, canned: tuple[Canned, TableEndpoint]
) -> None:
    service, endpoint = canned
    service.requests.clear()
    service.answer(200, {"content-type": "application/json"}, b'{"value":[]}')
    asked = Query("T", "RowKey gt 'it''s'", ("a", "b"), 5)
    endpoint.page(asked, ContinuationToken("1!4!cA--", "1!4!cg--"))
    endpoint.page(Query("T"), None)
    endpoint.get("T", KEY)
    endpoint.get("T", KEY, ("a",))
    list(endpoint.table_names())
    service.answer(204, {}, b"")
    endpoint.create_table("T")
    endpoint.delete_table("T")
    for method, if_match in WRITES:
        if method != "POST":  # a single insert is not sent
            endpoint.write(
                "T", Operation(method, KEY, b"" if method == "DELETE" else BODY, if_match)
            )
    for method, path, headers, _ in service.requests:
        target, _, query = path.partition("?")
        form = form_of(method, target, headers)
        assert form in recorded.forms, (path, nearest(form, recorded.forms))
        assert {name for name, _ in parse_qsl(query)} <= recorded.parameters
    assert len(service.requests) == 7 + len(WRITES) - 1


WRITES = [
    ("POST", None),
    ("PUT", None),
    ("PUT", "*"),
    ("MERGE", None),
    ("MERGE", "*"),
    ("DELETE", "*"),
]


def test_every_transaction_has_a_form_that_azure_answered(
    recorded: Recorded, canned: tuple[Canned, TableEndpoint]
) -> None:
    service, endpoint = canned
    service.requests.clear()
    answers = b"HTTP/1.1 204 No Content\r\n" * len(WRITES)
    service.answer(202, {"content-type": "multipart/mixed; boundary=b"}, answers)
    endpoint.transact(
        "T",
        [
            Operation(method, KEY, b"" if method == "DELETE" else BODY, tag)
            for method, tag in WRITES
        ],
    )
    ((method, path, headers, body),) = service.requests
    form = form_of(method, path, headers)
    assert form in recorded.forms, nearest(form, recorded.forms)
    forms = inner_forms(body.decode())
    assert len(forms) == len(WRITES)
    for inner in forms:
        assert inner in recorded.inner, nearest(inner, recorded.inner)


def nearest(form: Form, forms: set[Form]) -> tuple[Form, list[Form]]:
    """The forms of the same kind and method, for a failure's message."""
    return form, [each for each in forms if each[:2] == form[:2]]


@pytest.mark.slow
def test_every_recorded_page_is_read(
    recorded: Recorded, canned: tuple[Canned, TableEndpoint]
) -> None:
    """Each entity as the service wrote it: reading its text and writing it again gives the same entity."""
    service, endpoint = canned
    pages = [
        each
        for each in recorded.exchanges
        if kind_of(each.path) == "a query"
        and each.status == 200
        and "minimalmetadata" in each.request_headers.get("accept", "")
    ]
    entities = tokens = 0
    for each in pages:
        service.answer(each.status, each.headers, each.body)
        page = endpoint.page(Query("T"), None)
        assert page.entities == orjson.loads(each.body)["value"]
        following = each.headers.get("x-ms-continuation-nextpartitionkey")
        row = each.headers.get("x-ms-continuation-nextrowkey", "")
        assert page.next_token == (None if following is None else (following, row))
        tokens += following is not None
        for raw in page.entities:
            if "PartitionKey" in raw:
                read = odata.read_entity(raw)
                assert read == odata.read_entity(orjson.loads(odata.body_of(raw)))
                assert odata.require_valid(raw, 100)[0] == read.key
                entities += 1
    assert len(pages) > 80
    assert entities > 100
    assert tokens >= 5


@pytest.mark.slow
def test_every_recorded_error_is_shown(
    recorded: Recorded, canned: tuple[Canned, TableEndpoint]
) -> None:
    service, endpoint = canned
    failures = [
        each
        for each in recorded.exchanges
        if each.status >= 400 and each.body.startswith(b"{") and each.path != "/$batch"
    ]
    assert len({each.status for each in failures}) >= 5
    for each in failures:
        service.answer(each.status, each.headers, each.body)
        told = orjson.loads(each.body)["odata.error"]
        with pytest.raises(ServiceError) as failed:
            endpoint.write("T", Operation("PUT", KEY, BODY))
        assert (failed.value.status, failed.value.code) == (each.status, told["code"])
        assert told["message"]["value"].startswith(failed.value.text)
        assert failed.value.text
        if told["code"] == "ResourceNotFound":
            assert endpoint.get("T", KEY) is None


@pytest.mark.slow
def test_every_recorded_transaction_is_read(
    recorded: Recorded, canned: tuple[Canned, TableEndpoint]
) -> None:
    service, endpoint = canned
    done = failed = 0
    for each in recorded.exchanges:
        if each.path != "/$batch":
            continue
        service.answer(each.status, each.headers, each.body)
        count = len(inner_forms(each.request_body.decode()))
        operations = [Operation("PUT", KEY, BODY)] * count
        statuses = [int(text) for text in _INNER_ANSWER.findall(each.body)] or [each.status]
        if max(statuses) < 300 and each.status == 202:
            endpoint.transact("T", operations)
            done += 1
            continue
        with pytest.raises(ServiceError) as error:
            endpoint.transact("T", operations)
        assert error.value.status == (statuses[0] if each.status == 202 else each.status)
        assert error.value.code
        text = each.body.decode()
        if error.value.index is not None:
            assert f'"value":"{error.value.index}:' in text
        failed += 1
    assert done > 30
    assert failed > 5
