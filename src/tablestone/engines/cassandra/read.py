"""Reads: cut ranges into pieces of one partition each, read the pieces ahead and join them in order.

Each answer of the cluster shows one moment of one partition. A page joins several answers only while the partition's
mark stays the same. If it has changed, the page ends before the last answer, or begins again if it has no row yet. So a
page never shows half of a write set, and may be short. A page or snapshot that has seen a part of a partition asks for
its other parts too, whether the directory lists it or not.
"""

import asyncio
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final, NamedTuple, TypeVar

from tablestone.engines.cassandra.connection import Attempts, Connection
from tablestone.engines.cassandra.directory import Directory
from tablestone.engines.cassandra.layout import ROWS
from tablestone.engines.cassandra.session import Answer, Row
from tablestone.engines.contract import (
    EngineBusy,
    Entry,
    Hint,
    Key,
    KeyRange,
    Rows,
    SnapshotPassed,
    StoredRow,
)

WIDE_BYTES: Final = 4096
"""Values up to this length need no note: a thousand of them are 4 MiB."""
KNOWN_MAX: Final = 50_000
"""Partitions with a known width. Above this, forget all and learn them again."""


class Widths:
    """The longest value of each partition, in bytes: it limits the number of rows in an answer.

    A thousand rows of 1 KiB are one answer; a thousand of 1 MiB would take a node's memory. So a static column holds
    the length of the longest value, rounded up to a power of two. A longer value than known, above 4 KiB, writes it
    before its row. The timestamp of this plain write is the length, so the longest wins in any order of writes.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[bytes, int] = {}
        self._note = connection.prepare(
            f"UPDATE {ROWS} USING TIMESTAMP ? SET widest = ? WHERE partition = ?"
        )

    def known(self, partition: bytes) -> int | None:
        """Rounded up; None if this engine does not know it."""
        return self._known.get(partition)

    def learn(self, partition: bytes, widest: int | None) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[partition] = max(widest or WIDE_BYTES, self._known.get(partition, 0))

    async def note(self, partition: bytes, longest: int) -> None:
        """Call it before a value is written: stores its length if it is the longest."""
        if longest <= WIDE_BYTES or longest <= self._known.get(partition, 0):
            return
        widest = 1 << (longest - 1).bit_length()
        await self._connection.write([(self._note, (widest, widest, partition))])
        self.learn(partition, widest)


ANSWER_BYTES: Final = 4 << 20
"""The longest answer of the cluster, unless a few rows are longer."""
AHEAD_BYTES: Final = 8 << 20
"""About how much to read ahead of the page."""
PARTITIONS_AT_ONCE_MAX: Final = 32
ROWS_AT_ONCE_MIN: Final = 4
ROWS_AT_ONCE_MAX: Final = 1001
"""A page of the service, and the row that shows whether there is another page, in one answer."""
ROWS_AT_FIRST: Final = 16
"""Ask for so few rows while the width of the partition is not known: one may have a mebibyte."""


class ReadAhead:
    """How much a read of `rows_max` rows, and the row after them, asks for at a time.

    It asks the first partition for all that the page lacks, within the limit of an answer. At the same time it asks the
    next partitions, each for about as many rows as the last one had: first one, then more and more, while the page has
    room for them and the memory for answers allows it.
    """

    def __init__(self, widths: Widths, rows_max: int) -> None:
        self._widths = widths
        self._left = rows_max + 1
        self._usual = ROWS_AT_FIRST
        """The rows of the last partition."""
        self.partitions = 1
        """How many partitions to ask at the same time."""

    def limit(self, partition: bytes, *, is_ahead: bool = False) -> int:
        """How many rows to ask a partition for. `is_ahead`: the page has not come to it yet."""
        widest = self._widths.known(partition)
        limit = ROWS_AT_FIRST
        if widest is not None:
            limit = max(ROWS_AT_ONCE_MIN, min(ROWS_AT_ONCE_MAX, ANSWER_BYTES // widest))
        if is_ahead:
            limit = min(limit, self._usual_limit)
        return min(limit, self._left)

    def take(self, rows: int) -> None:
        """Count rows that have come."""
        self._left = max(self._left - rows, 1)

    def end_partition(self, partition: bytes, rows: int) -> None:
        """The partition was read to its end and had this many rows."""
        self._usual = max(rows, 1)
        limit = min(self._left, ROWS_AT_ONCE_MAX, self._usual_limit)
        fitting = 1 + AHEAD_BYTES // (limit * (self._widths.known(partition) or WIDE_BYTES))
        # Ask for the row after the page last, alone.
        wanted = -(-(self._left - 1) // self._usual)
        most = min(2 * self.partitions, PARTITIONS_AT_ONCE_MAX, fitting, wanted)
        self.partitions = max(most, 1)

    @property
    def _usual_limit(self) -> int:
        """A few more rows than usual, so that one answer shows the end of the partition."""
        return max(ROWS_AT_FIRST, self._usual + self._usual // 4)


_Taken = TypeVar("_Taken", bytes, StoredRow)

POINTS_AT_ONCE_MAX: Final = 100
"""Rows of one partition to ask for by key at one moment: as many as a transaction has."""


class Piece(NamedTuple):
    """The part of a read in one partition: rows with `start <= row < end`, or just these `rows`."""

    partition: bytes
    start: bytes = b""
    end: bytes | None = None
    rows: Sequence[bytes] = ()
    is_listed: bool = False
    """The directory lists the partition, and this asks for all its rows: if there is none, the entry may go."""
    is_followed: bool = False
    """The read asks for another part of the partition too."""


class PartitionMark(NamedTuple):
    """A partition while it had this mark."""

    partition: bytes
    mark: int


class _Changed(Exception):
    """A partition has changed between two of its pieces, and the page has no row yet."""


class _Statements:
    def __init__(self, connection: Connection) -> None:
        # SERIAL: if an answer has shown a row of a transaction, each later one contains the whole transaction.
        prepare = functools.partial(connection.prepare, serial=True)
        select = f"SELECT row, version, value, mark, widest FROM {ROWS} WHERE partition = ?"
        self.get = prepare(f"SELECT value FROM {ROWS} WHERE partition = ? AND row = ?")
        self.rows_from = prepare(f"{select} AND row >= ? LIMIT ?")
        self.rows_between = prepare(f"{select} AND row >= ? AND row < ? LIMIT ?")
        self.rows_named = prepare(f"{select} AND row IN ?")
        self.mark = prepare(f"SELECT mark FROM {ROWS} WHERE partition = ? LIMIT 1")


@dataclass(eq=False)
class Reads:
    """The reads of one engine. It calls `found_empty` for a listed partition without a row."""

    _connection: Connection
    _directory: Directory
    _widths: Widths
    _found_empty: Callable[[bytes], None]

    def __post_init__(self) -> None:
        self._statements = _Statements(self._connection)

    async def get(self, key: Key) -> bytes | None:
        answer = await self._connection.read(self._statements.get, key)
        value: bytes | None = answer[0][0] if answer else None
        return value

    async def rows(self, partition: bytes, rows: Sequence[bytes]) -> dict[bytes, tuple[int, bytes]]:
        """Versions and values of the existing ones of up to `POINTS_AT_ONCE_MAX` rows, at one moment."""
        answer = await self._connection.read(self._statements.rows_named, (partition, rows))
        return {row: (version, value) for row, version, value, *_ in answer}

    async def read(
        self,
        ranges: Sequence[KeyRange],
        rows_max: int,
        bytes_max: int,
        before: PartitionMark | None = None,
    ) -> tuple[Rows, PartitionMark | None]:
        """As `Engine.read`, with the mark of the last partition. The page also ends where a partition has changed.

        `before` is the mark of an earlier page: `SnapshotPassed` if that partition has changed.
        """
        found, next_key, mark = await self._rows(
            ranges, rows_max, bytes_max, before, lambda _partition, rows: [row[2] for row in rows]
        )
        return Rows(found, next_key), mark

    async def scan(self, key_range: KeyRange, rows_max: int) -> list[StoredRow]:
        """As `Engine.scan`; rows are not of one moment."""
        found: list[StoredRow] = []
        rest = key_range
        while True:
            rows, next_key, _ = await self._rows(
                (rest,), rows_max - len(found), 1 << 62, None, _whole
            )
            found += rows
            if next_key is None or len(found) == rows_max:
                return found
            rest = KeyRange(next_key, key_range.end)

    async def _rows(
        self,
        ranges: Sequence[KeyRange],
        rows_max: int,
        bytes_max: int,
        before: PartitionMark | None,
        take: Callable[[bytes, Sequence[Row]], list[_Taken]],
    ) -> tuple[list[_Taken], Key | None, PartitionMark | None]:
        """A page of rows as `take` converts them, the key of the next row, and the mark of the last partition."""
        attempts: Attempts | None = None
        while True:
            with suppress(_Changed):
                return await self._rows_once(ranges, rows_max, bytes_max, before, take)
            attempts = attempts or self._connection.attempts()
            await attempts.pause(
                EngineBusy("Other writes keep changing the partition that is read.")
            )

    async def _rows_once(
        self,
        ranges: Sequence[KeyRange],
        rows_max: int,
        bytes_max: int,
        earlier: PartitionMark | None,
        take: Callable[[bytes, Sequence[Row]], list[_Taken]],
    ) -> tuple[list[_Taken], Key | None, PartitionMark | None]:
        found: list[_Taken] = []
        before = earlier
        size = 0
        async for piece, rows in self._ahead(ranges, rows_max, earlier):
            partition = piece.partition
            if before is not None and before.partition == partition:
                if not await self._is_same(before, piece, rows):
                    if not found:
                        raise SnapshotPassed if before is earlier else _Changed
                    return found, Key(partition, rows[0][0] if rows else _start(piece)), before
            elif not rows and piece.is_listed:
                self._found_empty(partition)
            elif not rows and piece.is_followed:
                # An answer without rows has no mark: read it, and look whether there is still no row.
                mark = await self._mark(partition)
                again = await self._ask(piece, ROWS_AT_ONCE_MIN)
                if again and found:
                    return found, Key(partition, _start(piece)), before
                if again:
                    before = PartitionMark(partition, again[0][3])
                    return take(partition, again[:1]), Key(partition, again[0][0] + b"\0"), before
                before = PartitionMark(partition, mark)
            count, size = _fitting(rows, rows_max - len(found), bytes_max, size, is_empty=not found)
            if count:
                before = PartitionMark(partition, rows[0][3])
                found += take(partition, rows if count == len(rows) else rows[:count])
            if count < len(rows):
                return found, Key(partition, rows[count][0]), before
        return found, None, before

    async def _is_same(self, before: PartitionMark, piece: Piece, rows: Sequence[Row]) -> bool:
        partition, mark = before
        if rows:
            return bool(rows[0][3] == mark)
        if await self._mark(partition) != mark:
            return False
        # The answer may be older than that mark: ask again.
        return not (piece.is_followed and await self._ask(piece, ROWS_AT_ONCE_MIN))

    async def _mark(self, partition: bytes) -> int:
        """0 if nothing was ever written to the partition."""
        answer = await self._connection.read(self._statements.mark, (partition,))
        return answer[0][0] or 0 if answer else 0

    async def _ahead(
        self, ranges: Sequence[KeyRange], rows_max: int, earlier: PartitionMark | None
    ) -> AsyncIterator[tuple[Piece, Answer]]:
        """The pieces with their rows, in order; a long piece comes several times, each time with further rows."""
        waiting: list[tuple[Piece, int, asyncio.Task[Answer]]] = []
        pieces = self._pieces(ranges, earlier)
        ahead = ReadAhead(self._widths, rows_max)
        is_more = True
        try:
            while True:
                while is_more and len(waiting) < ahead.partitions:
                    piece = await anext(pieces, None)
                    if piece is None:
                        is_more = False
                        break
                    limit = ahead.limit(piece.partition, is_ahead=bool(waiting))
                    task = asyncio.ensure_future(self._ask(piece, limit))
                    waiting.append((piece, limit, task))
                if not waiting:
                    return
                piece, limit, task = waiting.pop(0)
                answer = await task
                if answer:
                    self._widths.learn(piece.partition, answer[0][4])
                rows = 0
                while True:
                    rows += len(answer)
                    ahead.take(len(answer))
                    yield piece, answer
                    if piece.rows or len(answer) < limit:
                        break
                    piece = piece._replace(start=answer[-1][0] + b"\0", is_listed=False)
                    limit = ahead.limit(piece.partition)
                    answer = await self._ask(piece, limit)
                ahead.end_partition(piece.partition, rows)
        finally:
            for _, _, task in waiting:
                task.cancel()
            await pieces.aclose()

    async def _ask(self, piece: Piece, limit: int) -> Answer:
        statements, partition = self._statements, piece.partition
        if piece.rows:
            return await self._connection.read(statements.rows_named, (partition, piece.rows))
        if piece.end is None:
            return await self._connection.read(
                statements.rows_from, (partition, piece.start, limit)
            )
        return await self._connection.read(
            statements.rows_between, (partition, piece.start, piece.end, limit)
        )

    async def _pieces(
        self, ranges: Sequence[KeyRange], earlier: PartitionMark | None
    ) -> AsyncGenerator[Piece]:
        shared = {
            later.start.partition
            for earlier, later in pairwise(ranges)
            if later.start.partition in {earlier.start.partition, earlier.end.partition}
            and not (earlier.is_point and later.is_point)
        }
        # Ask these even if the directory does not list them: the read sees another part of them too.
        seen = shared if earlier is None else {earlier.partition, *shared}
        async for piece in self._each_piece(ranges, seen):
            yield piece._replace(is_followed=True) if piece.partition in shared else piece

    async def _each_piece(
        self, ranges: Sequence[KeyRange], seen: set[bytes]
    ) -> AsyncGenerator[Piece]:
        for is_point, group in groupby(ranges, key=lambda key_range: key_range.is_point):
            if is_point:
                for piece in _points(group):
                    yield piece
                continue
            for start, end in group:
                if start.partition == end.partition:
                    yield Piece(start.partition, start.row, end.row)
                elif end == (start.partition + b"\0", b""):
                    yield Piece(start.partition, start.row)
                else:
                    async for piece in self._of_partitions(start, end, seen):
                        yield piece

    async def _of_partitions(self, start: Key, end: Key, seen: set[bytes]) -> AsyncIterator[Piece]:
        """The pieces of a long range: the listed partitions, and its ends if they are `seen`."""
        last = end.partition if end.row else None
        reached = None
        if start.partition in seen:
            reached = start.partition
            yield Piece(start.partition, start.row)
        async for partitions in self._directory.partitions(start.partition, last, end.partition):
            for partition in partitions:
                if partition == reached:
                    continue
                reached = partition
                first = start.row if partition == start.partition else b""
                until = end.row if partition == end.partition else None
                yield Piece(partition, first, until, is_listed=not first and until is None)
        if last is not None and last in seen and last != reached:
            yield Piece(last, b"", end.row)


def _whole(partition: bytes, rows: Sequence[Row]) -> list[StoredRow]:
    return [StoredRow(partition, row, version, value) for row, version, value, *_ in rows]


def _fitting(
    rows: Sequence[Row], rows_max: int, bytes_max: int, size: int, *, is_empty: bool
) -> tuple[int, int]:
    """How many rows fit into a page of this size, and its size with them. An empty page takes one row."""
    sizes = [len(row[2]) for row in rows[:rows_max]]
    whole = size + sum(sizes)
    if whole < bytes_max:
        return len(sizes), whole
    for index, length in enumerate(sizes):
        if size >= bytes_max and (index or not is_empty):
            return index, size
        size += length
    return len(sizes), size


def _points(ranges: Iterator[KeyRange]) -> Iterator[Piece]:
    """Pieces for single rows: up to `POINTS_AT_ONCE_MAX` rows of one partition at once."""
    for partition, group in groupby((key_range.start for key_range in ranges), lambda key: key[0]):
        rows = [key.row for key in group]
        are_more = len(rows) > POINTS_AT_ONCE_MAX
        for index in range(0, len(rows), POINTS_AT_ONCE_MAX):
            at_once = rows[index : index + POINTS_AT_ONCE_MAX]
            yield Piece(partition, rows=at_once, is_followed=are_more)


def _start(piece: Piece) -> bytes:
    return piece.rows[0] if piece.rows else piece.start


class PassingSnapshot:
    """A `Snapshot` that lasts while the partition of the last read does not change."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._before: PartitionMark | None = None

    async def read(
        self,
        ranges: Sequence[KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: Hint | None = None,  # noqa: ARG002 - leaves nothing out
        reverse: bool = False,
    ) -> Rows:
        assert (
            not reverse
        )  # partitions are in the order of their hashes, and are listed upwards only
        rows, self._before = await self._reads.read(ranges, rows_max, bytes_max, self._before)
        return rows

    async def entries(
        self,
        start: Entry,  # noqa: ARG002
        end: Entry,  # noqa: ARG002
        *,
        entries_max: int,  # noqa: ARG002
        reverse: bool = False,  # noqa: ARG002
    ) -> list[Entry]:
        return []

    async def count_entries(self, start: Entry, end: Entry, *, entries_max: int) -> int:  # noqa: ARG002
        return 0

    async def close(self) -> None:
        """Nothing is held."""
