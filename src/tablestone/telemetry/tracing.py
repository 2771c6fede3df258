"""Traces of requests by OpenTelemetry: a span for each request, and spans for its steps and for calls of the engine.

Imported only if traces are asked for (`trace_settings`). The environment configures exporter, sampling, propagation and
resource, as OpenTelemetry's specification says. Names and attributes follow its conventions for HTTP and databases. No
span holds a key, a property, a signature or a query string: paths are templates. Knows a `RequestRecord`, no HTTP
server and no engine.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import entry_points
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from tablestone.clock import monotonic_seconds, unix_seconds
from tablestone.telemetry.request_record import BATCH, RequestDetails, RequestRecord
from tablestone.telemetry.trace_settings import exporter_names

logger = logging.getLogger(__name__)

_EXPORTERS: Final = "opentelemetry_traces_exporter"
"""The group of entry points under which packages register exporters."""
ROUTES: Final = {
    **dict.fromkeys(
        (
            *("GetEntity", "UpdateEntity", "MergeEntity", "DeleteEntity"),
            *("InsertOrReplaceEntity", "InsertOrMergeEntity"),
        ),
        "/{account}/{table}(PartitionKey,RowKey)",
    ),
    "QueryEntities": "/{account}/{table}()",
    "InsertEntity": "/{account}/{table}",
    **dict.fromkeys(("GetTable", "DeleteTable"), "/{account}/Tables({table})"),
    **dict.fromkeys(("QueryTables", "CreateTable"), "/{account}/Tables"),
    **dict.fromkeys(("GetTableAcl", "SetTableAcl"), "/{account}/{table}?comp=acl"),
}
"""The template of the path of an operation; that of the others is the account's."""
_ACCOUNT_ROUTE: Final = "/{account}/"
_BATCH_ROUTE: Final = "/{account}/$batch"


class RequestTrace:
    """The span of a request that is under way. Without `is_recorded`, it only passes the context of the client on."""

    def __init__(
        self, tracer: trace.Tracer, span: Span, record: RequestRecord, details: RequestDetails
    ) -> None:
        self._tracer = tracer
        self._span = span
        self._record = record
        self._details = details
        self._token = _current.set(self)
        self._executed: tuple[float, float] | None = None
        self.context: Context = trace.set_span_in_context(span)
        self.is_recorded = span.is_recording()

    @contextmanager
    def step(self, name: str) -> Iterator[Span]:
        """A span for a part of the request; calls of the engine inside it are its children."""
        before = self.context
        span = self._tracer.start_span(name, before)
        self.context = trace.set_span_in_context(span, before)
        started = monotonic_seconds()
        try:
            yield span
        finally:
            self.context = before
            self._executed = (started, monotonic_seconds())
            span.end()

    @contextmanager
    def call(self, system: str, operation: str) -> Iterator[Span]:
        """A span for a call of the engine, by the conventions for clients of a database."""
        attributes = {"db.system.name": system, "db.operation.name": operation}
        span = self._tracer.start_span(operation, self.context, SpanKind.CLIENT, attributes)
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            span.end()

    def end(self) -> None:
        """End the span of the request; its record says what it was. Never raises."""
        _current.set(None)
        if self.is_recorded:
            self._describe()
        self._span.end()

    def _describe(self) -> None:
        record, details, span = self._record, self._details, self._span
        operation = record.operation_name
        route = ROUTES.get(operation, _ACCOUNT_ROUTE)
        if record.is_batch:
            route = _BATCH_ROUTE
        span.update_name(f"{details.method} {route}")
        found: dict[str, str | int] = {
            "http.route": route,
            "http.response.status_code": record.status,
            "http.request.body.size": record.bytes_in,
            "http.response.body.size": record.bytes_out,
            "tablestone.request_id": details.request_id,
            "tablestone.account": record.account,
            "tablestone.operation": operation or BATCH if record.is_batch else operation,
            "tablestone.table": record.table,
            "tablestone.plan": record.plan,
            "tablestone.entities": record.entities,
        }
        span.set_attributes({name: value for name, value in found.items() if value != ""})
        if record.error_code:
            span.set_attribute("error.type", record.error_code)
        if record.status >= 500:  # a client's mistake is no error of the server's span
            span.set_status(Status(StatusCode.ERROR, record.reason))
        authenticated = details.authenticated_at
        if authenticated:
            self._past("authenticate", record.started, authenticated)
            if self._executed is not None:
                self._past("decode", authenticated, self._executed[0])
        if self._executed is not None:
            self._past("encode", self._executed[1], record.ended)

    def _past(self, name: str, started: float, ended: float) -> None:
        """A span for a step that is over; the pipeline notes only its time."""
        parent = trace.set_span_in_context(self._span)
        offset = unix_seconds() - monotonic_seconds()
        span = self._tracer.start_span(name, parent, start_time=round((started + offset) * 1e9))
        span.end(round((ended + offset) * 1e9))


_current: ContextVar[RequestTrace | None] = ContextVar("request_trace", default=None)


def current_trace() -> RequestTrace | None:
    """The trace of the request that is carried out now, if it is recorded."""
    found = _current.get()
    return found if found is not None and found.is_recorded else None


class Tracing:
    """The traces of one process. Made after the fork, because exporters have threads."""

    def __init__(self, version: str) -> None:
        own = {"service.version": version, "service.instance.id": str(uuid.uuid4())}
        if "service.name" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
            own["service.name"] = os.environ.get("OTEL_SERVICE_NAME") or "tablestone"
        self._provider = TracerProvider(resource=Resource.create(own))
        for name in exporter_names(os.environ):
            found = next(iter(entry_points(group=_EXPORTERS, name=name)), None)
            if found is None:
                logger.warning("No package is installed that exports traces as %s.", name)
                continue
            self._provider.add_span_processor(BatchSpanProcessor(found.load()()))
        self._tracer = self._provider.get_tracer("tablestone", version)

    def begin(
        self, record: RequestRecord, scheme: str, headers: Mapping[bytes, bytes]
    ) -> RequestTrace:
        """The span of a request that begins; its parent is the client's, if the request names one."""
        details = record.details
        assert details is not None
        texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        host, _, port = texts.get("host", "").rpartition(":")
        if not port.isdigit():
            host, port = texts.get("host", ""), ""
        attributes: dict[str, str | int] = {
            "http.request.method": details.method,
            "url.scheme": scheme,
            "client.address": details.client,
        }
        if host:
            attributes["server.address"] = host
        if port:
            attributes["server.port"] = int(port)
        if "user-agent" in texts:
            attributes["user_agent.original"] = texts["user-agent"]
        span = self._tracer.start_span(details.method, extract(texts), SpanKind.SERVER, attributes)
        return RequestTrace(self._tracer, span, record, details)

    def close(self) -> None:
        """Export the last spans. Waits for the exporter, so it is not called on the event loop."""
        self._provider.shutdown()
