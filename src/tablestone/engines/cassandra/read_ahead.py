"""How much a read asks for at a time, and how far ahead of the page. Numbers in, numbers out; sends nothing.

The partition that a page has come to is asked for all that the page lacks, if an answer may be so long. Partitions
behind it are asked for at the same time, each for about as many rows as the last one had: first one, then more and
more, as long as the page has room for them and the memory for answers allows it.
"""

from __future__ import annotations

from typing import Final

from tablestone.engines.cassandra.widths import WIDE_BYTES, Widths

ANSWER_BYTES: Final = 4 << 20
"""How long one answer of the cluster is to be at most, unless a few rows are longer."""
AHEAD_BYTES: Final = 8 << 20
"""About how much is read ahead of where a page has come to."""
PARTITIONS_AT_ONCE_MAX: Final = 32
ROWS_AT_ONCE_MIN: Final = 4
ROWS_AT_ONCE_MAX: Final = 1001
"""A page of the service, and the row that says whether there is another one: one answer."""
ROWS_AT_FIRST: Final = 16
"""Rows that are asked for of a partition whose widest row is not known: it may have a mebibyte."""


class ReadAhead:
    """Of one read that wants `rows_max` rows, and whether there is one more."""

    def __init__(self, widths: Widths, rows_max: int) -> None:
        self._widths = widths
        self._left = rows_max + 1
        self._usual = ROWS_AT_FIRST
        """The rows of a partition, as the last one was."""
        self.partitions = 1
        """How many partitions may be asked at the same time."""

    def limit(self, partition: bytes, *, is_ahead: bool = False) -> int:
        """How many rows to ask of a partition; `is_ahead`: the page has not come to it yet."""
        widest = self._widths.known(partition)
        limit = ROWS_AT_FIRST
        if widest is not None:
            limit = max(ROWS_AT_ONCE_MIN, min(ROWS_AT_ONCE_MAX, ANSWER_BYTES // widest))
        if is_ahead:
            limit = min(limit, self._usual_limit)
        return min(limit, self._left)

    def take(self, rows: int) -> None:
        """So many rows have come, in the order of the page."""
        self._left = max(self._left - rows, 1)

    def end_partition(self, partition: bytes, rows: int) -> None:
        """The page has come to the end of a partition, of which the read has seen so many rows."""
        self._usual = max(rows, 1)
        limit = min(self._left, ROWS_AT_ONCE_MAX, self._usual_limit)
        fitting = 1 + AHEAD_BYTES // (limit * (self._widths.known(partition) or WIDE_BYTES))
        wanted = -(
            -(self._left - 1) // self._usual
        )  # the row after the page is asked for last, alone
        most = min(2 * self.partitions, PARTITIONS_AT_ONCE_MAX, fitting, wanted)
        self.partitions = max(most, 1)

    @property
    def _usual_limit(self) -> int:
        """A few rows more than usual: then one answer shows that the partition has ended."""
        return max(ROWS_AT_FIRST, self._usual + self._usual // 4)
