"""Callers that fail to authenticate, told to the operator: one line a minute for each client address at most.

An address that keeps failing is counted, and the count is told when the minute is over. All workers of a server share
one limit, and remember a bounded number of addresses (`quiet_addresses`). Knows no HTTP and no kind of signature.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from tablestone.model.errors import StorageError
from tablestone.telemetry.log_format import on_one_line
from tablestone.telemetry.quiet_addresses import QuietAddresses
from tablestone.telemetry.request_record import reason_of

logger = logging.getLogger(__name__)

QUIET_SECONDS: Final = 60.0
"""Seconds after a line in which the failures of the same address are only counted."""
AUTHENTICATION_FAILURES: Final = frozenset(("AuthenticationFailed", "InvalidAuthenticationInfo"))
"""The codes of a caller whose credentials are not good. A request without any is how some SDKs begin: none of these."""


class RefusedCallers:
    """Tells of the failures of one process. `seconds` never steps back; the processes of a server share `quiet`."""

    def __init__(self, seconds: Callable[[], float], quiet: QuietAddresses | None = None) -> None:
        self._seconds = seconds
        self._quiet = QuietAddresses() if quiet is None else quiet
        self._told: deque[tuple[str, int, float]] = deque()
        """The addresses that this process told of, with their places, and until when they are quiet; ascending."""

    def note(self, client: str, account: str, request_id: str, error: StorageError) -> None:
        """A request was answered with this error; those that are no authentication failures are left out."""
        if error.code not in AUTHENTICATION_FAILURES:
            return
        self.tell_counted()
        now = self._seconds()
        taken = self._quiet.take(client, now, now + QUIET_SECONDS)
        if taken is None:
            return
        _tell(client, taken.counted)
        self._told.append((client, taken.place, now + QUIET_SECONDS))
        logger.warning(
            "authentication failed for %s at account %s: %s: %s [request %s]",
            client or "an unknown address",
            account,
            error.code,
            on_one_line(reason_of(error)),
            request_id,
        )

    def tell_counted(self, *, at_end: bool = False) -> None:
        """Tell of the addresses whose quiet time is over; `at_end` of all."""
        now = self._seconds()
        while self._told and (at_end or self._told[0][2] <= now):
            client, place, until = self._told.popleft()
            _tell(client, self._quiet.leave(place, client, until))


def _tell(client: str, counted: int) -> None:
    if counted:
        logger.warning(
            "authentication failed %d more times for %s within %d s",
            counted,
            client or "an unknown address",
            QUIET_SECONDS,
        )
