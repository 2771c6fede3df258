"""Where the microseconds of a request go, step by step: HTTP, address, authentication, decode, decide, engine, encode.

Requests go through the server's own HTTP connection and application in this process; only the socket is missing. A step
is the functions that do it, timed where they run, less the cost of the timing itself; the rest is the code between them
and the event loop. Compiled functions cannot be timed like that: they only have the times of HTTP, of commits, and of
everything else. On a busy machine, use the best of many rounds.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final, NamedTuple

from bench.floor import CONFIGURATION, Constant
from tablestone.cli.main import HOW_IT_RUNS
from tablestone.engines.sqlite.commit import GroupCommit
from tablestone.engines.sqlite.read import RowReader
from tablestone.server.exchange import Serving
from tablestone.server.http_connection import HttpConnection
from tablestone.server.http_server import admission_of
from tablestone.server.requests import account_address, batch, pipeline
from tablestone.tables import service, writes
from tablestone.wire import encode

STEPS: Final[dict[str, tuple[tuple[Any, str], ...]]] = {
    "address": (
        (pipeline, "parse_query_string"),
        (account_address.Addresses, "find"),
        (pipeline, "parse_resource"),
        (batch, "parse_resource"),
    ),
    "authentication": ((pipeline, "authenticate"),),
    "decode": (
        (pipeline, "decode_operation"),
        (pipeline, "negotiate"),
        (batch, "parse_batch"),
        (batch, "decode_operation"),
    ),
    "decide": ((writes, "change_of"), (service, "require_conditions")),
    "engine": ((RowReader, "get"), (GroupCommit, "_apply")),
    "encode": (
        (encode, "encode_result"),
        (encode, "respond"),
        (batch, "encode_result"),
        (batch, "format_batch_answer"),
    ),
}
"""The functions of each step, where a request looks them up. None calls another one here, and the coroutines never
wait. What a merge decides runs inside `GroupCommit._apply`, and counts as "engine".
"""


Taken = dict[tuple[str, str], list[float]]
"""The microseconds of each call, by step and function."""


class Load(NamedTuple):
    """A kind of request. `make` returns the next one as bytes; `entities` is how many it reads or writes."""

    name: str
    make: Callable[[], bytes]
    requests: int
    at_a_time: int
    entities: int = 1


class _Transport(asyncio.Transport):
    """Keeps the first bytes that would be sent, and tells of them."""

    answered: asyncio.Future[None]

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 10002), "peername": ("127.0.0.1", 40000)})
        self.sent = b""

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        self.sent = bytes(data)
        self.answered.set_result(None)

    def writelines(self, list_of_data: Any) -> None:
        self.write(next(iter(list_of_data)))

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


def connections(application: Any, number: int) -> list[HttpConnection]:
    """Connections to an application, with the server's options."""
    loop = asyncio.get_running_loop()
    serving = Serving(application, admission_of(CONFIGURATION))
    made = [HttpConnection(serving, loop) for _ in range(number)]
    for connection in made:
        connection.connection_made(_Transport())
    return made


async def ask(connection: HttpConnection, request: bytes) -> None:
    """Send one request and wait for its answer."""
    assert isinstance(connection.transport, _Transport)
    connection.transport.answered = asyncio.get_running_loop().create_future()
    await asyncio.sleep(
        0
    )  # each request in its own turn of the loop, as from a socket: in an old turn it would have to wait
    connection.data_received(request)
    await connection.transport.answered
    assert connection.transport.sent.startswith(b"HTTP/1.1 2"), connection.transport.sent


async def cpu_of(load: Load, ways: list[HttpConnection]) -> tuple[float, float]:
    """Microseconds of CPU per entity of the load: of the process, and of its flushing thread alone."""
    requests = [load.make() for _ in range(load.requests)]

    async def work(way: int) -> None:
        for request in requests[way :: load.at_a_time]:
            await ask(ways[way], request)

    entities = load.requests * load.entities
    whole, loop = time.process_time_ns(), time.thread_time_ns()
    await asyncio.gather(*map(work, range(load.at_a_time)))
    whole, loop = time.process_time_ns() - whole, time.thread_time_ns() - loop
    return whole / 1e3 / entities, (whole - loop) / 1e3 / entities


@contextmanager
def stopwatch(taken: Taken) -> Iterator[None]:
    """Records the microseconds of each call."""
    originals = [
        (step, owner, name, getattr(owner, name))
        for step, found in STEPS.items()
        for owner, name in found
    ]
    for step, owner, name, original in originals:
        setattr(owner, name, _timed(original, taken.setdefault((step, name), [])))
    try:
        yield
    finally:
        for _, owner, name, original in originals:
            setattr(owner, name, original)


def _timed(function: Any, taken: list[float]) -> Any:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def timed_to_its_end(*arguments: Any, **options: Any) -> Any:
            started = time.perf_counter_ns()
            try:
                return await function(*arguments, **options)
            finally:
                taken.append((time.perf_counter_ns() - started) / 1e3)

        return timed_to_its_end

    @functools.wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        started = time.perf_counter_ns()
        try:
            return function(*arguments, **options)
        finally:
            taken.append((time.perf_counter_ns() - started) / 1e3)

    return timed


def _by_step(taken: Taken, entities: int) -> dict[str, float]:
    """Microseconds per entity in each step: the number of calls, times their median without the cost of timing.

    The median hides calls that another program interrupted.
    """
    nothing: list[float] = []
    do_nothing = _timed(lambda: None, nothing)
    for _ in range(1_000):
        do_nothing()
    cost = median(nothing)
    found = dict.fromkeys(STEPS, 0.0)
    for (step, _), durations in taken.items():
        if durations:
            found[step] += (median(durations) - cost) * len(durations) / entities
    return found


async def table(application: Any, loads: list[Load], rounds: int) -> str:
    """The table in Markdown: a row for each step, a column for each load, microseconds per entity."""
    ways, constant = connections(application, 16), connections(Constant(), 16)
    columns = [await _column(load, ways, constant, rounds) for load in loads]
    lines = [
        "| step | " + " | ".join(load.name for load in loads) + " |",
        "|---|" + "---|" * len(loads),
    ]
    lines += [
        f"| {step} | " + " | ".join(f"{column[step]:.1f}" for column in columns) + " |"
        for step in columns[0]
    ]
    return "\n".join(lines)


async def _column(
    load: Load, ways: list[HttpConnection], constant: list[HttpConnection], rounds: int
) -> dict[str, float]:
    """Microseconds by step; "HTTP" is the same requests with a constant answer."""
    rows: list[dict[str, float]] = []
    for _ in range(rounds):
        http, _ = await cpu_of(load, constant)
        whole, flush = await cpu_of(load, ways)
        if HOW_IT_RUNS == "compiled":
            rows.append({"HTTP": http, "commits, in their thread": flush, "whole": whole})
            continue
        taken: Taken = {}
        with stopwatch(taken):
            await cpu_of(load, ways)
        steps = _by_step(taken, load.requests * load.entities)
        rows.append({"HTTP": http, **steps, "commits, in their thread": flush, "whole": whole})
    best = {step: min(row[step] for row in rows) for step in rows[0]}
    whole = best.pop("whole")
    rest = "everything else" if HOW_IT_RUNS == "compiled" else "between the steps"
    return best | {rest: whole - sum(best.values()), "whole": whole}
