"""A Cassandra cluster of three replicas and the network before it, for the engine's own code: no node, no socket.

Conditional writes of a partition follow one another, as Paxos orders them; each then travels to the replicas by itself.
A read at QUORUM asks two replicas and repairs only what it has read. A read at SERIAL first brings every decided write
to two replicas. Messages are late, lost, or come twice; a replica may be away. All chance comes from one seed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from cassandra import OperationTimedOut, Unavailable
from simulation.replicas import (
    Key,
    Part,
    Partition,
    Replica,
    holds,
    select,
    wanted_rows,
    written,
)
from simulation.statements import STATES, Statement
from tablestone.engines.cassandra.connection import Answer

Call = tuple[Statement, Sequence[Any]]
REPLICAS: Final = 3
QUORUM: Final = 2
LATE_SECONDS: Final = (2.0, 8.0)
"""How long a late message takes: some come after the time-out of the request."""


@dataclass
class Trouble:
    """The probabilities of what may happen to a message, and the usual time that one takes."""

    lost: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    refused: float = 0.0
    travel_seconds: float = 0.001


class Decided:
    """A conditional write that was applied, and the replicas that do not have it yet."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self.missing = set(range(REPLICAS))
        self.at_quorum: asyncio.Event = asyncio.Event()


class SimulatedCluster:
    """Answers requests. `trouble` may be changed at any time; `away` are replicas that nothing reaches."""

    def __init__(self, random: Random, trouble: Trouble) -> None:
        self.random = random
        self.trouble = trouble
        self.away: set[int] = set()
        self.replicas = [Replica() for _ in range(REPLICAS)]
        self.truth = Replica()
        """All that conditional writes have decided: the state that Paxos agrees on."""
        self._decided: dict[Key, list[Decided]] = {}
        self._last_at: dict[Key, int] = {}
        self._context = Context()
        self._loop = asyncio.get_running_loop()
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """A fingerprint of every request so far, its time and its answer."""
        return self._digest.hexdigest()

    def send(self, request: Sequence[Call]) -> asyncio.Future[Answer]:
        """The answer to a request, if one ever comes back."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        trouble = self.trouble
        if self.random.random() < trouble.lost:
            return future
        self._start(self._answer(request, future))
        if self.random.random() < trouble.twice:
            unheard: asyncio.Future[Answer] = self._loop.create_future()
            unheard.cancel()
            self._start(self._answer(request, unheard, is_late=True))
        return future

    def note(self, *what: object) -> None:
        """Add something that happened to the fingerprint."""
        self._digest.update(repr((self._loop.time(), *what)).encode())

    def replicate_everything(self) -> None:
        """Bring every decided write to every replica."""
        for key in list(self._decided):
            for index in range(REPLICAS):
                self._bring(key, index)

    async def _answer(
        self, request: Sequence[Call], future: asyncio.Future[Answer], *, is_late: bool = False
    ) -> None:
        await self._travel(is_late=is_late)
        error: Exception | None = None
        answer = Answer()
        if self.random.random() < self.trouble.refused or len(self.away) > REPLICAS - QUORUM:
            error = Unavailable("a quorum is not there")
        else:
            answer = await self._carry_out(request)
        if self.random.random() < self.trouble.lost:
            return
        await self._travel()
        self.note([statement.text for statement, _ in request], answer, error)
        if future.done():
            return
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)

    async def _carry_out(self, request: Sequence[Call]) -> Answer:
        statement, parameters = request[0]
        if statement.verb == STATES:
            return self._states(parameters)
        key = statement.key(parameters)
        if any(each.is_conditional for each, _ in request):
            return await self._decide(key, request)
        if statement.verb != "SELECT":
            return await self._write(key, statement, parameters)
        if statement.is_serial:
            self._complete(key)
            return Answer(
                select(statement, parameters, self.truth.partition(key), self._loop.time())
            )
        return await self._read(key, statement, parameters)

    # Conditional writes.

    async def _decide(self, key: Key, request: Sequence[Call]) -> Answer:
        now = self._loop.time()
        self._complete(key)
        truth = self.truth.partition(key)
        if not all(holds(statement, parameters, truth, now) for statement, parameters in request):
            return _found(request, truth, now)
        at = max(self._microseconds(), self._last_at.get(key, 0) + 1)
        self._last_at[key] = at
        parts = [
            part
            for statement, parameters in request
            for part in written(statement, parameters, at, now)
        ]
        self.truth.apply(key, parts)
        decided = Decided(parts)
        self._decided.setdefault(key, []).append(decided)
        for index in range(REPLICAS):
            self._later(self._delay(), partial(self._bring, key, index, decided))
        await decided.at_quorum.wait()
        answer = Answer([(True,)])
        answer.names = ("[applied]",)
        return answer

    def _bring(self, key: Key, index: int, only: Decided | None = None) -> None:
        """A replica gets a decided write, or all that it lacks of a partition."""
        if index in self.away:
            self._later(self.random.uniform(*LATE_SECONDS), partial(self._bring, key, index, only))
            return
        waiting = self._decided.get(key, [])
        for decided in waiting:
            if index in decided.missing and only in (None, decided):
                self.replicas[index].apply(key, decided.parts)
                decided.missing.discard(index)
                if len(decided.missing) <= REPLICAS - QUORUM:
                    decided.at_quorum.set()
        self._decided[key] = [each for each in waiting if each.missing]

    def _complete(self, key: Key) -> None:
        """Bring every decided write of a partition to a quorum, as each round of Paxos does first."""
        there = [index for index in range(REPLICAS) if index not in self.away]
        for index in self.random.sample(there, min(QUORUM, len(there))):
            self._bring(key, index)

    # Plain writes and reads.

    async def _write(self, key: Key, statement: Statement, parameters: Sequence[Any]) -> Answer:
        parts = written(statement, parameters, self._microseconds(), self._loop.time())
        there = 0
        is_there = asyncio.Event()

        def arrive(index: int) -> None:
            nonlocal there
            if index in self.away:
                self._later(self.random.uniform(*LATE_SECONDS), partial(arrive, index))
                return
            self.replicas[index].apply(key, parts)
            there += 1
            if there == QUORUM:
                is_there.set()

        for index in range(REPLICAS):
            self._later(self._delay(), partial(arrive, index))
        await is_there.wait()
        return Answer()

    async def _read(self, key: Key, statement: Statement, parameters: Sequence[Any]) -> Answer:
        there = [index for index in range(REPLICAS) if index not in self.away]
        count = 1 if statement.asks_one else QUORUM
        asked = self.random.sample(there, min(count, len(there)))
        wanted = wanted_rows(statement, parameters)
        merged = Partition()
        for number, index in enumerate(asked):
            if number:
                await asyncio.sleep(self._delay() / 2)
            for part in self.replicas[index].partition(key).parts(wanted):
                merged.put(part)
        repaired = list(merged.parts(wanted))
        for index in asked:
            self.replicas[index].apply(key, repaired)
        return Answer(select(statement, parameters, merged, self._loop.time()))

    def _states(self, parameters: Sequence[Any]) -> Answer:
        """The static columns of every partition; all of them come in the first answer."""
        now = self._loop.time()
        answer = Answer()
        for key, partition in self.truth.partitions.items():
            static = partition.values(None, now)
            if key[0] == "rows" and static and len(parameters) == 1:
                answer.append((key[1], static.get("mark"), static.get("listed"), key[1]))
        return answer

    # Time.

    async def _travel(self, *, is_late: bool = False) -> None:
        if is_late or self.random.random() < self.trouble.late:
            await asyncio.sleep(self.random.uniform(*LATE_SECONDS))
        else:
            await asyncio.sleep(self._delay())

    def _delay(self) -> float:
        return self.random.expovariate(1 / self.trouble.travel_seconds)

    def _microseconds(self) -> int:
        return int(self._loop.time() * 1e6)

    def _start(self, coroutine: Any) -> None:
        self._loop.create_task(coroutine, context=self._context.copy())

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(seconds, call, context=self._context)


class SimulatedBatch(list[Call]):
    """Takes the place of the driver's batch."""

    def __init__(self, *_arguments: object, **_named: object) -> None:
        super().__init__()
        self.serial_consistency_level: object = None

    def add(self, statement: Statement, parameters: Sequence[Any]) -> None:
        self.append((statement, parameters))


def no_answer_in_time() -> Exception:
    """The error of the driver for a request whose answer did not come."""
    error: Exception = OperationTimedOut()
    return error


def _found(request: Sequence[Call], partition: Partition, now: float) -> Answer:
    """The answer of a batch whose conditions do not hold: the rows that they name."""
    static = partition.values(None, now)
    lines = {line.row: line.values for line in partition.lines(now)}
    answer = Answer()
    if not static and not lines:
        answer.append((False,))
        answer.names = ("[applied]",)
        return answer
    answer.names = ("[applied]", "row", "mark", "floor", "listed", "version")
    state = tuple(static.get(name) for name in answer.names[2:5])
    named = {
        each.term.value(parameters)
        for statement, parameters in request
        for each in statement.clustering()
    }
    for row in sorted(named & set(lines)):
        answer.append((False, row, *state, lines[row].get("version")))
    if not answer:
        answer.append((False, None, *state, None))
    return answer
