"""The load of a soak: every kind of request at a fixed rate, on data that does not grow.

A client sends signed requests and checks the answers. It reconnects now and then, so that connections come and go too.
"""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final
from urllib.parse import quote

from server_process import ServerProcess
from stress.crash.writers import Connection

TABLE: Final = "Soaked"
PARTITIONS: Final = 8
ROWS: Final = 200
"""The most rows of a partition."""
TEXT_LENGTH: Final = 400
TRANSACTION: Final = 10
RECONNECT_SHARE: Final = 0.02
BATCH_TYPE: Final = "multipart/mixed; boundary=batch_s"


class SteadyLoad(threading.Thread):
    """One of `clients`, which together send `rate` requests a second until `end` is called.

    `took` has the seconds of each point read since the last `take_times`.
    """

    def __init__(
        self, server: ServerProcess, number: int, clients: int, rate: float, seed: int
    ) -> None:
        super().__init__(daemon=True)
        self.requests = 0
        self.failure: Exception | None = None
        self._server = server
        self._number = number
        self._every = clients / rate
        self._random = Random(f"{seed} {number}")
        self._ends = threading.Event()
        self._connection = Connection(server)
        self._took: list[float] = []

    def end(self) -> None:
        self._ends.set()

    def take_times(self) -> list[float]:
        took, self._took = self._took, []
        return took

    def run(self) -> None:
        try:
            due = time.monotonic() + self._random.random() * self._every
            while not self._ends.wait(max(0.0, due - time.monotonic())):
                # A load that the machine held up does not catch up, or it would not be steady.
                due = max(due + self._every, time.monotonic())
                self._one_request()
                self.requests += 1
        except Exception as failure:  # noqa: BLE001 - the run reports it, not the thread
            self.failure = failure
        finally:
            self._connection.http.close()

    def _one_request(self) -> None:
        if self._random.random() < RECONNECT_SHARE:
            self._connection.http.close()
            self._connection = Connection(self._server)
        (kind,) = self._random.choices(list(_KINDS), list(_KINDS.values()))
        kind(self)

    def _place(self) -> str:
        """A random entity; each client has its own partitions, so each answer is known."""
        return f"{self._number}-{self._random.randrange(PARTITIONS)}"

    def _row(self) -> str:
        return f"row-{self._random.randrange(ROWS):04}"

    def _text(self) -> str:
        return self._random.choice("abcdefgh") * TEXT_LENGTH

    def _upsert(self) -> tuple[str, str]:
        partition, row = self._place(), self._row()
        self._send("PUT", _entity(partition, row), {"Text": self._text(), "Number": 7}, 204)
        return partition, row

    def point_read(self) -> None:
        partition, row = self._upsert()
        began = time.monotonic()
        self._send("GET", _entity(partition, row), None, 200)
        self._took.append(time.monotonic() - began)

    def merge(self) -> None:
        self._send("PATCH", _entity(*self._upsert()), {"Number": self._random.random()}, 204)

    def delete(self) -> None:
        entity = _entity(*self._upsert())
        self._connection.send("DELETE", entity, expected=204, headers={"If-Match": "*"})
        self._send("GET", entity, None, 404)

    def page(self) -> None:
        chosen = quote(f"PartitionKey eq '{self._place()}'")
        self._send("GET", f"/{TABLE}()?$filter={chosen}", None, 200)

    def scan(self) -> None:
        chosen = quote("Number eq 8")
        self._send("GET", f"/{TABLE}()?$filter={chosen}&$select=Text", None, 200)

    def transaction(self) -> None:
        partition = self._place()
        parts = "".join(
            "--changeset_s\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
            f"PUT {self._server.endpoint}{_entity(partition, f'row-{row:04}')} HTTP/1.1\r\n"
            "Accept: application/json\r\nContent-Type: application/json\r\n\r\n"
            f"{json.dumps({'Text': self._text()})}\r\n"
            for row in self._random.sample(range(ROWS), TRANSACTION)
        )
        body = (
            "--batch_s\r\nContent-Type: multipart/mixed; boundary=changeset_s\r\n\r\n"
            f"{parts}--changeset_s--\r\n--batch_s--\r\n"
        )
        _, answer = self._connection.send(
            "POST", "/$batch", body.encode(), expected=202, content_type=BATCH_TYPE
        )
        assert answer.count(b"HTTP/1.1 204 ") == TRANSACTION, answer[:2000]

    def table_comes_and_goes(self) -> None:
        name = f"Fleeting{self._number}x{self._random.randrange(10**9)}"
        self._send("POST", "/Tables", {"TableName": name}, 201)
        self._send("PUT", f"/{name}(PartitionKey='p',RowKey='r')", {"Text": self._text()}, 204)
        self._send("DELETE", f"/Tables('{name}')", None, 204)

    def refused(self) -> None:
        """Send an invalid number, and a wrong signature."""
        path = f"/{TABLE}()?$top=none"
        self._send("GET", path, None, 400)
        self._connection.send(
            "GET", _entity("p", "r"), expected=403, headers={"Authorization": "SharedKey a:b"}
        )

    def _send(self, method: str, path: str, body: object, expected: int) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self._connection.send(method, path, content, expected=expected)


_KINDS: Final[dict[Callable[[SteadyLoad], None], int]] = {
    SteadyLoad.point_read: 40,
    SteadyLoad.merge: 15,
    SteadyLoad.delete: 10,
    SteadyLoad.page: 8,
    SteadyLoad.scan: 4,
    SteadyLoad.transaction: 8,
    SteadyLoad.table_comes_and_goes: 2,
    SteadyLoad.refused: 5,
}
"""The kinds of requests, and how often each is chosen."""


def _entity(partition: str, row: str) -> str:
    return f"/{TABLE}(PartitionKey='{partition}',RowKey='{row}')"


def fill(server: ServerProcess, clients: int) -> None:
    """Store every row that the clients will change, so that the data has its full size from the start."""
    with Connection(server) as connection, suppress(AssertionError):
        connection.send("POST", "/Tables", json.dumps({"TableName": TABLE}).encode(), expected=201)
    for number in range(clients):
        load = SteadyLoad(server, number, 1, 1.0, 0)
        for _ in range(PARTITIONS * ROWS // TRANSACTION // 4):
            load.transaction()
        load._connection.http.close()
