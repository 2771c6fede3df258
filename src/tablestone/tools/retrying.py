"""Retries: which failures, how often and after how long; and how many requests are in flight at a time.

A service that is busy (503, 429, 500, 408) or a connection that fails is asked again, after Retry-After where the
answer has one; each such answer halves the number of requests in flight, and successes raise it again. Knows no HTTP;
time and sleep are arguments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from tablestone.clock import monotonic_seconds
from tablestone.tools.refusals import TransferFailed
from tablestone.tools.service_errors import ServiceError, Unreachable

Answer = TypeVar("Answer")

BUSY_STATUSES: Final = frozenset((408, 429, 500, 502, 503, 504))
ATTEMPTS_MAX: Final = 10
FIRST_PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 20.0
SUCCESSES_PER_STEP: Final = 20
"""Requests in a row that succeed before one more may be in flight."""


class InFlight:
    """How many requests may be in flight: fewer when the service is busy, more again while it is not."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = most
        self._running = 0
        self._successes = 0
        self._changed = threading.Condition()

    @property
    def allowed(self) -> int:
        return self._allowed

    @contextmanager
    def one(self) -> Iterator[None]:
        """Holds one of the places; waits until one is free."""
        with self._changed:
            while self._running >= self._allowed:
                self._changed.wait()
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify()

    def busy(self) -> None:
        with self._changed:
            self._allowed = max(1, self._allowed // 2)
            self._successes = 0

    def succeeded(self) -> None:
        with self._changed:
            self._successes += 1
            if self._successes >= SUCCESSES_PER_STEP and self._allowed < self._most:
                self._allowed += 1
                self._successes = 0
                self._changed.notify()


class Retry:
    """Calls a request until it is answered. `stop` set by another thread ends the waiting.

    After `patience_seconds` no further attempt begins.
    """

    def __init__(
        self,
        in_flight: InFlight,
        *,
        stop: threading.Event | None = None,
        attempts: int = ATTEMPTS_MAX,
        patience_seconds: float | None = None,
    ) -> None:
        self._in_flight = in_flight
        self._stop = stop or threading.Event()
        self._attempts = attempts
        self._patience = patience_seconds
        self.retries = 0

    def __call__(self, request: Callable[[], Answer]) -> Answer:
        """The request's answer. Raises its `ServiceError` where asking again changes nothing."""
        return self.telling(lambda _uncertain: request())

    def telling(self, request: Callable[[bool], Answer]) -> Answer:
        """The same for a write: the request is told whether an earlier attempt may have been done without an answer."""
        uncertain = False
        end = None if self._patience is None else monotonic_seconds() + self._patience
        pause = FIRST_PAUSE_SECONDS
        for attempt in range(1, self._attempts + 1):
            try:
                with self._in_flight.one():
                    answer = request(uncertain)
            except ServiceError as error:
                if error.status not in BUSY_STATUSES:
                    raise
                # 500 and a gateway's time-out say nothing of whether the write was done; busy says that it was not.
                uncertain = uncertain or error.status not in (429, 503)
                self._give_up_after(attempt, end, f"The service answers {error}")
                after = error.retry_after
            except Unreachable as error:
                uncertain = True
                self._give_up_after(attempt, end, f"The service {error.told}: {error}")
                after = None
            else:
                self._in_flight.succeeded()
                return answer
            self._in_flight.busy()
            self.retries += 1
            if self._stop.wait(pause if after is None else after):
                break
            pause = min(pause * 2, PAUSE_SECONDS_MAX)
        raise TransferFailed("Stopped.")

    def _give_up_after(self, attempt: int, end: float | None, sentence: str) -> None:
        if attempt == self._attempts or (end is not None and monotonic_seconds() > end):
            tried = "once" if attempt == 1 else f"{attempt} times"
            raise TransferFailed(f"{sentence} (tried {tried}).") from None
