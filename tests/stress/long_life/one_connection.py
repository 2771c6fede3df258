"""One client on one long-lived connection: requests of every kind, and the answer that each must have.

The client mirrors the entities of its partition in a dictionary, so it knows each answer before it comes. It writes to
a socket itself, because no HTTP client pipelines, splits a head, or sends a request that must be refused.
"""

import json
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from random import Random
from typing import Final
from urllib.parse import quote, urlsplit

from server_process import ServerProcess
from signing import shared_key

TABLE: Final = "LongLife"
PARTITION: Final = "one"
ROWS: Final = 200
"""The most rows of the partition."""
PIPELINED_MAX: Final = 20
ANSWER_SECONDS_MAX: Final = 60.0
SPREAD: Final = 7.5
"""How many seconds a signed date is used for: signing costs the client more than anything else."""
STRETCH: Final = 100
"""How many requests of one kind follow each other, so that none of another kind resets what they add up."""
PADDING: Final = f"X-Padding: {'x' * 4_000}"
"""Makes the heads of a stretch, together, longer than one request's head may be."""
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
JSON: Final = "application/json"
BATCH: Final = "multipart/mixed; boundary=batch_b"


@dataclass(frozen=True)
class Exchange:
    """One request, in the pieces that are sent one by one, and what its answer must be.

    With `expects`, the second piece is sent once the server has asked for it.
    """

    pieces: tuple[bytes, ...]
    status: int
    holds: bytes = b""
    is_head: bool = False
    expects: bool = False
    parts: int = 0
    """How many parts of a batch must succeed."""


