"""Callers that fail to authenticate, told to the operator: one line a minute for each client address at most.

An address that keeps failing is counted, and the count is told when the minute is over. The number of addresses that
are remembered is bounded. Knows no HTTP and no kind of signature.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from tablestone.model.errors import StorageError
from tablestone.telemetry.log_format import on_one_line
from tablestone.telemetry.request_record import reason_of

logger = logging.getLogger(__name__)

QUIET_SECONDS: Final = 60.0
"""Seconds after a line in which the failures of the same address are only counted."""
ADDRESSES_MAX: Final = 1000
"""Addresses that are remembered. For one more, the one that was told of first is forgotten."""
AUTHENTICATION_FAILURES: Final = frozenset(("AuthenticationFailed", "InvalidAuthenticationInfo"))
"""The codes of a caller whose credentials are not good. A request without any is how some SDKs begin: none of these."""


class RefusedCallers:
    """Tells of the failures of one process. `seconds` never steps back."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._quiet: OrderedDict[str, list[float]] = OrderedDict()
        """By address: until when it is quiet, and how many failures are only counted."""

    def note(self, client: str, account: str, request_id: str, error: StorageError) -> None:
        """A request was answered with this error; those that are no authentication failures are left out."""
        if error.code not in AUTHENTICATION_FAILURES:
            return
        self.tell_counted()
        if (known := self._quiet.get(client)) is not None:
            known[1] += 1
            return
        if len(self._quiet) >= ADDRESSES_MAX:
            self._tell(*self._quiet.popitem(last=False))
        self._quiet[client] = [self._seconds() + QUIET_SECONDS, 0]
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
        while self._quiet:
            client, known = next(iter(self._quiet.items()))
            if known[0] > now and not at_end:
                return
            del self._quiet[client]
            self._tell(client, known)

    @staticmethod
    def _tell(client: str, known: list[float]) -> None:
        if known[1]:
            logger.warning(
                "authentication failed %d more times for %s within %d s",
                known[1],
                client or "an unknown address",
                QUIET_SECONDS,
            )
