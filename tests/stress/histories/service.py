"""One client's connection to the service: sends operations as signed HTTP, and reads answers into the model's terms.

Knows which answers leave the outcome of a write open. An SDK's retries would hide outcomes, so this uses none.
"""

import http.client
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, Final
from urllib.parse import quote, urlsplit

from signing import signed_headers
from stress.crash.writers import BATCH_TYPE, part_of_batch
from stress.histories.recording import (
    ANY_VERSION,
    ROWS,
    UNCONDITIONAL,
    Found,
    History,
    Operation,
    Refusal,
    Write,
)
from tablestone.model.etag import format_etag, parse_etag

TABLE: Final = "Histories"
ANSWER_SECONDS_MAX: Final = 45.0
"""A server that takes more than 30 s hangs."""
RECOVERY_SECONDS_MAX: Final = 120.0
"""For how long the last reads of a run wait for a service that has just lost something."""
_METHODS: Final = {"insert": "POST", "replace": "PUT", "upsert": "PUT", "delete": "DELETE"}
_REFUSALS: Final = {
    "EntityAlreadyExists": "exists",
    "ResourceNotFound": "missing",
    "UpdateConditionNotSatisfied": "condition",
}
_PART: Final = re.compile(
    rb"^HTTP/1\.1 (\d{3}) [^\r\n]*\r\n(.*?)(?=^--changeset|\Z)", re.MULTILINE | re.DOTALL
)
_ETAG: Final = re.compile(rb"^ETag: (.*?)\r?$", re.MULTILINE)


class NoAnswer(Exception):
    """The request may have reached the server, and no answer came, or one that leaves the outcome open."""


class NotSent(Exception):
    """The request reached no server, or the server said that nothing was done."""


class UnexpectedAnswer(Exception):
    """The server answered, but not as the protocol says."""


@dataclass
class Target:
    """A server: its address, the account, and how far its clock is ahead of this machine's, in seconds.

    The address changes when the server is started again.
    """

    endpoint: str
    account: str
    key: str
    clock_ahead: float = 0.0


