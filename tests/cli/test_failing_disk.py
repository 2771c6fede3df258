"""A real server on a failing disk: it answers with the service's errors, stores nothing by half, and recovers.

`tests/storage/test_sqlite_failing_disk.py` fails every single call of the engine; this is what clients and operators
see.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cli.admin_pages import json_page
from cli.command_line import tablestone
from cli.failing_disk_server import write_fault
from cli.worker_processes import wait_until
from server_process import ServerProcess, start_server
from wire.bad_input.bad_request import BadRequest
from wire.bad_input.raw_http import Answer, RawClient

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("failing_disk_server.py")
TABLE = "Readings"
VALUE = "x" * 30_000
ROUNDS = 12
"""Rounds of writes during a fault, enough to checkpoint the log."""
GOOD_IN_A_ROW = 8
"""Writes in a row that succeed once the server has recovered; each worker gets some of them."""
AT_LENGTH = 120.0
NOT_NOW = {503: "ServerBusy", 500: "OperationTimedOut"}
"""503 means that nothing was stored, 500 that nobody knows."""
COPYING = "The write-ahead log could not be copied into the database"


class Fault(NamedTuple):
    """A call that fails, the error, and what can be seen while it lasts."""

    call: str
    error: str
    are_writes_refused: bool = False
    do_reads_go_on: bool = True
    logged: str = ""
    """A part of the server's log."""


FAULTS = (
    Fault("write log", "ENOSPC", are_writes_refused=True, logged="storage cannot answer request"),
    Fault("write log", "EIO", are_writes_refused=True, logged="storage cannot answer request"),
    Fault(
        "flush log",
        "EIO of a flush",
        are_writes_refused=True,
        logged="it is not known whether request",
    ),
    Fault("read log", "EIO", do_reads_go_on=False),
    Fault("write database", "ENOSPC", logged=COPYING),
    Fault("write database", "EIO", logged=COPYING),
    Fault("flush database", "EIO of a flush", logged=COPYING),
    Fault("read database", "EIO", do_reads_go_on=False),
    Fault("open log", "EMFILE"),
    Fault("open database", "EMFILE"),
)


