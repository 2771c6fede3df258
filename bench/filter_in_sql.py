"""The cost of a filter for each entity of its ranges, beside the same predicate in SQL by hand on bare SQLite.

    python -m bench.filter_in_sql [--entities 20000] [--rounds 9]

The entities are of 1 KiB with ten properties, in 20 partitions, and few or none match. "By hand" is the usual SQL for
JSON in a table with a key: json_extract in WHERE, no service around it. Hints are decided in C, where this installation
can, and in SQL. Processor time, the least of the rounds, which alternate; docs/decisions/0006-filters-in-the-engine.md
has the figures.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

import apsw

from bench.in_process import entity
from bench.options import how_many
from tablestone.clock import system_clock
from tablestone.cooperative_scheduling import Turns
from tablestone.engines.contract import ANY, Change, Engine, Put, WriteSet
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite import row_hints
from tablestone.engines.sqlite.row_hints import way
from tablestone.model.entity_json import entity_renderer
from tablestone.model.keys import EntityKey, encode_key
from tablestone.model.operations import QueryEntities
from tablestone.query.filter_parser import parse_filter
from tablestone.tables import reads, storage_keys
from tablestone.tables.catalog import TableRecord
from tablestone.wire.json_payload import decode_entity

TABLE_ID: Final = b"\0" * storage_keys.TABLE_ID_LENGTH
TABLE: Final = TableRecord("Table", TABLE_ID, 1, 1)
VERSION: Final = 638_000_000_000_000_000
PARTITIONS: Final = 20
COMMITS_AT_ONCE: Final = 1000
BOUNDED: Final = "RowKey ge '{first:010}' and RowKey lt '{end:010}' and "
MATCH_NOTHING: Final = "Temperature gt 100.0"


BY_HAND: Final = "SELECT value FROM stored_rows WHERE (partition, row) >= (?1, ?2) AND (partition, row) < (?3, ?4) AND "


class Case(NamedTuple):
    title: str
    filter: str
    sql: str


JSON_VALUE: Final = "json_extract(CAST(value AS TEXT), '$.{}')"
TENTH: Final = "row >= ?5 AND row < ?6 AND "
CASES: Final = (
    Case("Double, no match", MATCH_NOTHING, f"{JSON_VALUE.format('Temperature')} > 100.0"),
    Case(
        "the same, RowKey bounded to a tenth",
        BOUNDED + MATCH_NOTHING,
        f"{TENTH}{JSON_VALUE.format('Temperature')} > 100.0",
    ),
    Case("Int32, 1 % match", "Count eq 37", f"{JSON_VALUE.format('Count')} = 37"),
    Case("Int64, no match", "Total lt 5", f"CAST({JSON_VALUE.format('Total')} AS INTEGER) < 5"),
    Case("String, no match", "Name eq 'nobody'", f"{JSON_VALUE.format('Name')} = 'nobody'"),
    Case(
        "DateTime, no match",
        "MeasuredAt gt datetime'2027-01-01T00:00:00Z'",
        f"{JSON_VALUE.format('MeasuredAt')} > '2027-01-01'",
    ),
    Case(
        "Int32 or Double, no match",
        "Count gt 100 or Temperature gt 100.0",
        f"({JSON_VALUE.format('Count')} > 100 OR {JSON_VALUE.format('Temperature')} > 100.0)",
    ),
    Case(
        "Double, which all match, and String",
        "Temperature gt 20.0 and Name eq 'Bob'",
        f"{JSON_VALUE.format('Temperature')} > 20.0 AND {JSON_VALUE.format('Name')} = 'Bob'",
    ),
    Case(
        "absent property and String",
        "Age gt 40 and Name eq 'Bob'",
        f"{JSON_VALUE.format('Age')} > 40 AND {JSON_VALUE.format('Name')} = 'Bob'",
    ),
    Case("no hint: ne", "Active ne true", f"{JSON_VALUE.format('Active')} <> 1"),
)


Places = Sequence[tuple[str, int]]
"""Partitions and the numbers of their entities, one partition after the other."""


def evenly(entities: int) -> Places:
    """Entities in partitions of equal size, numbered through all of them."""
    return [(f"p{number * PARTITIONS // entities:03}", number) for number in range(entities)]


async def fill(engine: Engine, places: Places) -> None:
    """Store entities whose Count cycles from 0 to 99."""
    sets = (
        write_set_of(partition, [number for _, number in group])
        for partition, group in groupby(places, key=itemgetter(0))
    )
    while some := list(islice(sets, COMMITS_AT_ONCE)):
        await asyncio.gather(*map(engine.commit, some))


def write_set_of(partition: str, numbers: Iterable[int]) -> WriteSet:
    changes = []
    for number in numbers:
        members = json.loads(entity(number, partition)) | {"Count": number % 100}
        decoded = decode_entity(json.dumps(members).encode(), None)
        row = storage_keys.entity_place(TABLE_ID, decoded.key).row
        changes.append(
            Change(row, ANY, Put(entity_renderer(decoded.key, decoded.members.values())))
        )
    return WriteSet(
        storage_keys.entity_place(TABLE_ID, EntityKey(partition, "")).partition, changes
    )


async def count(engine: Engine, text: str) -> int:
    """Read all pages of a query, following its continuation tokens."""
    found = 0
    query = QueryEntities("table", parse_filter(text), 1000, None, None)
    while True:
        page = await reads.query_entities(
            engine, TABLE, query, system_clock, time.monotonic, Turns(time.monotonic)
        )
        found += len(page.stored)
        if page.token is None:
            return found
        query = QueryEntities("table", query.filter, 1000, None, page.token)


def cpu_seconds(action: Callable[[], int]) -> tuple[float, int]:
    start = time.process_time()
    found = action()
    return time.process_time() - start, found


class Opened(NamedTuple):
    """The entities in an engine, and the engine's file for SQL by hand."""

    runner: asyncio.Runner
    engine: Engine
    connection: apsw.Connection
    entities: int


