"""Requests that were sent to the nodes and have no answer yet: their futures, their time-outs, and their answers.

An answer arrives on the event loop, if that serves the sockets, and else on a thread of the driver. Then it is handed
over to the event loop. Knows no statement, and sends nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from tablestone.engines.cassandra.serving_loop import ServingLoop
from tablestone.engines.figures import Distribution

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.25
"""How often the event loop looks for requests whose time is over."""

Row: TypeAlias = tuple[Any, ...]


class Answer(list[Row]):
    """The rows of an answer, with the names of their columns."""

    names: Sequence[str] = ()


class UnderWay:
    """A request, and what the future of its sender becomes: its answer, or an error."""

    __slots__ = ("_begun", "_requests", "future", "of_loop", "send_again")

    def __init__(self, requests: RequestsUnderWay, of_loop: RequestsOfLoop, begun: float) -> None:
        self._requests = requests
        self._begun = begun
        self.of_loop = of_loop
        self.future: asyncio.Future[Answer] = of_loop.loop.create_future()
        self.send_again: Callable[[UnderWay], None] | None = None
        """Sends it in another way, on the event loop, if the node has forgotten its statement."""

    def answered(self, rows: Sequence[Row], names: Sequence[str]) -> None:
        """The rows of the node's answer; on whichever thread, as the next ones."""
        requests = self._requests
        requests.seconds.add(requests.clock() - self._begun)
        answer = Answer(rows)
        answer.names = names
        self.of_loop.arrive(self, answer, None)

    def failed(self, error: Exception) -> None:
        """It was not carried out, or its outcome is unknown."""
        self._requests.note_failure(error)
        self.of_loop.arrive(self, None, error)

    def forgotten(self) -> None:
        """It was not carried out, because the node does not know its statement any more."""
        self.of_loop.arrive(self, None, None)

    def hand_over(self, answer: Answer | None, error: Exception | None) -> None:
        """Let the sender have it, on its event loop; neither is the news that the statement was forgotten."""
        future = self.future
        if future.done():  # cancelled
            return
        if answer is not None:
            future.set_result(answer)
        elif error is not None:
            future.set_exception(error)
        elif self.send_again is not None:
            try:
                self.send_again(self)
            except Exception as refused:  # noqa: BLE001 - the sender decides what it means
                future.set_exception(refused)


class RequestsUnderWay:
    """The requests of one session. `clock` gives seconds, and never steps back.

    `seconds` counts how long answers took; `note_failure` is told of each error, on whichever thread.
    """

    def __init__(
        self,
        serving: ServingLoop,
        clock: Callable[[], float],
        seconds: Distribution,
        note_failure: Callable[[Exception], None],
    ) -> None:
        self.clock = clock
        self.seconds = seconds
        self.note_failure = note_failure
        self._serving = serving
        self._of_loop: RequestsOfLoop | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> UnderWay:
        """A request that this event loop is about to send."""
        of_loop = self._of_loop
        if of_loop is None or of_loop.loop is not loop:
            of_loop = self._of_loop = RequestsOfLoop(loop, self._serving, self.clock)
        return UnderWay(self, of_loop, self.clock())

    def end_after(self, seconds: float, request: UnderWay, time_out: Callable[[], None]) -> None:
        """Call `time_out` if the request has no answer then. All times are equal, so the requests are in order."""
        request.of_loop.end_at(self.clock() + seconds, request, time_out)


class RequestsOfLoop:
    """The requests that one event loop has sent.

    A command may use several event loops, one after the other. Each has its own, so a loop that has ended, or waits,
    holds up no other.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        serving: ServingLoop,
        clock: Callable[[], float],
    ) -> None:
        self.loop = loop
        self._serving = serving
        self._clock = clock
        self._arrived: deque[tuple[UnderWay, Answer | None, Exception | None]] = deque()
        self._is_woken = False
        self._deadlines: dict[UnderWay, tuple[float, Callable[[], None]]] = {}
        self._is_looking = False

    def end_at(self, deadline: float, request: UnderWay, time_out: Callable[[], None]) -> None:
        """Call `time_out` if the request has no answer then; on the event loop."""
        self._deadlines[request] = (deadline, time_out)
        if not self._is_looking:
            self._is_looking = True
            self.loop.call_later(LOOK_SECONDS, self._look_for_late)

    def _look_for_late(self) -> None:
        now = self._clock()
        # A copy, because an answer on a thread of the driver takes its request out.
        for request, (deadline, time_out) in self._deadlines.copy().items():
            if deadline > now:
                break
            if self._deadlines.pop(request, None) is None:
                continue
            try:
                time_out()
            except Exception as error:
                log.exception("a request to a Cassandra node could not be ended")
                request.failed(error)
        self._is_looking = bool(self._deadlines)
        if self._is_looking:
            self.loop.call_later(LOOK_SECONDS, self._look_for_late)

    def arrive(self, request: UnderWay, answer: Answer | None, error: Exception | None) -> None:
        """Hand an answer over on the event loop: at once if that serves the socket, which called this."""
        # Before the driver uses the stream of the request for another one: ending this one would end that.
        self._deadlines.pop(request, None)
        if self._serving.is_here() and self._serving.loop is self.loop:
            request.hand_over(answer, error)
            return
        self._arrived.append((request, answer, error))
        if not self._is_woken:  # answers that arrive together wake the event loop once
            self._is_woken = True
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                self.loop.call_soon_threadsafe(self._take_arrived)

    def _take_arrived(self) -> None:
        self._is_woken = False
        while self._arrived:
            request, answer, error = self._arrived.popleft()
            request.hand_over(answer, error)
