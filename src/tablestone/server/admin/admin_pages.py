"""The pages of the admin address, by their paths. A further page is one more row in `pages`."""

from __future__ import annotations

import platform

from tablestone import __version__, limits
from tablestone.configuration import Configuration
from tablestone.engines.engine_url import EngineUrl
from tablestone.server.admin.admin_application import Page, PageAnswer, PageRequest, json_answer
from tablestone.server.admin.readiness import Readiness


def pages(
    configuration: Configuration, readiness: Readiness, metrics: Page, insight: Page
) -> dict[str, Page]:
    """The pages of a server with this configuration; `metrics` and `insight` are the pages of these names."""

    async def live(_request: PageRequest) -> PageAnswer:
        reason = readiness.why_not_live()
        if reason is not None:
            return json_answer({"status": "not live", "reasons": [reason]}, 503)
        return json_answer({"status": "live"})

    async def ready(_request: PageRequest) -> PageAnswer:
        reasons = await readiness.why_not_ready()
        workers = {"ready": readiness.workers_ready(), "configured": configuration.workers}
        if reasons:
            return json_answer({"status": "not ready", "reasons": reasons, "workers": workers}, 503)
        return json_answer({"status": "ready", "workers": workers})

    async def version(_request: PageRequest) -> PageAnswer:
        return json_answer(
            {
                "version": __version__,
                "compiled": not limits.__file__.endswith(".py"),
                "python": platform.python_version(),
                "engine": EngineUrl.parse(configuration.engine).scheme,
                "workers": configuration.workers,
            }
        )

    return {
        "/health/live": live,
        "/health/ready": ready,
        "/insight": insight,
        "/metrics": metrics,
        "/version": version,
    }
