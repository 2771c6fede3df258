"""How requests are tried again, and how many are in flight."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, TypeVar

from tablestone.clock import monotonic_seconds
from tablestone.tools.errors import (
    ServiceError,
    TransferFailed,
    Unanswered,
    UnknownHost,
    Unreachable,
)

Answer = TypeVar("Answer")

BUSY_STATUSES: Final = frozenset((408, 429, 500, 502, 503, 504))
ATTEMPTS_MAX: Final = 10
ATTEMPTS_TO_REACH_MAX: Final = 4
"""Attempts, in less than a second, to reach a service that never answered: its address may be wrong."""
FIRST_PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 20.0
SUCCESSES_PER_STEP: Final = 20
"""After this many successes in a row, one more request may be in flight."""


class InFlight:
    """Limits the requests in flight: halves the limit when the service is busy, and raises it again later."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = most
        self._running = 0
        self._successes = 0
        self._changed = threading.Condition()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one request as in flight; first wait until the limit allows it."""
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


@dataclass(eq=False)
class Retry:
    """Calls a request until it is answered. Another thread sets `stop` to end the waiting.

    No attempt begins after `patience_seconds`. `was_there`: the address is known to be right, so an absent service gets
    all attempts. `tell` gets each failure that is tried again, and None after a success.
    """

    in_flight: InFlight
    _: KW_ONLY
    attempts: int = ATTEMPTS_MAX
    patience_seconds: float | None = None
    name: str = "The service"
    was_there: bool = False
    tell: Callable[[Exception | None], None] = lambda _: None
    stop: threading.Event = field(default_factory=threading.Event, init=False)
    retries: int = field(default=0, init=False)
    _was_reached: bool = field(default=False, init=False)

    def __call__(self, request: Callable[[], Answer]) -> Answer:
        """The request's answer. Raises its `ServiceError` if asking again would change nothing."""
        uncertain = False
        end = None if self.patience_seconds is None else monotonic_seconds() + self.patience_seconds
        pause = FIRST_PAUSE_SECONDS
        for attempt in range(1, self.attempts + 1):
            try:
                with self.in_flight.one():
                    answer = request()
            except ServiceError as error:
                self._was_reached = True
                if error.status not in BUSY_STATUSES:
                    error.is_uncertain = uncertain
                    raise
                # After 500 or a gateway's time-out the write may have been done; a busy service did not do it.
                uncertain = uncertain or error.status not in (429, 503)
                self._give_up_after(attempt, end, error, f"answers {error}")
                after = error.retry_after
            except Unreachable as error:
                uncertain = True
                self._was_reached = self._was_reached or isinstance(error, Unanswered)
                self._give_up_after(attempt, end, error, f"{error.verb}: {error}")
                after = None
            else:
                self._was_reached = True
                self.in_flight.succeeded()
                self.tell(None)
                return answer
            self.in_flight.busy()
            self.retries += 1
            if self.stop.wait(pause if after is None else after):
                break
            pause = min(pause * 2, PAUSE_SECONDS_MAX)
        raise TransferFailed("Stopped.")

    def _give_up_after(
        self, attempt: int, end: float | None, error: Exception, reason: str
    ) -> None:
        most = self.attempts
        if self._was_reached or (self.was_there and not isinstance(error, UnknownHost)):
            self.tell(error)
        else:
            most = min(most, ATTEMPTS_TO_REACH_MAX)
        if attempt >= most or (end is not None and monotonic_seconds() > end):
            tried = "once" if attempt == 1 else f"{attempt} times"
            raise TransferFailed(f"{self.name} {reason} (tried {tried}).") from None
