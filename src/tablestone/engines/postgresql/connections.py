"""Connections to PostgreSQL: those of one worker, made when they are needed, and the errors of the driver in our words.

Importing this module imports the driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from tablestone.clock import monotonic_seconds
from tablestone.engines.contract import EngineBusy, EngineRefused, EngineUnavailable
from tablestone.engines.figures import Distribution
from tablestone.engines.postgresql.kind import REQUEST
from tablestone.engines.request_time import left

if TYPE_CHECKING:
    from tablestone.engines.postgresql.address import DatabaseAddress

log = logging.getLogger(__name__)

CONNECT_SECONDS_MAX: Final = 5.0
STATEMENT_SECONDS_MAX: Final = 30.0
"""Longer than a request may wait for storage."""
SETTINGS: Final = {
    "application_name": "tablestone",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "statement_timeout": f"{STATEMENT_SECONDS_MAX:.0f}s",
    "lock_timeout": f"{STATEMENT_SECONDS_MAX / 3:.0f}s",
    "idle_in_transaction_session_timeout": f"{STATEMENT_SECONDS_MAX:.0f}s",
    # Every statement goes by the primary key. Statistics of a table that was empty must not choose another way.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
"""Of each session, whatever the role and the database say."""

LOST: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    OSError,
    EOFError,
)
"""Errors after which a connection is of no use: another one may be."""
FULL: Final = (asyncpg.DiskFullError, asyncpg.OutOfMemoryError)
BUSY: Final = (
    asyncpg.QueryCanceledError,
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InsufficientResourcesError,
    TimeoutError,
)


def in_our_words(error: BaseException) -> EngineUnavailable:
    """Nothing was applied: why not."""
    said = str(error).strip() or type(error).__name__
    if isinstance(error, FULL):
        return EngineUnavailable(f"PostgreSQL has no room: {said}.")
    if isinstance(error, (*LOST, *BUSY)):
        return EngineBusy(f"PostgreSQL does not answer now: {said}.")
    return EngineUnavailable(f"PostgreSQL refused: {said}.")


class Connection:
    """A connection of the driver, with the session of its commits (`schema.STATEMENTS`)."""

    def __init__(self, driver: asyncpg.Connection[Any]) -> None:
        self.driver = driver
        self.session: uuid.UUID | None = None
        self.number = 0
        """Of the last commit."""
        self.in_doubt = False
        """A commit was answered as done, but did not wait for its standby."""
        driver.add_log_listener(self._noticed)

    def _noticed(self, _driver: object, message: asyncpg.PostgresLogMessage) -> None:
        # 01000: "canceling wait for synchronous replication due to user request".
        if message.sqlstate == "01000":
            self.in_doubt = True

    async def fetch(self, statement: str, *values: object) -> list[asyncpg.Record]:
        """Rows, in the time that is left for the request."""
        seconds = left()
        return await self.driver.fetch(
            statement, *values, timeout=None if seconds == inf else max(seconds, 0.001)
        )


class Connections:
    """At most so many connections, the last used first. They belong to one event loop."""

    def __init__(self, address: DatabaseAddress, count: int, *, writes: bool) -> None:
        self._address = address
        self._writes = writes
        self._free = asyncio.Semaphore(count)
        self._idle: list[Connection] = []
        self._is_closed = False
        self.open = 0
        self.waiting = 0
        self.wait_seconds = 0.0
        self.request_seconds = Distribution(REQUEST.bounds)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Connection]:
        """A connection that nobody else uses meanwhile; `EngineBusy` if none is free in the request's time."""
        await self._wait()
        connection: Connection | None = None
        try:
            connection = self._take() or await self._connect()
            began = monotonic_seconds()
            yield connection
            self.request_seconds.add(monotonic_seconds() - began)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, EOFError, TimeoutError) as error:
            if isinstance(error, LOST):
                await self._drop(connection)
                self._forget_idle()
                connection = None
            raise in_our_words(error) from error
        except BaseException:
            # The driver may be in the middle of an answer.
            if connection is not None and connection.driver.is_in_transaction():
                await self._drop(connection)
                connection = None
            raise
        finally:
            if connection is not None:
                self._put_back(connection)
            self._free.release()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection whose reads all see the moment of the first one."""
        async with self.one() as connection:
            await connection.fetch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                yield connection
            finally:
                await connection.fetch("ROLLBACK")

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[Connection]:
        """A new connection beside the others, closed at the end; raises what the driver raises."""
        connection = Connection(await connect(self._address, writes=self._writes))
        try:
            yield connection
        finally:
            connection.driver.terminate()

    async def _wait(self) -> None:
        if left() <= 0:
            raise EngineBusy("Storage does not answer in the time of a request.")
        began, seconds = monotonic_seconds(), left()
        self.waiting += 1
        try:
            async with asyncio.timeout(None if seconds == inf else seconds):
                await self._free.acquire()
        except TimeoutError as error:
            raise EngineBusy("All connections to PostgreSQL are in use.") from error
        finally:
            self.waiting -= 1
            self.wait_seconds += monotonic_seconds() - began

    def _take(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.driver.is_closed():
                return connection
            self.open -= 1
        return None

    def _put_back(self, connection: Connection) -> None:
        if self._is_closed:
            connection.driver.terminate()
        if connection.driver.is_closed():
            self.open -= 1
        else:
            self._idle.append(connection)

    async def _connect(self) -> Connection:
        seconds = min(left(), CONNECT_SECONDS_MAX)
        connection = Connection(
            await connect(self._address, writes=self._writes, seconds=max(seconds, 0.001))
        )
        self.open += 1
        return connection

    async def _drop(self, connection: Connection | None) -> None:
        if connection is not None:
            self.open -= 1
            connection.driver.terminate()

    def _forget_idle(self) -> None:
        """The others were made to the same server: they would each fail once."""
        for connection in self._idle:
            connection.driver.terminate()
        self.open -= len(self._idle)
        self._idle.clear()

    async def close(self) -> None:
        self._is_closed = True
        for connection in self._idle:
            with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
                await connection.driver.close(timeout=CONNECT_SECONDS_MAX)
        self._idle.clear()


async def connect(
    address: DatabaseAddress, *, writes: bool, seconds: float = CONNECT_SECONDS_MAX
) -> asyncpg.Connection[Any]:
    """A connection of the driver; raises what the driver raises."""
    settings = SETTINGS | {"search_path": f'"{address.schema}"'}
    if not writes:
        settings |= {"default_transaction_read_only": "on"}
    return await asyncpg.connect(
        address.dsn(writes=writes), timeout=seconds, server_settings=settings
    )
