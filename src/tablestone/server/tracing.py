"""Traces of requests by OpenTelemetry: a span for each request, its steps, and its calls of the engine.

Imported only if the environment asks for traces, because OpenTelemetry is an extra. The environment configures
exporters, sampling, propagation and resource, as OpenTelemetry's specification says. Names and attributes follow its
conventions for HTTP and databases. No span holds a key, a property, a signature or a query string: paths are templates.
Work beside requests makes no spans.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import entry_points
from typing import Final

from opentelemetry import context, trace
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import Attributes

from tablestone import __version__
from tablestone.clock import monotonic_seconds, unix_seconds
from tablestone.engines import contract
from tablestone.engines.figures import MeasuredEngine, Values
from tablestone.engines.forwarding_engine import ForwardingEngine, ForwardingSnapshot
from tablestone.engines.kind import EngineUrl
from tablestone.model.operations import Operation, Result
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.service import TableService
from tablestone.telemetry.request_record import BATCH, RequestDetails, RequestRecord
from tablestone.wire.messages import RawRequest

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
    "ListIndexes": "/{account}/{table}?comp=indexes",
    **dict.fromkeys(("GetTableExpiry", "SetTableExpiry"), "/{account}/{table}?comp=expiry"),
}
"""The template of an operation's path; other operations have the account's."""
_ACCOUNT_ROUTE: Final = "/{account}/"
_BATCH_ROUTE: Final = "/{account}/$batch"
_ROWS: Final = "db.response.returned_rows"
_BATCH_SIZE: Final = "db.operation.batch.size"


class Tracing:
    """The traces of one process. Made after the fork, because exporters have threads."""

    def __init__(self) -> None:
        own = {"service.version": __version__, "service.instance.id": str(uuid.uuid4())}
        if "service.name" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
            own["service.name"] = os.environ.get("OTEL_SERVICE_NAME") or "tablestone"
        self._provider = TracerProvider(resource=Resource.create(own))
        for name in exporter_names(os.environ):
            found = next(iter(entry_points(group=_EXPORTERS, name=name)), None)
            if found is None:
                logger.warning("No package is installed that exports traces as %s.", name)
                continue
            self._provider.add_span_processor(BatchSpanProcessor(found.load()()))
        self._tracer = self._provider.get_tracer("tablestone", __version__)

    def begin(self, record: RequestRecord, request: RawRequest) -> RequestTrace:
        """Begin the span of a request; its parent is the client's span, if the request names one."""
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in request.headers.items()
        }
        host, _, port = headers.get("host", "").rpartition(":")
        if not port.isdigit():
            host, port = headers.get("host", ""), ""
        attributes: dict[str, str | int] = {
            "http.request.method": request.method,
            "url.scheme": request.scheme,
            "client.address": request.client,
        }
        if host:
            attributes["server.address"] = host
        if port:
            attributes["server.port"] = int(port)
        if "user-agent" in headers:
            attributes["user_agent.original"] = headers["user-agent"]
        span = self._tracer.start_span(
            request.method, extract(headers), SpanKind.SERVER, attributes
        )
        return RequestTrace(self._tracer, span, record)

    def traced_tables(
        self, make_service: Callable[..., TableService]
    ) -> Callable[..., TableService]:
        """The table service with spans; one that a test supplies stays as it is."""
        return TracedTables if make_service is TableService else make_service

    def traced_engine(self, engine: contract.Engine, url: str) -> contract.Engine:
        """The engine of this URL, with a span for each call."""
        return TracedEngine(engine, EngineUrl.parse(url).scheme)

    def close(self) -> None:
        """Export the last spans. Waits for the exporter, so it is not called on the event loop."""
        self._provider.shutdown()


def exporter_names(environment: Mapping[str, str]) -> list[str]:
    """The names under which packages register the exporters that are asked for; OTLP over HTTP if none is named."""
    protocols = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next(filter(None, (environment.get(name, "").strip() for name in protocols)), "")
    otlp = "otlp_proto_grpc" if protocol.lower() == "grpc" else "otlp_proto_http"
    asked = environment.get("OTEL_TRACES_EXPORTER", "") or "otlp"
    names = [name.strip().lower() for name in asked.split(",") if name.strip()]
    return [otlp if name == "otlp" else name for name in names]


