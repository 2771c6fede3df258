"""The length of the longest value of a partition. With it, a read never asks a node for more than both can hold.

A thousand rows of 1 KiB are one answer; a thousand of 1 MiB would take a node's memory. So a static column of the
partition holds the length of the longest value, rounded up to a power of two. It is written before the row, and only
if it is longer than 4 KiB and longer than the known length. It is a plain write whose timestamp is the length, so the
longest wins, in any order of writes. No condition looks at the column.
"""

from __future__ import annotations

from typing import Final

from tablestone.engines.cassandra.connection import Connection
from tablestone.engines.cassandra.schema import ROWS

WIDE_BYTES: Final = 4096
"""Values up to this length need no note: a thousand of them are 4 MiB."""
KNOWN_MAX: Final = 50_000
"""Partitions whose width is remembered; then all are forgotten, and learned again."""


class Widths:
    """The widths of partitions, as one engine knows them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[bytes, int] = {}
        self._note = connection.prepare(
            f"UPDATE {ROWS} USING TIMESTAMP ? SET widest = ? WHERE partition = ?"
        )

    def known(self, partition: bytes) -> int | None:
        """The length that no value of the partition exceeds, as far as it was seen; None if it was not."""
        return self._known.get(partition)

    def learn(self, partition: bytes, widest: int | None) -> None:
        """A read found this in the partition's column."""
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[partition] = max(widest or WIDE_BYTES, self._known.get(partition, 0))

    async def note(self, partition: bytes, longest: int) -> None:
        """A value of this length is about to be written."""
        if longest <= WIDE_BYTES or longest <= self._known.get(partition, 0):
            return
        widest = 1 << (longest - 1).bit_length()
        await self._connection.repeatable(self._note, (widest, widest, partition))
        self.learn(partition, widest)
