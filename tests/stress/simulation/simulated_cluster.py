"""A Cassandra cluster of three replicas, and the network in front of it, simulated for the engine's own code.

Conditional writes to a partition are ordered, as by Paxos; each then travels to the replicas by itself. Messages are
late, lost, or duplicated; a replica may be away. One seed decides everything random. A batch longer than a node accepts
is refused; a batch for several partitions is recorded as a fault, because a node would not apply it atomically. Neither
TCP nor the driver repeats a request (docs/decisions/0009-cassandra-versions.md), so neither does this network.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from cassandra import InvalidRequest, OperationTimedOut, Unavailable

from stress.simulation.replicas import (
    Key,
    Part,
    Partition,
    Replica,
    holds,
    select,
    wanted_rows,
    written,
)
from stress.simulation.statements import STATES, Statement
from tablestone.engines.cassandra.connection import size_of
from tablestone.engines.cassandra.session import Answer

Call = tuple[Statement, Sequence[Any]]
Tell = Callable[[Answer], None]
REPLICAS: Final = 3
QUORUM: Final = 2
MESSAGE_BYTES_MAX: Final = 1 << 20
"""`native_transport_max_message_size` of the nodes. A real one is the lesser of `max_mutation_size`, by default 16 MiB,
and a fortieth of the heap.
"""
EARLY: Final = 0.5
"""The share of reads at SERIAL that are answered as soon as one replica has every decided write."""
LATE_SECONDS: Final = (2.0, 8.0)
"""How long a late message takes; some arrive after the request's time-out."""


@dataclass
class Trouble:
    """The probabilities of what may happen to a message, and the usual time that one takes."""

    lost: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    refused: float = 0.0
    travel_seconds: float = 0.001


@dataclass
class _Sent:
    """A request that a server has sent, once or twice; the server waits for `future`."""

    calls: Sequence[Call]
    future: asyncio.Future[Answer]
    repeat_was_applied: bool = False
    """Whether this is a conditional write whose repeated message was applied."""

    @property
    def is_conditional(self) -> bool:
        return any(statement.is_conditional for statement, _ in self.calls)

    @property
    def was_refused(self) -> bool:
        """Whether the server has heard that the request failed, or that its condition did not hold."""
        future = self.future
        if not future.done() or future.cancelled():
            return False
        return future.exception() is not None or not future.result()[0][0]


@dataclass
class _Message:
    """One message of a request."""

    sent: _Sent
    is_repeat: bool = False

    @property
    def calls(self) -> Sequence[Call]:
        return self.sent.calls

    @property
    def is_ignored(self) -> bool:
        """Whether this is a conditional write that its other message has settled."""
        sent = self.sent
        return sent.is_conditional and (
            sent.was_refused or (sent.repeat_was_applied and not self.is_repeat)
        )


class Decided:
    """A conditional write that was applied, and the replicas that do not have it yet."""

    def __init__(self, parts: list[Part], at_quorum: Callable[[], None]) -> None:
        self.parts = parts
        self.missing = set(range(REPLICAS))
        self.at_quorum: Callable[[], None] | None = at_quorum
        """Called once, as soon as two replicas have it."""


