"""Counting rows of SQLite by partition: a walk that reads the length of each value from the head of its row only."""

from __future__ import annotations

from typing import Any, Final

import apsw

from tablestone.engines.contract import Key, KeyRange
from tablestone.engines.row_counts import PartitionRows, RowsCounted
from tablestone.engines.sqlite.range_statements import walk_of

COUNT: Final = """
SELECT partition, count(*), sum(size) FROM (
    SELECT partition, length(partition) + length(row) + length(value) AS size FROM stored_rows
    WHERE (partition, row) >= (?, ?) AND (partition, row) < (?, ?) ORDER BY partition, row LIMIT ?
) GROUP BY partition ORDER BY partition
"""


def counted_rows(connection: apsw.Connection, key_range: KeyRange, rows_max: int) -> RowsCounted:
    """Count the first `rows_max` rows of a range; `apsw.Error` as SQLite raises it."""
    start, end = key_range
    walk, bounds = walk_of(key_range)
    found: Any = connection.execute(walk.key, (*bounds, rows_max)).get
    next_key = None if found is None else Key(*found)
    rows: Any = connection.execute(COUNT, (*start, *(next_key or end), rows_max))
    return RowsCounted([PartitionRows(*row) for row in rows], next_key)
