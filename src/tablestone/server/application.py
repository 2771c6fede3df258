"""The application of one process: puts its parts together, and starts what runs beside requests."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sized
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tablestone.accounts.identities import Identities
from tablestone.accounts.known_accounts import KnownAccounts
from tablestone.clock import Clock, elapsed_seconds, monotonic_seconds, system_clock, unix_seconds
from tablestone.configuration import DEVELOPMENT_ACCOUNT, Configuration
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.change_record import ChangeLog, not_taken
from tablestone.engines.contract import Engine, EngineRefused, EngineUnavailable
from tablestone.engines.registry import capabilities_of, open_engine
from tablestone.extras import needs
from tablestone.insight.counts import InsightCounts
from tablestone.model.edm import format_date_time
from tablestone.model.errors import StorageError
from tablestone.server.admission import Admission, Limit
from tablestone.server.measures import Measures
from tablestone.server.requests.account_address import Addresses
from tablestone.server.requests.body import Arriving
from tablestone.server.requests.entry import RequestEntry
from tablestone.server.requests.pipeline import Pipeline
from tablestone.server.worker_slot import WorkerSlot
from tablestone.tables.auto_index import AutoIndex, QueryCounts
from tablestone.tables.expiry_sweeping import ExpirySweeper
from tablestone.tables.service import TableService
from tablestone.tables.storage_keys import fresh_table_id
from tablestone.tables.sweeping import Sweeper
from tablestone.tables.table_work import TableWork
from tablestone.tables.throughput_targets import SharedSlots, Throughput
from tablestone.telemetry.access_log import AccessLog
from tablestone.telemetry.refused_callers import RefusedCallers
from tablestone.telemetry.request_counts import RequestCounts
from tablestone.telemetry.worker_reports import WorkerReporter, WorkerReports
from tablestone.wire.messages import RawRequest, RawResponse

if TYPE_CHECKING:
    from tablestone.archive.archiver import Archiver
    from tablestone.engines.sqlite.archive_source import ArchiveSource
    from tablestone.server.tracing import Tracing

log = logging.getLogger(__name__)

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
        from tablestone.server import tracing  # noqa: PLC0415 - OpenTelemetry is an extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "opentelemetry":
            raise
        if logs_warnings:
            log.warning(
                "%s", needs("Sending traces, as the environment asks,", "opentelemetry", "otel")
            )
        return None
    return tracing.Tracing()


class Application:
    """The application of one process. Call `startup` before the first request, `shutdown` after the last."""

    answer: Callable[[RawRequest, Arriving], Coroutine[Any, Any, RawResponse]]
    """Answers a request; `startup` sets it."""
    refuse: Callable[[RawRequest, Arriving, Limit], Coroutine[Any, Any, RawResponse]]
    """Answers a request beyond a limit."""

    def __init__(
        self, configuration: Configuration, slot: WorkerSlot, parts: Parts | None = None
    ) -> None:
        self._configuration = configuration
        self._slot = slot
        self._parts = Parts() if parts is None else parts
        self._engine: Engine | None = None
        self._stored: Engine | None = None
        """The engine itself, if `_engine` traces it."""
        self._background: list[asyncio.Task[None]] = []
        self._refused = RefusedCallers(monotonic_seconds, slot.quiet)
        self._access_log: AccessLog | None = None
        self._tracing: Tracing | None = None
        self._throughput: Throughput | None = None
        self._entry: RequestEntry | None = None
        self._measures: Measures | None = None
        self._rests: str | None = None

    async def startup(self) -> None:
        """Open the engine; raises `EngineRefused` with one sentence if it cannot be opened."""
        configuration = self._configuration
        if configuration.access_log is not None:
            self._access_log = AccessLog(configuration.access_log, monotonic_seconds)
        clock, seconds = self._parts.clock, self._parts.seconds
        service = self._open_service()
        assert self._engine is not None
        archiver = await self._open_archiver() if self._slot.leads else None
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
        pipeline = Pipeline(
            service,
            addresses,
            identities,
            clock,
            https_only=configuration.https_only,
            remote_indexes=configuration.remote_indexes,
            query_extensions=configuration.query_extensions,
            acl_by_roles=configuration.acl_by_roles,
            explorer_key=configuration.explorer_key,
            unknown_versions=configuration.any_version,
            refused=self._refused,
        )
        windows = None if self._slot.insight is None else InsightCounts(unix_seconds())
        counts: RequestCounts | None = None
        if self._slot.reports is not None:
            counts = RequestCounts(names_tables=configuration.metrics_tables, insight=windows)
        begin_trace = None if self._tracing is None else self._tracing.begin
        scans: QueryCounts | None = None
        if configuration.auto_index:
            shared = self._slot.scans or WorkerReports(2)
            scans = QueryCounts(shared, self._slot.worker)
            self.start(scans.run)
            self._make_indexes(service, accounts, shared)
        self._entry = RequestEntry(pipeline, counts, self._access_log, begin_trace, scans)
        self.answer, self.refuse = self._entry.answer, self._entry.refuse
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
        self.start(self._log_refused)
        self.start(identities.watch)
        self.start(partial(self._engine.watch, leads=self._slot.leads))
        self.start(sweeper.run, of_leader=True)  # two sweepers would disturb each other
        self.start(expiry.run, of_leader=True)
        work = TableWork(self._engine, service.catalog, service.counts, accounts.find)
        self.start(work.run, of_leader=True)
        if archiver is not None:
            self.start(archiver.run)
        if self._slot.reports is not None and counts is not None:
            self._measures = Measures(
                *(counts, self._engine, configuration.engine, service, sweeper, expiry),
                *(self._throughput, archiver, self._rests),
            )
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

    def _make_indexes(
        self, service: TableService, accounts: KnownAccounts, scans: WorkerReports
    ) -> None:
        """Make indexes by itself. The option is the consent to the format that the first one brings."""
        assert self._engine is not None
        if self._slot.leads and not getattr(self._engine, "is_indexed", True):
            log.warning(
                "--auto-index: the first index changes the data directory %s to format 3 for good.",
                self._configuration.data_directory,
            )
        auto = AutoIndex(self._engine, service.catalog, accounts.find, scans)
        self.start(auto.run, of_leader=True)

    async def _open_archiver(self) -> Archiver | None:
        """Begin to keep records for the archive, if there is one. `EngineRefused` if it cannot be used."""
        open_source: Callable[[], ArchiveSource] | None
        open_source = getattr(self._stored, "archive_source", None)
        settings = self._configuration.archive
        if open_source is None:
            return None
        source = open_source()
        try:
            if settings is None:
                ends = self._configuration.ends_archive
                await asyncio.to_thread(source.rest, self._parts.clock(), ends=ends)
                state = source.state()
                source.close()
                if state.archive:
                    self._rests = (
                        f"Nothing is archived to {state.archive} any more, since {format_date_time(state.since)}: "
                        "this server has no --archive. --archive none ends it for good."
                    )
                    log.warning("%s", self._rests)
                return None
            from tablestone.archive.archiver import Archiver  # noqa: PLC0415 - an extra
            from tablestone.archive.store import open_store  # noqa: PLC0415

            directory, parts = self._configuration.data_directory, self._parts
            assert directory is not None
            await asyncio.to_thread(source.keep)
            store = open_store(settings.url, directory)  # the start has refused what is no store
            if not settings.keys:
                log.warning(
                    "The archive %s is not encrypted: the keys of stored accounts and the secret that signs tokens lie "
                    "in it in clear. --archive-key-file encrypts it.",
                    settings.url,
                )
            return Archiver(store, source, settings, parts.clock, parts.elapsed, directory)
        except EngineUnavailable as error:  # the disk may be full
            raise EngineRefused(f"Records for the archive cannot be kept. {error}") from error

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
        parts = self._parts
        make_service = parts.make_service
        self._engine = self._stored = parts.open_engine(
            configuration.engine,
            parts.clock,
            shared=self._slot.workers > 1 or self._slot.storage is not None,
            storage=self._slot.storage,
            key=configuration.encryption_key,
        )
        self._tracing = _open_tracing(logs_warnings=self._slot.leads)
        if self._tracing is not None:
            self._engine = self._tracing.traced_engine(self._engine, configuration.engine)
            make_service = self._tracing.traced_tables(make_service)
        targets = configuration.targets
        if targets is not None:
            kept = self._slot.shares or SharedSlots()
            self._throughput = Throughput(targets.account, targets.partition, parts.seconds, kept)
        return make_service(
            self._engine,
            parts.clock,
            parts.seconds,
            fresh_table_id,
            table_deletion_seconds=configuration.table_deletion_seconds,
            throughput=self._throughput,
            may_change_format=configuration.remote_indexes,
            entity_limits=configuration.entity_limits,
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
        assert self._entry is not None
        if self._engine is not None and self._engine.changes is not None:
            self._entry.allow_waits(self._engine, admission)
        if self._measures is not None:
            self._measures.connections, self._measures.accepted = connections, accepted
            self._measures.admission = admission

    def reopen_logs(self) -> None:
        """Open the files of the log again: a program has moved them away."""
        if self._access_log is not None:
            self._access_log.reopen()

    async def _log_refused(self) -> None:
        while True:
            await asyncio.sleep(REFUSED_SECONDS)
            self._refused.log_counts()
