"""The statements that walk through a range of keys, each as narrow as the range allows.

Every statement is a constant, except for the condition of a hint, so it is prepared once. Each range of keys is one
seek and one walk that stops at the end of the range; tests check the query plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tablestone.engines.contract import KeyRange


class Walk(NamedTuple):
    """The statements of a kind of range: its values up to a limit, and the key at an offset from its start.

    A page needs at most one key, so it does not read the keys; the index alone finds that one.
    """

    values: str
    key: str
    some: str
    """The values and rowids of all rows for which a condition holds; the condition has to be filled in."""
    number: str
    """The number of rows, up to a limit."""

    @classmethod
    def over(cls, bounds: str) -> Walk:
        named = f"FROM stored_rows AS v WHERE {bounds}"
        tail = f"FROM stored_rows WHERE {bounds} ORDER BY partition, row"
        return cls(
            f"SELECT value {tail} LIMIT ?",
            f"SELECT partition, row {tail} LIMIT 1 OFFSET ?",
            f"SELECT v.value, v.rowid {named} AND {{}} ORDER BY partition, row",
            f"SELECT count(*) FROM (SELECT 1 {tail} LIMIT ?)",  # noqa: S608 - of constants
        )


ROW_RANGE: Final = Walk.over("partition = ? AND row >= ? AND row < ?")
PARTITION: Final = Walk.over("partition = ? AND row >= ?")
PARTITIONS: Final = Walk.over("(partition, row) >= (?, ?) AND (partition, row) < (?, ?)")
Bindings = tuple[bytes | int, ...]


def walk_of(key_range: KeyRange) -> tuple[Walk, Bindings]:
    """The narrowest statements for the range, and the bindings that come before their limit."""
    start, end = key_range
    if start.partition == end.partition:
        return ROW_RANGE, (*start, end.row)
    if end == (start.partition + b"\0", b""):
        return PARTITION, (*start,)
    return PARTITIONS, (*start, *end)
