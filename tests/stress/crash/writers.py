"""Writers that run until they are killed, and the reader of the data that they leave.

They send raw signed HTTP, because an SDK's retries would blur what was acknowledged. A writer has its own partition and
one request at a time; its journal has the answers, and judges the data that is found.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections import defaultdict
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlencode, urlsplit

from signing import signed_headers
from stress.crash.journal import Change, Stored
from tablestone.configuration import DEVELOPMENT_ACCOUNT_KEY, DEVELOPMENT_ACCOUNT_NAME

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from random import Random

    from server_process import ServerProcess
    from stress.crash.journal import Journal, Properties

TABLE = "CrashReadings"
ROW_KEYS = [f"row-{number:02}" for number in range(40)]
QUIET = {"Prefer": "return-no-content"}
JSON = {"Accept": "application/json;odata=nometadata"}
ANSWER_SECONDS_MAX = 120
BUSY_PAUSE_SECONDS = 0.02
TRANSACTION_OPERATIONS_MAX = 25  # rarely are more rows free at once
BATCH_TYPE = "multipart/mixed; boundary=batch_of_the_crash_test"
ETAG_OF_PART = re.compile(rb"^ETag: (.*?)\r?$", re.MULTILINE)
STATUS_OF_PART = re.compile(rb"^HTTP/1\.1 (\d{3}) ", re.MULTILINE)


class UnexpectedAnswerError(AssertionError):
    """The server answered, but not as the protocol says."""


class NothingDoneError(UnexpectedAnswerError):
    """The server answered 503: it has done nothing."""


class Connection:
    """Signed requests over one kept-alive connection, from the server's own account unless another is named.

    `now` is the client's clock, in seconds since 1970.
    """

    def __init__(
        self,
        server: ServerProcess,
        account: str = "",
        key: str = "",
        now: Callable[[], float] = time.time,
    ) -> None:
        self.now = now
        address = urlsplit(server.endpoint)
        assert address.hostname is not None
        self.base = f"/{account}" if account else address.path.rstrip("/")
        self.account, self.key = account or server.account_name, key or server.account_key
        self.http = http.client.HTTPConnection(
            address.hostname, address.port, timeout=ANSWER_SECONDS_MAX
        )

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
                self.account,
                self.key,
                method=method,
                target=target,
                content_type=content_type,
                date=formatdate(self.now(), usegmt=True),
            )
        )
        self.http.request(method, target, body, signed | dict(headers or {}))
        response = self.http.getresponse()
        answer = response.read()
        if response.status != expected:
            error = NothingDoneError if response.status == 503 else UnexpectedAnswerError
            raise error(f"{method} {path}: {response.status} {answer[:600]!r}")
        return response, answer

    def send_batch(self, parts: Sequence[bytes]) -> bytes:
        """Send a transaction of these parts, each of which has to succeed; returns the answer."""
        body = (
            b"--batch_of_the_crash_test\r\n"
            b"Content-Type: multipart/mixed; boundary=changeset_1\r\n\r\n"
            + b"".join(parts)
            + b"--changeset_1--\r\n--batch_of_the_crash_test--\r\n"
        )
        _, answer = self.send("POST", "/$batch", body, expected=202, content_type=BATCH_TYPE)
        statuses = STATUS_OF_PART.findall(answer)
        if statuses == [b"503"]:
            raise NothingDoneError(f"a transaction: {answer[:600]!r}")
        if statuses != [b"204"] * len(parts):
            raise UnexpectedAnswerError(f"a transaction was refused: {answer[:2000]!r}")
        return answer

    def pages(self, path: str, chosen: Mapping[str, str] | None = None) -> Iterator[dict[str, Any]]:
        """All members of a list, page by page, with these query options in `chosen`."""
        options = dict(chosen or {})
        while True:
            query = f"?{urlencode(options, quote_via=quote)}" if options else ""
            response, body = self.send("GET", f"{path}{query}", expected=200)
            yield from json.loads(body)["value"]
            names = ("NextTableName", "NextPartitionKey", "NextRowKey")
            tokens = {name: response.getheader(f"x-ms-continuation-{name}") for name in names}
            following = {name: token for name, token in tokens.items() if token is not None}
            if not following:
                return
            options = {**(chosen or {}), **following}


def entity_path(partition_key: str, row_key: str) -> str:
    return f"/{TABLE}(PartitionKey='{quote(partition_key)}',RowKey='{quote(row_key)}')"


def as_development_account(server: ServerProcess) -> ServerProcess:
    """The server with the development account: it prints stored accounts first, without their keys."""
    address = server.endpoint.rpartition("/")[0]
    server.endpoint = f"{address}/{DEVELOPMENT_ACCOUNT_NAME}"
    server.connection_string = (
        f"AccountName={DEVELOPMENT_ACCOUNT_NAME};AccountKey={DEVELOPMENT_ACCOUNT_KEY};"
    )
    return server


class Life:
    """One start of a server until its end, as its writers see it."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.is_ending = threading.Event()
        """The whole server is about to be killed. A worker that is killed before that is replaced."""
        self.acknowledged = threading.Semaphore(0)
        self.complaints: list[str] = []
        self.unanswered = 0
        self.commands: set[subprocess.Popen[str]] = set()
        """The commands that run beside the server."""