class Writes:
    """Writes of several kinds, and the rows that must, must not, or may exist afterwards."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._number = 0
        self.groups: list[tuple[tuple[str, ...], bool | None]] = []
        """Rows that were written together, and whether they exist; None if that is unknown."""
        self.refused = 0

    def insert(self) -> Answer:
        """Insert one entity."""
        (row,) = self._names(1)
        return self._noted((row,), self._client.ask("POST", f"/{TABLE}", entity(row)))

    def transact(self) -> Answer:
        """Insert two entities in one transaction."""
        rows = self._names(2)
        lines = ["--b", "Content-Type: multipart/mixed; boundary=c", ""]
        for row in rows:
            lines += ["--c", "Content-Type: application/http", ""]
            lines += [f"POST /devstoreaccount1/{TABLE} HTTP/1.1", "Content-Type: application/json"]
            lines += ["Accept: application/json", "", entity(row).decode()]
        body = "\r\n".join([*lines, "--c--", "--b--", ""]).encode()
        case = BadRequest(
            "", "", path="/$batch", body=body, content_type="multipart/mixed; boundary=b"
        )
        answer = self._client.send([self._client.bytes_of(case)])
        assert answer is not None
        if answer.status == 202:
            status = int(answer.body.partition(b"HTTP/1.1 ")[2][:3])
            error = answer.body[answer.body.find(b'{"odata.error"') :].partition(b"\r\n")[0]
            answer = Answer(status, answer.headers, error)
        return self._noted(rows, answer)

    def _names(self, count: int) -> tuple[str, ...]:
        self._number += count
        return tuple(f"{self._number - part:06}" for part in range(count))

    def _noted(self, rows: tuple[str, ...], answer: Answer) -> Answer:
        if answer.status in NOT_NOW:
            assert answer.code == NOT_NOW[answer.status], answer
            self.refused += 1
            self.groups.append((rows, None if answer.status == 500 else False))
        else:
            assert answer.status in (201, 204), answer
            self.groups.append((rows, True))
        return answer

    def problems(self) -> Iterator[str]:
        """The rows that exist and should not, are missing, or are stored only in part."""
        there = set(self._rows())
        for rows, expected in self.groups:
            found = {row in there for row in rows}
            if len(found) > 1:
                yield f"{rows} is there in part"
            elif expected is not None and found != {expected}:
                yield f"{rows} {'is not there' if expected else 'is there'}"

    def _rows(self) -> Iterator[str]:
        more = ""
        while True:
            answer = self._client.ask("GET", f"/{TABLE}()?$select=RowKey{more}")
            assert answer.status == 200, answer
            yield from (str(found["RowKey"]) for found in json.loads(answer.body)["value"])
            names = ("NextPartitionKey", "NextRowKey")
            token = [answer.headers.get(f"x-ms-continuation-{name.lower()}") for name in names]
            if None in token:
                return
            more = "".join(f"&{name}={part}" for name, part in zip(names, token, strict=True))


def entity(row: str) -> bytes:
    return json.dumps({"PartitionKey": "p", "RowKey": row, "value": VALUE}).encode()


class Served(NamedTuple):
    """A server on a failing disk."""

    process: ServerProcess
    client: RawClient
    fault: Path
    data: Path

    def reasons(self) -> list[str]:
        """Why `/health/ready` says that the server is not ready."""
        status, page = json_page(self.process, "/health/ready")
        assert (status == 503) == ("reasons" in page)
        found: list[str] = page.get("reasons", [])
        return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("disk")
    fault = place / "fault"
    write_fault(fault, "")
    sources = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    server = start_server(
        place / "data",
        "--workers=2",
        "--admin=0",
        environment={"DISK_FAULT": str(fault), "PYTHONPATH": sources},
        command=[sys.executable, str(PROGRAM)],
    )
    try:
        client = RawClient(server)
        made = client.ask("POST", "/Tables", f'{{"TableName":"{TABLE}"}}'.encode())
        assert made.status == 201, made
        assert client.ask("POST", f"/{TABLE}", entity("kept")).status == 201
        yield Served(server, client, fault, place / "data")
        assert server.stop() == 0
        assert "Traceback" not in server.stderr
        assert tablestone("check", "--data", place / "data").lines == [f"{place / 'data'}: healthy"]
    finally:
        server.kill()


def read_ok(answer: Answer) -> bool:
    """Whether a read succeeded; the only other answer allowed is 503 `ServerBusy`."""
    if answer.status != 200:
        assert (answer.status, answer.code) == (503, "ServerBusy"), answer
    return answer.status == 200


def recovers(served: Served, writes: Writes) -> bool:
    return served.reasons() == [] and all(
        writes.insert().status == 201 for _ in range(GOOD_IN_A_ROW)
    )


def is_logged_after_a_write(
    served: Served, writes: Writes, fault: Fault, lines_before: int
) -> bool:
    writes.insert()
    return fault.logged in "".join(served.process.stderr_lines[lines_before:])


def soon(holds: Callable[[], bool]) -> None:
    wait_until(holds, AT_LENGTH)


@pytest.mark.parametrize("duration", ["once", "lasting"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.call}, {fault.error}")
def test_clients_get_the_services_errors_and_the_server_recovers(
    served: Served, fault: Fault, duration: str
) -> None:
    client, writes = served.client, Writes(served.client)
    writes._number = 1_000_000 * (1 + FAULTS.index(fault)) + (500_000 if duration == "once" else 0)
    soon(lambda: recovers(served, writes))
    logged_before = len(served.process.stderr_lines)
    write_fault(served.fault, f"{fault.call}|{fault.error}|{duration}")
    for _ in range(ROUNDS):
        writes.insert()
        writes.transact()
        reads = [
            read_ok(client.ask("GET", f"/{TABLE}(PartitionKey='p',RowKey='kept')")),
            read_ok(client.ask("GET", f"/{TABLE}()?$top=5")),
        ]
        assert all(reads) or not fault.do_reads_go_on
    if duration == "lasting":
        if fault.are_writes_refused:
            assert writes.refused == 2 * ROUNDS
            soon(lambda: served.reasons() != [])
            assert all(reason.endswith(".") for reason in served.reasons())
        # The server leaves out of its log what it said a few seconds before, of the fault of the last test too.
        soon(lambda: is_logged_after_a_write(served, writes, fault, logged_before))
    write_fault(served.fault, "")
    soon(lambda: recovers(served, writes))
    assert list(writes.problems()) == []


def test_a_wrong_answer_would_be_noticed(served: Served) -> None:
    """The check itself fails on an answer that says too much, one that says too little, and a partial transaction."""
    writes = Writes(served.client)
    writes.groups = [(("kept",), False), (("gone",), True), (("kept", "gone"), None)]
    assert [problem.partition(" is ")[2] for problem in writes.problems()] == [
        "there",
        "not there",
        "there in part",
    ]
