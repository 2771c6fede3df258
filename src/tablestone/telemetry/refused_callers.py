"""Warnings about callers that fail to authenticate: at most one line a minute for each client address.

What a rule of an account refuses is logged in the same way, for each account and kind of refusal.

Further failures are counted, and the count is logged after the minute. The workers share a bounded hash table of
addresses, in memory mapped before the fork. The process that takes the place of an address logs the address. There is
no lock: two processes that take a place at once may both log it, or lose a count.
"""

import hashlib
import logging
import mmap
import struct
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final

from tablestone.model.errors import StorageError
from tablestone.telemetry.logs import OnceAMinute, on_one_line
from tablestone.telemetry.request_record import reason_of

PLACES: Final = 1024
"""Addresses that are remembered at once. Another one replaces the one whose quiet time ends first."""
_TRIES: Final = 8
"""Places that an address may take."""
_PLACE: Final = struct.Struct("QdQ")
"""The digest of an address, the end of its quiet time (`monotonic_seconds`), and the failures counted in it."""


class QuietAddresses:
    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, PLACES * _PLACE.size)

    def take(self, address: str, now: float, until: float) -> tuple[int, int] | None:
        """Keep an address quiet until then. Returns its place, and its earlier failures that are not logged yet.

        If the address is quiet already, counts the failure and returns None.
        """
        digest = _digest(address)
        places = [(digest + number) % PLACES for number in range(_TRIES)]
        for place in places:
            found, quiet_until, counted = self._read(place)
            if found != digest:
                continue
            if quiet_until > now:
                self._write(place, digest, quiet_until, counted + 1)
                return None
            self._write(place, digest, until, 0)
            return place, counted
        soonest = min(places, key=lambda place: self._read(place)[1])
        self._write(soonest, digest, until, 0)
        return soonest, 0

    def leave(self, place: int, address: str, until: float) -> int:
        """Forget a quiet address and return its failures; 0 if another process has the place, as that logs them."""
        digest, quiet_until, counted = self._read(place)
        if digest != _digest(address) or quiet_until != until:
            return 0
        self._write(place, 0, 0.0, 0)
        return counted

    def _read(self, place: int) -> tuple[int, float, int]:
        found: tuple[int, float, int] = _PLACE.unpack_from(self._memory, place * _PLACE.size)
        return found

    def _write(self, place: int, digest: int, until: float, counted: int) -> None:
        _PLACE.pack_into(self._memory, place * _PLACE.size, digest, until, counted)


def _digest(address: str) -> int:
    return int.from_bytes(hashlib.blake2b(address.encode(), digest_size=8).digest()) or 1


logger = logging.getLogger(__name__)

QUIET_SECONDS: Final = 60.0
"""How long after a line the failures of the same address are only counted."""
AUTHENTICATION_FAILURES: Final = frozenset(("AuthenticationFailed", "InvalidAuthenticationInfo"))
"""The codes for bad credentials. Requests without credentials have another code, unless they name no version (auth
5.2). They are not failures, because some SDKs begin with one."""


class RefusedCallers:
    """Logs the failures of one process. `seconds` never steps back; the processes of a server share `quiet`."""

    unknown_accounts: ClassVar = OnceAMinute(is_shared=True)

    def __init__(self, seconds: Callable[[], float], quiet: QuietAddresses | None = None) -> None:
        self._seconds = seconds
        self._quiet = QuietAddresses() if quiet is None else quiet
        self._logged: deque[tuple[str, int, float]] = deque()
        """What this process logged (an address, or an account and a reason), the places, and when the quiet times end,
        the earliest first."""

    def note(self, client: str, account: str, request_id: str, error: StorageError) -> None:
        """Log the failure if the caller did not authenticate, broke a rule, or asked for an unknown account."""
        if not account and error.code == "ResourceNotFound" and self.unknown_accounts.is_due():
            logger.info(
                "%s asks for an account that does not exist: %s [request %s]",
                client or "an unknown address",
                on_one_line(error.detail or ""),
                request_id,
            )
        if not is_counted(error):
            return
        self.log_counts()
        now = self._seconds()
        whom = f"{account}{_RULE}{reason_of(error)}" if error.by_rule else client
        taken = self._quiet.take(whom, now, now + QUIET_SECONDS)
        if taken is None:
            return
        place, counted = taken
        _log_count(whom, counted)
        self._logged.append((whom, place, now + QUIET_SECONDS))
        if error.by_rule:
            who = client or "an unknown address"
            logger.warning(
                "account %s refuses %s: %s [request %s]", account, who, reason_of(error), request_id
            )
            return
        logger.warning(
            "authentication failed for %s at account %s: %s: %s [request %s]",
            client or "an unknown address",
            account,
            error.code,
            on_one_line(reason_of(error)),
            request_id,
        )

    def log_counts(self, *, at_end: bool = False) -> None:
        """Log the counts of the addresses whose quiet time is over; `at_end` of all."""
        now = self._seconds()
        while self._logged and (at_end or self._logged[0][2] <= now):
            whom, place, until = self._logged.popleft()
            _log_count(whom, self._quiet.leave(place, whom, until))


def is_counted(error: StorageError) -> bool:
    """Whether metrics and the log count the error by its reason."""
    return error.by_rule or error.code in AUTHENTICATION_FAILURES


_RULE: Final = "\n"
"""Between an account and the reason of its refusal. No address contains it."""


def _log_count(whom: str, counted: int) -> None:
    client, rule, reason = whom.partition(_RULE)
    if counted and rule:
        logger.warning(
            "account %s has refused %d more requests within %d s: %s",
            *(client, counted, QUIET_SECONDS, reason),
        )
    elif counted:
        logger.warning(
            "authentication failed %d more times for %s within %d s",
            counted,
            client or "an unknown address",
            QUIET_SECONDS,
        )
