"""The process of the admin address: its pages, and how it stops.

It is a process of its own, so it answers while every worker is busy, and takes no time from them. If the supervisor
dies, it ends too.
"""

import asyncio
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Mapping
from functools import partial
from typing import Final

from tablestone.clock import system_clock
from tablestone.configuration import Configuration
from tablestone.engines.contract import StorageId
from tablestone.engines.registry import open_engine
from tablestone.server.admin.admin_application import AdminApplication, Page, pages
from tablestone.server.admin.insight_page import InsightPage, insight_is_off
from tablestone.server.admin.prometheus_page import PrometheusPage
from tablestone.server.admin.readiness import Readiness, StorageProbe
from tablestone.server.admission import MEBIBYTE, Admission
from tablestone.server.asgi import AsgiAnswering, AsgiApplication
from tablestone.server.connection_handover import WorkerEnd
from tablestone.server.http_server import HttpServer
from tablestone.server.worker import serve_until
from tablestone.telemetry.worker_reports import WorkerReports

logger = logging.getLogger(__name__)

ADMIN_BYTES_MAX: Final = 64 * MEBIBYTE
"""Bytes of requests and answers in memory."""
ADMIN_CONNECTIONS_MAX: Final = 64
"""Connections to the admin address. Above it an idle one is closed, as at the other address."""


async def serve_admin(
    listener: socket.socket,
    configuration: Configuration,
    storage: StorageId | None,
    reports: WorkerReports,
    insight: WorkerReports | None,
    started: float,
    mounts: Mapping[str, AsgiApplication],
    end: WorkerEnd,
) -> None:
    """Serve the admin address until SIGTERM. Without a `storage`, the rows are in the memory of a worker.

    `reports` are those of metrics, `insight` those of insight if it is on. `started` is in seconds since 1970.
    """
    loop = asyncio.get_running_loop()
    stop_asked = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop_asked.set)
    loop.add_reader(end.fileno(), _end_with_supervisor, end)
    probe: StorageProbe | None = None
    if storage is not None:
        opening = partial(
            open_engine,
            configuration.engine,
            system_clock,
            shared=True,
            storage=storage,
            key=configuration.encryption_key,
        )
        probe = StorageProbe(opening, configuration.keep_changes)
    readiness = Readiness(reports, probe)
    metrics = PrometheusPage(configuration, reports, readiness, started)
    insight_page: Page = insight_is_off
    watching: asyncio.Task[None] | None = None
    if insight is not None:
        is_local = ipaddress.ip_address(listener.getsockname()[0]).is_loopback
        insight_page = shown = InsightPage(configuration, insight, probe, is_local=is_local)
        watching = asyncio.create_task(shown.run())
    application = AdminApplication(pages(configuration, readiness, metrics, insight_page), mounts)
    admission = Admission(ADMIN_CONNECTIONS_MAX, ADMIN_CONNECTIONS_MAX, ADMIN_BYTES_MAX)
    answering = AsgiAnswering(application)
    server = HttpServer(configuration, answering, listener, end.tell_ready, admission=admission)
    try:
        await serve_until(stop_asked, server)
    finally:
        if watching is not None:
            watching.cancel()
        if probe is not None:
            await probe.close()


def _end_with_supervisor(end: WorkerEnd) -> None:
    if end.receive() is None:
        logger.error("The supervisor has ended; this process ends with it.")
        os._exit(1)
