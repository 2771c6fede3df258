"""Counts the requests of one worker, for metrics: by operation, status, error and plan, and optionally by table.

A table has a count of its own only after a request has found it, so clients cannot fill the memory with names.
"""

from bisect import bisect_left
from typing import Final, Protocol

from tablestone.model.operations import EntitiesPage, EntityGroupTransaction, GetEntity
from tablestone.telemetry.refused_callers import is_counted
from tablestone.telemetry.request_record import RequestRecord, reason_of

QUICK_SECONDS: Final = 0.0005
DURATION_BOUNDS: Final[tuple[float, ...]] = (
    *(QUICK_SECONDS, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Bounds of the histogram of durations, in seconds."""
TRANSACTION_BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100)
"""Bounds of the histogram of operations in a transaction, which has 100 at most (wire 7.1)."""
SEPARATOR: Final = "|"
"""Separates the parts of a series' name. No part contains it."""
REASONS_MAX: Final = 64
"""Reasons of authentication failures with a count of their own. Others count as `OTHER`."""
TABLES_MAX: Final = 1000
"""Tables with a count of their own. Others count as `OTHER`."""
OTHER: Final = "(other)"
_OK: Final = 200
_SeriesKey = tuple[object, int, str, str]
"""The type of the operation (True for an unknown batch), the status, the error and the plan."""


class SeriesCounts:
    """The counts of requests with the same operation, status, error and plan. `seconds` is the sum of durations."""

    def __init__(self) -> None:
        self.requests = 0
        self.seconds = 0.0
        self.returned = 0
        self.read = 0
        self.written = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.durations = [0] * (len(DURATION_BOUNDS) + 1)

    def numbers(self) -> list[float]:
        """The counts in the order of `SERIES_NUMBERS`, followed by the histogram."""
        return [
            *(self.requests, self.seconds, self.returned, self.read, self.written),
            *(self.bytes_in, self.bytes_out),
            *self.durations,
        ]


SERIES_NUMBERS: Final = (
    *("requests", "seconds", "returned", "read", "written"),
    *("bytes_in", "bytes_out"),
)


class CountsPlaces(Protocol):
    """Counts the same requests by partition and query shape: `insight.counts`."""

    def count_point_read(self, record: RequestRecord, operation: GetEntity) -> None: ...
    def count(self, record: RequestRecord, plan: str, read: int, returned: int) -> None: ...


class RequestCounts:
    """The counts of one worker since it started; with `names_tables`, also by account and table.

    The most frequent request, a quick point read that finds its entity, only adds to numbers of this object, which
    takes less time. `totals` moves them into their series.
    """

    def __init__(self, *, names_tables: bool = False, insight: CountsPlaces | None = None) -> None:
        self._insight = insight
        self._found = 0
        self._found_seconds = 0.0
        self._found_bytes_in = 0
        self._found_bytes_out = 0
        self._names_tables = names_tables
        self._series: dict[_SeriesKey, SeriesCounts] = {}
        self._names: dict[_SeriesKey, str] = {}
        self._transactions = [0] * (len(TRANSACTION_BOUNDS) + 1)
        self._transaction_operations = 0
        self._refused: dict[str, int] = {}
        self._tables: dict[str, SeriesCounts] = {}
        self._table_failures: dict[str, int] = {}

    def count(self, record: RequestRecord) -> None:
        operation, failure = record.operation, record.failure
        is_plain = record.status == _OK and failure is None and not self._names_tables
        if is_plain and isinstance(operation, GetEntity):
            seconds = record.ended - record.started
            if seconds <= QUICK_SECONDS:
                self._found += 1
                self._found_seconds += seconds
                self._found_bytes_in += record.bytes_in
                self._found_bytes_out += record.bytes_out
                if self._insight is not None:
                    self._insight.count_point_read(record, operation)
                return
        result = record.result
        plan = ""
        returned = read = written = 0
        if isinstance(operation, GetEntity):
            plan = "point"
            returned = read = record.entities
        elif isinstance(result, EntitiesPage):
            plan, returned, read = result.plan, result.found, result.rows_read
        elif result is not None:
            written = record.entities
        code = "" if failure is None else failure.code
        what: object = record.is_batch if operation is None else type(operation)
        series = self._series_of((what, record.status, code, plan), record.operation_name)
        _add(series, record, returned, read, written)
        if isinstance(operation, EntityGroupTransaction):
            writes = len(operation.writes)
            self._transactions[bisect_left(TRANSACTION_BOUNDS, writes)] += 1
            self._transaction_operations += writes
        if failure is not None and is_counted(failure):
            self._count_refused(f"{code}{SEPARATOR}{reason_of(failure)}")
        if self._names_tables and record.table:
            self._count_table(record, returned, read, written)
        if self._insight is not None:
            self._insight.count(record, plan, read, returned)

    def totals(self) -> dict[str, object]:
        self._move_found()
        return {
            "requests": {self._names[key]: each.numbers() for key, each in self._series.items()},
            "transactions": [self._transaction_operations, *self._transactions],
            "refused": dict(self._refused),
            "tables": {name: each.numbers() for name, each in self._tables.items()},
            "table_failures": dict(self._table_failures),
        }

    def _move_found(self) -> None:
        found = self._found
        if found == 0:
            return
        series = self._series_of((GetEntity, _OK, "", "point"), GetEntity.__name__)
        series.requests += found
        series.returned += found
        series.read += found
        series.durations[0] += found
        series.seconds += self._found_seconds
        series.bytes_in += self._found_bytes_in
        series.bytes_out += self._found_bytes_out
        self._found = self._found_bytes_in = self._found_bytes_out = 0
        self._found_seconds = 0.0

    def _series_of(self, key: _SeriesKey, operation: str) -> SeriesCounts:
        series = self._series.get(key)
        if series is None:
            _what, status, code, plan = key
            name = SEPARATOR.join((operation or "unknown", str(status), code, plan))
            self._names[key] = name
            series = self._series[key] = SeriesCounts()
        return series

    def _count_refused(self, name: str) -> None:
        if name not in self._refused and len(self._refused) >= REASONS_MAX:
            name = f"{OTHER}{SEPARATOR}{OTHER}"
        self._refused[name] = self._refused.get(name, 0) + 1

    def _count_table(self, record: RequestRecord, returned: int, read: int, written: int) -> None:
        name = f"{record.account}{SEPARATOR}{record.table.lower()}"
        counts = self._tables.get(name)
        if counts is None:
            # A failed request may name any table; one that succeeded names a table that exists.
            if record.failure is not None or len(self._tables) >= TABLES_MAX:
                name = f"{OTHER}{SEPARATOR}{OTHER}"
            counts = self._tables.setdefault(name, SeriesCounts())
        _add(counts, record, returned, read, written)
        if record.failure is not None:
            self._table_failures[name] = self._table_failures.get(name, 0) + 1


def _add(
    series: SeriesCounts, record: RequestRecord, returned: int, read: int, written: int
) -> None:
    seconds = record.ended - record.started
    series.requests += 1
    series.seconds += seconds
    series.returned += returned
    series.read += read
    series.written += written
    series.bytes_in += record.bytes_in
    series.bytes_out += record.bytes_out
    bucket = 0  # not by bisection, because most requests are in one of the first buckets
    for bound in DURATION_BOUNDS:
        if seconds <= bound:
            break
        bucket += 1
    series.durations[bucket] += 1
