"""The reports of one worker: made of the counts of its parts and left once a second, on the event loop.

So the age of a report tells for how long the loop has been busy or stuck. Knows where reports go, and not what the
parts count.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from tablestone.clock import monotonic_seconds
from tablestone.telemetry.worker_reports import WorkerReport, WorkerReports

logger = logging.getLogger(__name__)

REPORT_SECONDS: Final = 1.0
"""Seconds between two reports."""

Section = Callable[[], Any]
"""The figures of one part of the worker, as JSON values."""


class WorkerReporter:
    """Leaves the reports of a worker. `sections` are the members of a report."""

    def __init__(
        self, reports: WorkerReports, worker: int, sections: Mapping[str, Section]
    ) -> None:
        self._reports = reports
        self._worker = worker
        self._sections = sections

    def report(self) -> None:
        """Leave a report now."""
        content = {name: section() for name, section in self._sections.items()}
        try:
            self._reports.leave(
                self._worker, WorkerReport(os.getpid(), monotonic_seconds(), content)
            )
        except ValueError as error:
            logger.error("Metrics are out of date: %s.", error)  # noqa: TRY400 - the sentence says it all

    async def run(self) -> None:
        """Report until this is cancelled."""
        while True:
            self.report()
            await asyncio.sleep(REPORT_SECONDS)
