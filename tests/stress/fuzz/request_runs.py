"""Sends requests from the grammar, changed ones, and the kept ones to a real server with two workers.

A request whose answer is new, by method, status, code and form, is kept and changed again. After the run the server
must still answer, have released memory and descriptors, have logged no error, and stop properly.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

from server_process import ServerProcess, start_server
from stress.fuzz import drafts, kept_inputs
from stress.fuzz.drafts import Request
from stress.fuzz.grammar import drawn
from stress.fuzz.http_session import Answer, NoAnswer, Session
from stress.fuzz.judging import code_of, problems
from stress.fuzz.mutation import mutated
from stress.fuzz.parser_runs import leaks
from stress.fuzz.resources import Resources, family_of, of_processes

NAME: Final = "requests"
POOL_MAX: Final = 2000
SPARE_DESCRIPTORS: Final = 24
"""Descriptors that workers may open later and keep: SQLite connections for snapshots (`IDLE_SNAPSHOTS_MAX`)."""
SHOWN_EVERY: Final = 20_000
SETTLES_SECONDS_MAX: Final = 15.0
WORDS: Final = (
    *(
        b"\nsign: key",
        b"\nsign: lite",
        b"$filter=",
        b"$select=",
        b"$top=",
        b"&",
        b"/$batch",
        b"/Tables",
        b"comp=",
    ),
    *(
        b"\nif-match: *",
        b"\nx-http-method: ",
        b"\ncontent-type: ",
        b"PartitionKey",
        b"RowKey",
        b"@odata.type",
    ),
)

METHODS: Final = frozenset(
    (b"GET", b"HEAD", b"POST", b"PUT", b"MERGE", b"PATCH", b"DELETE", b"OPTIONS")
)

Signature = tuple[bytes, int, str, str]


class Server:
    """A running server, one connection to it, and what it held at first."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        self._session = Session(process.address)
        self._host = "{}:{}".format(*process.address)

    def ask(self, request: Request) -> Answer:
        """The answer; raises `NoAnswer`."""
        account, key = self.process.account_name, self.process.account_key
        content = drafts.written(request, account, key, self._host)
        return self._session.ask(content, is_head=request.method == b"HEAD")

    def close(self) -> None:
        self._session.close()

    def resources(self) -> Resources:
        """The resources of its processes, after this client has disconnected."""
        self._session.close()
        return of_processes(family_of(self.process.process.pid))

    def settled(self, early: Resources) -> Resources:
        """The resources, once the server has closed this client's connections or had enough time to."""
        deadline = time.monotonic() + SETTLES_SECONDS_MAX
        while (late := self.resources()).descriptors > early.descriptors + SPARE_DESCRIPTORS:
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        return late


def signature_of(request: Request, answer: Answer) -> Signature:
    """The features that make the kind of an answer."""
    content_type = answer.headers.get("content-type", "").partition(";")[0]
    method = request.method if request.method in METHODS else b""
    return method, answer.status, code_of(answer), content_type


class Run:
    """One run against one server. `seen` has the kinds of answers, each with the shortest draft that led to it."""

    def __init__(self, server: Server, seed: int, kept: list[bytes]) -> None:
        self._server = server
        self._random = Random(seed)
        self._kept = kept
        self._pool = list(kept)
        self.seen: dict[Signature, bytes] = {}
        self.crashes: list[bytes] = []

    def draft(self) -> bytes:
        """The next request: a new one, or a changed one."""
        random = self._random
        if not self._pool or random.random() < 0.6:
            return drawn(random)
        return mutated(random, random.choice(self._pool), self._pool, WORDS)

    def send(self, draft: bytes) -> Iterator[str]:
        """Send a draft; returns the problems with its answer."""
        request = drafts.read(draft)
        try:
            answer = self._server.ask(request)
        except NoAnswer as error:
            self.crashes.append(draft)
            yield f"no answer ({error}) to {draft[:600]!r}"
            return
        found = list(problems(answer, has_body=request.method != b"HEAD"))
        if found:
            self.crashes.append(draft)
        yield from (f"{problem}\n   to {draft[:600]!r}" for problem in found)
        signature = signature_of(request, answer)
        if signature not in self.seen or len(draft) < len(self.seen[signature]):
            self.seen[signature] = draft
            self._pool.append(draft)
            del self._pool[: max(0, len(self._pool) - POOL_MAX)]

    def problems(self, inputs: int) -> Iterator[str]:
        """Send the kept requests and so many others; returns their problems, and what the server did not release."""
        for draft in self._kept:
            yield from self.send(draft)
        early: Resources | None = None
        for number in range(1, inputs + 1):
            yield from self.send(self.draft())
            if number == max(1, inputs // 5):
                early = self._server.resources()
            if number % SHOWN_EVERY == 0:
                print(f"{number:,} requests, {len(self.seen)} kinds of answers", flush=True)
        if early is not None:
            yield from leaks(
                "the server", early, self._server.settled(early), spare=SPARE_DESCRIPTORS
            )


@contextmanager
def served(start: Callable[[Path], ServerProcess]) -> Iterator[tuple[Server, list[str]]]:
    """A server in its own directory, and a list that has its problems when it has ended."""
    ended: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        process = start(Path(directory) / "data")
        server = Server(process)
        try:
            yield server, ended
            server.close()
            status = process.stop()
            if status != 0:
                ended.append(f"the server ended with status {status}")
            if "Traceback" in process.stderr:
                ended.append(f"the server logged an error: {process.stderr[-3000:]}")
        finally:
            server.close()
            if process.process.poll() is None:
                process.kill()


def start_usual(directory: Path) -> ServerProcess:
    return start_server(directory, "--workers", "2")


def run(
    inputs: int,
    seed: int,
    *,
    keeps: bool = False,
    start: Callable[[Path], ServerProcess] = start_usual,
) -> Iterator[str]:
    """Run so many requests; returns the problems. With `keeps`, the shortest of each kind and the crashes are kept."""
    with served(start) as (server, ended):
        this = Run(server, seed, kept_inputs.kept(NAME))
        yield from this.problems(inputs)
    yield from ended
    print(f"{len(this.seen)} kinds of answers")
    if keeps:
        kept_inputs.write(kept_inputs.CORPUS, NAME, this.seen.values())
        for draft in this.crashes:
            kept_inputs.add_crash(NAME, draft)
