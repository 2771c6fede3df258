"""The report of a worker, about once a second: totals and windows of insight, in memory shared with other processes."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections.abc import Callable, Iterable, Mapping, Sized
from pathlib import Path
from typing import Any, Final

from tablestone.clock import monotonic_seconds, unix_seconds
from tablestone.engines.contract import Engine
from tablestone.engines.figures import Figure, FigureKind, MeasuredEngine, Values
from tablestone.insight.counts import Windows
from tablestone.tables.service import TableService
from tablestone.tables.sweeping import Sweeper
from tablestone.telemetry.request_counts import RequestCounts
from tablestone.telemetry.worker_reports import WorkerReport, WorkerReports, added


class WorkerMeasures:
    """The measures of a worker. `figures` are those of the kind of its engine; one of several workers has a sweeper."""

    def __init__(
        self,
        counts: RequestCounts,
        engine: Engine,
        figures: Iterable[Figure],
        service: TableService,
        sweeper: Sweeper | None,
    ) -> None:
        self._counts = counts
        self._engine = engine
        self._gauges = {figure.name for figure in figures if figure.kind is FigureKind.GAUGE}
        self._caches = service.caches
        self._sweeper = sweeper
        self._connections: Sized = ()
        self._accepted: Callable[[], int] = int
        self._refused: Iterable[Mapping[str, int]] = ()

    def count_connections(
        self,
        connections: Sized,
        accepted: Callable[[], int],
        refused: Iterable[Mapping[str, int]],
    ) -> None:
        """Count these open connections from now on, those that were accepted, and requests refused by each limit."""
        self._refused = refused
        self._connections = connections
        self._accepted = accepted

    def __call__(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The counts since the start of the worker, and the present values."""
        values: Values = {}
        if isinstance(self._engine, MeasuredEngine):
            values = self._engine.measure()
        totals = {
            **self._counts.totals(),
            "cache_hits": sum(cache.hits for cache in self._caches),
            "cache_misses": sum(cache.misses for cache in self._caches),
            "swept_rows": 0 if self._sweeper is None else self._sweeper.swept_rows,
            "accepted": self._accepted(),
            "refused_by_limit": {
                limit: number for counts in self._refused for limit, number in counts.items()
            },
            "engine": {name: each for name, each in values.items() if name not in self._gauges},
        }
        now = {
            "connections": len(self._connections),
            "sweeping": int(self._sweeper is not None and self._sweeper.is_busy),
            "engine": {name: each for name, each in values.items() if name in self._gauges},
        }
        return totals, now


logger = logging.getLogger(__name__)

REPORT_SECONDS: Final = 1.0
"""Seconds between two reports."""


class WorkerReporter:
    """Leaves the reports of a worker. `measure` gives its counts since the start, as totals, and its present values.

    The totals of the worker that this one replaces go on. The `windows` of insight go into the reports `insight`.
    """

    def __init__(
        self,
        reports: WorkerReports,
        worker: int,
        measure: Callable[[], tuple[dict[str, Any], dict[str, Any]]],
        windows: Windows | None = None,
        insight: WorkerReports | None = None,
    ) -> None:
        self._reports = reports
        self._worker = worker
        self._measure = measure
        self._windows = windows
        self._insight = insight
        before = reports.newest(worker)
        self._before: dict[str, Any] = {} if before is None else before.content["totals"]

    def report(self, lag: float = 0.0) -> None:
        """Leave a report now; `lag` is its delay in seconds."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        totals, now = self._measure()
        totals["cpu_seconds"] = used.ru_utime + used.ru_stime
        now |= {"resident_bytes": resident_bytes(), "lag_seconds": lag}
        content = {"totals": added(self._before, totals), "now": now}
        self._leave(self._reports, content, "Metrics are")
        if self._windows is not None and self._insight is not None:
            self._leave(self._insight, self._windows.content(unix_seconds()), "Insight is")

    def _leave(self, reports: WorkerReports, content: dict[str, Any], what: str) -> None:
        try:
            reports.leave(self._worker, WorkerReport(os.getpid(), monotonic_seconds(), content))
        except ValueError as error:
            logger.error("%s out of date: %s.", what, error)  # noqa: TRY400 - the sentence says it all

    async def run(self) -> None:
        """Report until this is cancelled. A report that fails does not end the next one."""
        while True:
            due = monotonic_seconds() + REPORT_SECONDS
            await asyncio.sleep(REPORT_SECONDS)
            try:
                self.report(max(0.0, monotonic_seconds() - due))
            except Exception:
                logger.exception("A report of this worker failed.")


def resident_bytes() -> int:
    """The memory that this process has now; where the system does not tell, the most that it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * resource.getpagesize()