@contextmanager
def opened(places: Places) -> Iterator[Opened]:
    with tempfile.TemporaryDirectory() as directory, asyncio.Runner() as runner:
        engine = open_engine(f"sqlite:{directory}", lambda: VERSION)
        runner.run(fill(engine, places))
        with closing(apsw.Connection(str(Path(directory) / "tablestone.db"))) as connection:
            connection.pragma("cache_size", -32 * 1024)
            yield Opened(runner, engine, connection, len(places))
        runner.run(engine.close())


def share_of_by_hand(entities: int = 20_000, rounds: int = 9) -> float:
    """How fast a filter without a match is with its hint, as a share of the speed of SQL by hand."""
    with opened(evenly(entities)) as place:
        hand, _, hint = ways(place, CASES[0])
        hand_seconds, hint_seconds = least_seconds((hand, hint), rounds)
    return hand_seconds / hint_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=how_many, default=20_000)
    parser.add_argument("--rounds", type=how_many, default=9)
    options = parser.parse_args()
    head = ("by hand", "Python", "in SQL", f"in {way()}", "speed")
    print(f"{'µs an entity':36}", *(f"{each:>8}" for each in head))
    places = evenly(options.entities)
    with opened(places) as place:
        with_hint(place.runner, place.engine, MATCH_NOTHING)  # opens its connection
        with mock.patch.object(row_hints, "LIBRARY", Path(os.devnull)), opened(places) as in_sql:
            for case in CASES:
                hand, python, hint = ways(place, case)
                compared = (hand, python, ways(in_sql, case)[2], hint)
                seconds = least_seconds(compared, options.rounds)
                each_of = [each * 1e6 / options.entities for each in seconds]
                shown = (*(f"{each:8.2f}" for each in each_of), f"{seconds[0] / seconds[3]:8.0%}")
                print(f"{case.title:36}", *shown, flush=True)


def ways(
    place: Opened, case: Case
) -> tuple[Callable[[], int], Callable[[], int], Callable[[], int]]:
    """The query by hand, without the hint, and with it."""
    first = place.entities // 2
    ends = {"first": first, "end": first + place.entities // 10}
    bounds = tuple(encode_key(f"{number:010}") for number in ends.values())
    sql = BY_HAND + case.sql + " ORDER BY partition, row"
    bindings = (*storage_keys.table_range(TABLE_ID), bounds if "?5" in sql else ())
    text = case.filter.format(**ends)
    return (
        partial(by_hand, place.connection, sql, tuple(part for each in bindings for part in each)),
        partial(without_hint, place.runner, place.engine, text),
        partial(with_hint, place.runner, place.engine, text),
    )


def least_seconds(ways: Sequence[Callable[[], int]], rounds: int) -> list[float]:
    """The least processor time of each way, in alternating rounds. All ways must find the same number."""
    least = [float("inf")] * len(ways)
    for _ in range(rounds):
        measured = [cpu_seconds(way) for way in ways]
        assert len({found for _, found in measured}) == 1, measured
        least = [min(a, b) for a, (b, _) in zip(least, measured, strict=True)]
    return least


def by_hand(connection: apsw.Connection, sql: str, bound: tuple[bytes, ...]) -> int:
    return len(connection.execute(sql, bound).fetchall())


def with_hint(runner: asyncio.Runner, engine: Engine, text: str) -> int:
    return runner.run(count(engine, text))


def without_hint(runner: asyncio.Runner, engine: Engine, text: str) -> int:
    with mock.patch.object(reads, "hint_of", return_value=None):
        return runner.run(count(engine, text))


if __name__ == "__main__":
    main()
