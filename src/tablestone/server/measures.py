"""What one worker reports of itself, for metrics: the counts since its start, and the present values."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from tablestone.archive.archiver import Archiver


@dataclass(eq=False)
class Measures:
    """The parts of a worker that are measured. Connections come last, when the server listens."""

    counts: RequestCounts
    engine: Engine
    url: str
    service: TableService
    sweeper: Sweeper
    expiry: ExpirySweeper
    throughput: Throughput | None
    archiver: Archiver | None
    rests: str | None
    """That nothing is archived any more, in a sentence."""
    connections: Sized = ()
    accepted: Callable[[], int] = int
    admission: Admission | None = None

    def __call__(self) -> tuple[dict[str, Any], dict[str, Any]]:
        engine: object = self.engine
        values: Values = engine.measure() if isinstance(engine, MeasuredEngine) else {}
        figures = kind_of(EngineUrl.parse(self.url).scheme).figures
        gauges = {figure.name for figure in figures if figure.kind is FigureKind.GAUGE}
        refused: dict[str, int] = {}
        if self.admission is not None:
            refused.update(self.admission.refused)
        if self.throughput is not None:
            refused.update(self.throughput.refused)
        totals = {
            **self.counts.totals(),
            "cache_hits": sum(cache.hits for cache in self.service.caches),
            "cache_misses": sum(cache.misses for cache in self.service.caches),
            "swept_rows": self.sweeper.swept_rows,
            "expired": self.expiry.swept,
            "accepted": self.accepted(),
            "refused_by_limit": refused,
            "engine": {name: each for name, each in values.items() if name not in gauges},
        }
        now = {
            "connections": len(self.connections),
            "sweeping": int(self.sweeper.is_busy),
            "expiry_suspended": int(self.expiry.is_suspended),
            "changes_lag_seconds": self.service.feeds.lag_seconds(),
            "engine": {name: each for name, each in values.items() if name in gauges},
            "warnings": [] if self.rests is None else [(0.0, self.rests)],
        }
        if self.archiver is not None:
            totals["archive_errors"] = self.archiver.errors
            now["warnings"] = self.archiver.warnings
            now["archive"] = {
                "lag_seconds": self.archiver.lag_seconds,
                "behind_bytes": self.archiver.behind_bytes,
                "check_held_at": self.archiver.check.held_at,
            }
        return totals, now
