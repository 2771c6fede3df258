"""Reads a long answer in pages, whose size follows from how long the nodes take for one. For commands, on one thread.

Knows no table. A server reads by other means (`read`). Here too a majority of the copies answers, because a node that
was away may lack rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from cassandra.cluster import ResultSet
from cassandra.query import SimpleStatement

from cassandra import ConsistencyLevel
from tablestone.clock import monotonic_seconds
from tablestone.engines.cassandra.answers import Row
from tablestone.engines.cassandra.connection import Connection

PAGE_SECONDS_MAX: Final = 15.0
"""How long a page may take: longer than the nodes' own time-out for a part of the ring, 10 s, which says more."""
TRIES_SECONDS_MAX: Final = 60.0
"""How long a page is tried again, each time with fewer rows."""
PAGE_SECONDS_ADVISED: Final = 1.0
"""A page that takes longer is followed by a smaller one."""


def pages(
    connection: Connection, text: str, parameters: Sequence[Any] = (), *, rows_max: int
) -> Iterator[Sequence[Row]]:
    """The rows of a query in pages of at most `rows_max`.

    A page that the nodes do not read in time is asked for again with fewer rows. `EngineBusy` if that does not help.
    """
    rows = next_rows = rows_max
    state: bytes | None = None

    def ask() -> ResultSet:
        nonlocal rows, next_rows
        rows, next_rows = next_rows, max(next_rows // 10, 1)
        statement = SimpleStatement(
            text, consistency_level=ConsistencyLevel.QUORUM, fetch_size=rows
        )
        return connection.session.execute(
            statement, parameters, timeout=PAGE_SECONDS_MAX, paging_state=state
        )

    while True:
        asked = monotonic_seconds()
        page = connection.waited_for(ask, TRIES_SECONDS_MAX)
        is_slow = monotonic_seconds() - asked > PAGE_SECONDS_ADVISED
        next_rows = max(rows // 2, 1) if is_slow else min(rows * 2, rows_max)
        state = page.paging_state
        yield page.current_rows
        if state is None:
            return
