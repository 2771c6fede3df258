"""The service of a storage: the application of `tablestone serve`, with its own engine, clock and records.

Runs on an event loop that the caller provides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from itertools import count
from typing import Any, Final

from tablestone.accounts.stored_accounts import AccountRefused, StoredAccounts, generate_key
from tablestone.auth.account import is_account_name
from tablestone.clock import Clock, monotonic_seconds, system_clock
from tablestone.configuration import DEVELOPMENT_ACCOUNT_NAME, Configuration, WorkerSlot
from tablestone.engines.contract import Engine
from tablestone.engines.registry import open_engine
from tablestone.server.application import Application, Parts
from tablestone.server.asgi import Message, Receive, Send
from tablestone.server.requests.pipeline import loggable_path
from tablestone.tables.service import TableService
from tablestone.testing.clock import StorageClock
from tablestone.testing.faults import AnswerSender, Faults
from tablestone.testing.realism import EVENTUAL_SECONDS, FollowedEngine, RangedEngine, Secondary
from tablestone.testing.recorded_requests import (
    CURRENT,
    LastRequests,
    ObservedEngine,
    ObservedTables,
)
from tablestone.testing.state import Dump, SeedRow, State

AZURE_DELETION_SECONDS: Final = 40
"""With realism, the name of a deleted table stays taken for so long (wire 3.4), unless configured otherwise."""


class StorageRefused(Exception):
    """An impossible operation on a storage. The text is one sentence for the author of the test."""


class StorageService:
    """The ASGI application of a storage. `startup` and `shutdown` run on the same loop."""

    waits = True
    """Every request needs a task of its own, which has the record as a context variable."""

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
        self._engine: Engine | None = None
        self._state: State | None = None
        parts = Parts(
            self._now, clock.elapsed_seconds, self._open_observed_engine, self._make_observed_tables
        )
        self._application = Application(configuration, WorkerSlot(0, 1), parts)
        self._numbers = count(1)

    @property
    def accounts(self) -> StoredAccounts:
        return StoredAccounts(self.state.engine, self.clock.ticks)

    @property
    def state(self) -> State:
        assert self._state is not None
        return self._state

    async def account_names(self) -> list[str]:
        """The configured accounts, and those that were created since."""
        return [*self._configured, *(account.name for account in await self.accounts.all())]

    @property
    def _configured(self) -> list[str]:
        names = [account.name for account in self._configuration.accounts]
        is_added = self._configuration.has_development_account
        return [*names, DEVELOPMENT_ACCOUNT_NAME] if is_added else names

    async def create_account(self, name: str | None) -> tuple[str, str]:
        """Create an account without tables. Returns its name (a new one if none is given) and its key."""
        if name is None:
            # A snapshot of another storage may have brought accounts with such names.
            name = f"account{next(self._numbers):06d}"
            while await self.accounts.exists(name):
                name = f"account{next(self._numbers):06d}"
        elif not is_account_name(name):
            raise StorageRefused(
                f"{name[:40]!r} is not an account name: it has 3 to 24 lower-case letters and digits."
            )
        if name in self._configured:
            raise StorageRefused(f"There is an account {name} already.")
        key = generate_key()
        try:
            await self.accounts.create(name, (key,))
        except AccountRefused as refused:
            raise StorageRefused(str(refused)) from None
        return name, key

    async def delete_account(self, name: str) -> None:
        """Delete an account that was created here, and its tables."""
        if not await self.accounts.exists(name):
            raise StorageRefused(f"There is no account {name[:40]!r} that was created here.")
        await self.accounts.delete(name, with_tables=True)

    async def reset(self, account: str | None, table: str | None) -> None:
        """Delete the tables and service properties of all accounts, or of one; or the entities of one table."""
        if account is None:
            for name in await self.account_names():
                await self.state.empty_account(name)
            return
        await self.require_account(account)
        if table is None:
            await self.state.empty_account(account)
        else:
            await self.state.empty_table(account, table)

    async def require_account(self, name: str) -> None:
        if name not in self._configured and not await self.accounts.exists(name):
            raise StorageRefused(f"There is no account {name[:40]!r} in this storage.")

    async def seed(self, account: str, rows: Iterable[SeedRow], tables: Sequence[str]) -> int:
        """Store entities of an account, and return their number."""
        await self.require_account(account)
        return await self.state.seed(account, rows, tables)

    async def dump(self, account: str) -> Dump:
        await self.require_account(account)
        return await self.state.dump(account)

    async def delete_table(self, account: str, table: str) -> None:
        """Delete a table if it exists. Its name is free at once."""
        await self.require_account(account)
        await self.state.delete_table(account, table)

    async def startup(self) -> None:
        self._engine = open_engine(self._configuration.engine, self.clock.ticks)
        self._state = State(self._engine, self.clock, self.faults.secondary)
        await self._application.startup()

    async def shutdown(self) -> None:
        await self._application.shutdown()
        if self._engine is not None:
            await self._engine.close()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        record = self.requests.begin(
            scope["method"], loggable_path(scope["raw_path"]), _headers_without_secrets(scope)
        )
        record.has_machine_date = _is_signed_with_key(scope)
        token = CURRENT.set(record)
        try:
            await self._application(scope, receive, AnswerSender(record, send))
        finally:
            CURRENT.reset(token)

    async def refuse(self, scope: Message, receive: Receive, send: Send) -> None:
        await self._application.refuse(scope, receive, send)

    def reopen_logs(self) -> None:
        self._application.reopen_logs()

    def count_connections(
        self, connections: Sized, accepted: Callable[[], int], refused: Mapping[str, int]
    ) -> None:
        self._application.count_connections(connections, accepted, refused)

    def _now(self) -> int:
        """The time for checking the present request.

        An SDK that signs with an account key takes the date from the machine, so the machine's clock checks it. The
        Timestamps of entities come from the test's clock all the same.
        """
        record = CURRENT.get()
        is_dated = record is not None and record.has_machine_date
        return system_clock() if is_dated else self.clock.ticks()

    def _open_observed_engine(self, *_arguments: Any, **_options: Any) -> Engine:
        assert self._engine is not None
        followed = FollowedEngine(self._engine, self.faults.secondary)
        return ObservedEngine(RangedEngine(followed) if self._configuration.realism else followed)

    def _make_observed_tables(
        self, engine: Engine, _clock: Clock, *arguments: Any, **options: Any
    ) -> TableService:
        around = self.faults.around
        return ObservedTables(engine, self.clock.ticks, *arguments, around=around, **options)


def _is_signed_with_key(scope: Message) -> bool:
    """Whether the request is signed with an account key: `SharedKey` or `SharedKeyLite`."""
    return any(
        name == b"authorization" and value[:9].lower() == b"sharedkey"
        for name, value in scope["headers"]
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


def no_faults(clock: StorageClock, *, realism: bool) -> Faults:
    """No faults; with `realism`, a secondary that is behind."""
    return Faults(clock.elapsed_seconds, Secondary(clock, EVENTUAL_SECONDS if realism else 0.0))
