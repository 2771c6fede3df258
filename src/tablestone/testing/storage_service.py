"""The application of `tablestone serve` with a storage's engine, clock and records, on an event loop of the caller."""

from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from typing import Any, Final

from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS, Clock, system_clock
from tablestone.configuration import Configuration
from tablestone.engines.contract import Engine
from tablestone.server.application import Application, Parts
from tablestone.server.requests.body import Arriving
from tablestone.server.requests.pipeline import loggable_path
from tablestone.server.worker_slot import WorkerSlot
from tablestone.tables.service import TableService
from tablestone.testing.clock import StorageClock
from tablestone.testing.faults import Faults, end_connection
from tablestone.testing.realism import FollowedEngine, RangedEngine
from tablestone.testing.recorded_requests import (
    CURRENT,
    LastRequests,
    ObservedEngine,
    ObservedTables,
)
from tablestone.testing.state import State
from tablestone.wire.messages import RawRequest, RawResponse

AZURE_DELETION_SECONDS: Final = 40
"""With realism, how long the name of a deleted table stays taken (wire 3.4), unless configured otherwise."""


class StorageService:
    """The application of a storage. `startup` and `shutdown` run on the same loop."""

    waits = True
    """Each request needs a task of its own, because its record is a context variable."""

    def __init__(
        self,
        configuration: Configuration,
        clock: StorageClock,
        requests: LastRequests,
        faults: Faults,
    ) -> None:
        if configuration.realism and not configuration.table_deletion_seconds:
            configuration = replace(configuration, table_deletion_seconds=AZURE_DELETION_SECONDS)
        self._configuration = configuration
        self.clock = clock
        self.requests = requests
        self.faults = faults
        self.set_date: Callable[[str], None] = lambda _: None
        """Gives the connections their header Date, which follows the test's clock."""
        self._state: State | None = None
        parts = Parts(
            self._now,
            clock.elapsed_seconds,
            self._open_observed_engine,
            self._make_observed_tables,
            clock.elapsed_seconds,
            aging=None,
        )
        self._application = Application(configuration, WorkerSlot(0, 1), parts)
        self.reopen_logs = self._application.reopen_logs
        self.count_connections = self._application.count_connections

    @property
    def state(self) -> State:
        assert self._state is not None
        return self._state

    async def startup(self) -> None:
        self._state = State(self._configuration, self.clock, self.faults.secondary)
        await self._application.startup()
        self.refuse = self._application.refuse

    async def shutdown(self) -> None:
        await self._application.shutdown()
        if self._state is not None:
            await self._state.primary.close()

    def date(self) -> str:
        """The header Date of an answer now."""
        seconds = (self.clock.ticks() - UNIX_EPOCH_TICKS) / TICKS_PER_SECOND
        return formatdate(seconds, usegmt=True)

    async def answer(self, request: RawRequest, arriving: Arriving) -> RawResponse | None:
        record = self.requests.begin(
            request.method, loggable_path(request.raw_path), _headers_without_secrets(request)
        )
        signed = request.headers.get(b"authorization", b"")
        record.has_machine_date = signed[:9].lower() == b"sharedkey"  # or SharedKeyLite
        token = CURRENT.set(record)
        try:
            response = await self._application.answer(request, arriving)
        finally:
            CURRENT.reset(token)
        if record.retry_after is not None:
            response.headers.append((b"retry-after", b"%d" % record.retry_after))
        self.set_date(self.date())
        if record.ending is not None:
            await end_connection(record.ending, response, arriving)
            return None
        record.status = response.status
        if record.status >= 400 and not record.error:
            record.error = dict(response.headers).get(b"x-ms-error-code", b"").decode("ascii")
        return response

    def _now(self) -> int:
        """The time for checking the present request.

        An SDK that signs with an account key dates the request by the machine's clock, so that clock checks it. The
        Timestamps of entities come from the test's clock all the same.
        """
        record = CURRENT.get()
        is_dated = record is not None and record.has_machine_date
        return system_clock() if is_dated else self.clock.ticks()

    def _open_observed_engine(self, *_arguments: Any, **_options: Any) -> Engine:
        followed = FollowedEngine(self.state.primary, self.faults.secondary)
        return ObservedEngine(RangedEngine(followed) if self._configuration.realism else followed)

    def _make_observed_tables(
        self, engine: Engine, _clock: Clock, *arguments: Any, **options: Any
    ) -> TableService:
        around = self.faults.around
        return ObservedTables(engine, self.clock.ticks, *arguments, around=around, **options)


def _headers_without_secrets(request: RawRequest) -> dict[str, str]:
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in request.headers.items()
        if name != b"authorization"
    }
