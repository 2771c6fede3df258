"""Hints as conditions in SQL, so that rows that cannot match do not cross the network.

Values are bound and never part of the text, so filters of one shape share a prepared statement.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from tablestone.engines.contract import (
    HINTS_KEPT,
    AllOf,
    AnyOf,
    Contains,
    Hint,
    NumberAfter,
    RowBetween,
    TextAfter,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER_BYTES: Final = 26
"""The longest number of JSON (-1.7976931348623157E+308), a quotation mark before it, and the byte after it."""
_NUMBER: Final = "-?[0-9]+(?:[.][0-9]+)?(?:[eE][-+]?[0-9][0-9]?)?"
"""One that a float8 cannot hold would be an error, so a longer exponent makes no number. Without groups that catch
something, and before the cast: this takes a quarter of the time.
"""
_FOUND: Final = (
    "substring(value FROM nullif(position({marker} IN value), 0) + {length} FOR {bytes})"
)
_TEXT: Final = f"EXISTS (SELECT FROM (SELECT {_FOUND} AS t OFFSET 0) AS found WHERE {{condition}})"
_FIRST: Final = """split_part(translate(ltrim(t, '"'), '}}"', ',,'), ',', 1)"""
_NUMERIC: Final = f"""EXISTS (SELECT FROM (
    SELECT t, CASE WHEN t ~ '{{pattern}}' THEN {_FIRST}::float8 END AS n
    FROM (SELECT encode({_FOUND}, 'escape') AS t OFFSET 0) AS found OFFSET 0
) AS number WHERE {{condition}})"""
"""`escape` makes ASCII of any bytes, and leaves a number as it is. `OFFSET 0`: the marker is searched once, even if the
condition names `t` several times.
"""
_ROW: Final = "substring(head || tail FROM position(decode('0000', 'hex') IN head || tail) + 2)"
"""The row part of a key, after the mark that ends its partition (`schema.stored_key`)."""


class Condition(NamedTuple):
    text: str
    values: tuple[bytes | float, ...]


@functools.lru_cache(maxsize=HINTS_KEPT)
def condition_of(hint: Hint, first: int) -> Condition:
    """The hint as a condition on a row of `rows`. Its parameters begin with this number."""
    values: list[bytes | float] = []

    def bound(value: bytes | float) -> str:
        values.append(value)
        return f"${first + len(values) - 1}::{'bytea' if isinstance(value, bytes) else 'float8'}"

    def joined(word: str, parts: Sequence[Hint]) -> str:
        return "(" + f" {word} ".join(map(sql, parts)) + ")"

    def after(template: str, marker: bytes, length: int, ways: Sequence[str], pattern: str) -> str:
        return template.format(
            marker=bound(marker),
            length=len(marker),
            bytes=length,
            condition=" OR ".join(ways),
            pattern=pattern,
        )

    def sql(hint: Hint) -> str:
        match hint:
            case Contains(text):
                return f"position({bound(text)} IN value) > 0"
            case NumberAfter(marker, least, greatest, quoted, integers, or_absent):
                pattern = f"""^{'"?' if quoted else ""}{_NUMBER}[",}}]"""
                ways = [f"n BETWEEN {bound(least)} AND {bound(greatest)}"]
                ways += ["n IS NULL AND t IS NOT NULL"]
                ways += [] if integers else ["t ~ '^-?[0-9]+[,}]'"]
                ways += ["t IS NULL"] if or_absent else []
                return after(_NUMERIC, marker, _NUMBER_BYTES, ways, pattern)
            case TextAfter(marker, least, greatest, or_absent):
                ways = [f"t BETWEEN {bound(least)} AND {bound(greatest)}"]
                ways += ["t IS NULL"] if or_absent else []
                return after(_TEXT, marker, len(least), ways, "")
            case RowBetween(start, None):
                return f"{_ROW} >= {bound(start)}"
            case RowBetween(start, end):
                assert end is not None  # the case before
                return f"({_ROW} >= {bound(start)} AND {_ROW} < {bound(end)})"
            case AllOf(parts):
                return joined("AND", parts) if parts else "TRUE"
            case AnyOf(parts):
                return joined("OR", parts)
            case _:
                assert_never(hint)

    return Condition(sql(hint), tuple(values))
