"""Counting rows without reading their values, and the engines that can do it at little cost.

`CountsRows` is asked for at run time, which a compiled class cannot be: so it is not in `contract.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from tablestone.engines.contract import Key, KeyRange


class PartitionRows(NamedTuple):
    """Some rows of a partition, or all: their number, and the bytes of their keys and values."""

    partition: bytes
    rows: int
    bytes: int


class RowsCounted(NamedTuple):
    """The rows that were counted, by partition in key order, and the first row that was not; None if all were."""

    partitions: Sequence[PartitionRows]
    next_key: Key | None


@runtime_checkable
class CountsRows(Protocol):
    """An engine that counts rows much faster than it reads them."""

    def count_rows(self, key_range: KeyRange, rows_max: int) -> RowsCounted:
        """Count the first `rows_max` rows of a range; some milliseconds for 10,000. Raises `EngineUnavailable`."""
        ...
