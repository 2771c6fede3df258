"""Writers that never stop by themselves, and the reader that checks the data that they leave.

Knows: raw HTTP with a signature (no SDK: a retry would blur what was acknowledged), and how each
change is sent. A writer has its own partition and one request at a time; its
journal has the answers. Does not judge the data that is found.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlencode, urlsplit

from crash.journal import Change, Stored
from signing import signed_headers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from random import Random

    from crash.journal import Journal, Properties, Rows, TableJournal
    from server_process import ServerProcess

TABLE = "CrashReadings"
TABLES_COMING_AND_GOING = [f"Fleeting{number}" for number in range(4)]
ROW_KEYS = [f"row-{number:02}" for number in range(40)]
TRANSACTION_OPERATIONS_MAX = 25  # more rows than this would seldom be free at once
BATCH_TYPE = "multipart/mixed; boundary=batch_of_the_crash_test"
ETAG_OF_PART = re.compile(rb"^ETag: (.*?)\r?$", re.MULTILINE)
STATUS_OF_PART = re.compile(rb"^HTTP/1\.1 (\d{3}) ", re.MULTILINE)


class UnexpectedAnswerError(AssertionError):
    """The server answered, and not as the protocol says."""


class Connection:
    """Signed requests over one kept-alive connection."""

    def __init__(self, server: ServerProcess) -> None:
        address = urlsplit(server.endpoint)
        assert address.hostname is not None
        self.base = address.path.rstrip("/")
        self.account, self.key = server.account_name, server.account_key
        self.http = http.client.HTTPConnection(address.hostname, address.port, timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        expected: int,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[http.client.HTTPResponse, bytes]:
        target = self.base + path
        signed = dict(
            signed_headers(
                self.account, self.key, method=method, target=target, content_type=content_type
            )
        )
        self.http.request(method, target, body, signed | dict(headers or {}))
        response = self.http.getresponse()
        answer = response.read()
        if response.status != expected:
            raise UnexpectedAnswerError(f"{method} {path}: {response.status} {answer[:600]!r}")
        return response, answer

    def pages(self, path: str) -> Iterator[dict[str, Any]]:
        """All members of a list, page by page."""
        options: dict[str, str] = {}
        while True:
            query = f"?{urlencode(options)}" if options else ""
            response, body = self.send("GET", f"{path}{query}", expected=200)
            yield from json.loads(body)["value"]
            names = ("NextTableName", "NextPartitionKey", "NextRowKey")
            tokens = {name: response.getheader(f"x-ms-continuation-{name}") for name in names}
            options = {name: token for name, token in tokens.items() if token is not None}
            if not options:
                return


def entity_path(partition_key: str, row_key: str) -> str:
    return f"/{TABLE}(PartitionKey='{quote(partition_key)}',RowKey='{quote(row_key)}')"


class UntilKilled(threading.Thread):
    """Sends one operation after the other until its connection breaks."""

    def __init__(
        self, server: ServerProcess, randomness: Random, acknowledged: threading.Semaphore
    ) -> None:
        super().__init__(daemon=True)
        self.connection = Connection(server)
        self.random = randomness
        self.acknowledged = acknowledged
        self.unexpected: Exception | None = None

    def send_next(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        try:
            while True:
                self.send_next()
                self.acknowledged.release()
        except (OSError, http.client.HTTPException):
            pass  # The server is gone. The operation under way stays without an answer.
        except Exception as error:  # noqa: BLE001  the test reports it, not the thread
            self.unexpected = error
        finally:
            self.connection.http.close()


class EntityWriter(UntilKilled):
    """Inserts, replaces, merges, deletes and transactions, all in one partition."""

    def __init__(
        self,
        server: ServerProcess,
        journal: Journal,
        randomness: Random,
        acknowledged: threading.Semaphore,
    ) -> None:
        super().__init__(server, randomness, acknowledged)
        self.journal = journal

    def send_next(self) -> None:
        if self.random.random() < 0.4:
            self.send_transaction()
        else:
            self.send_one()

    def draw(self, row_key: str) -> tuple[Change, str, bytes, dict[str, str]]:
        """A change of this entity that must succeed; its method, body and headers."""
        number = self.random.getrandbits(31)
        padding = "x" * self.random.choice((0, 10, 300, 4_000, 30_000))
        current = self.journal.acknowledged.get(row_key)
        written: Properties = {"number": number, "padding": padding}
        keys = {"PartitionKey": self.journal.partition_key, "RowKey": row_key}
        if current is None and self.random.random() < 0.5:
            body = json.dumps(keys | written).encode()
            return Change(row_key, written), "POST", body, {"Prefer": "return-no-content"}
        condition = {}
        if current is not None:
            # Half of the conditions name the ETag that was acknowledged: it must be the one stored.
            condition = {"If-Match": current.etag if self.random.random() < 0.5 else "*"}
        draw = self.random.random()
        if current is not None and draw < 0.25:
            return Change(row_key, None), "DELETE", b"", condition
        if draw < 0.6:
            return Change(row_key, written), "PUT", json.dumps(written).encode(), condition
        merged: Properties = {"number": number, f"merged{number % 3}": number}
        before = current.properties if current is not None else {}
        return Change(row_key, before | merged), "PATCH", json.dumps(merged).encode(), condition

    def path(self, method: str, row_key: str) -> str:
        if method == "POST":
            return f"/{TABLE}"
        return entity_path(self.journal.partition_key, row_key)

    def send_one(self) -> None:
        row_key = self.random.choice(ROW_KEYS)
        change, method, body, headers = self.draw(row_key)
        self.journal.begin([change])
        response, _ = self.connection.send(
            method, self.path(method, row_key), body, expected=204, headers=headers
        )
        self.journal.acknowledge([response.getheader("ETag")])

    def send_transaction(self) -> None:
        row_keys = self.random.sample(ROW_KEYS, self.random.randint(1, TRANSACTION_OPERATIONS_MAX))
        drawn = [self.draw(row_key) for row_key in row_keys]
        parts = [
            part_of_batch(method, self.connection.base + self.path(method, row_key), body, headers)
            for row_key, (_, method, body, headers) in zip(row_keys, drawn, strict=True)
        ]
        body = (
            b"--batch_of_the_crash_test\r\n"
            b"Content-Type: multipart/mixed; boundary=changeset_1\r\n\r\n"
            + b"".join(parts)
            + b"--changeset_1--\r\n--batch_of_the_crash_test--\r\n"
        )
        changes = [change for change, _, _, _ in drawn]
        self.journal.begin(changes)
        _, answer = self.connection.send(
            "POST", "/$batch", body, expected=202, content_type=BATCH_TYPE
        )
        statuses = STATUS_OF_PART.findall(answer)
        if statuses != [b"204"] * len(changes):
            raise UnexpectedAnswerError(f"a transaction was refused: {answer[:2000]!r}")
        etags = iter(ETAG_OF_PART.findall(answer))
        self.journal.acknowledge(
            [None if change.properties is None else next(etags).decode() for change in changes]
        )


class TableWriter(UntilKilled):
    """Creates tables, inserts a few entities, deletes the tables, and creates them again."""

    def __init__(
        self,
        server: ServerProcess,
        journal: TableJournal,
        randomness: Random,
        acknowledged: threading.Semaphore,
    ) -> None:
        super().__init__(server, randomness, acknowledged)
        self.journal = journal

    def send_next(self) -> None:
        table = self.random.choice(TABLES_COMING_AND_GOING)
        rows = self.journal.acknowledged.get(table)
        quiet = {"Prefer": "return-no-content"}
        if rows is None:
            self.journal.begin(table, frozenset())
            body = json.dumps({"TableName": table}).encode()
            self.connection.send("POST", "/Tables", body, expected=204, headers=quiet)
        elif len(rows) == 5:
            self.journal.begin(table, None)
            self.connection.send("DELETE", f"/Tables('{table}')", expected=204)
        else:
            row_key = f"{self.random.getrandbits(60):x}"
            self.journal.begin(table, rows | {row_key})
            body = json.dumps({"PartitionKey": "p", "RowKey": row_key}).encode()
            self.connection.send("POST", f"/{table}", body, expected=204, headers=quiet)
        self.journal.acknowledge()


def part_of_batch(method: str, target: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [
        "--changeset_1",
        "Content-Type: application/http",
        "Content-Transfer-Encoding: binary",
        "",
        f"{method} {target} HTTP/1.1",
        "Content-Type: application/json",
        "Accept: application/json",
        *(f"{name}: {value}" for name, value in headers.items()),
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body + b"\r\n"


def read_partitions(server: ServerProcess) -> dict[str, dict[str, Stored]]:
    """Everything the table holds, by partition key and row key."""
    partitions: defaultdict[str, dict[str, Stored]] = defaultdict(dict)
    with Connection(server) as connection:
        for entity in connection.pages(f"/{TABLE}()"):
            partitions[entity["PartitionKey"]][entity["RowKey"]] = stored(entity)
    return partitions


def read_tables(server: ServerProcess) -> dict[str, Rows]:
    """The tables that come and go, each with the RowKeys of its entities."""
    with Connection(server) as connection:
        names = [table["TableName"] for table in connection.pages("/Tables")]
        return {
            name: frozenset(entity["RowKey"] for entity in connection.pages(f"/{name}()"))
            for name in names
            if name in TABLES_COMING_AND_GOING
        }


def stored(entity: Mapping[str, Any]) -> Stored:
    system = ("odata.etag", "PartitionKey", "RowKey", "Timestamp")
    properties = {name: value for name, value in entity.items() if name not in system}
    return Stored(properties, entity["odata.etag"])
