"""Reads: each call is one statement, so it sees one moment. A snapshot is a transaction on a connection of its own."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from tablestone.engines.contract import Entry, Key, Rows, StoredRow
from tablestone.engines.postgresql.connections import translated_errors
from tablestone.engines.postgresql.hints import Condition, condition_of
from tablestone.engines.postgresql.schema import parts_of, stored_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestone.engines.contract import Hint, KeyRange
    from tablestone.engines.postgresql.connections import Connection, Connections

GET: Final = "SELECT value FROM rows WHERE head = $1 AND digest = $2"


def _between(start: str, end: str, limit: str, direction: str = "ASC") -> str:
    return (
        f"WHERE (head, tail) >= ({start}) AND (head, tail) < ({end}) "
        f"ORDER BY head {direction}, tail {direction} LIMIT {limit}"
    )


FORWARDS, BACKWARDS = "ASC", "DESC"
_OF_ONE_RANGE: Final = ("$1, $2", "$3, $4", "$5")
SCAN: Final = f"""
SELECT head, tail, version, value FROM (
    SELECT *, sum(octet_length(value)) OVER places - octet_length(value) AS bytes FROM (
        SELECT head, tail, version, value FROM rows {_between(*_OF_ONE_RANGE)}
    ) AS r WINDOW places AS (ORDER BY head, tail ROWS UNBOUNDED PRECEDING)
) AS counted WHERE bytes < $6 ORDER BY head, tail
"""
SCAN_BYTES_MAX: Final = 8 << 20
"""A scan ends after the value that brings the total length to this."""


def _reading(direction: str) -> str:
    """The statement of a read. It has a place for the condition of a hint."""
    start, end = "w.start_head, w.start_tail", "w.end_head, w.end_tail"
    return f"""
SELECT CASE WHEN NOT fits THEN head END AS head, CASE WHEN NOT fits THEN tail END AS tail,
    CASE WHEN fits AND is_wanted THEN value END AS value, number
FROM (
    SELECT *, number = 1 OR (number <= $5 AND bytes < $6) AS fits, max(number) OVER () AS last FROM (
        SELECT head, tail, value, is_wanted, row_number() OVER places AS number,
            sum(CASE WHEN is_wanted THEN octet_length(value) ELSE 0 END) OVER places
                - CASE WHEN is_wanted THEN octet_length(value) ELSE 0 END AS bytes
        FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[])
            WITH ORDINALITY AS w (start_head, start_tail, end_head, end_tail, n)
        CROSS JOIN LATERAL (
            SELECT head, tail, value, {{}} AS is_wanted FROM rows {_between(start, end, "$5 + 1", direction)}
        ) AS r
        WINDOW places AS (ORDER BY n, head {direction}, tail {direction} ROWS UNBOUNDED PRECEDING)
        LIMIT $5 + 1
    ) AS counted
) AS limited WHERE is_wanted OR NOT fits OR number = last ORDER BY number
"""


READS: Final = {direction: _reading(direction) for direction in (FORWARDS, BACKWARDS)}
"""Lengths are known without fetching values, so a page of large ones ends where it has to. The last row comes in any
case: its number is that of the rows that were examined.
"""
PARAMETERS: Final = 6
EVERY: Final = Condition("TRUE", ())
ENTRIES: Final = {
    direction: f"SELECT head, tail FROM entries {_between(*_OF_ONE_RANGE, direction)}"
    for direction in (FORWARDS, BACKWARDS)
}
COUNT: Final = f"SELECT count(*) FROM ({ENTRIES[FORWARDS]}) AS found"


async def read(
    connection: Connection,
    ranges: Sequence[KeyRange],
    rows_max: int,
    bytes_max: int,
    hint: Hint | None = None,
    direction: str = FORWARDS,
) -> Rows:
    if direction == BACKWARDS:
        ranges = ranges[::-1]
    starts = [stored_key(*key_range.start) for key_range in ranges]
    ends = [stored_key(*key_range.end) for key_range in ranges]
    wanted = EVERY if hint is None else condition_of(hint, PARAMETERS + 1)
    found = await connection.fetch(
        READS[direction].format(wanted.text),
        [key.head for key in starts],
        [key.tail for key in starts],
        [key.head for key in ends],
        [key.tail for key in ends],
        rows_max,
        bytes_max,
        *wanted.values,
    )
    values: list[bytes] = []
    examined = 0
    for head, tail, value, number in found:
        if head is not None:
            return Rows(values, Key(*parts_of(head, tail, 2)), number - 1 - len(values))
        if value is not None:
            values.append(value)
        examined = number
    return Rows(values, None, examined - len(values))


class Reads:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def get(self, key: Key) -> bytes | None:
        head, digest, _tail = stored_key(*key)
        async with self._connections.one() as connection:
            found = await connection.fetch(GET, head, digest)
        return found[0][0] if found else None

    async def read(self, ranges: Sequence[KeyRange], rows_max: int, bytes_max: int) -> Rows:
        async with self._connections.one() as connection:
            return await read(connection, ranges, rows_max, bytes_max)

    async def scan(self, key_range: KeyRange, rows_max: int) -> list[StoredRow]:
        start, end = stored_key(*key_range.start), stored_key(*key_range.end)
        async with self._connections.one() as connection:
            found = await connection.fetch(
                SCAN, start.head, start.tail, end.head, end.tail, rows_max, SCAN_BYTES_MAX
            )
        return [
            StoredRow(*Key(*parts_of(head, tail, 2)), version, value)
            for head, tail, version, value in found
        ]


class Snapshot:
    """Sees the moment of its first read, and holds a connection from then on until `close`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._held = AsyncExitStack()
        self._connection: Connection | None = None

    async def read(
        self,
        ranges: Sequence[KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: Hint | None = None,
        reverse: bool = False,
    ) -> Rows:
        direction = BACKWARDS if reverse else FORWARDS
        connection = await self._begun()
        with translated_errors():
            return await read(connection, ranges, rows_max, bytes_max, hint, direction)

    async def entries(
        self, start: Entry, end: Entry, *, entries_max: int, reverse: bool = False
    ) -> list[Entry]:
        statement = ENTRIES[BACKWARDS if reverse else FORWARDS]
        first, after = stored_key(*start), stored_key(*end)
        connection = await self._begun()
        with translated_errors():
            found = await connection.fetch(
                statement, first.head, first.tail, after.head, after.tail, entries_max
            )
        return [Entry(*parts_of(head, tail, 3)) for head, tail in found]

    async def count_entries(self, start: Entry, end: Entry, *, entries_max: int) -> int:
        first, after = stored_key(*start), stored_key(*end)
        connection = await self._begun()
        with translated_errors():
            [(count,)] = await connection.fetch(
                COUNT, first.head, first.tail, after.head, after.tail, entries_max
            )
        return int(count)

    async def _begun(self) -> Connection:
        if self._connection is None:
            self._connection = await self._held.enter_async_context(self._connections.transaction())
        return self._connection

    async def close(self) -> None:
        self._connection = None
        await self._held.aclose()
