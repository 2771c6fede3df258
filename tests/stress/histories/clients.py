"""Concurrent clients: each draws operations, sends them over HTTP, and records them in their partition's history.

After some hundred operations on a partition its clients go on with a new one, so that each history stays short enough
to be checked. The seed decides everything random, except the order in which threads run.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from stress.histories.choices import Choices
from stress.histories.recording import History, Operation
from stress.histories.service import (
    NoAnswer,
    NotSent,
    Service,
    Target,
    UnexpectedAnswer,
    read_everything,
)

CLIENTS_PER_PARTITION: Final = 4
OPERATIONS_PER_PARTITION: Final = 200
PAUSE_SECONDS: Final = 0.05
"""How long a client pauses after a request that no server accepted."""


class Timing(NamedTuple):
    """One request: when it was sent, how long it took (both in seconds), and whether it was answered."""

    sent: float
    seconds: float
    is_answered: bool


class Room:
    """The partition that some clients use now, and those they used before."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self.histories: list[History] = []

    def history(self) -> History:
        """The history for the next operation."""
        with self._lock:
            if not self.histories or self.histories[-1].begun >= OPERATIONS_PER_PARTITION:
                self.histories.append(History(f"{self._name}-{len(self.histories)}"))
            return self.histories[-1]


class Client(threading.Thread):
    """A client with one request at a time. It moves to the next server when its own does not answer."""

    def __init__(self, crowd: Crowd, number: int, room: Room) -> None:
        super().__init__(daemon=True)
        self._crowd = crowd
        self._room = room
        self._choices = Choices(number, Random(f"{crowd.seed}/{number}"), crowd.values)
        self._services = [Service(target) for target in crowd.targets]
        self._at = number
        self.timings: list[Timing] = []
        self.answers = 0
        self.unexpected: Exception | None = None

    def run(self) -> None:
        try:
            while not self._crowd.is_over.is_set():
                history = self._room.history()
                self._carry_out(history, self._choices.draw(history))
        except Exception as error:  # noqa: BLE001 - the run reports it, not the thread
            self.unexpected = error
            self._crowd.is_over.set()
        finally:
            for service in self._services:
                service.close()

    def _carry_out(self, history: History, operation: Operation) -> None:
        service = self._services[self._at % len(self._services)]
        sent = time.monotonic()
        is_answered = False
        try:
            service.carry_out(history.name, operation)
            is_answered = True
        except NoAnswer:
            history.unanswered(operation)
            self._at += 1
        except NotSent:
            self._at += 1
            time.sleep(PAUSE_SECONDS)
        except UnexpectedAnswer:
            history.unanswered(operation)
            raise
        else:
            history.answered(operation)
            self.answers += 1
            self._choices.learn(history.name, operation)
        self.timings.append(Timing(sent, time.monotonic() - sent, is_answered))


class Crowd:
    """All clients of a run, from their start to the histories that they leave."""

    def __init__(self, targets: Sequence[Target], seed: str, clients: int) -> None:
        self.targets = targets
        self.seed = seed
        self.values = itertools.count(1)
        self.is_over = threading.Event()
        run = secrets.token_hex(4)  # a cluster may still have the partitions of an earlier run
        rooms = -(-clients // CLIENTS_PER_PARTITION)
        self._rooms = [Room(f"run-{run}-room-{number}") for number in range(rooms)]
        self._clients = [
            Client(self, number, self._rooms[number % len(self._rooms)])
            for number in range(clients)
        ]

    def start(self) -> None:
        service = Service(self.targets[0])
        service.create_table()
        service.close()
        for client in self._clients:
            client.start()

    @property
    def timings(self) -> list[Timing]:
        """Every request so far, ordered by the time it was sent."""
        return sorted(timing for client in self._clients for timing in client.timings)

    @property
    def answered(self) -> int:
        return sum(client.answers for client in self._clients)

    def wait(self, *, seconds: float) -> None:
        """Let the clients work for some time, or until one of them gets an impossible answer."""
        self.is_over.wait(seconds)

    def wait_for_answers(self, answers: int, seconds_max: float) -> None:
        """The same until so many more answers have come, or the time is over."""
        deadline = time.monotonic() + seconds_max
        least = self.answered + answers
        while self.answered < least and not self.is_over.is_set() and time.monotonic() < deadline:
            self.is_over.wait(PAUSE_SECONDS)

    def stop(self) -> None:
        """Stop the clients. Raises what a client raised."""
        self.is_over.set()
        for client in self._clients:
            client.join()
        for client in self._clients:
            if client.unexpected is not None:
                raise client.unexpected

    def end(self) -> list[History]:
        """Stop the clients, read every partition once more, and return all histories. Raises what a client raised."""
        self.stop()
        histories = [history for room in self._rooms for history in room.histories]
        service = Service(self.targets[0])
        read_everything(service, histories, len(self._clients))
        service.close()
        return histories
