"""Cuts writes of one partition into batches that every node takes. Calls in, calls out; sends nothing.

A batch of one partition is one mutation, and `batch_size_fail_threshold` does not count for it (`verifyBatchSize` in
Cassandra's BatchStatement.java). The message that brings it has a limit: `native_transport_max_message_size` is the
lesser of `max_mutation_size`, 16 MiB as delivered, and a fortieth of the heap. A longer one is refused every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tablestone.engines.cassandra.connection import Call

CALLS_MAX: Final = 200
"""Calls in a batch. More of them gain little: 2,000 short entries took 0.3 s in tens of batches, and 0.2 s in two."""
BYTES_MAX: Final = 512 << 10
"""Bytes of a batch in a message: half of `native_transport_receive_queue_capacity`, 1 MiB as delivered. Beyond that
capacity, all connections of a server draw on one share of the node's heap."""
CALL_BYTES: Final = 21
"""Of a call in a message, without its values: kind, id of the statement, count of values (native_protocol_v5.spec,
section 4.1.7). An id is an MD5 hash."""
LENGTH_BYTES: Final = 4
"""Before each value (section 3, [value])."""
NUMBER_BYTES: Final = 8
"""The longest value that is no blob: a bigint."""


def pieces(
    calls: Iterable[Call], calls_max: int = CALLS_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[list[Call]]:
    """The calls in their order, in lists within both limits; a call that is longer alone is a list of its own."""
    piece: list[Call] = []
    size = 0
    for call in calls:
        length = size_of(call)
        if piece and (len(piece) == calls_max or size + length > bytes_max):
            yield piece
            piece, size = [], 0
        piece.append(call)
        size += length
    if piece:
        yield piece


def size_of(call: Call) -> int:
    """The bytes of a call in a batch, or a few more."""
    _, values = call
    return CALL_BYTES + sum(
        LENGTH_BYTES + (len(value) if isinstance(value, bytes) else NUMBER_BYTES)
        for value in values
    )
