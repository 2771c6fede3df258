"""`/insight`: how tables, partitions and queries are used, as JSON. It reads the reports of all workers once a second.

`?table=NAME` and `?account=NAME` narrow it; with a table, the report has heat maps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from tablestone.configuration import INSIGHT_KEYS, Configuration
from tablestone.dns_rebinding import cannot_be_rebound
from tablestone.engines.kind import EngineUrl
from tablestone.insight.history import InsightHistory, Summary
from tablestone.insight.report import InsightReport
from tablestone.server.admin.admin_application import PageAnswer, PageRequest, text_answer
from tablestone.server.admin.readiness import StorageProbe
from tablestone.server.admin.size_survey import SizeSurvey
from tablestone.telemetry.worker_reports import WorkerReports

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at the reports of the workers."""
STRANGE_HOST: Final = "This page shows keys, and answers to an address or to localhost only."
_NAMES: Final = ("localhost",)
OFF: Final = "Insight is off: the server was started with --insight off."


class InsightPage:
    """The page of one server; without `reports`, insight is off. `now` is in seconds since 1970.

    If only this machine can ask (`is_local`), another site's name in a request is refused: it is DNS rebinding.
    """

    def __init__(
        self,
        configuration: Configuration,
        reports: WorkerReports | None,
        probe: StorageProbe | None,
        now: Callable[[], float],
        seconds: Callable[[], float],
        *,
        is_local: bool,
    ) -> None:
        self._is_local = is_local
        self._shows_keys = configuration.insight == INSIGHT_KEYS
        self._history = None if reports is None else InsightHistory(reports, now())
        self._now = now
        scheme = EngineUrl.parse(configuration.engine).scheme
        self._survey = SizeSurvey(probe, scheme, now, seconds, shows_keys=self._shows_keys)

    async def run(self) -> None:
        """Keep the history until this is cancelled."""
        if self._history is None:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._survey.run())
            group.create_task(self._look(self._history))

    async def _look(self, history: InsightHistory) -> None:
        while True:
            try:
                history.look(self._now())
            except Exception:
                logger.exception("The counts of the workers cannot be read.")
            await asyncio.sleep(LOOK_SECONDS)

    async def __call__(self, request: PageRequest) -> PageAnswer:
        if self._is_local and not cannot_be_rebound(request.headers.get("host", ""), _NAMES):
            return text_answer(STRANGE_HOST, 403)
        parameters = request.parameters
        report = self.report(parameters.get("table"), parameters.get("account"))
        return text_answer(OFF, 404) if report is None else PageAnswer(report.to_json())

    def report(self, table: str | None = None, account: str | None = None) -> InsightReport | None:
        """The report, of one table or account if asked for; None if insight is off."""
        history = self._history
        if history is None:
            return None
        now = self._now()
        history.look(now)
        summary = Summary(
            now,
            history,
            self._survey.sizes,
            only=None if table is None else table.lower(),
            account=account,
            shows_keys=self._shows_keys,
        )
        return summary.report(self._survey.note)