class OneConnection:
    """A connection to a server, on which `requests` have been answered correctly."""

    def __init__(self, server: ServerProcess, seed: int, trusted: ssl.SSLContext | None) -> None:
        self.requests = 0
        self.kinds: Counter[str] = Counter()
        self.request_ids: set[bytes] = set()
        self._account, self._key = server.account_name, server.account_key
        self._base = urlsplit(server.endpoint).path
        self._random = Random(seed)
        self._stored: dict[str, int] = {}
        self._signed: dict[tuple[str, str, str], bytes] = {}
        self._signed_until = 0.0
        self._padding: tuple[str, ...] = ()
        self._unread = b""
        self._socket = socket.create_connection(server.address, timeout=ANSWER_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if trusted is not None:
            self._socket = trusted.wrap_socket(self._socket, server_hostname=server.address[0])
        self._ask([self._request("POST", "/Tables", 201, {"TableName": TABLE})])

    def close(self) -> None:
        self._socket.close()

    def run(self, requests: int) -> None:
        """Send requests until so many are answered; raises `AssertionError` at the first wrong answer.

        It starts with a stretch of each kind, one by one and then pipelined, because another kind might reset what
        counts the requests of one kind; then come all kinds at random.
        """
        names, weights = list(_KINDS), [each.weight for each in _KINDS.values()]
        if not self.kinds:
            self._padding = (PADDING,)
            for name, kind in _KINDS.items():
                self.kinds[name] += 2 * STRETCH
                for _ in range(STRETCH):
                    self._ask([kind.make(self)])
                for _ in range(STRETCH // PIPELINED_MAX):
                    self._ask([kind.make(self) for _ in range(PIPELINED_MAX)])
            self._padding = ()
        while self.requests < requests:
            chosen = self._random.choices(names, weights, k=self._random.randint(1, PIPELINED_MAX))
            self.kinds.update(chosen)
            self._ask([_KINDS[name].make(self) for name in chosen])

    def _ask(self, exchanges: list[Exchange]) -> None:
        """Send requests in as few pieces as possible, and check the answers."""
        waiting: list[Exchange] = []
        together = b""
        for exchange in exchanges:
            waiting.append(exchange)
            if len(exchange.pieces) == 1:
                together += exchange.pieces[0]
                continue
            if exchange.expects:  # else an earlier answer would be taken for the interim one
                self._send(together)
                for earlier in waiting[:-1]:
                    self._check(earlier)
                waiting, together = [exchange], b""
            for number, piece in enumerate(exchange.pieces):
                if exchange.expects and number:
                    assert self._take(len(CONTINUE)) == CONTINUE
                self._send(together + piece)
                together = b""
        self._send(together)
        for exchange in waiting:
            self._check(exchange)

    def _send(self, data: bytes) -> None:
        if data:
            self._socket.sendall(data)

    def _check(self, exchange: Exchange) -> None:
        while (end := self._unread.find(b"\r\n\r\n")) < 0:
            self._receive()
        head, self._unread = self._unread[: end + 2], self._unread[end + 4 :]
        status = int(head[9:12])
        body = b""
        if status not in (204, 304) and not exchange.is_head:
            body = self._take(int(_field(head, b"content-length")))
        about = f"request {self.requests}: {exchange.pieces[0][:300]!r}: {head!r} {body[:300]!r}"
        assert status == exchange.status, about
        assert exchange.holds in body, about
        assert b"\r\nconnection: close\r\n" not in head, about
        assert body.count(b"HTTP/1.1 204 ") == exchange.parts, about
        request_id = _field(head, b"x-ms-request-id")
        assert len(request_id) == 36, about
        assert request_id not in self.request_ids, about
        self.request_ids.add(request_id)
        self.requests += 1

    def _take(self, length: int) -> bytes:
        while len(self._unread) < length:
            self._receive()
        taken, self._unread = self._unread[:length], self._unread[length:]
        return taken

    def _receive(self) -> None:
        data = self._socket.recv(262_144)
        assert data, f"the server closed the connection after {self.requests} requests"
        self._unread += data

    def _request(
        self, method: str, path: str, status: int, body: object = None, *more: str, holds: str = ""
    ) -> Exchange:
        content = b"" if body is None else json.dumps(body).encode()
        head = self._head(method, path, JSON if content else "", *more)
        if content or method not in ("GET", "HEAD", "OPTIONS"):
            head += b"Content-Length: %d\r\n" % len(content)
        whole = head + b"\r\n" + content
        return Exchange((whole,), status, holds.encode(), is_head=method == "HEAD")

    def _head(self, method: str, path: str, content_type: str = "", *more: str) -> bytes:
        """The lines of a signed head, without the empty line at its end."""
        if time.monotonic() > self._signed_until:
            self._signed.clear()
            self._signed_until = time.monotonic() + SPREAD
        kept = self._signed.get((method, path, content_type))
        if kept is None:
            target = self._base + path
            date = formatdate(usegmt=True)
            authorization = shared_key(
                self._account,
                self._key,
                method=method,
                target=target,
                date=date,
                content_type=content_type,
            )
            lines = [
                f"{method} {target} HTTP/1.1",
                "Host: 127.0.0.1",
                f"Authorization: {authorization}",
                f"x-ms-date: {date}",
                "x-ms-version: 2019-02-02",
                "Accept: application/json;odata=nometadata",
                *([f"Content-Type: {content_type}"] if content_type else []),
                "",
            ]
            kept = "\r\n".join(lines).encode()
            self._signed[method, path, content_type] = kept
        return kept + "".join(f"{line}\r\n" for line in (*more, *self._padding)).encode()

    def _row(self) -> str:
        return f"row-{self._random.randrange(ROWS):03}"

    def _change(self, row: str) -> dict[str, int]:
        self._stored[row] = value = self._random.randrange(10**9)
        return {"Value": value}

    def read(self) -> Exchange:
        row = self._row()
        return self._read(row)

    def _read(self, row: str) -> Exchange:
        if row in self._stored:
            return self._request("GET", _entity(row), 200, holds=f'"Value":{self._stored[row]}')
        return self._request("GET", _entity(row), 404, holds="ResourceNotFound")

    def read_in_pieces(self) -> Exchange:
        """Send the head in two pieces."""
        whole = self._read(self._row())
        cut = self._random.randrange(1, len(whole.pieces[0]) - 1)
        first, rest = whole.pieces[0][:cut], whole.pieces[0][cut:]
        return Exchange((first, rest), whole.status, whole.holds)

    def insert(self) -> Exchange:
        row = self._row()
        if row in self._stored:
            body = {"PartitionKey": PARTITION, "RowKey": row, "Value": -1}
            return self._request("POST", f"/{TABLE}", 409, body, holds="EntityAlreadyExists")
        body = {"PartitionKey": PARTITION, "RowKey": row, **self._change(row)}
        return self._request("POST", f"/{TABLE}", 201, body, holds=f'"RowKey":"{row}"')

    def upsert(self) -> Exchange:
        row = self._row()
        return self._request("PUT", _entity(row), 204, self._change(row))

    def upsert_in_chunks(self) -> Exchange:
        row = self._row()
        content = json.dumps(self._change(row)).encode()
        head = self._head("PUT", _entity(row), JSON, "Transfer-Encoding: chunked")
        chunks = b"%x\r\n%b\r\n%x;name=value\r\n%b\r\n0\r\nX-Trailer: a\r\n\r\n" % (
            *(5, content[:5]),
            *(len(content) - 5, content[5:]),
        )
        return Exchange((head + b"\r\n" + chunks,), 204)

    def upsert_that_expects(self) -> Exchange:
        row = self._row()
        content = json.dumps(self._change(row)).encode()
        length = f"Content-Length: {len(content)}"
        head = self._head("PUT", _entity(row), JSON, length, "Expect: 100-continue")
        return Exchange((head + b"\r\n", content), 204, expects=True)

    def merge(self) -> Exchange:
        row = self._row()
        if row not in self._stored:
            body = {"Other": 1}
            return self._request(
                "PATCH", _entity(row), 404, body, "If-Match: *", holds="ResourceNotFound"
            )
        return self._request("PATCH", _entity(row), 204, self._change(row), "If-Match: *")

    def delete(self) -> Exchange:
        row = self._row()
        if self._stored.pop(row, None) is None:
            return self._request(
                "DELETE", _entity(row), 404, None, "If-Match: *", holds="ResourceNotFound"
            )
        return self._request("DELETE", _entity(row), 204, None, "If-Match: *")

    def transaction(self) -> Exchange:
        rows = self._random.sample(range(ROWS), 5)
        parts = "".join(
            "--changeset_c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
            f"PUT http://127.0.0.1{self._base}{_entity(row)} HTTP/1.1\r\n"
            f"Accept: {JSON}\r\nContent-Type: {JSON}\r\n\r\n{json.dumps(self._change(row))}\r\n"
            for row in (f"row-{number:03}" for number in rows)
        )
        body = (
            "--batch_b\r\nContent-Type: multipart/mixed; boundary=changeset_c\r\n\r\n"
            f"{parts}--changeset_c--\r\n--batch_b--\r\n"
        ).encode()
        head = self._head("POST", "/$batch", BATCH, f"Content-Length: {len(body)}")
        return Exchange((head + b"\r\n" + body,), 202, parts=len(rows))

    def refused_transaction(self) -> Exchange:
        body = b"--batch_b\r\nno part\r\n--batch_b--\r\n"
        head = self._head("POST", "/$batch", BATCH, f"Content-Length: {len(body)}")
        return Exchange((head + b"\r\n" + body,), 400, b"InvalidInput")

    def page(self) -> Exchange:
        rows = sorted(self._stored)
        holds = f'"RowKey":"{rows[-1]}"' if rows else '"value":[]'
        chosen = quote(f"PartitionKey eq '{PARTITION}'")
        return self._request("GET", f"/{TABLE}()?$filter={chosen}", 200, holds=holds)

    def page_with_a_token(self) -> Exchange:
        rows = sorted(self._stored)
        holds = f'"RowKey":"{rows[2]}"' if len(rows) > 3 else "[]" if not rows else rows[-1]
        return self._request("GET", f"/{TABLE}()?$top=3", 200, holds=holds)

    def scan(self) -> Exchange:
        chosen = quote("Value eq -1")
        return self._request("GET", f"/{TABLE}()?$filter={chosen}", 200, holds='{"value":[]}')

    def wrong_filter(self) -> Exchange:
        return self._request("GET", f"/{TABLE}()?$filter=Value%20eq", 400, holds="InvalidInput")

    def wrong_signature(self) -> Exchange:
        right = self._read(self._row()).pieces[0]
        start = right.index(b":", right.index(b"SharedKey")) + 1
        wrong = right[:start] + b"AAAA" + right[start + 4 :]
        return Exchange((wrong,), 403, b"AuthenticationFailed")

    def no_table(self) -> Exchange:
        return self._request("GET", "/Absent()", 404, holds="TableNotFound")

    def head(self) -> Exchange:
        return self._request("HEAD", _entity(self._row()), 405)

    def preflight(self) -> Exchange:
        origin = ("Origin: http://a.example", "Access-Control-Request-Method: GET")
        return self._request(
            "OPTIONS", _entity(self._row()), 403, None, *origin, holds="CorsPreflightFailure"
        )


@dataclass(frozen=True)
class _Kind:
    make: Callable[[OneConnection], Exchange]
    weight: int


_KINDS: Final[dict[str, _Kind]] = {
    "point read": _Kind(OneConnection.read, 500),
    "point read in two pieces": _Kind(OneConnection.read_in_pieces, 50),
    "insert": _Kind(OneConnection.insert, 25),
    "upsert": _Kind(OneConnection.upsert, 25),
    "upsert in chunks": _Kind(OneConnection.upsert_in_chunks, 15),
    "upsert that expects 100": _Kind(OneConnection.upsert_that_expects, 15),
    "merge": _Kind(OneConnection.merge, 20),
    "delete": _Kind(OneConnection.delete, 20),
    "transaction": _Kind(OneConnection.transaction, 10),
    "refused transaction": _Kind(OneConnection.refused_transaction, 10),
    "page": _Kind(OneConnection.page, 10),
    "page with a token": _Kind(OneConnection.page_with_a_token, 50),
    "scan": _Kind(OneConnection.scan, 10),
    "wrong filter": _Kind(OneConnection.wrong_filter, 20),
    "wrong signature": _Kind(OneConnection.wrong_signature, 20),
    "no such table": _Kind(OneConnection.no_table, 20),
    "HEAD": _Kind(OneConnection.head, 20),
    "preflight": _Kind(OneConnection.preflight, 20),
}
"""The kinds of requests, and how often each is chosen."""


def _entity(row: str) -> str:
    return f"/{TABLE}(PartitionKey='{PARTITION}',RowKey='{row}')"


def _field(head: bytes, name: bytes) -> bytes:
    start = head.lower().index(b"\r\n" + name + b": ") + len(name) + 4
    return head[start : head.index(b"\r\n", start)]
