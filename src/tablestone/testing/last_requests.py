"""The last requests that a storage answered: each with its operation, its answer, and the number of rows it read.

The layers that know a part of a request write it into the record while the request is under way. Knows nothing of HTTP
connections; a signature is never recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, NamedTuple

REQUESTS_KEPT_MAX: Final = 1000
"""At most so many requests are kept; the oldest goes first."""


class Ending(NamedTuple):
    """How a fault ends the connection of a request.

    `sent` is None where nothing of the answer is sent; else the part of its body before a reset, from 0 to 1, or the
    number of its first bytes.
    """

    sent: float | None
    is_reset: bool


@dataclass(slots=True)
class RecordedRequest:
    """One request and its answer. A batch with a transaction is one request.

    `operation`, `account` and `table` are empty for a request that was refused before its operation was known; `plan`
    is empty for an operation that is no query. `partition` is the PartitionKey of a write or a point read. `status` is
    0 while the request is under way, and where the answer was lost.
    """

    number: int
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_secondary: bool = False
    account: str = ""
    operation: str = ""
    table: str = ""
    plan: str = ""
    filter: str = ""
    filter_properties: tuple[str, ...] = ()
    partition: str = ""
    status: int = 0
    error: str = ""
    fault: str = ""
    rows_read: int = 0
    rows_returned: int = 0
    retry_after: int | None = None
    ending: Ending | None = None

    def __str__(self) -> str:
        """One line for a person."""
        parts = [f"#{self.number}", self.operation or f"{self.method} {self.path}"]
        if self.table:
            parts.append(self.table)
        if self.plan:
            parts.append(f"[{self.plan}: {self.rows_read} read, {self.rows_returned} returned]")
        parts.append(f"-> {self.status or 'no answer'}")
        if self.error:
            parts.append(self.error)
        if self.fault:
            parts.append(f"(fault: {self.fault})")
        return " ".join(parts)


CURRENT: Final[ContextVar[RecordedRequest | None]] = ContextVar("CURRENT", default=None)
"""The record of the request that the present task answers."""


Keep = Callable[[RecordedRequest], None]
"""Gets a request that the list of the last requests is about to drop."""


class LastRequests:
    """The requests of one storage, the oldest first."""

    def __init__(self) -> None:
        self._requests: deque[RecordedRequest] = deque(maxlen=REQUESTS_KEPT_MAX)
        self._count = 0
        self._keepers: tuple[Keep, ...] = ()

    @property
    def count(self) -> int:
        """How many requests there have been, also those that are not kept any more."""
        return self._count

    def begin(self, method: str, path: str, headers: Mapping[str, str]) -> RecordedRequest:
        """Add the record of a request that has arrived, and return it."""
        self._count += 1
        if self._keepers and len(self._requests) == REQUESTS_KEPT_MAX:
            for keep in self._keepers:
                keep(self._requests[0])
        record = RecordedRequest(self._count, method, path, headers)
        self._requests.append(record)
        return record

    def begin_keeping(self, keep: Keep) -> None:
        """Give each request that is about to go to `keep`, on the loop of the storage, until `end_keeping`."""
        self._keepers = (*self._keepers, keep)

    def end_keeping(self, keep: Keep) -> None:
        """Give no more requests to `keep`."""
        self._keepers = tuple(each for each in self._keepers if each != keep)

    def since(self, count: int) -> list[RecordedRequest]:
        """The requests after the first `count`, as far as they are kept."""
        return [record for record in tuple(self._requests) if record.number > count]
