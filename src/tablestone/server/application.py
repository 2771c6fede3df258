"""The ASGI application: puts the parts of the server together, and answers each request through the pipeline.

Turns an ASGI call into a `RawRequest` and a `RawResponse` into ASGI messages, and starts what runs beside requests.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sized
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from tablestone import limits
from tablestone.accounts.identities import Identities
from tablestone.accounts.known_accounts import KnownAccounts
from tablestone.clock import Clock, elapsed_seconds, monotonic_seconds, system_clock, unix_seconds
from tablestone.configuration import DEVELOPMENT_ACCOUNT, Configuration
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.change_record import ChangeLog, not_taken
from tablestone.engines.contract import Engine, EngineRefused, EngineUnavailable
from tablestone.engines.figures import FigureKind, MeasuredEngine, Values
from tablestone.engines.kind import EngineUrl
from tablestone.engines.registry import capabilities_of, kind_of, open_engine
from tablestone.extras import needs
from tablestone.insight.counts import InsightCounts
from tablestone.model.errors import StorageError
from tablestone.server.admission import Admission, Limit
from tablestone.server.asgi import Message, Receive, Send
from tablestone.server.requests.account_address import Addresses
from tablestone.server.requests.body import (
    BodyTimeLimit,
    RequestBody,
    has_body,
    is_worth_discarding,
)
from tablestone.server.requests.pipeline import Pipeline
from tablestone.server.waits import Waits
from tablestone.server.worker_slot import WorkerSlot
from tablestone.tables.expiry_sweeping import ExpirySweeper
from tablestone.tables.service import TableService
from tablestone.tables.storage_keys import fresh_table_id
from tablestone.tables.sweeping import Sweeper
from tablestone.tables.throughput_targets import SharedSlots, Throughput
from tablestone.telemetry.access_log import AccessLog
from tablestone.telemetry.refused_callers import RefusedCallers
from tablestone.telemetry.request_counts import RequestCounts
from tablestone.telemetry.request_record import RequestDetails, RequestRecord
from tablestone.telemetry.worker_reports import WorkerReporter
from tablestone.wire.messages import RawRequest, RawResponse, Wait, single_headers

log = logging.getLogger(__name__)

_LENGTHLESS = frozenset((204, 304))
"""Statuses without a body: their Content-Length, if any, comes with the answer."""

_PLAIN_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_TOO_LONG = b"The headers of a request have at most %d bytes." % limits.HEADERS_BYTES_MAX
EXPORT_SECONDS_MAX = 5.0
"""Seconds that a stop waits for the last traces to be exported."""
REFUSED_SECONDS = 5.0
"""Seconds between two looks at the counts of refused callers."""


class Parts(NamedTuple):
    """The replaceable parts of an application, so that a test can supply others."""

    clock: Clock = system_clock
    seconds: Callable[[], float] = monotonic_seconds
    open_engine: Callable[..., Engine] = open_engine
    make_service: Callable[..., TableService] = TableService
    elapsed: Callable[[], float] = elapsed_seconds
    aging: Callable[[], float] | None = elapsed_seconds
    """The clock that `RecordAge` begins with; None: records of changes age by `clock` alone."""


class Trace(Protocol):
    """The span of a request that is under way (`server.tracing.RequestTrace`)."""

    def end(self) -> None: ...


class Tracing(Protocol):
    """The traces of this process (`server.tracing.Tracing`)."""

    def begin(self, record: RequestRecord, request: RawRequest) -> Trace: ...
    def traced_engine(self, engine: Engine, url: str) -> Engine: ...
    def traced_tables(
        self, make_service: Callable[..., TableService]
    ) -> Callable[..., TableService]: ...
    def close(self) -> None: ...


def asks_for_traces(environment: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's variables name an exporter of traces or an endpoint, and none switches it off."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter:
        return exporter.lower() != "none"
    endpoints = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return any(environment.get(name, "").strip() for name in endpoints)


def _open_tracing(*, logs_warnings: bool) -> Tracing | None:
    """The traces of this process; None if the environment does not ask for them or the extra is missing."""
    if not asks_for_traces(os.environ):
        return None
    try:
        # By name: this module is compiled, which reads its imports, and the compiler has no OpenTelemetry.
        tracing: Tracing = import_module("tablestone.server.tracing").Tracing()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "opentelemetry":
            raise
        if logs_warnings:
            log.warning(
                "%s", needs("Sending traces, as the environment asks,", "opentelemetry", "otel")
            )
        return None
    return tracing


class Application:
    """The ASGI application of one process. Call `startup` before the first request, `shutdown` after the last."""

    def __init__(
        self, configuration: Configuration, slot: WorkerSlot, parts: Parts | None = None
    ) -> None:
        self._configuration = configuration
        self._slot = slot
        self._parts = Parts() if parts is None else parts
        self._engine: Engine | None = None
        self._pipeline: Pipeline | None = None
        self._body_time_limit = BodyTimeLimit()
        self._background: list[asyncio.Task[None]] = []
        self._refused = RefusedCallers(monotonic_seconds, slot.quiet)
        self._access_log: AccessLog | None = None
        self._windows = None if slot.insight is None else InsightCounts(unix_seconds())
        self._counts = (
            None
            if slot.reports is None
            else RequestCounts(names_tables=configuration.metrics_tables, insight=self._windows)
        )
        self._is_watched = self._counts is not None
        """Whether metrics, an access log or traces need the records of requests."""
        self._wants_details = False
        self._spare: RequestRecord | None = None
        """A record that is not in use."""
        self._measures: Callable[[], tuple[dict[str, Any], dict[str, Any]]] | None = None
        self._connections: Sized = ()
        self._accepted: Callable[[], int] = int
        self._tracing: Tracing | None = None
        self._throughput: Throughput | None = None
        self._admission: Admission | None = None
        self._waits: Waits | None = None

    async def startup(self) -> None:
        """Open the engine; raises `EngineRefused` with one sentence if it cannot be opened."""
        configuration = self._configuration
        if configuration.access_log is not None:
            self._access_log = AccessLog(configuration.access_log, monotonic_seconds)
            self._is_watched = self._wants_details = True
        clock, seconds = self._parts.clock, self._parts.seconds
        service = self._open_service()
        assert self._engine is not None
        if self._engine.changes is not None:
            await self._keep_changes(self._engine.changes)
        identities = Identities(
            service.documents, configuration.tokens, seconds, logs_warnings=self._slot.leads
        )
        accounts = KnownAccounts(
            configuration.accounts,
            service.documents,
            service.catalog.incarnations,
            (DEVELOPMENT_ACCOUNT,) if configuration.has_development_account else (),
        )
        addresses = Addresses(accounts, configuration.domains, dict(configuration.custom_domains))
        self._pipeline = Pipeline(
            service,
            addresses,
            identities,
            clock,
            https_only=configuration.https_only,
            unknown_versions=configuration.any_version,
            refused=self._refused,
        )
        if self._slot.leads:
            await self._create_tables(service, accounts)
        sweeper = Sweeper(
            self._engine,
            clock,
            fresh_table_id,
            deletion_seconds=configuration.table_deletion_seconds,
        )
        expiry = ExpirySweeper(
            self._engine,
            service.catalog,
            accounts.find,
            clock,
            self._parts.elapsed,
            fresh_table_id().hex(),
            self._slot.began,
        )
        self.start(self._body_time_limit.watch)
        self.start(self._log_refused)
        self.start(identities.watch)
        self.start(partial(self._engine.watch, leads=self._slot.leads))
        self.start(sweeper.run, of_leader=True)  # two sweepers would disturb each other
        self.start(expiry.run, of_leader=True)
        if self._slot.reports is not None and self._counts is not None:
            self._measures = partial(self._measured, self._counts, service, sweeper, expiry)
            windows = self._windows
            reporter = WorkerReporter(
                self._slot.reports,
                self._slot.worker,
                self._measures,
                None if windows is None else lambda: windows.content(unix_seconds()),
                self._slot.insight,
            )
            reporter.report()  # before the server says that it is ready
            self.start(reporter.run)

    def start(
        self, run: Callable[[], Coroutine[Any, Any, None]], *, of_leader: bool = False
    ) -> None:
        """Run a task beside requests until `shutdown`: in each worker if it serves its caches, clocks and logs, and
        only in the one that leads (`of_leader`) if it must run once for the whole server.
        """
        if self._slot.leads or not of_leader:
            self._background.append(asyncio.create_task(run()))

    async def _keep_changes(self, changes: ChangeLog) -> None:
        """Keep changes as the configuration or else storage says, and log it."""
        asked = self._configuration.keep_changes
        changes.age.begin(self._parts.aging)
        try:
            if asked is not None or self._configuration.ends_changes:
                await changes.keep(asked, self._configuration.yes_trim)
            kept = changes.kept()
        except EngineUnavailable as error:  # the disk may be full
            verb = "end" if asked is None else "begin"
            raise EngineRefused(f"The record of changes cannot {verb}. {error}") from error
        if kept is None or not self._slot.leads:
            return
        if (why := not_taken(kept, asked)) is not None:
            log.warning("%s", why)
        where = ""
        if capabilities_of(self._configuration.engine).stored_in is StoredIn.PROCESS:
            where = ", in memory: they end with this server"
        log.info("keeps changes: %s%s", str(kept.retention).replace(",", ", "), where)

    async def _create_tables(self, service: TableService, accounts: KnownAccounts) -> None:
        """Create the tables that the configuration names and that are missing."""
        configured = self._configuration.accounts or (DEVELOPMENT_ACCOUNT,)
        wanted = self._configuration.create_tables
        for name, table in [(each.name, table) for each in configured for table in wanted]:
            account = await accounts.find(name)
            assert account is not None
            try:
                await service.catalog.create(account, table)
            except (StorageError, EngineUnavailable) as error:
                if getattr(error, "code", None) != "TableAlreadyExists":
                    log.warning("The table %s of %s is not created: %s", table, name, error)

    def _open_service(self) -> TableService:
        configuration = self._configuration
        clock, seconds, open_the_engine, make_service, *_ = self._parts
        self._engine = open_the_engine(
            configuration.engine,
            clock,
            shared=self._slot.workers > 1 or self._slot.storage is not None,
            storage=self._slot.storage,
            key=configuration.encryption_key,
        )
        self._tracing = _open_tracing(logs_warnings=self._slot.leads)
        if self._tracing is not None:
            self._is_watched = self._wants_details = True
            self._engine = self._tracing.traced_engine(self._engine, configuration.engine)
            make_service = self._tracing.traced_tables(make_service)
        targets = configuration.targets
        if targets is not None:
            kept = self._slot.shares or SharedSlots()
            self._throughput = Throughput(targets.account, targets.partition, seconds, kept)
        return make_service(
            self._engine,
            clock,
            seconds,
            fresh_table_id,
            table_deletion_seconds=configuration.table_deletion_seconds,
            throughput=self._throughput,
        )

    @property
    def waits(self) -> bool:
        """Whether every request needs a task, because the engine waits, or because tasks keep the current trace."""
        assert self._engine is not None
        return self._engine.capabilities.waits or self._tracing is not None

    async def shutdown(self) -> None:
        """Stop sweeping, finish the accepted commits, release the data."""
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        if self._engine is not None:
            await self._engine.close()
        if self._tracing is not None:
            closing = asyncio.create_task(asyncio.to_thread(self._tracing.close))
            await asyncio.wait({closing}, timeout=EXPORT_SECONDS_MAX)
        self._refused.log_counts(at_end=True)
        if self._access_log is not None:
            self._access_log.close()

    def count_connections(
        self, connections: Sized, accepted: Callable[[], int], admission: Admission
    ) -> None:
        """Give metrics the open and accepted connections and what was refused. Requests may now wait for changes."""
        self._admission = admission
        if self._engine is not None and self._engine.changes is not None:
            assert self._pipeline is not None
            self._waits = Waits(self._engine, self._pipeline.answer, admission)
        self._connections, self._accepted = connections, accepted

    def _measured(
        self, counts: RequestCounts, service: TableService, sweeper: Sweeper, expiry: ExpirySweeper
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What this worker reports: the counts since its start, and the present values."""
        engine: object = self._engine
        values: Values = engine.measure() if isinstance(engine, MeasuredEngine) else {}
        figures = kind_of(EngineUrl.parse(self._configuration.engine).scheme).figures
        gauges = {figure.name for figure in figures if figure.kind is FigureKind.GAUGE}
        refused: dict[str, int] = {}
        if self._admission is not None:
            refused.update(self._admission.refused)
        if self._throughput is not None:
            refused.update(self._throughput.refused)
        totals = {
            **counts.totals(),
            "cache_hits": sum(cache.hits for cache in service.caches),
            "cache_misses": sum(cache.misses for cache in service.caches),
            "swept_rows": sweeper.swept_rows,
            "expired": expiry.swept,
            "accepted": self._accepted(),
            "refused_by_limit": refused,
            "engine": {name: each for name, each in values.items() if name not in gauges},
        }
        now = {
            "connections": len(self._connections),
            "sweeping": int(sweeper.is_busy),
            "expiry_suspended": int(expiry.is_suspended),
            "changes_lag_seconds": service.feeds.lag_seconds(),
            "engine": {name: each for name, each in values.items() if name in gauges},
        }
        return totals, now

    def reopen_logs(self) -> None:
        """Open the files of the log again: a program has moved them away."""
        if self._access_log is not None:
            self._access_log.reopen()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        assert self._pipeline is not None
        headers = scope["headers"]
        duplicated: StorageError | None = None
        try:
            by_name = single_headers(headers)
        except StorageError as error:
            by_name, duplicated = dict(headers), error
        if len(b"".join(by_name)) + len(b"".join(by_name.values())) > limits.HEADERS_BYTES_MAX:
            await _send_and_close(send, RawResponse(431, [_PLAIN_TEXT], _TOO_LONG))
            return
        request = request_of(scope, by_name, duplicated)
        body = RequestBody(receive, by_name, self._body_time_limit)
        record = self._new_record(request)
        trace = None if self._tracing is None else self._tracing.begin(record, request)
        try:
            response = await self._pipeline.answer(request, body.read, record)
            if response.wait is not None and self._waits is not None:
                response = await self._answer_later(request, receive, record, response.wait)
            record.bytes_in = body.size
            self._note(record, response)
        finally:
            if trace is not None:
                trace.end()
        if record.details is None:
            record.forget()
            self._spare = record
        if not body.is_whole and has_body(by_name):
            if not body.is_read and is_worth_discarding(by_name):
                await body.discard()
            if not body.is_whole:
                response.headers.append((b"connection", b"close"))
        if response.status not in _LENGTHLESS:
            response.headers.append((b"content-length", b"%d" % len(response.body)))
        await _send(send, response)

    async def _answer_later(
        self, request: RawRequest, receive: Receive, record: RequestRecord, wait: Wait
    ) -> RawResponse:
        admission, waits, pipeline = self._admission, self._waits, self._pipeline
        assert admission is not None
        assert waits is not None
        assert pipeline is not None
        if admission.waiting >= admission.waits_max:
            admission.count_refused(Limit.WAITING, request.client)
            return pipeline.refusal(request.headers, Limit.WAITING.value, record)
        admission.waiting += 1
        try:
            return await waits.answer(request, receive, record, wait)
        finally:
            admission.waiting -= 1

    async def refuse(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer that the scope's `limit` is reached, and close the connection."""
        assert self._pipeline is not None
        headers = dict(scope["headers"])
        details = RequestDetails(scope["method"], _address(scope["client"]))
        record = RequestRecord(monotonic_seconds(), details)
        response = self._pipeline.refusal(headers, scope["limit"].value, record)
        self._note(record, response)
        if is_worth_discarding(headers):
            await RequestBody(receive, headers, self._body_time_limit).discard()
        await _send_and_close(send, response)

    def _new_record(self, request: RawRequest) -> RequestRecord:
        """A record for a request: that of the last one if possible, which costs less than a new one."""
        if self._wants_details:
            return RequestRecord(
                monotonic_seconds(), RequestDetails(request.method, request.client)
            )
        record = self._spare
        if record is None:
            return RequestRecord(monotonic_seconds())
        self._spare = None
        record.started = monotonic_seconds()
        return record

    def _note(self, record: RequestRecord, response: RawResponse) -> None:
        """Count and log a request whose answer is ready."""
        if not self._is_watched:
            return
        record.ended = monotonic_seconds()
        record.status = response.status
        record.bytes_out = len(response.body)
        if self._counts is not None:
            self._counts.count(record)
        if self._access_log is not None:
            assert record.details is not None
            record.details.at_seconds = unix_seconds()
            self._access_log.write(record, record.details)

    async def _log_refused(self) -> None:
        while True:
            await asyncio.sleep(REFUSED_SECONDS)
            self._refused.log_counts()


def request_of(
    scope: Message, headers: dict[bytes, bytes], duplicated: StorageError | None
) -> RawRequest:
    return RawRequest(
        scope["method"],
        scope["raw_path"],
        scope["query_string"],
        headers,
        scope["scheme"],
        _address(scope["client"]),
        duplicated,
    )


def _address(client: tuple[str, int] | None) -> str:
    """The address of the client; without the prefix that IPv4 has on a socket for both families."""
    return client[0].removeprefix("::ffff:") if client else ""


async def _send_and_close(send: Send, response: RawResponse) -> None:
    """Send an answer with which the connection ends."""
    length = b"%d" % len(response.body)
    response.headers += [(b"content-length", length), (b"connection", b"close")]
    await _send(send, response)


async def _send(send: Send, response: RawResponse) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": response.status,
            "headers": response.headers,
            "reason": response.reason,  # ASGI has none; our own connection writes it
        }
    )
    await send({"type": "http.response.body", "body": response.body})
