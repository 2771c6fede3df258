"""The worker that archives may be stuck: metrics and health count on from its last report."""

from pathlib import Path
from typing import Any

import pytest

from tablestone.clock import monotonic_seconds
from tablestone.configuration import Configuration
from tablestone.server.admin.prometheus_page import PrometheusPage
from tablestone.server.admin.readiness import Readiness
from tablestone.telemetry import metrics
from tablestone.telemetry.worker_reports import WorkerReport, WorkerReporter, WorkerReports
from unit.archive.archived_server import ArchivedServer
from unit.archive.stores import MemoryStore

AGE_SECONDS = 1_000.0
LATE = "is behind: its store is slow, or does not answer."


def reports_of(content: dict[str, Any], age: float) -> WorkerReports:
    """The first worker reported that long ago, and the other one just now."""
    reports = WorkerReports(2)
    now = monotonic_seconds()
    reports.leave(0, WorkerReport(4, now - age, {"totals": {}, "now": content}))
    reports.leave(1, WorkerReport(5, now, {"totals": {}, "now": {}}))
    return reports


def test_the_lag_grows_while_the_worker_is_stuck() -> None:
    archive = {"lag_seconds": 2.0, "behind_bytes": 5, "check_held_at": None}
    reports = reports_of({"archive": archive}, AGE_SECONDS)
    page = PrometheusPage(
        Configuration("", 0, None, "memory:", (), "info"), reports, Readiness(reports, None), 0.0
    )
    found = {samples.metric: samples.values for samples in page._of_reports()}
    lag = found[metrics.ARCHIVE_GAUGES["lag_seconds"]][()]
    assert lag == pytest.approx(AGE_SECONDS + 2.0, abs=60)
    assert lag >= AGE_SECONDS + 2.0
    assert found[metrics.ARCHIVE_GAUGES["behind_bytes"]] == {(): 5}


@pytest.mark.asyncio
async def test_health_warns_while_the_worker_is_stuck(tmp_path: Path) -> None:
    server = ArchivedServer(tmp_path / "data", MemoryStore())
    await server.catch_up()
    content = {"warnings": server.archiver.warnings}
    await server.close()
    assert server.warnings == []
    assert Readiness(reports_of(content, 30), None).warnings == []
    (warning,) = Readiness(reports_of(content, AGE_SECONDS), None).warnings
    assert LATE in warning


def test_a_report_is_as_old_as_what_it_says() -> None:
    """A worker may wait between measuring and writing: what it measured is of before."""
    reports, measured = WorkerReports(1), list[float]()

    def measure() -> tuple[dict[str, Any], dict[str, Any]]:
        measured.append(monotonic_seconds())
        return {}, {}

    WorkerReporter(reports, 0, measure).report()
    report = reports.newest(0)
    assert report is not None
    assert report.at <= measured[0]
