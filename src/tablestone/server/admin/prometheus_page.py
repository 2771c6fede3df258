"""`/metrics`: the reports of all workers in the form that Prometheus reads, by its own client library.

The library is an extra: it is imported when the page is first asked for.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from tablestone import __version__
from tablestone.clock import monotonic_seconds
from tablestone.configuration import Configuration
from tablestone.engines.figures import Figure, FigureKind
from tablestone.engines.kind import EngineUrl
from tablestone.engines.registry import kind_of
from tablestone.extras import needs
from tablestone.server.admin.admin_application import PageAnswer, PageRequest, text_answer
from tablestone.server.admin.readiness import Readiness
from tablestone.telemetry import metrics
from tablestone.telemetry.metrics import Metric, MetricKind, Samples
from tablestone.telemetry.worker_reports import WorkerReports, sum_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family

_KINDS: Final = {
    FigureKind.COUNTER: MetricKind.COUNTER,
    FigureKind.GAUGE: MetricKind.GAUGE,
    FigureKind.DISTRIBUTION: MetricKind.HISTOGRAM,
}


def metric_of(figure: Figure) -> Metric:
    """The metric that shows a figure of an engine."""
    kind = _KINDS[figure.kind]
    ending = "_total" if kind is MetricKind.COUNTER else ""
    name = f"{metrics.PREFIX}{figure.name}{ending}"
    return Metric(name, kind, figure.help, (), figure.bounds)


class PrometheusPage:
    """`started` is the start of the server, in seconds since 1970."""

    def __init__(
        self,
        configuration: Configuration,
        reports: WorkerReports,
        readiness: Readiness,
        started: float,
    ) -> None:
        self._configuration = configuration
        self._reports = reports
        self._readiness = readiness
        self._started = started
        self._scheme = EngineUrl.parse(configuration.engine).scheme
        self._figures = [metric_of(figure) for figure in kind_of(self._scheme).figures]

    async def __call__(self, request: PageRequest) -> PageAnswer:
        try:
            from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            if error.name != "prometheus_client":
                raise
            return text_answer(needs("This page", "prometheus_client", "metrics"), 501)
        is_ready = await self._readiness.why_storage_is_not_ready() is None
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        registry = _registry([*self._of_process(is_ready=is_ready), *self._of_reports()])
        return PageAnswer(encode(registry), content_type)

    def _of_process(self, *, is_ready: bool) -> Iterator[Samples]:
        build = (__version__, platform.python_version(), self._scheme)
        yield Samples(metrics.BUILD_INFO, {build: 1})
        yield Samples(metrics.STORAGE_READY, {(): int(is_ready)})
        yield Samples(metrics.WORKERS, {(): self._configuration.workers})
        yield Samples(metrics.WORKERS_READY, {(): self._readiness.workers_ready()})
        yield Samples(metrics.START_TIME, {(): self._started})

    def _of_reports(self) -> Iterator[Samples]:
        newest = {
            worker: report
            for worker in range(self._reports.workers)
            if (report := self._reports.newest(worker)) is not None
        }
        contents = {worker: report.content for worker, report in newest.items()}
        totals = sum_of(content["totals"] for content in contents.values())
        now = [content["now"] for content in contents.values()]
        yield from metrics.samples_of_requests(totals)
        if self._configuration.metrics_tables:
            yield from metrics.samples_of_tables(totals)
        at = monotonic_seconds()
        ages = {worker: at - report.at for worker, report in newest.items()}
        yield from metrics.samples_of_server(totals, now, list(ages.values()))
        yield from metrics.samples_of_workers(contents, ages)
        yield from metrics.samples_of_engine(self._figures, totals, now)


def _registry(samples: list[Samples]) -> CollectorRegistry:
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - an extra
    from prometheus_client.registry import Collector  # noqa: PLC0415 - an extra

    class Reports(Collector):
        def collect(self) -> Iterator[Family]:
            return map(_family, samples)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Reports())
    return registry


def _family(samples: Samples) -> Family:
    from prometheus_client import core  # noqa: PLC0415 - an extra

    metric = samples.metric
    if metric.kind is MetricKind.HISTOGRAM:
        histogram = core.HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, (total, *counts) in samples.values.items():
            histogram.add_metric(labels, _cumulative(metric.bounds, counts), total)
        return histogram
    is_counter = metric.kind is MetricKind.COUNTER
    make = core.CounterMetricFamily if is_counter else core.GaugeMetricFamily
    family = make(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples.values.items():
        family.add_metric(labels, value)
    return family


def _cumulative(bounds: tuple[float, ...], counts: list[float]) -> list[tuple[str, float]]:
    """The buckets as Prometheus has them: each counts the values of those before it too."""
    names = [*(str(float(bound)) for bound in bounds), "+Inf"]
    return list(zip(names, accumulate(counts), strict=True))
