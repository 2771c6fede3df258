"""The counts of the last hour and the last day, of all workers: read from their reports about once a second.

A minute stays open while workers may still count in it. Then it is merged into a bucket of its own and into its quarter
of an hour. The most entities in a second are found from one look to the next. Knows reports and buckets; does not know
what a report of insight looks like.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tablestone.telemetry.insight_bucket import (
    WRITTEN,
    Bucket,
    PartitionBucket,
    TableBucket,
    TableKey,
    bucket_of,
    entities_of,
    merged,
    operations_of,
)
from tablestone.telemetry.insight_report import (
    DAY_BUCKET_SECONDS,
    DAY_SECONDS,
    HOUR_BUCKET_SECONDS,
    HOUR_SECONDS,
)
from tablestone.telemetry.worker_reports import WorkerReport, WorkerReports

OPEN_SECONDS: Final = 30
"""Seconds after its end for which a minute stays open: a worker may be late with its report. Later counts are lost."""

_Entities = dict[tuple[TableKey, str | None], int]
"""Entities read or written: of a table (None), and of its partitions. Operations of an account: an empty table name."""
_Rates = dict[tuple[TableKey, str | None], float]
"""The same in a second."""


@dataclass(slots=True)
class _Seen:
    """The state of a worker at its newest report that was looked at."""

    process: int
    at: float
    minute: int
    entities: _Entities
    unlisted: int
    rates: _Rates = field(default_factory=dict)


class InsightHistory:
    """The history of one server. `now` is in seconds since 1970."""

    def __init__(self, reports: WorkerReports, now: float) -> None:
        self.started = now
        self.workers = reports.workers
        self._reports = reports
        self._seen: dict[int, _Seen] = {}
        self._open: dict[int, dict[tuple[int, int], Bucket]] = {}
        """By minute, and by worker and process: a process that replaces another counts from 0 again."""
        self._peaks: dict[int, _Rates] = {}
        """By minute: the most entities in a second."""
        self._minutes: dict[int, Bucket] = {}
        self._quarters: dict[int, Bucket] = {}

    def look(self, now: float) -> None:
        """Read the newest reports. To be called about once a second."""
        rates: _Rates = {}
        for worker in range(self.workers):
            report = self._reports.newest(worker)
            if report is None:
                continue
            seen = self._take(worker, report)
            for place, rate in seen.rates.items():
                rates[place] = rates.get(place, 0.0) + rate
        if rates:
            self._note_peaks(int(now) // HOUR_BUCKET_SECONDS, rates)
        for minute in sorted(self._open):
            if (minute + 1) * HOUR_BUCKET_SECONDS + OPEN_SECONDS <= now:
                self._close(minute)
        for buckets, seconds in ((self._minutes, HOUR_SECONDS), (self._quarters, DAY_SECONDS)):
            for start in [
                start for start in buckets if start <= now - seconds - DAY_BUCKET_SECONDS
            ]:
                del buckets[start]

    def minutes(self) -> dict[int, Bucket]:
        """The buckets of the last hour by their starts, the present one included. Minutes without a request lack."""
        return self._minutes | {
            minute * HOUR_BUCKET_SECONDS: self._merged(minute) for minute in self._open
        }

    def quarters(self) -> dict[int, Bucket]:
        """The same of the last day."""
        found = dict(self._quarters)
        for minute in self._open:
            start = _quarter_of(minute)
            bucket = self._merged(minute)
            found[start] = merged((found[start], bucket)) if start in found else bucket
        return found

    def _take(self, worker: int, report: WorkerReport) -> _Seen:
        """Take in the windows of a report, unless it is the one of the last look."""
        before = self._seen.get(worker)
        if before is not None and before.process == report.process and before.at == report.at:
            return before
        present, ended = report.content["present"], report.content["ended"]
        minute: int = present["minute"]
        bucket = self._put(worker, report.process, present)
        seen = _Seen(report.process, report.at, minute, _entities_in(bucket), bucket.unlisted)
        if before is not None and before.process == report.process:
            entities = dict(seen.entities)
            counted = before.entities
            if before.minute != minute:
                rest: _Entities = {}
                if ended is not None and ended["minute"] == before.minute:
                    rest = _entities_in(self._put(worker, report.process, ended))
                for place, number in rest.items():
                    entities[place] = entities.get(place, 0) + number
            seconds = report.at - before.at
            # A partition that was not listed may have had so many entities: a rate is never too high.
            unlisted = before.unlisted
            seen.rates = {
                place: (number - counted.get(place, unlisted)) / seconds
                for place, number in entities.items()
                if number > counted.get(place, unlisted)
            }
        elif ended is not None:
            self._put(worker, report.process, ended)
        self._seen[worker] = seen
        return seen

    def _put(self, worker: int, process: int, window: dict[str, Any]) -> Bucket:
        """Make this the newest window of its minute, unless the minute is closed or the window is empty."""
        bucket = bucket_of(window)
        start = window["minute"] * HOUR_BUCKET_SECONDS
        if start not in self._minutes and (bucket.tables or any(bucket.other)):
            self._open.setdefault(window["minute"], {})[worker, process] = bucket
        return bucket

    def _note_peaks(self, minute: int, rates: _Rates) -> None:
        peaks = self._peaks.setdefault(minute, {})
        for place, rate in rates.items():
            if rate > peaks.get(place, 0.0):
                peaks[place] = rate

    def _close(self, minute: int) -> None:
        bucket = self._merged(minute)
        del self._open[minute]
        self._peaks = {each: peaks for each, peaks in self._peaks.items() if each > minute}
        self._minutes[minute * HOUR_BUCKET_SECONDS] = bucket
        start = _quarter_of(minute)
        present = self._quarters.get(start)
        self._quarters[start] = bucket if present is None else merged((present, bucket))

    def _merged(self, minute: int) -> Bucket:
        """The windows of all workers, with the peaks of the minute, which is the busiest one so far."""
        bucket = merged(self._open[minute].values())
        for each in bucket.tables.values():
            for partition_bucket in each.partitions.values():
                partition_bucket.busiest = entities_of(partition_bucket.numbers)
                partition_bucket.busiest_writes = partition_bucket.numbers[WRITTEN]
        for (key, partition), rate in self._peaks.get(minute, {}).items():
            if not key[1]:
                bucket.account_peaks[key[0]] = rate
                continue
            table = bucket.tables.get(key)
            if table is None:
                continue
            of: TableBucket | PartitionBucket | None = (
                table if partition is None else table.partitions.get(partition)
            )
            if of is not None:
                of.peak = rate
        return bucket


def _quarter_of(minute: int) -> int:
    """The start of the bucket of a day that a minute is in."""
    seconds = minute * HOUR_BUCKET_SECONDS
    return seconds - seconds % DAY_BUCKET_SECONDS


def _entities_in(bucket: Bucket) -> _Entities:
    found: _Entities = {}
    for key, table in bucket.tables.items():
        found[key, None] = entities_of(table.numbers)
        account = (key[0], ""), None
        found[account] = found.get(account, 0) + operations_of(table.numbers)
        for name, partition in table.partitions.items():
            found[key, name] = entities_of(partition.numbers)
    return found
