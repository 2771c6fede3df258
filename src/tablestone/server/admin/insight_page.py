"""`/insight`: how tables, partitions and queries are used, as JSON. It reads the reports of all workers once a second.

`?table=NAME` and `?account=NAME` narrow it; with a table, the report has heat maps.
"""

import asyncio
import logging
import shlex
from typing import Final

from tablestone.clock import unix_seconds
from tablestone.configuration import INSIGHT_KEYS, Configuration
from tablestone.dns_rebinding import cannot_be_rebound
from tablestone.engines.kind import EngineUrl
from tablestone.insight.history import InsightHistory, Summary
from tablestone.server.admin.admin_application import PageAnswer, PageRequest, text_answer
from tablestone.server.admin.readiness import StorageProbe
from tablestone.server.admin.size_survey import SizeSurvey
from tablestone.telemetry.worker_reports import WorkerReports

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at the reports of the workers."""
STRANGE_HOST: Final = "This page shows keys, and answers to an address or to localhost only."
_NAMES: Final = ("localhost",)


async def insight_is_off(_request: PageRequest) -> PageAnswer:
    return text_answer("Insight is off: the server was started with --insight off.", 404)


def storage_options(configuration: Configuration) -> str:
    """The options with which a command on this machine finds the data; empty if no other process can open it."""
    places = {
        "--data": configuration.data_directory,
        "--encryption-key-file": configuration.encryption_key_file,
    }
    return "".join(
        f" {flag} {shlex.quote(str(path))}" for flag, path in places.items() if path is not None
    )


class InsightPage:
    """If only this machine can ask (`is_local`), another site's name as the host is refused: it is DNS rebinding."""

    def __init__(
        self,
        configuration: Configuration,
        reports: WorkerReports,
        probe: StorageProbe | None,
        *,
        is_local: bool,
    ) -> None:
        self._is_local = is_local
        self._shows_keys = configuration.insight == INSIGHT_KEYS
        self._history = InsightHistory(reports, unix_seconds())
        scheme = EngineUrl.parse(configuration.engine).scheme
        self._storage = storage_options(configuration)
        self._survey = SizeSurvey(probe, scheme, shows_keys=self._shows_keys)

    async def run(self) -> None:
        """Keep the history until this is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._survey.run())
            group.create_task(self._look())

    async def _look(self) -> None:
        while True:
            try:
                self._history.look(unix_seconds())
            except Exception:
                logger.exception("The counts of the workers cannot be read.")
            await asyncio.sleep(LOOK_SECONDS)

    async def __call__(self, request: PageRequest) -> PageAnswer:
        if self._is_local and not cannot_be_rebound(request.headers.get("host", ""), _NAMES):
            return text_answer(STRANGE_HOST, 403)
        table = request.parameters.get("table")
        now = unix_seconds()
        self._history.look(now)
        summary = Summary(
            now,
            self._history,
            self._survey.sizes,
            self._survey.expiry,
            only=None if table is None else table.lower(),
            account=request.parameters.get("account"),
            shows_keys=self._shows_keys,
        )
        return PageAnswer(summary.report(self._survey.note, self._storage).to_json())
