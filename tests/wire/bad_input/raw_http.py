"""Sends bytes to a socket and reads an answer: requests that no HTTP client would send.

Knows how a case becomes bytes, even with repeated headers and false lengths.
"""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from signing import signed_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from server_process import ServerProcess
    from wire.bad_input.bad_request import BadRequest

ANSWER_SECONDS_MAX = 30.0
PIECE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def code(self) -> str:
        """The error code of the service; empty if the body is not the service's (wire 8.1)."""
        with suppress(ValueError, KeyError, TypeError):
            code = json.loads(self.body)["odata.error"]["code"]
            assert isinstance(code, str)
            return code
        return ""

    @property
    def message(self) -> str:
        message = json.loads(self.body)["odata.error"]["message"]["value"]
        assert isinstance(message, str)
        return message


class RawClient:
    def __init__(self, server: ServerProcess) -> None:
        address = urlsplit(server.endpoint)
        assert address.hostname is not None
        assert address.port is not None
        self.address = (address.hostname, address.port)
        self.base = address.path.rstrip("/")
        self.account, self.key = server.account_name, server.account_key

    def bytes_of(self, case: BadRequest) -> bytes:
        target = self.base + case.path
        headers = [("Host", "%s:%d" % self.address)]  # noqa: UP031  a tuple is what it formats
        headers += signed_headers(
            self.account,
            self.key,
            method=case.method,
            target=target,
            content_type=case.content_type,
        )
        if case.version:
            headers = [
                (name, case.version if name == "x-ms-version" else value) for name, value in headers
            ]
        length = str(len(case.body)) if case.content_length is None else case.content_length
        if length and case.method != "GET":
            headers.append(("Content-Length", length))
        headers += case.more_headers
        lines = [f"{case.method} {target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + case.body

    def send(self, pieces: Iterable[bytes], *, torn: bool = False) -> Answer | None:
        """The answer to the pieces, sent until it comes; None if the server just hangs up."""
        with socket.create_connection(self.address, timeout=ANSWER_SECONDS_MAX) as connection:
            # A server may refuse before it has everything, and close: that is not a failure to send.
            with suppress(OSError):
                for piece in pieces:
                    connection.sendall(piece)
                    if answer_waits(connection):
                        break
                if torn:
                    connection.shutdown(socket.SHUT_WR)
            return read_answer(connection)

    def ask(self, method: str, path: str, body: bytes = b"") -> Answer:
        """A valid request, which must be answered."""
        target = self.base + path
        connection = http.client.HTTPConnection(*self.address, timeout=ANSWER_SECONDS_MAX)
        headers = dict(
            signed_headers(
                self.account,
                self.key,
                method=method,
                target=target,
                content_type="application/json" if body else "",
            )
        )
        try:
            connection.request(method, target, body or None, headers)
            response = connection.getresponse()
            return answer_of(response)
        finally:
            connection.close()

    def everything(self) -> list[object]:
        """All tables, and all entities of each, with their ETags and Timestamps."""
        tables = list(self.listing("/Tables"))
        names = [table["TableName"] for table in tables]
        return [tables, *(list(self.listing(f"/{name}()")) for name in names)]

    def listing(self, path: str) -> Iterator[dict[str, str]]:
        options: dict[str, str] = {}
        while True:
            answer = self.ask("GET", f"{path}?{urlencode(options)}")
            assert answer.status == 200, answer
            yield from json.loads(answer.body)["value"]
            prefix = "x-ms-continuation-"
            options = {
                name: answer.headers[prefix + name.lower()]
                for name in ("NextTableName", "NextPartitionKey", "NextRowKey")
                if prefix + name.lower() in answer.headers
            }
            if not options:
                return


def answer_waits(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return connection.recv(1, socket.MSG_PEEK) is not None
    except BlockingIOError:
        return False
    finally:
        connection.settimeout(ANSWER_SECONDS_MAX)


def read_answer(connection: socket.socket) -> Answer | None:
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        return answer_of(response)
    except (http.client.BadStatusLine, ConnectionResetError):
        return None
    finally:
        response.close()


def answer_of(response: http.client.HTTPResponse) -> Answer:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


def in_pieces(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]
