"""The trials of docs/decisions/0006-filters-in-the-engine.md: the rejected forms beside the chosen one.

    python -m bench.filter_forms [--rounds 9]

They compare SQL expressions that find a property, the place in a value where the search begins, and walking or seeking
to a range of rows in all partitions. The entities are those of filter_in_sql. The times are processor time, the least
of the rounds.
"""

import argparse
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple
from unittest import mock

import apsw

from bench.filter_in_sql import (
    BOUNDED,
    BY_HAND,
    MATCH_NOTHING,
    TABLE_ID,
    Opened,
    Places,
    by_hand,
    count,
    evenly,
    least_seconds,
    opened,
)
from bench.options import how_many
from tablestone.engines.sqlite import hinted_read
from tablestone.engines.sqlite.hinted_read import HintedReader
from tablestone.tables import storage_keys

ENTITIES: Final = 20_000
MARKER: Final = ',"Temperature":'
BEHIND: Final = f"instr(value, ?5) + {len(MARKER)}"
TAIL: Final = f"substr(value, {BEHIND}, 26)"
OTHER: Final = "NOT BETWEEN x'2d' AND x'3a'"
INSIDE: Final = "(SELECT 1 FROM (SELECT {} AS t LIMIT 1) WHERE CAST(t AS REAL) > 100.0 OR t {})"
FORMS: Final = {
    "visit only": "length(value) < length(?5)",
    "`json_extract`": "json_extract(CAST(value AS TEXT), '$.Temperature') > 100.0 AND ?5 <> ''",
    "`->>`": "CAST(value AS TEXT) ->> '$.Temperature' > 100.0 AND ?5 <> ''",
    "`instr` and cast": f"CAST({TAIL} AS REAL) > 100.0",
    "the same, looked for twice": f"(CAST({TAIL} AS REAL) > 100.0 OR {TAIL} {OTHER})",
    "in a subquery": f"EXISTS {INSIDE.format(TAIL, OTHER)}",
}
"""Expressions that no row satisfies; ?5 is the marker."""
NEVER: Final = 1 << 40


class Shape(NamedTuple):
    """This many partitions of one row, then one partition of many rows, and again."""

    title: str
    ones: int
    many: int
    rows: int = ENTITIES

    def places(self) -> Places:
        """Scatters numbers, so that each large partition has its share of any range."""
        sizes = [*[1] * self.ones, *([self.many] if self.many else [])]
        of_row = itertools.chain.from_iterable(
            [partition] * sizes[partition % len(sizes)] for partition in itertools.count()
        )
        return [
            (f"p{partition:07}", row * 7919 % self.rows)
            for row, partition in enumerate(itertools.islice(of_row, self.rows))
        ]


SHAPES: Final = (
    Shape("200 of 1 row, one of 1,000, and again", 200, 1000),
    Shape("20 of 1 row, one of 1,000, and again", 20, 1000),
    Shape("20 of 1 row, one of 500, and again", 20, 500),
    Shape("1 row each", 1, 0, 200_000),
)


def sql_of(form: str, connection: apsw.Connection) -> Callable[[], int]:
    bindings = [part for each in storage_keys.table_range(TABLE_ID) for part in each]
    return partial(by_hand, connection, BY_HAND + form, (*bindings, MARKER.encode()))


FROM_THE_BEGINNING: Final = partial(mock.patch.object, HintedReader, "skipped", return_value=0)
"""Searches a marker from a value's first byte."""
WALKING: Final = partial(mock.patch.object, hinted_read, "ROWS_TO_BEGIN", NEVER)
"""Makes no partition large enough to seek in."""


def query(place: Opened, text: str) -> int:
    return place.runner.run(count(place.engine, text))


def query_with(change: Callable[[], Any], place: Opened, text: str) -> int:
    with change():
        return query(place, text)


def bounded(rows: int, share: int) -> str:
    """Limit to a part of the numbers, or to none: a range after the last number."""
    first = rows // 2 if share else rows
    return BOUNDED.format(first=first, end=first + rows // 10) + MATCH_NOTHING


def print_forms(place: Opened, rounds: int) -> None:
    ways = [sql_of(form, place.connection) for form in FORMS.values()]
    seconds = least_seconds(ways, rounds)
    print(f"µs a value of {ENTITIES:,}, in bare SQLite:\n")
    for name, each in zip(FORMS, seconds, strict=True):
        print(f"| {name} | {each * 1e6 / ENTITIES:.2f} |")


def print_pair(
    title: str, place: Opened, text: str, before: Callable[[], Any], rounds: int
) -> None:
    ways = (partial(query_with, before, place, text), partial(query, place, text))
    old, new = least_seconds(ways, rounds)
    print(f"| {title} | {old * 1e3:.1f} | {new * 1e3:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=how_many, default=9, help="default: %(default)s")
    rounds = parser.parse_args().rounds
    with opened(evenly(ENTITIES)) as place:
        print_forms(place, rounds)
        print("\nms of CPU: from a value's beginning, and from where the first values have it\n")
        print_pair(f"{ENTITIES:,} values", place, MATCH_NOTHING, FROM_THE_BEGINNING, rounds)
        tenth, none = bounded(ENTITIES, 1), bounded(ENTITIES, 0)
        print_pair("a tenth of them, by RowKey", place, tenth, FROM_THE_BEGINNING, rounds)
        print("\nms of CPU: a range of RowKey walked to, and sought in large partitions\n")
        print_pair("1,000 rows each, two of them the tenth", place, tenth, WALKING, rounds)
        print_pair("the same, none in the range", place, none, WALKING, rounds)
    for shape in SHAPES:
        with opened(shape.places()) as place:
            tenth, none = bounded(shape.rows, 1), bounded(shape.rows, 0)
            print_pair(f"{shape.title}: a tenth of {shape.rows:,}", place, tenth, WALKING, rounds)
            print_pair("the same, none in the range", place, none, WALKING, rounds)


if __name__ == "__main__":
    main()