class Service:
    """Signed requests to one server over one connection, which is reopened when it breaks."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._base = urlsplit(target.endpoint).path.rstrip("/")
        self._http: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def create_table(self) -> None:
        """Create the table of the histories; it may exist."""
        status, body, _ = self._send("POST", "/Tables", json.dumps({"TableName": TABLE}).encode())
        if status not in (201, 204, 409):
            raise UnexpectedAnswer(f"the table: {status} {body[:300]!r}")

    def carry_out(self, partition: str, operation: Operation) -> None:
        """Send the operation, and put the answer into it. Raises `NoAnswer`, `NotSent` or `UnexpectedAnswer`."""
        if operation.get is not None:
            self._get(partition, operation)
        elif operation.is_list:
            self._list(partition, operation)
        elif len(operation.writes) == 1:
            self._write(partition, operation)
        else:
            self._transact(partition, operation)

    def _get(self, partition: str, operation: Operation) -> None:
        assert operation.get is not None
        status, body, _ = self._send("GET", entity_path(partition, operation.get))
        if status == 200:
            operation.rows = [found(json.loads(body))]
        elif status != 404 or code_of(body) != "ResourceNotFound":
            raise UnexpectedAnswer(f"a point read: {status} {body[:300]!r}")

    def _list(self, partition: str, operation: Operation) -> None:
        query = quote(f"PartitionKey eq '{partition}'")
        status, body, headers = self._send("GET", f"/{TABLE}()?$filter={query}")
        if status != 200:
            raise UnexpectedAnswer(f"a query: {status} {body[:300]!r}")
        operation.rows = [found(entity) for entity in json.loads(body)["value"]]
        if headers["x-ms-continuation-NextPartitionKey"] is not None:
            # The page ended before the first row that it does not list.
            operation.until = operation.rows[-1].row + 1 if operation.rows else 0

    def _write(self, partition: str, operation: Operation) -> None:
        write = operation.writes[0]
        method, path, body, conditions = request_of(partition, write)
        status, answer, headers = self._send(method, path, body, headers=conditions)
        if status == 204:
            etag = headers["ETag"]
            operation.done = [0 if etag is None else parse_etag(etag)]
        else:
            operation.error = refusal(status, answer, 0)

    def _transact(self, partition: str, operation: Operation) -> None:
        parts = [
            part_of_batch(method, self._base + path, body, conditions)
            for method, path, body, conditions in (
                request_of(partition, write) for write in operation.writes
            )
        ]
        body = (
            b"--batch_of_the_crash_test\r\n"
            b"Content-Type: multipart/mixed; boundary=changeset_1\r\n\r\n"
            + b"".join(parts)
            + b"--changeset_1--\r\n--batch_of_the_crash_test--\r\n"
        )
        status, answer, _ = self._send("POST", "/$batch", body, content_type=BATCH_TYPE)
        told = [(int(code), text) for code, text in _PART.findall(answer)]
        if status == 202 and len(told) == 1 and told[0][0] >= 400:
            operation.error = refusal(*told[0], index=None)
        elif status == 202 and [code for code, _ in told] == [204] * len(operation.writes):
            etags = [_ETAG.search(text) for _, text in told]
            operation.done = [0 if etag is None else parse_etag(etag[1].decode()) for etag in etags]
        else:
            raise _unexpected(status, answer)

    def _send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        target = self._base + path
        date = formatdate(time.time() + self.target.clock_ahead, usegmt=True)
        signed = signed_headers(
            self.target.account,
            self.target.key,
            method=method,
            target=target,
            content_type=content_type,
            date=date,
        )
        connection = self._connection()
        try:
            connection.request(method, target, body, dict(signed) | (headers or {}))
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoAnswer(str(error)) from error
        if response.status == 503:
            raise NotSent(code_of(answer))
        if response.status == 500 and code_of(answer) == "OperationTimedOut":
            raise NoAnswer("OperationTimedOut")
        return response.status, answer, response.headers

    def _connection(self) -> http.client.HTTPConnection:
        if self._http is not None and self._http.sock is not None:
            return self._http
        address = urlsplit(self.target.endpoint)
        assert address.hostname is not None
        made = http.client.HTTPConnection(
            address.hostname, address.port, timeout=ANSWER_SECONDS_MAX
        )
        try:
            made.connect()
        except OSError as error:
            raise NotSent(str(error)) from error
        self._http = made
        return made


def entity_path(partition: str, row: int) -> str:
    return f"/{TABLE}(PartitionKey='{partition}',RowKey='{row}')"


def request_of(partition: str, write: Write) -> tuple[str, str, bytes, dict[str, str]]:
    """The method, path, body and conditions of a write."""
    kind, row, value, version = write
    method = _METHODS.get(kind, "PATCH")
    headers = {"Prefer": "return-no-content"} if kind == "insert" else {}
    if kind not in UNCONDITIONAL:
        headers["If-Match"] = "*" if version == ANY_VERSION else format_etag(version)
    body = b""
    if kind != "delete":
        given: dict[str, Any] = {"n" if method != "PATCH" else "m": value}
        if kind == "insert":
            given |= {"PartitionKey": partition, "RowKey": str(row)}
        body = json.dumps(given).encode()
    path = f"/{TABLE}" if kind == "insert" else entity_path(partition, row)
    return method, path, body, headers


def found(entity: dict[str, Any]) -> Found:
    version = parse_etag(entity["odata.etag"])
    return Found(int(entity["RowKey"]), entity.get("n", 0), entity.get("m", 0), version)


def code_of(body: bytes) -> str:
    """The error code in an answer; the beginning of the answer if it has none."""
    code, _ = _error_of(body)
    return code


def refusal(status: int, body: bytes, index: int | None) -> Refusal:
    """The refusal in an error answer; with `index` None, its message begins with the operation's number."""
    code, message = _error_of(body)
    if code not in _REFUSALS:
        if status == 503:
            raise NotSent(code)
        if code == "OperationTimedOut":
            raise NoAnswer(code)
        raise _unexpected(status, body)
    if index is None:
        index = int(message.partition(":")[0])
    return Refusal(index, _REFUSALS[code])


def read_everything(service: Service, histories: Sequence[History], client: int) -> None:
    """Read every partition once more, row by row, at the end: nothing acknowledged may be missing."""
    for history in histories:
        for row in (*range(ROWS), None):
            deadline = time.monotonic() + RECOVERY_SECONDS_MAX
            while True:
                operation = history.begin(client, get=row)
                try:
                    service.carry_out(history.name, operation)
                except (NoAnswer, NotSent):
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(1)
                else:
                    history.answered(operation)
                    break


def _error_of(body: bytes) -> tuple[str, str]:
    start = body.find(b'{"odata.error"')
    if start < 0:
        return body[:100].decode("utf-8", "replace"), ""
    error = json.JSONDecoder().raw_decode(body[start:].decode())[0]["odata.error"]
    return str(error["code"]), str(error["message"]["value"])


def _unexpected(status: int, body: bytes) -> UnexpectedAnswer:
    return UnexpectedAnswer(f"{status} {body[:600]!r}")
