"""Opening traces where they are asked for: OpenTelemetry is an extra, and imported only then.

Its modules are imported by name: the compiler of the modules for each request reads the imports of this one, and has no
such package. Knows that there may be none, and nothing of spans.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Protocol

from tablestone import __version__
from tablestone.engines.contract import Engine
from tablestone.engines.engine_url import EngineUrl
from tablestone.tables.service import TableService
from tablestone.telemetry.request_record import RequestRecord
from tablestone.telemetry.trace_settings import asks_for_traces

log = logging.getLogger(__name__)

_PARTS = "tablestone.server.traced_parts"


class OpenTrace(Protocol):
    """The span of a request that is under way (`telemetry.tracing.RequestTrace`)."""

    def end(self) -> None: ...


class OpenTracing(Protocol):
    """The traces of this process (`telemetry.tracing.Tracing`)."""

    def begin(
        self, record: RequestRecord, scheme: str, headers: Mapping[bytes, bytes]
    ) -> OpenTrace: ...

    def close(self) -> None: ...


def open_tracing(*, logs_warnings: bool) -> OpenTracing | None:
    """The traces of this process; None if the environment does not ask for them or the extra is missing."""
    if not asks_for_traces(os.environ):
        return None
    try:
        module = import_module("tablestone.telemetry.tracing")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "opentelemetry":
            raise
        if logs_warnings:
            log.warning(
                "The environment asks for traces, which need OpenTelemetry: install Tablestone with its extra 'otel'."
            )
        return None
    opened: OpenTracing = module.Tracing(__version__)
    return opened


def traced_engine(engine: Engine, url: str) -> Engine:
    """The engine of this URL, each call of which is a span."""
    traced: Engine = import_module(_PARTS).TracedEngine(engine, EngineUrl.parse(url).scheme)
    return traced


def traced_tables(make_service: Callable[..., TableService]) -> Callable[..., TableService]:
    """The table service with spans; one that a test supplies stays as it is."""
    traced: Callable[..., TableService] = import_module(_PARTS).TracedTables
    return traced if make_service is TableService else make_service
