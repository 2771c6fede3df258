"""The feed of changes over a socket (docs/protocol/changes.md), from servers that keep them on SQLite and in memory."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest
from azure.data.tables import TableAccessPolicy, TableClient

from cli.admin_pages import json_page
from sas_signing import completed, query_of, signed
from server_process import ServerProcess, start_server
from signing import signed_headers
from tablestone.configuration import DEVELOPMENT_ACCOUNT_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Page(NamedTuple):
    status: int
    lines: list[dict[str, Any]]
    cursor: str
    error: str

    @property
    def shown(self) -> list[tuple[str, ...]]:
        """Kind, table and key of each line."""
        return [(line["kind"], line["table"], *key_of(line)) for line in self.lines]


def key_of(line: dict[str, Any]) -> list[str]:
    entity = line.get("entity", line)
    return [entity[name] for name in ("PartitionKey", "RowKey") if name in entity]


class Client:
    """The account's owner at one server; a new connection for each request, so all workers are met."""

    def __init__(self, server: ServerProcess, account: str | None = None) -> None:
        self.server = server
        self.account = server.account_name if account is None else account

    def send(
        self, method: str, target: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        account, key = self.account, self.server.account_key
        content = b"" if body is None else json.dumps(body).encode()
        path = f"/{account}{target}"
        content_type = "application/json" if content else ""
        signed = dict(
            signed_headers(account, key, method=method, target=path, content_type=content_type)
        )
        signed |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = HTTPConnection(urlsplit(self.server.endpoint).netloc, timeout=40)
        try:
            connection.request(method, path, content or None, signed)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, found, answer.read()
        finally:
            connection.close()

    def done(self, method: str, target: str, body: object = None, **headers: str) -> None:
        status, _, content = self.send(method, target, body, **headers)
        assert status < 300, content

    def create(self, table: str) -> None:
        self.done("POST", "/Tables", {"TableName": table})

    def insert(self, table: str, partition: str, row: str, **properties: object) -> None:
        self.done("POST", f"/{table}", {"PartitionKey": partition, "RowKey": row, **properties})

    def changes(self, table: str | None = None, **parameters: object) -> Page:
        target = f"/{table}?comp=changes" if table else "/?restype=service&comp=changes"
        target += "".join(f"&{name}={quote(str(value))}" for name, value in parameters.items())
        return page_of(*self.send("GET", target))

    def signed_by_sas(self, target: str) -> Page:
        connection = HTTPConnection(urlsplit(self.server.endpoint).netloc)
        try:
            connection.request("GET", f"/{self.server.account_name}{target}")
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return page_of(answer.status, found, answer.read())
        finally:
            connection.close()


def page_of(status: int, headers: dict[str, str], body: bytes) -> Page:
    if status != 200:
        return Page(status, [], "", body.decode())
    assert headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in body.splitlines()]
    return Page(status, lines, headers["x-tablestone-cursor"], "")


