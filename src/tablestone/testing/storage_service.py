"""The service of a storage: the application of `tablestone serve`, with an engine, a clock and records of its own.

Runs on an event loop that the caller provides. Knows neither threads nor sockets.

There are two applications over one engine, as in a server of two workers. One has the clock of the test. The other one
is for requests that are signed with a shared key: the SDK takes their date from the machine, so the date is checked
against the machine's clock. The entities that they store get their Timestamps from the clock of the test all the same.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from tablestone.clock import monotonic_seconds, system_clock
from tablestone.configuration import Configuration, WorkerSlot
from tablestone.engines.contract import Engine
from tablestone.engines.registry import open_engine
from tablestone.identity.stored_accounts import StoredAccounts
from tablestone.server.application import Application, Parts
from tablestone.server.asgi import Message, Receive, Send
from tablestone.server.requests.redaction import loggable_path
from tablestone.tables.service import TableService
from tablestone.testing.endings import AnswerSender
from tablestone.testing.faults import Faults
from tablestone.testing.last_requests import CURRENT, Journal
from tablestone.testing.observed_tables import ObservedEngine, ObservedTables
from tablestone.testing.state import State
from tablestone.testing.steered_clock import StorageClock

_SHARED_KEY: Final = b"sharedkey"
"""The beginning of both schemes with a shared key, in lower case."""


class StorageService:
    """The ASGI application of a storage. The loop that serves it runs `startup` and `shutdown` too."""

    waits = True
    """Every request is a task of its own: the record is a context variable of that task."""

    def __init__(
        self, configuration: Configuration, clock: StorageClock, journal: Journal, faults: Faults
    ) -> None:
        self._configuration = configuration
        self._clock = clock
        self._journal = journal
        self._faults = faults
        self._engine: Engine | None = None
        self._state: State | None = None
        self._applications: list[Application] = []

    @property
    def engine(self) -> Engine:
        """The engine itself; its calls are not recorded."""
        assert self._engine is not None
        return self._engine

    @property
    def accounts(self) -> StoredAccounts:
        """The accounts that the storage keeps."""
        return StoredAccounts(self.engine, self._clock.ticks)

    @property
    def state(self) -> State:
        """The state of the storage."""
        assert self._state is not None
        return self._state

    async def startup(self) -> None:
        self._engine = open_engine(self._configuration.engine, self._clock.ticks)
        self._state = State(self._engine, self._clock)
        observed = ObservedEngine(self._engine)
        turned = Parts(
            self._clock.ticks,
            self._clock.elapsed_seconds,
            lambda *_arguments, **_options: observed,
            partial(ObservedTables, around=self._faults.around),
        )
        dated = turned._replace(clock=system_clock, make_service=self._tables_by_turned_clock)
        for number, parts in enumerate((turned, dated)):
            application = Application(self._configuration, WorkerSlot(number, 2), parts)
            await application.startup()
            self._applications.append(application)

    async def shutdown(self) -> None:
        for application in self._applications:
            await application.shutdown()
        if self._engine is not None:
            await self._engine.close()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        record = self._journal.begin(
            scope["method"], loggable_path(scope["raw_path"]), _headers_without_secrets(scope)
        )
        token = CURRENT.set(record)
        try:
            await self._application_for(scope)(scope, receive, AnswerSender(record, send))
        finally:
            CURRENT.reset(token)

    async def refuse(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer that the service is busy, because there are too many connections."""
        await self._applications[0].refuse(scope, receive, send)

    def reopen_logs(self) -> None:
        """Do nothing: there is no access log. The journal has every request."""

    def _application_for(self, scope: Message) -> Application:
        turned, dated = self._applications
        is_dated = any(
            name == b"authorization" and value[: len(_SHARED_KEY)].lower() == _SHARED_KEY
            for name, value in scope["headers"]
        )
        return dated if is_dated else turned

    def _tables_by_turned_clock(
        self, engine: Engine, _clock: Any, _seconds: Any, *arguments: Any, **options: Any
    ) -> TableService:
        return ObservedTables(
            engine,
            self._clock.ticks,
            self._clock.elapsed_seconds,
            *arguments,
            around=self._faults.around,
            **options,
        )


def _headers_without_secrets(scope: Message) -> dict[str, str]:
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name != b"authorization"
    }


def machine_clock() -> StorageClock:
    """A clock that shows the machine's time until a test changes it."""
    return StorageClock(system_clock, monotonic_seconds)
