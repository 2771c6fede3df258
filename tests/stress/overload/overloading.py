"""An overload: a crowd of clients, and one quiet client whose point reads are measured without and with the crowd."""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Final
from urllib.parse import urlsplit

from server_process import ServerProcess, start_server
from signing import signed_headers
from stress.crash.writers import Connection
from stress.overload.crowd import PARTITIONS, ROWS, TABLE, TRANSACTION, entity, transaction

CROWD: Final = Path(__file__).with_name("crowd.py")
READS_A_SECOND: Final = 50.0
"""The rate of the quiet client."""
RECONNECT_EVERY: Final = 50
ANSWER_SECONDS_MAX: Final = 60.0
RATIO_MAX: Final = 10.0
OF_LOAD: Final = frozenset(("503 serverbusy", "500 operationtimedout"))
"""The answers of a server that accepts no more work, and to a body that does not arrive."""


@dataclass
class Overloaded:
    """The 99th percentile of the quiet client's reads in milliseconds, without and with the crowd; and all statuses."""

    alone: float
    beside: float
    quiet: dict[str, int]
    crowd: dict[str, int]
    problems: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return self.beside / self.alone


def overload(
    data: Path,
    plan: dict[str, int],
    reads: int,
    *options: str,
    judge_ratio: bool = True,
    told: Callable[[str], None] = lambda _: None,
) -> Overloaded:
    """Measure so many reads alone, and as many beside a crowd of this plan, on a server with these options."""
    server = start_server(data, "--workers=2", *options)
    try:
        fill(server)
        alone, quiet = quiet_reads(server, reads)
        told(f"alone: p99 {alone:.2f} ms")
        with crowd_of(server, plan) as ended:
            told("the crowd is here")
            beside, quiet_beside = quiet_reads(server, reads)
            statuses = ended()
        status = server.stop()
    finally:
        if server.process.poll() is None:
            server.kill()
    for name, number in quiet_beside.items():
        quiet[name] = quiet.get(name, 0) + number
    found = Overloaded(alone, beside, quiet, statuses)
    found.problems += [f"the quiet client was answered {each}" for each in quiet if each != "200"]
    found.problems += [
        f"the crowd was answered {each}"
        for each in statuses
        if each.startswith("5") and each.lower() not in OF_LOAD
    ]
    if judge_ratio and found.ratio >= RATIO_MAX:
        found.problems.append(f"p99 is {found.ratio:.1f} times that of the quiet client alone")
    if status or "Traceback" in server.stderr:
        found.problems.append(f"the server ended with {status}: {server.stderr[-2000:]}")
    return found


def fill(server: ServerProcess) -> None:
    """Store the entities that the clients read."""
    with Connection(server) as connection:
        name = json.dumps({"TableName": TABLE}).encode()
        connection.send("POST", "/Tables", name, expected=201)
        for partition in range(PARTITIONS):
            for first in range(0, ROWS, TRANSACTION):
                rows = list(range(first, first + TRANSACTION))
                connection.send(
                    "POST",
                    "/$batch",
                    transaction(server.endpoint, partition, rows),
                    expected=202,
                    content_type="multipart/mixed; boundary=batch_o",
                )


def quiet_reads(server: ServerProcess, number: int) -> tuple[float, dict[str, int]]:
    """The 99th percentile of point reads at a fixed rate, in milliseconds, and their statuses.

    The client reconnects now and then: not even a client without a connection may be locked out.
    """
    address = urlsplit(server.endpoint)
    took: list[float] = []
    statuses: dict[str, int] = {}
    connection: http.client.HTTPConnection | None = None
    due = time.monotonic()
    for each in range(number):
        if connection is None or each % RECONNECT_EVERY == 0:
            if connection is not None:
                connection.close()
            connection = http.client.HTTPConnection(
                str(address.hostname), address.port, timeout=ANSWER_SECONDS_MAX
            )
            connection.connect()
        target = address.path.rstrip("/") + entity(each % PARTITIONS, each % ROWS)
        signed = signed_headers(
            server.account_name, server.account_key, method="GET", target=target
        )
        time.sleep(max(0.0, due - time.monotonic()))
        due = max(due + 1 / READS_A_SECOND, time.monotonic())
        began = time.perf_counter()
        connection.request("GET", target, headers=dict(signed))
        response = connection.getresponse()
        response.read()
        took.append(1000 * (time.perf_counter() - began))
        name = str(response.status)
        statuses[name] = statuses.get(name, 0) + 1
    if connection is not None:
        connection.close()
    return quantiles(took, n=100)[98], statuses


@contextmanager
def crowd_of(server: ServerProcess, plan: dict[str, int]) -> Iterator[Callable[[], dict[str, int]]]:
    """A crowd that is fully connected; the function ends it and returns its statuses."""
    crowd = subprocess.Popen(
        [
            *(sys.executable, str(CROWD), server.endpoint),
            *(server.account_name, server.account_key, json.dumps(plan)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert crowd.stdout is not None
    try:
        line = crowd.stdout.readline()
        assert line == "all are here\n", line

        def ended() -> dict[str, int]:
            out, _ = crowd.communicate("", timeout=ANSWER_SECONDS_MAX)
            statuses: dict[str, int] = json.loads(out)
            return statuses

        yield ended
    finally:
        crowd.kill()
        crowd.wait()