@pytest.fixture(params=["sqlite", "memory"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    more = ["--workers", "2"] if request.param == "sqlite" else ["--engine", "memory:"]
    server = start_server(tmp_path / "data", "--keep-changes", "7d", *more)
    yield Client(server)
    assert server.stop() == 0, server.stderr


def test_lines_of_a_table(client: Client) -> None:
    client.create("Orders")
    client.insert("Orders", "p", "r'1", Count=1)
    client.done("PATCH", "/Orders(PartitionKey='p',RowKey='r''1')", {"Size": 2.5, "Count": 2})
    client.done("DELETE", "/Orders(PartitionKey='p',RowKey='r''1')", **{"If-Match": "*"})
    page = client.changes("Orders")
    assert page.shown == [
        ("put", "Orders", "p", "r'1"),
        ("put", "Orders", "p", "r'1"),
        ("delete", "Orders", "p", "r'1"),
    ]
    inserted, merged, deleted = page.lines
    assert inserted["entity"]["Count"] == 1
    assert "before" not in inserted
    assert merged["before"] == {"odata.etag": inserted["entity"]["odata.etag"], "Count": 1}
    assert (merged["entity"]["Count"], merged["entity"]["Size"]) == (2, 2.5)
    assert deleted["etag"] == merged["entity"]["odata.etag"]
    assert "entity" not in deleted
    assert inserted["time"] <= merged["time"] <= deleted["time"]
    assert page.cursor == deleted["cursor"]
    assert client.changes("orders", since=merged["cursor"]).lines == [deleted]
    assert client.changes("Orders", since=page.cursor) == Page(200, [], page.cursor, "")


def test_a_transaction_is_never_divided(client: Client) -> None:
    client.create("Orders")
    rows = "".join(
        "--c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        f"PUT {client.server.endpoint}/Orders(PartitionKey='p',RowKey='{n}') HTTP/1.1\r\n"
        "Content-Type: application/json\r\nAccept: application/json\r\n\r\n{}\r\n"
        for n in range(3)
    )
    body = f"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{rows}--c--\r\n--b--\r\n"
    account, key = client.server.account_name, client.server.account_key
    path, kind = f"/{account}/$batch", "multipart/mixed; boundary=b"
    signed = dict(signed_headers(account, key, method="POST", target=path, content_type=kind))
    connection = HTTPConnection(urlsplit(client.server.endpoint).netloc)
    connection.request("POST", path, body, signed)
    assert connection.getresponse().read().count(b"204 No Content") == 3
    connection.close()
    page = client.changes("Orders")
    assert [(key_of(line)[1], line.get("following")) for line in page.lines] == [
        ("0", 2),
        ("1", 1),
        ("2", None),
    ]
    assert [client.changes("Orders", since=line["cursor"]).lines for line in page.lines] == [
        page.lines,
        page.lines,
        [],
    ]


def test_lines_of_an_account(client: Client) -> None:
    client.create("Orders")
    client.insert("Orders", "p", "1")
    client.create("Stock")
    client.done("DELETE", "/Tables('Orders')")
    client.create("Orders")
    client.insert("Orders", "p", "2")
    page = client.changes()
    assert page.shown == [
        ("table-created", "Orders"),
        ("put", "Orders", "p", "1"),
        ("table-created", "Stock"),
        ("table-deleted", "Orders"),
        ("table-created", "Orders"),
        ("put", "Orders", "p", "2"),
    ]
    assert client.changes(since=page.lines[2]["cursor"]).lines == page.lines[3:]
    assert client.changes("Orders").shown == [("put", "Orders", "p", "2")]


def test_a_wait_ends_with_a_change_within_a_tenth_of_a_second(client: Client) -> None:
    client.create("Orders")
    client.create("Quiet")
    cursor = client.changes("Orders", since="now").cursor
    found: list[tuple[Page, float]] = []
    seconds: list[float] = []

    def read() -> None:
        page = client.changes("Orders", since=cursor, wait=20)
        found.append((page, time.monotonic()))

    for _ in range(3):  # whichever worker waits, and whichever commits
        waiting = threading.Thread(target=read)
        waiting.start()
        time.sleep(0.3)
        client.insert("Quiet", "p", str(time.monotonic()))
        assert not found
        row = str(time.monotonic())
        client.insert("Orders", "p", row)
        inserted = time.monotonic()
        waiting.join()
        page, at = found.pop()
        assert page.shown == [("put", "Orders", "p", row)]
        seconds.append(at - inserted)
        cursor = page.cursor
    assert max(seconds) < 5
    assert min(seconds) < 0.1, "it may take longer on a busy machine, but not each time"


def test_a_wait_from_now_on_loses_nothing(client: Client) -> None:
    client.create("Orders")
    client.create("Quiet")
    found: list[Page] = []
    waiting = threading.Thread(
        target=lambda: found.append(client.changes("Orders", since="now", wait=20))
    )
    waiting.start()
    time.sleep(1.5)  # meanwhile it is answered anew
    client.insert("Quiet", "p", "1")
    client.insert("Orders", "p", "1")
    waiting.join()
    assert [page.shown for page in found] == [[("put", "Orders", "p", "1")]]


def test_a_wait_ends_with_its_time_and_moves_the_cursor(client: Client) -> None:
    client.create("Orders")
    cursor = client.changes("Orders", since="now").cursor
    client.create("Quiet")
    begun = time.monotonic()
    page = client.changes("Orders", since=cursor, wait=1)
    assert 1 <= time.monotonic() - begun < 15
    assert (page.status, page.lines) == (200, [])
    assert page.cursor != cursor


@pytest.mark.parametrize("engine", ["sqlite", "memory"])
def test_a_wait_does_not_end_with_what_is_not_for_it(engine: str, tmp_path: Path) -> None:
    """Changes of another table or account, or outside the range of a signature. And the cursor moves over them."""
    more = ["--workers", "2"] if engine == "sqlite" else ["--engine", "memory:"]
    for name in ("devstoreaccount1", "other"):
        more += ["--account", f"{name}:{DEVELOPMENT_ACCOUNT_KEY}"]
    server = start_server(tmp_path / "data", "--keep-changes", "7d", *more)
    client, other = Client(server), Client(server, "other")
    for each, table in ((client, "Orders"), (client, "Quiet"), (other, "Orders")):
        each.create(table)
    given = {"tn": "Orders", "sp": "r", "st": "2020-01-01", "spk": "q", "epk": "q"}
    parameters = signed(server.account_name, server.account_key, completed(given))
    ranged = f"/Orders?comp=changes&since=now&{query_of(parameters)}&wait="
    waits: dict[str, Callable[[], Page]] = {
        "table": lambda: client.changes("Quiet", since="now", wait=2),
        "range": lambda: client.signed_by_sas(f"{ranged}2"),
        "account": lambda: client.changes(since="now", wait=1),
        "line": lambda: client.signed_by_sas(f"{ranged}30"),
    }
    found: dict[str, tuple[Page, float]] = {}
    begun = time.monotonic()

    def read(name: str) -> None:
        found[name] = waits[name](), time.monotonic() - begun

    waiting = [threading.Thread(target=read, args=(name,)) for name in waits]
    for thread in waiting:
        thread.start()
    time.sleep(0.2)
    while len(found) < 3 and time.monotonic() < begun + 20:
        other.insert("Orders", "p", str(time.monotonic()))
        if "account" in found:
            client.insert("Orders", "p", str(time.monotonic()))
    assert sorted(found) == ["account", "range", "table"]
    client.insert("Orders", "q", "1")
    for thread in waiting:
        thread.join()
    assert found["line"][0].shown == [("put", "Orders", "q", "1")]
    last = int(client.changes(since="now").cursor.split(".")[1])
    for name, seconds in (("account", 1), ("range", 2), ("table", 2)):
        page, after = found[name]
        assert (page.status, page.lines) == (200, [])
        assert seconds <= after < seconds + 15
        assert int(page.cursor.split(".")[1]) > last * after / found["table"][1] / 3
    assert server.stop() == 0, server.stderr


def test_a_wait_ends_with_its_table(client: Client) -> None:
    client.create("Orders")
    cursor = client.changes("Orders", since="now").cursor
    found: list[Page] = []
    waiting = threading.Thread(
        target=lambda: found.append(client.changes("Orders", since=cursor, wait=20))
    )
    waiting.start()
    time.sleep(0.3)
    client.done("DELETE", "/Tables('Orders')")
    waiting.join(timeout=15)
    assert [page.status for page in found] == [404]
    assert "TableNotFound" in found[0].error


def test_a_wait_ends_with_its_permission(client: Client) -> None:
    """Also with a key that is rotated: each second, the request is authenticated again."""
    client.create("Orders")
    table = TableClient.from_connection_string(client.server.connection_string, "Orders")
    table.set_table_access_policy(
        {"reader": TableAccessPolicy(permission="r", expiry="2099-01-01", start="2020-01-01")}
    )
    given = completed({"tn": "Orders", "si": "reader", "se": "-"})
    parameters = signed(client.server.account_name, client.server.account_key, given)
    target = f"/Orders?comp=changes&since=now&{query_of(parameters)}"
    assert client.signed_by_sas(target).status == 200
    found: list[Page] = []
    waiting = threading.Thread(
        target=lambda: found.append(client.signed_by_sas(f"{target}&wait=20"))
    )
    waiting.start()
    time.sleep(0.3)
    assert not found
    table.set_table_access_policy({})
    waiting.join(timeout=15)
    assert [page.status for page in found] == [403]


def test_a_wait_ends_with_its_permission_beside_another_that_goes_on(tmp_path: Path) -> None:
    """Permission is asked once for all waits of a caller, and never for those of another."""
    server = start_server(tmp_path / "data", "--keep-changes", "7d", "--workers", "1")
    client = Client(server)
    client.create("Orders")
    table = TableClient.from_connection_string(server.connection_string, "Orders")
    policy = TableAccessPolicy(permission="r", expiry="2099-01-01", start="2020-01-01")
    table.set_table_access_policy({"one": policy, "two": policy})
    found: dict[str, Page] = {}

    def by_policy(name: str) -> Page:
        given = completed({"tn": "Orders", "si": name, "se": "-"})
        parameters = signed(server.account_name, server.account_key, given)
        target = f"/Orders?comp=changes&since=now&wait=20&{query_of(parameters)}"
        return client.signed_by_sas(target)

    def read(name: str) -> None:
        page = client.changes("Orders", since="now", wait=20) if name == "" else by_policy(name)
        found[name] = page

    waiting = {name: threading.Thread(target=read, args=(name,)) for name in ("", "one", "two")}
    for thread in waiting.values():
        thread.start()
        time.sleep(0.1)
    table.set_table_access_policy({"two": policy})
    waiting["one"].join(timeout=15)
    assert {name: page.status for name, page in found.items()} == {"one": 403}
    client.insert("Orders", "p", "1")
    for thread in waiting.values():
        thread.join()
    assert (found[""].shown, found["two"].shown) == 2 * ([("put", "Orders", "p", "1")],)
    assert server.stop() == 0, server.stderr


def closed(connection: socket.socket) -> None:
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def half_closed(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(100).startswith(b"HTTP/1.1 200 OK")
    connection.close()


@pytest.mark.parametrize(
    ("end", "waits"),
    [(closed, [20]), (reset, [20]), (half_closed, [20]), (closed, [1, 20])],
    ids=["closed", "reset", "half-closed", "after another request"],
)
def test_a_wait_ends_with_its_connection(
    one_waits: Client, end: Callable[[socket.socket], None], waits: list[int]
) -> None:
    server = one_waits.server
    connection = socket.create_connection(server.address, timeout=20)
    for seconds in waits:
        path = f"/{server.account_name}/Orders?comp=changes&since=now&wait={seconds}"
        head = [f"GET {path} HTTP/1.1", f"Host: {urlsplit(server.endpoint).netloc}"]
        fields = signed_headers(server.account_name, server.account_key, method="GET", target=path)
        head += [f"{name}: {value}" for name, value in fields]
        connection.sendall("\r\n".join([*head, "", ""]).encode())
    time.sleep(0.3)
    end(connection)
    time.sleep(len(waits) - 0.5)
    until = time.monotonic() + 10  # far below the 20 s of a wait that does not end
    while (status := one_waits.changes("Orders", since="now", wait=1).status) == 503:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert status == 200


@pytest.fixture(scope="module")
def one_waits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server at which one request waits at a time."""
    server = start_server(
        tmp_path_factory.mktemp("one") / "data",
        *("--keep-changes", "7d", "--workers", "1"),
        constants={"tablestone.server.admission.WAITS_MAX": 1},
    )
    client = Client(server)
    client.create("Orders")
    yield client
    assert server.stop() == 0, server.stderr


def test_only_so_many_requests_wait(tmp_path: Path) -> None:
    server = start_server(
        tmp_path / "data",
        *("--keep-changes", "7d", "--workers", "1"),
        constants={"tablestone.server.admission.WAITS_MAX": 2},
    )
    client = Client(server)
    client.create("Orders")
    found: list[Page] = []
    waiting = [
        threading.Thread(
            target=lambda: found.append(client.changes("Orders", since="now", wait=20))
        )
        for _ in range(2)
    ]
    for each in waiting:
        each.start()
    time.sleep(0.5)
    refused = client.changes("Orders", since="now", wait=20)
    assert (refused.status, "ServerBusy" in refused.error) == (503, True)
    assert client.changes("Orders", since="now").status == 200
    client.insert("Orders", "p", "1")
    for each in waiting:
        each.join()
    assert [page.shown for page in found] == 2 * [[("put", "Orders", "p", "1")]]
    assert server.stop() == 0, server.stderr


def test_a_wait_ends_with_the_server(tmp_path: Path) -> None:
    server = start_server(tmp_path / "data", "--keep-changes", "7d", "--workers", "1")
    client = Client(server)
    client.create("Orders")
    found: list[Page] = []
    waiting = threading.Thread(
        target=lambda: found.append(client.changes("Orders", since="now", wait=30))
    )
    waiting.start()
    time.sleep(0.3)
    begun = time.monotonic()
    assert server.stop() == 0
    waiting.join()
    assert time.monotonic() - begun < 15
    assert [(page.status, page.lines) for page in found] == [(200, [])]


# (parameters of a table SAS for Orders) -> the rows that are seen, or the code of the refusal
SIGNATURES: list[tuple[str, dict[str, str], list[str] | str]] = [
    ("r reads", {"sp": "r"}, ["1", "2", "3"]),
    ("without a start", {"sp": "r", "st": "-"}, "AuthorizationFailure"),
    ("without r", {"sp": "aud"}, "AuthorizationPermissionMismatch"),
    ("of another table", {"sp": "r", "tn": "Stock"}, "AuthenticationFailed"),
    ("a range of rows", {"sp": "r", "spk": "p", "srk": "2", "epk": "p", "erk": "2"}, ["2"]),
    ("a range of partitions", {"sp": "r", "spk": "q"}, ["3"]),
    ("a range without changes", {"sp": "r", "spk": "x"}, []),
]


@pytest.mark.parametrize(
    ("given", "expected"), [row[1:] for row in SIGNATURES], ids=[row[0] for row in SIGNATURES]
)
def test_signatures(orders: Client, given: dict[str, str], expected: list[str] | str) -> None:
    parameters = signed(
        orders.server.account_name,
        orders.server.account_key,
        completed({"tn": "Orders", "st": "2020-01-01", **given}),
    )
    page = orders.signed_by_sas(f"/Orders?comp=changes&{query_of(parameters)}")
    if isinstance(expected, str):
        assert expected in page.error
        return
    assert [key_of(line)[1] for line in page.lines] == expected
    again = orders.signed_by_sas(f"/Orders?comp=changes&{query_of(parameters)}&since={page.cursor}")
    assert (again.status, again.lines) == (200, [])


def test_only_the_key_reads_the_feed_of_the_account(orders: Client) -> None:
    given = completed({"ss": "t", "srt": "sco", "sp": "rwdlacu", "st": "2020-01-01"})
    parameters = signed(orders.server.account_name, orders.server.account_key, given)
    page = orders.signed_by_sas(f"/?restype=service&comp=changes&{query_of(parameters)}")
    assert "AuthorizationFailure" in page.error
    of_table = orders.signed_by_sas(f"/Orders?comp=changes&{query_of(parameters)}")
    assert len(of_table.lines) == 3


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server with changes of three entities of Orders, and none of Stock."""
    server = start_server(tmp_path_factory.mktemp("orders") / "data", "--keep-changes", "7d")
    client = Client(server)
    client.create("Orders")
    client.create("Stock")
    for partition, row in (("p", "1"), ("p", "2"), ("q", "3")):
        client.insert("Orders", partition, row)
    yield client
    assert server.stop() == 0, server.stderr


def test_a_signature_sees_nothing_from_before_its_start(client: Client) -> None:
    """Nor what a merge replaced, if that was stored before."""
    client.create("Orders")
    client.insert("Orders", "p", "1", Count=1)
    client.insert("Orders", "p", "2")
    for count in (2, 3):
        client.done("PATCH", "/Orders(PartitionKey='p',RowKey='1')", {"Count": count})
    early, late, *merges = client.changes("Orders").lines
    assert [line["before"]["Count"] for line in merges] == [1, 2]

    def read(since: str | None, start: str = late["time"]) -> Page:
        parameters = signed(
            client.server.account_name,
            client.server.account_key,
            completed({"tn": "Orders", "sp": "r", "st": start}),
        )
        place = "" if since is None else f"&since={quote(since)}"
        return client.signed_by_sas(f"/Orders?comp=changes{place}&{query_of(parameters)}")

    seen = [late, {name: merges[0][name] for name in merges[0] if name != "before"}, merges[1]]
    assert read(None).lines == seen
    assert read(late["time"]).lines == seen
    assert read(early["cursor"]).lines == seen  # nothing lies between it and the start
    assert read(late["cursor"]).lines == seen[1:]
    before = client.changes("Orders", since="2020-01-01", wait=0).cursor.rsplit(".", 2)[0]
    number = int(early["cursor"].split(".")[1]) - 1
    for since in (early["time"], "2020-01-01", f"{before}.{number}.0"):
        refused = read(since)
        assert (refused.status, "since its start" in refused.error) == (410, True)
    later = merges[1]["time"][:-2] + "9Z"  # the newest record is from before this start
    time.sleep(0.001)
    cursor = read("now", later).cursor
    client.insert("Orders", "p", "3")
    assert read(cursor, later).shown == [("put", "Orders", "p", "3")]


def test_pages_end_after_1000_lines(client: Client) -> None:
    client.create("Orders")
    for n in range(1_050):
        client.insert("Orders", "p", f"{n:04}")
    first = client.changes("Orders")
    assert len(first.lines) == 1_000
    second = client.changes("Orders", since=first.cursor)
    assert [key_of(line)[1] for line in first.lines + second.lines] == [
        f"{n:04}" for n in range(1_050)
    ]


def test_a_time_before_the_first_is_answered_while_all_is_kept(client: Client) -> None:
    client.create("Orders")
    client.insert("Orders", "p", "1")
    client.insert("Orders", "p", "2")
    everything = client.changes("Orders", since="2020-01-01")
    assert len(everything.lines) == 2
    later = client.changes("Orders", since=everything.lines[1]["time"])
    assert later.lines[-1:] == everything.lines[1:]


ELSEWHERE = "is of another storage"
# (parameters; `{made up}` and so on are cursors) -> status, code, a part of the sentence
BAD: list[tuple[str, dict[str, str], int, str, str]] = [
    (
        "wait below 0",
        {"wait": "-1"},
        400,
        "InvalidQueryParameterValue",
        "wait is a number of seconds from 0 to 30.",
    ),
    ("wait beyond 30", {"wait": "31"}, 400, "InvalidQueryParameterValue", "from 0 to 30"),
    ("wait is no number", {"wait": "x"}, 400, "InvalidQueryParameterValue", "from 0 to 30"),
    (
        "since in the future",
        {"since": "2999-01-01"},
        400,
        "InvalidQueryParameterValue",
        "is in the future",
    ),
    (
        "since is nothing known",
        {"since": "yesterday"},
        400,
        "InvalidQueryParameterValue",
        "or a cursor of this feed",
    ),
    (
        "since is empty",
        {"since": ""},
        400,
        "InvalidQueryParameterValue",
        "or a cursor of this feed",
    ),
    ("of another table", {"since": "{stock}"}, 400, "InvalidChangeCursor", "is of another table"),
    (
        "of an earlier table",
        {"since": "{earlier}"},
        400,
        "InvalidChangeCursor",
        "earlier table of this name",
    ),
    ("of the account", {"since": "{account}"}, 400, "InvalidChangeCursor", "another account"),
    ("of another storage", {"since": "{other}"}, 400, "InvalidChangeCursor", ELSEWHERE),
    ("made up", {"since": "{made up}"}, 400, "InvalidChangeCursor", "that was never made here"),
]


@pytest.fixture(scope="module")
def cursors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, dict[str, str]]]:
    """A server, and cursors of all kinds by their names."""
    found: dict[str, str] = {}
    other = start_server(tmp_path_factory.mktemp("other") / "data", "--keep-changes", "7d")
    Client(other).create("Orders")
    found["{other}"] = Client(other).changes("Orders", since="now").cursor
    assert other.stop() == 0, other.stderr
    data = tmp_path_factory.mktemp("own") / "data"
    server = start_server(data, "--keep-changes", "7d", "--workers", "1")
    client = Client(server)
    client.create("Orders")
    found["{earlier}"] = client.changes("Orders", since="now").cursor
    client.done("DELETE", "/Tables('Orders')")
    client.create("Orders")
    client.create("Stock")
    found["{stock}"] = client.changes("Stock", since="now").cursor
    found["{account}"] = client.changes(since="now").cursor
    feed, number, _ = client.changes("Orders", since="now").cursor.split(".")
    found["{made up}"] = f"{feed}.{int(number) + 5}.0"
    yield client, found
    assert server.stop() == 0, server.stderr


@pytest.mark.parametrize(
    ("parameters", "status", "code", "text"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_bad_input(
    cursors: tuple[Client, dict[str, str]],
    parameters: dict[str, str],
    status: int,
    code: str,
    text: str,
) -> None:
    client, by_name = cursors
    page = client.changes("Orders", **{n: by_name.get(v, v) for n, v in parameters.items()})
    assert page.status == status
    assert code in page.error
    assert text in page.error


def test_what_is_not_kept_any_more(tmp_path: Path) -> None:
    server = start_server(tmp_path / "data", "--keep-changes", "64KiB", "--workers", "1")
    client = Client(server)
    client.create("Orders")
    cursor = client.changes("Orders", since="now").cursor
    for n in range(40):
        client.insert("Orders", "p", str(n), Text="x" * 8_000)
    deadline = time.monotonic() + 20
    while (page := client.changes("Orders", since=cursor)).status == 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert page.status == 410
    assert "ChangesNotKept" in page.error
    assert "since=now" in page.error
    assert client.changes("Orders", since="2020-01-01").status == 410
    assert 1 <= len(client.changes("Orders").lines) < 12
    assert server.stop() == 0, server.stderr


def test_a_record_goes_on_until_it_is_ended(tmp_path: Path) -> None:
    """An option that is left out by mistake ends nothing."""
    cursor = ""
    told = {
        ("--keep-changes", "7d,1GiB"): "keeps changes: 7d, 1GiB\n",
        (): "keeps changes: 7d, 1GiB\n",
        ("--keep-changes", "none"): "no cursor is valid any more. Records removed: 3\n",
        ("--workers", "2"): "",
        ("--keep-changes", "1GiB,7d"): "keeps changes: 7d, 1GiB\n",
    }
    for start, (options, line) in enumerate(told.items()):
        more = (*options, *(() if "--workers" in options else ("--workers", "1")))
        server = start_server(tmp_path / "data", "--log-level", "info", *more)
        client = Client(server)
        if start == 0:
            client.create("Orders")
            cursor = client.changes("Orders", since="now").cursor
            client.insert("Orders", "p", "0")
        elif start == 1:
            client.insert("Orders", "p", "1")
            lines = client.changes("Orders", since=cursor).lines
            assert [line["entity"]["RowKey"] for line in lines] == ["0", "1"]
        elif start in (2, 3):
            assert client.changes("Orders").status == 400
            client.insert("Orders", "p", str(start))
        else:
            page = client.changes("Orders", since=cursor)
            assert (page.status, "before this record of changes began" in page.error) == (400, True)
            assert client.changes("Orders", since="2020-01-01").status == 410
            assert client.changes("Orders").lines == []
        assert server.stop() == 0, server.stderr
        assert line in server.stderr
        if not line:
            assert "changes" not in server.stderr


def test_a_shorter_record_that_loses_changes_is_only_taken_if_it_is_accepted(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    why = "--keep-changes 1s would remove changes at once, so 7d,1GiB stays in force. If they may go, add --yes-trim 1s"
    shorter = ("--keep-changes", "1s", "--workers", "2", "--admin", "0")
    server = start_server(data, "--keep-changes", "7d,1GiB")
    client = Client(server)
    client.create("Orders")
    client.insert("Orders", "p", "r")
    time.sleep(1.1)
    assert server.stop() == 0
    for accepted in ((), ("--yes-trim", "2s"), ("--yes-trim", "1s,1GiB")):
        server = start_server(data, "--log-level", "info", *shorter, *accepted)
        assert len(Client(server).changes("Orders").lines) == 1
        status, page = json_page(server, "/health/ready")
        assert (status, page["warnings"]) == (200, [why])
        assert server.stop() == 0
        assert server.stderr.count(why) == 1
        assert server.stderr.count("keeps changes: 7d, 1GiB\n") == 1
    server = start_server(data, "--log-level", "info", *shorter, "--yes-trim", "1s")
    assert "warnings" not in json_page(server, "/health/ready")[1]
    assert server.stop() == 0
    assert "keeps changes: 1s, 1GiB\n" in server.stderr
    assert "would remove" not in server.stderr


def test_memory_says_that_it_stores_no_record(tmp_path: Path) -> None:
    for options, line in (
        (
            ("--keep-changes", "7d"),
            "keeps changes: 7d, 256MiB, in memory: they end with this server\n",
        ),
        (("--keep-changes", "none"), ""),
        ((), ""),
    ):
        server = start_server(
            tmp_path / "data", "--engine", "memory", "--log-level", "info", *options
        )
        assert Client(server).changes().status == (200 if line else 400)
        assert server.stop() == 0
        assert line in server.stderr
        assert ("changes" in server.stderr) is bool(line)


@pytest.mark.parametrize("table", ["Orders", None])
def test_while_nothing_is_kept_the_parameter_is_unknown(table: str | None, tmp_path: Path) -> None:
    server = start_server(tmp_path / "data", "--workers", "1")
    client = Client(server)
    page = client.changes(table)
    other = client.send("GET", f"/{table or ''}?comp=unknown")
    assert (page.status, other[0]) == (400, 400)
    for answer in (page.error, other[2].decode()):
        assert "<m:code>InvalidQueryParameterValue</m:code>" in answer
        assert "Value for one of the query parameters" in answer
    assert server.stop() == 0, server.stderr


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD"])
def test_another_method_is_answered_as_for_any_other_comp(orders: Client, method: str) -> None:
    for target in ("/Orders?", "/?restype=service&"):
        answers = [
            orders.send(method, f"{target}comp={each}")[0] for each in ("changes", "chonges")
        ]
        assert answers == [400, 400]
