"""One worker process: its event loop, the application, and how it stops.

The main thread runs the event loop, and on it HTTP, the application and the engine's reads. A single process accepts
connections from the listening socket; one of several receives them from the supervisor.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Sized
from typing import Final, Protocol

from tablestone.configuration import Configuration
from tablestone.engines.contract import EngineRefused
from tablestone.server.admission import Admission
from tablestone.server.connection_handover import WorkerEnd
from tablestone.server.exchange import Answering
from tablestone.server.http_server import HttpServer
from tablestone.server.tls_certificate import ServedCertificate
from tablestone.server.worker_slot import WorkerSlot
from tablestone.sigint import ENDS_PROCESS
from tablestone.telemetry.access_log import AccessLogRefused


class Hangup:
    """Keeps SIGHUP from ending the process. Make it before the server serves."""

    def __init__(self) -> None:
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as nohup leaves it
        self._needs_terminal = not ignored and _has_terminal()
        signal.signal(signal.SIGHUP, lambda *_: None)

    def ends_server(self) -> bool:
        """Whether SIGHUP came because the terminal is gone."""
        return self._needs_terminal and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


logger = logging.getLogger(__name__)

MIDDLE_COLLECTIONS_PER_FULL: Final = 50
"""Middle collections before a full one, which takes 80 ms with 4,000 connections: at Python's 10 it came every six
seconds under load, and one read in a hundred waited for it."""
STOP_SECONDS_MAX: Final = 10
"""Seconds that requests under way may take after a signal: a body that never comes must not block the stop."""


class StartRefused(Exception):
    """The server cannot start; the text is one sentence for the person who started it."""


class Application(Answering, Protocol):
    """An `Answering` application of a worker: `startup` runs before the first request, `shutdown` after the last."""

    async def startup(self) -> None: ...
    async def shutdown(self) -> None: ...
    def reopen_logs(self) -> None: ...
    def count_connections(
        self, connections: Sized, accepted: Callable[[], int], admission: Admission
    ) -> None: ...


CreateApplication = Callable[[Configuration, WorkerSlot], Application]


async def serve_worker(
    configuration: Configuration,
    slot: WorkerSlot,
    create: CreateApplication,
    open_certificate: Callable[[], ServedCertificate | None],
    source: socket.socket | WorkerEnd,
    on_ready: Callable[[], None],
    hangup: Hangup | None = None,
) -> None:
    """Serve what comes from `source` until SIGTERM, or SIGINT if this is the only process."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, MIDDLE_COLLECTIONS_PER_FULL)
    application = create(configuration, slot)
    loop, stop_asked = asyncio.get_running_loop(), asyncio.Event()

    def interrupt() -> None:
        stop_asked.set()
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, ENDS_PROCESS)  # a second one ends the process at once

    def hang_up() -> None:
        if hangup is not None and hangup.ends_server():
            stop_asked.set()
        else:
            application.reopen_logs()

    loop.add_signal_handler(signal.SIGTERM, stop_asked.set)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    if isinstance(source, socket.socket):
        loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        await application.startup()
    except (EngineRefused, AccessLogRefused) as refused:
        raise StartRefused(str(refused)) from None
    watching: asyncio.Task[None] | None = None
    try:
        certificate = open_certificate()  # a self-signed one is in the data directory
        if certificate is not None:
            # Not of the application, which the control of the test kit replaces while the server runs.
            watching = asyncio.create_task(certificate.watch(leads=slot.leads))
        server = HttpServer(configuration, application, source, on_ready, certificate)
        application.count_connections(server.connections, server.accepted, server.admission)
        await serve_until(stop_asked, server)
    finally:
        if watching is not None:
            watching.cancel()
        await application.shutdown()


async def serve_until(stop_asked: asyncio.Event, server: HttpServer) -> None:
    """Serve until the event is set, and then the requests under way, for up to `STOP_SECONDS_MAX`."""
    serving = asyncio.ensure_future(server.serve())
    stopping = asyncio.ensure_future(stop_asked.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        stopping.cancel()
        serving.result()
        raise RuntimeError("The HTTP server ended by itself.")
    server.stop()
    await asyncio.wait({serving}, timeout=STOP_SECONDS_MAX)
    if not serving.done():
        logger.warning("Stopped with requests unfinished after %d s.", STOP_SECONDS_MAX)
        # Closing the loop cuts these requests off, and each would log a traceback.
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
