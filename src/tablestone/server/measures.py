"""What one worker reports of itself, for metrics: the counts since its start, and the present values."""

from collections.abc import Callable, Sized
from typing import Any

from tablestone.engines.contract import Engine
from tablestone.engines.figures import FigureKind, MeasuredEngine, Values
from tablestone.engines.kind import EngineUrl
from tablestone.engines.registry import kind_of
from tablestone.server.admission import Admission
from tablestone.tables.expiry_sweeping import ExpirySweeper
from tablestone.tables.service import TableService
from tablestone.tables.sweeping import Sweeper
from tablestone.tables.throughput_targets import Throughput
from tablestone.telemetry.request_counts import RequestCounts


class Measures:
    """The parts of a worker that are measured. Connections come last, when the server listens."""

    def __init__(
        self,
        counts: RequestCounts,
        engine: Engine,
        url: str,
        service: TableService,
        sweeper: Sweeper,
        expiry: ExpirySweeper,
        throughput: Throughput | None,
    ) -> None:
        self._counts = counts
        self._engine = engine
        figures = kind_of(EngineUrl.parse(url).scheme).figures
        self._gauges = {figure.name for figure in figures if figure.kind is FigureKind.GAUGE}
        self._service = service
        self._sweeper, self._expiry = sweeper, expiry
        self._throughput = throughput
        self.connections: Sized = ()
        self.accepted: Callable[[], int] = int
        self.admission: Admission | None = None

    def __call__(self) -> tuple[dict[str, Any], dict[str, Any]]:
        engine: object = self._engine
        values: Values = engine.measure() if isinstance(engine, MeasuredEngine) else {}
        refused: dict[str, int] = {}
        if self.admission is not None:
            refused.update(self.admission.refused)
        if self._throughput is not None:
            refused.update(self._throughput.refused)
        totals = {
            **self._counts.totals(),
            "cache_hits": sum(cache.hits for cache in self._service.caches),
            "cache_misses": sum(cache.misses for cache in self._service.caches),
            "swept_rows": self._sweeper.swept_rows,
            "expired": self._expiry.swept,
            "accepted": self.accepted(),
            "refused_by_limit": refused,
            "engine": {name: each for name, each in values.items() if name not in self._gauges},
        }
        now = {
            "connections": len(self.connections),
            "sweeping": int(self._sweeper.is_busy),
            "expiry_suspended": int(self._expiry.is_suspended),
            "changes_lag_seconds": self._service.feeds.lag_seconds(),
            "engine": {name: each for name, each in values.items() if name in self._gauges},
        }
        return totals, now
