"""An event loop whose time is a number: everything happens at once, in an order that the seed alone determines.

A process is a context: the tasks that were started in it stand still while it is paused, and never go on once it is
dead. Timers that end during a pause act when the pause is over, as those of a process that was stopped.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

Result = TypeVar("Result")


class Deadlock(Exception):
    """Nothing can happen any more, and the end was not reached."""


class Process:
    """A process of the simulation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.held: list[asyncio.Handle] = []
        self.context: Context = copy_context()
        self.context.run(CURRENT.set, self)

    def start(self, coroutine: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """A task of this process."""
        return asyncio.get_running_loop().create_task(coroutine, context=self.context)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Go on with everything that came up during the pause, in its order."""
        self.is_paused = False
        if not self.is_dead:
            self._go_on()

    def kill(self) -> None:
        """No line of this process is run any more."""
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
"""The process that runs now; None: the network, the clients and the simulation itself."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs one handle after the other; if there is none, the time is that of the next timer."""

    _ready: Any
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def take_back(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)

    def _run_once(self) -> None:
        if not self._ready:
            if not self._scheduled:
                raise Deadlock
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]
            if not timer.cancelled():
                self._now = max(self._now, timer.when())
                self._ready.append(timer)
            return
        handle = self._ready.popleft()
        if handle.cancelled():
            return
        process = handle._context.get(CURRENT)
        if process is not None and (process.is_dead or process.is_paused):
            process.held.append(handle)
            return
        handle._run()

    def _process_events(self, _events: object) -> None:
        """There are no files."""

    def _write_to_self(self) -> None:
        """There are no other threads."""