class RequestTrace:
    """The span of a request that is under way, the current one of its task until `end`."""

    def __init__(self, tracer: trace.Tracer, span: Span, record: RequestRecord) -> None:
        self._tracer = tracer
        self._span = span
        self._record = record
        self.executed: tuple[float, float] | None = None
        """The moments at which the execution of its last operation began and ended."""
        self._token = context.attach(trace.set_span_in_context(span))
        if span.is_recording():
            _current.set(self)

    @contextmanager
    def child(
        self, name: str, kind: SpanKind = SpanKind.INTERNAL, attributes: Attributes = None
    ) -> Iterator[Span]:
        """A span inside the current one. The text of an exception may have a key in it, so it is not recorded."""
        with self._tracer.start_as_current_span(
            name, None, kind, attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except Exception as error:
                if (
                    kind is SpanKind.CLIENT
                ):  # other errors become answers, which the request's span shows
                    span.set_attribute("error.type", type(error).__qualname__)
                    span.set_status(Status(StatusCode.ERROR))
                raise

    def end(self) -> None:
        """End the span, with what the record says of the request."""
        _current.set(None)
        details = self._record.details
        if self._span.is_recording() and details is not None:
            self._describe(self._record, details)
        self._span.end()
        context.detach(self._token)

    def _describe(self, record: RequestRecord, details: RequestDetails) -> None:
        operation, span = record.operation_name, self._span
        route = _BATCH_ROUTE if record.is_batch else ROUTES.get(operation, _ACCOUNT_ROUTE)
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
            "error.type": record.error_code,
        }
        span.set_attributes({name: value for name, value in found.items() if value != ""})
        if record.status >= 500:  # a client's mistake is not the server's error
            span.set_status(Status(StatusCode.ERROR, record.reason))
        authenticated = details.authenticated_at
        if authenticated:
            self._past("authenticate", record.started, authenticated)
        if self.executed is not None:
            self._past("decode", authenticated, self.executed[0])
            self._past("encode", self.executed[1], record.ended)

    def _past(self, name: str, started: float, ended: float) -> None:
        """A span for a step that has ended; the record has only its times."""
        offset = unix_seconds() - monotonic_seconds()
        span = self._tracer.start_span(name, start_time=round((started + offset) * 1e9))
        span.end(round((ended + offset) * 1e9))


_current: ContextVar[RequestTrace | None] = ContextVar("request_trace", default=None)
"""The trace of the request that is carried out now, if it is recorded."""


class TracedTables(TableService):
    """Executes each operation of a request inside a span."""

    async def execute(self, owner: Owner, operation: Operation) -> Result:
        request = _current.get()
        if request is None:
            return await super().execute(owner, operation)
        started = monotonic_seconds()
        try:
            with request.child(f"execute {type(operation).__name__}"):
                return await super().execute(owner, operation)
        finally:
            request.executed = (started, monotonic_seconds())


@contextmanager
def _call(system: str, operation: str) -> Iterator[Span]:
    """A span for a call of the engine during a request, by the conventions for clients of a database."""
    request = _current.get()
    if request is None:
        yield trace.INVALID_SPAN
        return
    attributes = {"db.system.name": system, "db.operation.name": operation}
    with request.child(operation, SpanKind.CLIENT, attributes) as span:
        yield span


class TracedEngine(ForwardingEngine):
    """An engine whose reads and commits for a request are spans. `system` is the scheme of its URL."""

    def __init__(self, engine: contract.Engine, system: str) -> None:
        super().__init__(engine)
        self._system = system

    async def get(self, key: contract.Key) -> bytes | None:
        with _call(self._system, "get") as span:
            value = await super().get(key)
            span.set_attribute(_ROWS, int(value is not None))
            return value

    async def read(
        self, ranges: Sequence[contract.KeyRange], *, rows_max: int, bytes_max: int
    ) -> contract.Rows:
        with _call(self._system, "read") as span:
            rows = await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max)
            span.set_attribute(_ROWS, len(rows.values))
            return rows

    async def snapshot(self) -> contract.Snapshot:
        return _TracedSnapshot(await super().snapshot(), self._system)

    async def commit(self, write_set: contract.WriteSet) -> contract.Committed | contract.Conflict:
        with _call(self._system, "commit") as span:
            if len(write_set.changes) > 1:  # by the conventions, one change is no batch
                span.set_attribute(_BATCH_SIZE, len(write_set.changes))
            return await super().commit(write_set)

    def measure(self) -> Values:
        return self._engine.measure() if isinstance(self._engine, MeasuredEngine) else {}


class _TracedSnapshot(ForwardingSnapshot):
    def __init__(self, snapshot: contract.Snapshot, system: str) -> None:
        super().__init__(snapshot)
        self._system = system

    async def read(
        self,
        ranges: Sequence[contract.KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: contract.Hint | None = None,
        reverse: bool = False,
    ) -> contract.Rows:
        with _call(self._system, "read") as span:
            rows = await super().read(
                ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint, reverse=reverse
            )
            span.set_attribute(_ROWS, len(rows.values))
            return rows

    async def entries(
        self, start: contract.Entry, end: contract.Entry, *, entries_max: int, reverse: bool = False
    ) -> list[contract.Entry]:
        with _call(self._system, "entries") as span:
            found = await super().entries(start, end, entries_max=entries_max, reverse=reverse)
            span.set_attribute(_ROWS, len(found))
            return found
