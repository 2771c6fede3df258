"""The worker processes of a running server: their ids, and which one answers a connection."""

import http.client
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from server_process import ServerProcess
from stress.crash.writers import Connection

CONNECTIONS = 12
SECONDS_MAX = 60.0
"""On a busy machine; what has to be quick has a limit of its own."""
AT_ONCE_SECONDS = 5.0
QUIET = {"Prefer": "return-no-content"}
REQUEST_LINE = re.compile(r" process=(\d+) .* client_request=probe(\d+) ")
LOGGED = "--access-log=text"
"""The option that a server needs for its processes to be probed."""


def workers_of(server: ServerProcess) -> set[int]:
    first = server.process.pid
    return set(map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split()))


def is_running(process: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(holds: Callable[[], bool], seconds: float = SECONDS_MAX) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def connections(server: ServerProcess, number: int = CONNECTIONS) -> Iterator[list[Connection]]:
    """Keep-alive connections that have been used, so a worker has accepted each of them."""
    with ExitStack() as stack:
        opened = [stack.enter_context(Connection(server)) for _ in range(number)]
        for each in opened:
            each.send("GET", "/Tables", expected=200)
        yield opened


class Probes:
    """Finds the process that answers a connection, from the access log."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._sent = 0

    def processes(self, probed: list[http.client.HTTPConnection]) -> list[int]:
        first = self._sent
        for each in probed:
            each.request("GET", "/", headers={"x-ms-client-request-id": f"probe{self._sent}"})
            each.getresponse().read()
            self._sent += 1
        wanted = set(range(first, self._sent))
        found: dict[int, int] = {}

        def are_logged() -> bool:
            for process, probe in REQUEST_LINE.findall("".join(self._server.stdout)):
                found[int(probe)] = int(process)
            return wanted <= found.keys()

        wait_until(are_logged)
        return [found[number] for number in sorted(wanted)]


def probing(server: ServerProcess) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server.endpoint).netloc, timeout=20)
