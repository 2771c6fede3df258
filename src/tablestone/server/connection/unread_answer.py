"""An answer that waits in memory until its client reads it: a client that reads too little loses its connection.

Knows the limits and a timer; the connection gives the number of bytes that wait.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable

from tablestone import limits


class UnreadAnswer:
    """Looks at the bytes that wait, `unsent`, now and then, and calls `give_up` if too few of them were read."""

    def __init__(self, unsent: Callable[[], int], give_up: Callable[[], None]) -> None:
        self._unsent = unsent
        self._give_up = give_up
        self._timer: TimerHandle | None = None

    def wait(self, loop: AbstractEventLoop) -> None:
        """Look again after `limits.ANSWER_READ_SECONDS_MAX`."""
        self._timer = loop.call_later(
            limits.ANSWER_READ_SECONDS_MAX, self._look, self._unsent(), loop
        )

    def end(self) -> None:
        """No bytes wait any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, before: int, loop: AbstractEventLoop) -> None:
        if before - self._unsent() < limits.ANSWER_READ_BYTES_MIN:
            self._give_up()
        else:
            self.wait(loop)
