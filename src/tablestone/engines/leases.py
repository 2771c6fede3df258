"""Leases: the generation of an engine that does not learn of the commits of other processes.

A row that was read in a lease may be used until the lease ends. The next lease begins when the generation is first read
after that, so the processes of a cluster do not all read their rows at the same time. A lease can be renewed before its
end: rows in use are read again in the background, for a lease that began before these reads. For the reasons see
docs/decisions/0008-leases.md.
"""

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from tablestone.clock import elapsed_seconds

Renewal = Callable[[int, Callable[[bool], None]], None]
"""Begins to read rows for the lease of this number. Calls the function once: with False if the reads failed."""

LastChangeOf = Callable[[bytes], Awaitable[int]]
"""Reads a number that changes with each commit to a partition. It shows every commit acknowledged before the call."""

EARLIEST: Final = 0.5
"""A renewal begins after this part of a lease at the earliest. Earlier ones would read rows more often."""
LATEST: Final = 0.85
"""A renewal begins after this part of a lease at the latest."""
SPARE: Final = 3.0
"""A renewal begins this many times its usual duration before the lease ends."""
FORGET: Final = 0.75
"""The expected duration of a renewal falls to this part of itself with each quicker one."""

_numbers = count(1)
"""All leases of this process share one count, so no number is taken for another object's."""


@dataclass(eq=False, slots=True)
class _Lease:
    began: float
    ends: float
    number: int = field(default_factory=_numbers.__next__)
    unread: int = 0
    """The number of renewals that still read rows for it."""
    failed: bool = False


class Leases:
    """The leases of one process. `elapsed` goes on while the process or the machine is suspended."""

    def __init__(
        self,
        seconds: float,
        elapsed: Callable[[], float] = elapsed_seconds,
        last_change_of: LastChangeOf | None = None,
    ) -> None:
        self.seconds = seconds
        self.last_change_of = last_change_of
        """Given by an engine for which it costs less than to read the rows of a partition."""
        self._elapsed = elapsed
        self._present = _Lease(float("-inf"), float("-inf"))
        self._next: _Lease | None = None
        self._due = float("-inf")
        """When the present lease is to be renewed, or ends."""
        self._renewals: list[Renewal] = []
        self._usual_seconds = 0.0
        """The expected duration of a renewal: about that of the longest recent one."""

    @property
    def generation(self) -> int:
        """The number of the present lease: do not use rows of an earlier one. Begins a renewal that is due."""
        now = self._elapsed()
        if now >= self._due:
            self._look(now)
        return self._present.number

    def renew_with(self, number: int, renewal: Renewal) -> None:
        """Call `renewal` when this lease is renewed; nothing happens if it is not the present one."""
        if number == self._present.number:
            self._renewals.append(renewal)

    def _look(self, now: float) -> None:
        if now >= self._present.ends:
            following, self._next = self._next, None
            if following is None or now >= following.ends:
                following = self._lease(now)
            # A lease that is being renewed has its rows sooner than a new one.
            self._begin(following, now)
        elif self._renewals:
            self._due = self._present.ends
            renewals, self._renewals = self._renewals, []
            lease = self._next = self._lease(now)
            lease.unread = len(renewals)
            for renewal in renewals:
                renewal(lease.number, functools.partial(self._renewed, lease))

    def _lease(self, now: float) -> _Lease:
        return _Lease(now, now + self.seconds)

    def _begin(self, lease: _Lease, now: float) -> None:
        """Make this lease, which may have begun earlier, the present one."""
        self._present = lease
        self._renewals = []
        due = min(lease.ends - SPARE * self._usual_seconds, lease.began + LATEST * self.seconds)
        self._due = max(due, lease.began + EARLIEST * self.seconds, now)

    def _renewed(self, lease: _Lease, is_read: bool) -> None:  # noqa: FBT001 - the only argument of a `Renewal`'s call
        """A renewal has read its rows, or failed. After the last one, the lease becomes the present one."""
        lease.unread -= 1
        lease.failed = lease.failed or not is_read
        if lease.unread:
            return
        now = self._elapsed()
        self._usual_seconds = max(now - lease.began, FORGET * self._usual_seconds)
        if self._next is lease:
            self._next = None
            if now < lease.ends and not lease.failed:
                self._begin(lease, now)
