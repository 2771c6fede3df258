"""The measures of one worker for its reports: what its parts have counted, and what they are now.

Names the figures as `telemetry.metrics` reads them. Knows the parts, and not where a report goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any

from tablestone.engines.contract import Engine
from tablestone.engines.figures import Figure, FigureKind, MeasuredEngine, Values
from tablestone.tables.documents import Documents
from tablestone.tables.service import TableService
from tablestone.tables.sweeper import Sweeper
from tablestone.telemetry.request_counts import RequestCounts


class WorkerMeasures:
    """The measures of a worker. `figures` are those of the kind of its engine; one of several workers has a sweeper."""

    def __init__(
        self,
        counts: RequestCounts,
        engine: Engine,
        figures: Iterable[Figure],
        service: TableService,
        documents: Documents,
        sweeper: Sweeper | None,
    ) -> None:
        self._counts = counts
        self._engine = engine
        self._gauges = {figure.name for figure in figures if figure.kind is FigureKind.GAUGE}
        self._catalog = service.catalog
        self._caches = (
            *service.catalog.caches,
            *service.properties.caches,
            *documents.caches,
        )
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
            "swept_rows": self._catalog.swept_rows,
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
