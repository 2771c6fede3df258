"""What nodes answer: rows and errors. The driver's thread hands them over to the event loop that waits for them.

The driver is imported here, so this module is only imported when a cluster is opened.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import ErrorMessage, RequestValidationException

import cassandra

Row: TypeAlias = tuple[Any, ...]


class Answer(list[Row]):
    """The rows of an answer, with the names of their columns."""

    names: Sequence[str] = ()

    @classmethod
    def of(cls, names: Sequence[str], rows: Sequence[Row]) -> Answer:
        """The driver's `row_factory`."""
        answer = cls(rows)
        answer.names = names
        return answer


class Arrivals:
    """Hands answers over to one event loop. Those that arrive together wake it once.

    A command may use several event loops, one after the other. Each has its own arrivals, so a loop that has ended, or
    waits, holds up no other.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: deque[tuple[asyncio.Future[Answer], Answer | Exception]] = deque()
        self._is_woken = False

    def put(self, future: asyncio.Future[Answer], outcome: Answer | Exception) -> None:
        """Let the future, which belongs to the event loop, have its answer or error; on whichever thread."""
        self._arrived.append((future, outcome))
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                self.loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._is_woken = False  # before the last look: what arrives behind it wakes the loop again
        while self._arrived:
            future, outcome = self._arrived.popleft()
            if future.done():  # cancelled
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


REFUSED: Final = (cassandra.RequestValidationException, RequestValidationException)
"""A node refused the statement itself, and will do it again. The driver has two classes, and raises both."""
PASSING: Final = (
    *(cassandra.DriverException, NoHostAvailable),
    *(ConnectionException, ErrorMessage),
)
"""Apart from `REFUSED`: a statement was not carried out now, and may be when it is sent again."""
FROM_A_NODE: Final = (
    *(cassandra.RequestExecutionException, cassandra.RequestValidationException),
    ErrorMessage,
)
"""A node has answered, with an error. All others come from the driver itself."""

_OF_THE_NODE: Final = re.compile(r'message="(.*)"', re.DOTALL)


def in_words(error: Exception) -> str:
    """The reason of an error, as the second half of a sentence."""
    if isinstance(error, NoHostAvailable):
        return "no node can be reached"
    if isinstance(error, cassandra.Unavailable):
        return "too few of the nodes that have the data are up"
    if isinstance(error, cassandra.Timeout | cassandra.OperationTimedOut):
        return "too few nodes answered in time"
    if isinstance(error, cassandra.CoordinationFailure):
        return "a node failed to carry it out"
    if isinstance(error, cassandra.Unauthorized | cassandra.AuthenticationFailed):
        return "this user may not do that"
    if isinstance(error, ConnectionException):
        return "the connection to a node has ended"
    return f"the log has the driver's error ({type(error).__name__})"


def words_of_the_node(refused: Exception) -> str:
    """The text with which a node refuses a statement, in one line and without a stop at its end."""
    found = _OF_THE_NODE.search(str(refused))
    return " ".join((found[1] if found else str(refused)).split()).rstrip(".")
