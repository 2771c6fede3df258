"""An event loop whose time is a number: everything happens at once, in an order that only the seed determines.

A process is a context: the tasks started in it stop while it is paused, and never go on once it is dead. Timers that
expire during a pause fire when it ends, as in a stopped process.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

CLOCK_RESOLUTION: Final = 1e-9
"""The least that a wait advances the time; less could be lost in the sum."""


class Deadlock(Exception):
    """Nothing can happen any more, and the end was not reached."""


class Call:
    """A call to be made once, or never: asyncio's handle, without its debugging."""

    __slots__ = ("_arguments", "_function", "_when", "context", "is_cancelled")

    def __init__(
        self, function: Callable[..., object], arguments: Any, context: Context, when: float
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._when = when
        self.context = context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        """When a timer fires."""
        return self._when

    def make(self) -> None:
        self.context.run(self._function, *self._arguments)


class Process:
    """A process of the simulation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.held: list[Call] = []
        self.context: Context = copy_context()
        self.context.run(CURRENT.set, self)

    def start(self, coroutine: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start a task in this process."""
        return asyncio.get_running_loop().create_task(coroutine, context=self.context)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Go on with everything that came up during the pause, in order."""
        self.is_paused = False
        if not self.is_dead:
            self._go_on()

    def kill(self) -> None:
        """Run no further line of this process."""
        self.is_dead = True

    def bury(self) -> None:
        """Let the tasks of the process end after the simulation."""
        self.is_dead = self.is_paused = False
        self._go_on()

    def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.take_back(self.held)
        self.held = []


CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)
"""The process that runs now; None for the network, the clients and the simulation itself."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Makes one call after the other; if there is none, it advances the time to the next timer.

    Timers for the same time fire in the order in which they were set.
    """

    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._calls: deque[Call] = deque()
        self._timers: list[tuple[float, int, Call]] = []
        self._number = itertools.count()

    def time(self) -> float:
        return self._now

    def take_back(self, calls: list[Call]) -> None:
        self._calls.extend(calls)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Call:
        call = Call(callback, args, copy_context() if context is None else context, self._now)
        self._calls.append(call)
        return call

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Call:
        rest = max(delay, CLOCK_RESOLUTION) if delay > 0 else delay
        return self.call_at(self._now + rest, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Call:
        call = Call(callback, args, copy_context() if context is None else context, when)
        heapq.heappush(self._timers, (when, next(self._number), call))
        return call

    def create_task(
        self,
        coro: Generator[Any, None, Result] | Coroutine[Any, Any, Result],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[Result]:
        return asyncio.Task(coro, loop=self, name=name, context=context)  # type: ignore[arg-type]

    def _run_once(self) -> None:
        """Make calls until `stop` is called."""
        while True:
            if self._calls:
                call = self._calls.popleft()
            elif self._timers:
                when, _, call = heapq.heappop(self._timers)
                if not call.is_cancelled:
                    self._now = max(self._now, when)
            else:
                raise Deadlock
            if call.is_cancelled:
                continue
            process = call.context.get(CURRENT)
            if process is not None and (process.is_dead or process.is_paused):
                process.held.append(call)
                continue
            try:
                call.make()
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio's loops do
                self.call_exception_handler({"message": "A call failed.", "exception": error})
            if self._stopping:
                return

    def _process_events(self, _events: object) -> None:
        """There are no files."""

    def _write_to_self(self) -> None:
        """There are no other threads."""