class SimulatedCluster:
    """Answers requests. `trouble` may be changed at any time; `away` are replicas that nothing reaches."""

    def __init__(self, random: Random, trouble: Trouble) -> None:
        self.random = random
        self.trouble = trouble
        self.away: set[int] = set()
        self.faults: list[str] = []
        """Batches that no node would apply atomically."""
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
        if len({statement.key(parameters) for statement, parameters in request}) > 1:
            self.faults.append(
                f"a batch for several partitions: {[each.text for each, _ in request]}"
            )
        if self.random.random() < self.trouble.lost:
            return future
        sent = _Sent(request, future)
        self._soon(partial(self._set_out, _Message(sent)))
        if self.random.random() < self.trouble.twice:
            self._soon(partial(self._set_out, _Message(sent, is_repeat=True)))
        return future

    def note(self, *what: object) -> None:
        """Add an event to the fingerprint."""
        self._digest.update(repr((self._loop.time(), *what)).encode())

    def replicate_everything(self) -> None:
        """Bring every decided write to every replica."""
        for key in list(self._decided):
            for index in range(REPLICAS):
                self._bring(key, index)

    def _set_out(self, message: _Message) -> None:
        self._later(self._journey(is_late=message.is_repeat), partial(self._arrive, message))

    def _arrive(self, message: _Message) -> None:
        if self.random.random() < self.trouble.refused or len(self.away) > REPLICAS - QUORUM:
            self._answer(message, Unavailable("a quorum is not there"))
        elif (size := sum(map(size_of, message.calls))) > MESSAGE_BYTES_MAX:
            self._answer(
                message, InvalidRequest(f"CQL Message of size {size} bytes exceeds allowed maximum")
            )
        elif not message.is_ignored:
            was_applied = self._carry_out(message.calls, partial(self._answer, message))
            message.sent.repeat_was_applied |= was_applied and message.is_repeat

    def _answer(self, message: _Message, answer: Answer | Exception) -> None:
        if self.random.random() >= self.trouble.lost:
            self._later(self._journey(), partial(self._hand_over, message, answer))

    def _hand_over(self, message: _Message, answer: Answer | Exception) -> None:
        self.note([statement.text for statement, _ in message.calls], answer)
        future = message.sent.future
        if message.is_repeat or future.done():
            return
        if isinstance(answer, Answer):
            future.set_result(answer)
        else:
            future.set_exception(answer)

    def _carry_out(self, request: Sequence[Call], tell: Tell) -> bool:
        """Carry out a request and return its answer; whether it is a conditional write that was applied."""
        statement, parameters = request[0]
        if statement.verb == STATES:
            tell(self._states(parameters))
            return False
        key = statement.key(parameters)
        if any(each.is_conditional for each, _ in request):
            return self._decide(key, request, tell)
        if statement.verb != "SELECT":
            self._write(key, request, tell)
        elif statement.is_serial:
            if self.random.random() >= EARLY or not self._is_at_one(key):
                self._complete(key)
            truth = self.truth.partition(key)
            tell(Answer(select(statement, parameters, truth, self._loop.time())))
        else:
            self._read(key, statement, parameters, tell)
        return False

    def _decide(self, key: Key, request: Sequence[Call], tell: Tell) -> bool:
        """Apply a conditional write if its conditions hold; returns whether they did."""
        now = self._loop.time()
        self._complete(key)
        truth = self.truth.partition(key)
        if not all(holds(statement, parameters, truth, now) for statement, parameters in request):
            tell(_found(request, truth, now))
            return False
        at = max(self._microseconds(), self._last_at.get(key, 0) + 1)
        self._last_at[key] = at
        parts = [
            part
            for statement, parameters in request
            for part in written(statement, parameters, at, now)
        ]
        self.truth.apply(key, parts)
        answer = Answer([(True,)])
        answer.names = ("[applied]",)
        decided = Decided(parts, partial(self._soon, partial(tell, answer)))
        self._decided.setdefault(key, []).append(decided)
        for index in range(REPLICAS):
            self._later(self._delay(), partial(self._bring, key, index, decided))
        return True

    def _bring(self, key: Key, index: int, only: Decided | None = None) -> None:
        """Bring a decided write to a replica, or all that it lacks of a partition."""
        if index in self.away:
            self._later(self.random.uniform(*LATE_SECONDS), partial(self._bring, key, index, only))
            return
        waiting = self._decided.get(key)
        if not waiting:
            return
        for decided in waiting:
            if index in decided.missing and only in (None, decided):
                self.replicas[index].apply(key, decided.parts)
                decided.missing.discard(index)
                if len(decided.missing) <= REPLICAS - QUORUM and decided.at_quorum is not None:
                    decided.at_quorum()
                    decided.at_quorum = None
        self._decided[key] = [each for each in waiting if each.missing]

    def _complete(self, key: Key) -> None:
        """Bring every decided write of a partition to a quorum, as each round of Paxos does first."""
        there = [index for index in range(REPLICAS) if index not in self.away]
        for index in self.random.sample(there, min(QUORUM, len(there))):
            self._bring(key, index)

    def _is_at_one(self, key: Key) -> bool:
        """Whether one reachable replica has every decided write of a partition."""
        there = set(range(REPLICAS)) - self.away
        missing = [decided.missing for decided in self._decided.get(key, ())]
        return bool(there.difference(*missing))

    def _write(self, key: Key, request: Sequence[Call], tell: Tell) -> None:
        """Apply a statement, or a batch for one partition, which each replica takes as a whole."""
        parts = [
            part
            for statement, parameters in request
            for part in written(statement, parameters, self._microseconds(), self._loop.time())
        ]
        there = 0

        def arrive(index: int) -> None:
            nonlocal there
            if index in self.away:
                self._later(self.random.uniform(*LATE_SECONDS), partial(arrive, index))
                return
            self.replicas[index].apply(key, parts)
            there += 1
            if there == QUORUM:
                self._soon(partial(tell, Answer()))

        for index in range(REPLICAS):
            self._later(self._delay(), partial(arrive, index))

    def _read(self, key: Key, statement: Statement, parameters: Sequence[Any], tell: Tell) -> None:
        there = [index for index in range(REPLICAS) if index not in self.away]
        count = 1 if statement.asks_one else QUORUM
        asked = self.random.sample(there, min(count, len(there)))
        wanted = wanted_rows(statement, parameters)
        merged = Partition()

        def ask(number: int) -> None:
            merged.merge(self.replicas[asked[number]].partition(key), wanted)
            if number + 1 < len(asked):
                self._later(self._delay() / 2, partial(ask, number + 1))
                return
            for index in asked:
                self.replicas[index].partition(key).merge(merged)
            tell(Answer(select(statement, parameters, merged, self._loop.time())))

        ask(0)

    def _states(self, parameters: Sequence[Any]) -> Answer:
        """The static columns of every partition, all of them in the first answer."""
        now = self._loop.time()
        answer = Answer()
        for key, partition in self.truth.partitions.items():
            static = partition.values(None, now)
            if key[0] == "rows" and static and len(parameters) == 1:
                answer.append((key[1], static.get("mark"), static.get("listed"), key[1]))
        return answer

    def _journey(self, *, is_late: bool = False) -> float:
        """How long a message takes."""
        if is_late or self.random.random() < self.trouble.late:
            return self.random.uniform(*LATE_SECONDS)
        return self._delay()

    def _delay(self) -> float:
        return self.random.expovariate(1 / self.trouble.travel_seconds)

    def _microseconds(self) -> int:
        return int(self._loop.time() * 1e6)

    def _soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call, context=self._context)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(seconds, call, context=self._context)


def no_answer_in_time() -> Exception:
    """The driver's error for a request whose answer did not come."""
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
        for each in statement.clustering
    }
    for row in sorted(named & set(lines)):
        answer.append((False, row, *state, lines[row].get("version")))
    if not answer:
        answer.append((False, None, *state, None))
    return answer
