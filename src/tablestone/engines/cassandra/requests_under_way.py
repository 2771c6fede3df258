"""Requests that were sent to the nodes and have no answer yet: their futures, their time-outs, and their answers.

An answer arrives on the event loop, if that serves the sockets, and else on a thread of the driver. Then it is handed
over to the event loop. Knows no statement, and sends nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from tablestone.engines.cassandra.serving_loop import ServingLoop
from tablestone.engines.figures import Distribution

LOOK_SECONDS: Final = 0.25
"""How often the event loop looks for requests whose time is over."""

Row: TypeAlias = tuple[Any, ...]


class Answer(list[Row]):
    """The rows of an answer, with the names of their columns."""

    names: Sequence[str] = ()


class UnderWay:
    """A request, and what the future of its sender becomes: its answer, or an error."""

    __slots__ = ("_begun", "_requests", "future", "send_again")

    def __init__(
        self, requests: RequestsUnderWay, loop: asyncio.AbstractEventLoop, begun: float
    ) -> None:
        self._requests = requests
        self._begun = begun
        self.future: asyncio.Future[Answer] = loop.create_future()
        self.send_again: Callable[[UnderWay], None] | None = None
        """Sends it in another way, on the event loop, if the node has forgotten its statement."""

    def answered(self, rows: Sequence[Row], names: Sequence[str]) -> None:
        """The rows of the node's answer; on whichever thread, as the next ones."""
        requests = self._requests
        requests.seconds.add(requests.clock() - self._begun)
        answer = Answer(rows)
        answer.names = names
        requests.arrive(self, answer, None)

    def failed(self, error: Exception) -> None:
        """It was not carried out, or its outcome is unknown."""
        self._requests.note_failure(error)
        self._requests.arrive(self, None, error)

    def forgotten(self) -> None:
        """It was not carried out, because the node does not know its statement any more."""
        self._requests.arrive(self, None, None)


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
        self._arrived: deque[tuple[UnderWay, Answer | None, Exception | None]] = deque()
        # Loops, not flags: a command may use several event loops, one after the other. A loop that has ended wakes
        # nothing and looks for nothing, so the next loop does both.
        self._woken: asyncio.AbstractEventLoop | None = None
        self._looking: asyncio.AbstractEventLoop | None = None
        self._deadlines: dict[UnderWay, tuple[float, Callable[[], None]]] = {}

    def begin(self, loop: asyncio.AbstractEventLoop) -> UnderWay:
        """A request that this event loop is about to send."""
        return UnderWay(self, loop, self.clock())

    def end_after(self, seconds: float, request: UnderWay, time_out: Callable[[], None]) -> None:
        """Call `time_out` if the request has no answer then. All times are equal, so the requests are in order."""
        self._deadlines[request] = (self.clock() + seconds, time_out)
        loop = request.future.get_loop()
        if self._looking is not loop:
            self._looking = loop
            loop.call_later(LOOK_SECONDS, self._look_for_late, loop)

    def _look_for_late(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self.clock()
        late = []
        for request, (deadline, time_out) in self._deadlines.items():
            if deadline > now:
                break
            late.append((request, time_out))
        for request, time_out in late:
            del self._deadlines[request]
            time_out()
        if self._looking is not loop:
            return
        if self._deadlines:
            loop.call_later(LOOK_SECONDS, self._look_for_late, loop)
        else:
            self._looking = None

    # On the event loop, if it serves the socket, else on a thread of the driver, from here to `_wake`.

    def arrive(self, request: UnderWay, answer: Answer | None, error: Exception | None) -> None:
        """Hand an answer over, or an error; neither is the news that the statement was forgotten."""
        self._arrived.append((request, answer, error))
        loop = request.future.get_loop()
        if self._serving.is_here() and self._serving.loop is loop:
            self._hand_over()
        else:
            self._wake(loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answers that arrive together wake the event loop once."""
        if self._woken is loop:
            return
        self._woken = loop
        try:
            loop.call_soon_threadsafe(self._wake_up)
        except RuntimeError:  # the loop is closed: nothing waits any more
            self._woken = None

    def _wake_up(self) -> None:
        self._woken = None
        self._hand_over()

    def _hand_over(self) -> None:
        while self._arrived:
            request, answer, error = self._arrived.popleft()
            self._deadlines.pop(request, None)
            future = request.future
            if future.done():  # cancelled
                continue
            if answer is not None:
                future.set_result(answer)
            elif error is not None:
                future.set_exception(error)
            elif request.send_again is not None:
                request.send_again(request)