class UntilKilled(threading.Thread):
    """Sends one operation after the other until the server is gone.

    If only its worker is gone, it reads what it has written, lets its journal judge that, and goes on.
    """

    journal: Any

    def __init__(self, life: Life, randomness: Random) -> None:
        super().__init__(daemon=True)
        self.life = life
        self.connection = Connection(life.server)
        self.random = randomness
        self.unexpected: Exception | None = None

    def send_next(self) -> None:
        raise NotImplementedError

    def read(self) -> Any:
        """Everything that this writer has stored, in the form its journal takes."""
        raise NotImplementedError

    def run(self) -> None:
        try:
            while True:
                try:
                    self.send_next()
                except NothingDoneError:
                    self.journal.forget()
                    time.sleep(BUSY_PAUSE_SECONDS)
                except TimeoutError:
                    raise  # It may still happen, so nothing can be said about it.
                except (OSError, http.client.HTTPException):
                    self.life.unanswered += bool(self.journal.in_flight)
                    if not self.goes_on():
                        break
                else:
                    self.life.acknowledged.release()
        except Exception as error:  # noqa: BLE001  the test reports it, not the thread
            self.unexpected = error
        finally:
            self.connection.http.close()

    def goes_on(self) -> bool:
        """Whether the server is still there; then the unanswered operation has its outcome."""
        while not self.life.is_ending.is_set():
            self.connection.http.close()
            try:
                found = self.read()
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException, NothingDoneError):
                time.sleep(BUSY_PAUSE_SECONDS)
            else:
                self.life.complaints += self.journal.complaints(found)
                self.journal.settle(found)
                return True
        return False


class EntityWriter(UntilKilled):
    """Inserts, replaces, merges, deletes and transactions, all in one partition."""

    def __init__(self, life: Life, journal: Journal, randomness: Random) -> None:
        super().__init__(life, randomness)
        self.journal = journal

    def read(self) -> dict[str, Stored]:
        partition_key = self.journal.partition_key
        return read_partitions(self.connection, partition_key).get(partition_key, {})

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
            # Half of the conditions name the acknowledged ETag, which must be the stored one.
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
        changes = [change for change, _, _, _ in drawn]
        self.journal.begin(changes)
        answer = self.connection.send_batch(parts)
        etags = iter(ETAG_OF_PART.findall(answer))
        self.journal.acknowledge(
            [None if change.properties is None else next(etags).decode() for change in changes]
        )


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


def read_partitions(
    connection: Connection, partition_key: str | None = None
) -> dict[str, dict[str, Stored]]:
    """The entities of the table, or of one partition, by partition key and row key."""
    chosen = {} if partition_key is None else {"$filter": f"PartitionKey eq '{partition_key}'"}
    partitions: defaultdict[str, dict[str, Stored]] = defaultdict(dict)
    for entity in connection.pages(f"/{TABLE}()", chosen):
        partitions[entity["PartitionKey"]][entity["RowKey"]] = stored(entity)
    return dict(partitions)


def stored(entity: Mapping[str, Any]) -> Stored:
    system = ("odata.etag", "PartitionKey", "RowKey", "Timestamp")
    properties = {name: value for name, value in entity.items() if name not in system}
    return Stored(properties, entity["odata.etag"])
