"""Connections to PostgreSQL: those of one worker, made when they are needed, and the errors of the driver in our words.

Importing this module imports the driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import asyncpg

from tablestone.clock import monotonic_seconds
from tablestone.engines.contract import EngineBusy, EngineRefused, EngineUnavailable, StorageId
from tablestone.engines.figures import Distribution
from tablestone.engines.postgresql.checks import Examination, examine, require_storage
from tablestone.engines.postgresql.kind import REQUEST
from tablestone.engines.request_time import left

if TYPE_CHECKING:
    from tablestone.engines.postgresql.address import DatabaseAddress

log = logging.getLogger(__name__)

CONNECT_SECONDS_MAX: Final = 5.0
HEAD_START_SECONDS: Final = 0.5
"""Of a host, before the next one is asked too: one whose machine is gone does not even refuse."""
ROLLBACK_SECONDS_MAX: Final = 1.0
STATEMENT_SECONDS_MAX: Final = 30.0
"""Longer than a request may wait for storage."""
SETTINGS: Final = {
    "application_name": "tablestone",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    # What is acknowledged is on the disk, and on the synchronous standbys.
    "synchronous_commit": "on",
    # The warning that a commit did not wait for its standby has to come.
    "client_min_messages": "warning",
    "statement_timeout": f"{STATEMENT_SECONDS_MAX:.0f}s",
    "lock_timeout": f"{STATEMENT_SECONDS_MAX / 3:.0f}s",
    "idle_in_transaction_session_timeout": f"{STATEMENT_SECONDS_MAX:.0f}s",
    "idle_session_timeout": "0",
    # Every statement goes by the primary key. Statistics of a table that was empty must not choose another way.
    "enable_indexscan": "on",
    "enable_indexonlyscan": "on",
    "enable_nestloop": "on",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
"""Of each session, whatever the role and the database say."""

DRIVER_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    EOFError,
    TimeoutError,
)
"""All that the driver raises."""
LOST: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # a primary that has become a standby
    OSError,
    EOFError,
)
"""Errors after which the connections to that server are of no use: others may be."""
FULL: Final = (asyncpg.DiskFullError, asyncpg.OutOfMemoryError)
BUSY: Final = (
    asyncpg.QueryCanceledError,
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InsufficientResourcesError,
    TimeoutError,
)


def in_our_words(error: BaseException, hosts: str = "it") -> EngineUnavailable:
    """Nothing was applied: why not."""
    said = what_it_says(error, hosts)
    if isinstance(error, FULL):
        return EngineUnavailable(f"PostgreSQL has no room: {said}.")
    if isinstance(error, (*LOST, *BUSY)):
        return EngineBusy(f"PostgreSQL does not answer now: {said}.")
    return EngineUnavailable(f"PostgreSQL refused: {said}.")


def what_it_says(error: BaseException, hosts: str = "it") -> str:
    """Without the full stop."""
    if isinstance(error, asyncpg.exceptions.TargetServerAttributeNotMatched):
        return "it is a standby, and only a primary is used"
    if isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error):
        return (
            "a pooler such as PgBouncer is between, which refuses settings: name PostgreSQL itself"
        )
    if isinstance(error, asyncpg.InvalidPasswordError):
        return (
            f"{error} (the password is PGPASSWORD or, without that, in the file of passfile=FILE, PGPASSFILE or "
            "~/.pgpass)"
        )
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return f"{error} (`tablestone postgresql init --grant-to ROLE` gives a role what it needs)"
    if isinstance(error, TimeoutError):
        return f"{hosts} does not answer in time"
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Around a statement on a connection that is held for several."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise in_our_words(error) from error


class Connection:
    """A connection of the driver, with the session of its commits (`schema.STATEMENTS`)."""

    def __init__(self, driver: asyncpg.Connection[Any], request_seconds: Distribution) -> None:
        self.driver = driver
        self.request_seconds = request_seconds
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
        began, seconds = monotonic_seconds(), left()
        rows: list[asyncpg.Record] = await self.driver.fetch(
            statement, *values, timeout=None if seconds == inf else max(seconds, 0.001)
        )
        self.request_seconds.add(monotonic_seconds() - began)
        return rows


class Connections:
    """At most so many connections, the last used first. They belong to one event loop."""

    def __init__(
        self,
        address: DatabaseAddress,
        count: int,
        storage: StorageId,
        note: Callable[[Examination], None],
        *,
        writes: bool,
        is_alone: bool = False,
    ) -> None:
        """`note` gets what each new connection finds. `is_alone`: no server is, or may be, connected."""
        self._address = address
        self._storage = storage
        self._note = note
        self._writes = writes
        self._is_alone = is_alone
        self._free = asyncio.Semaphore(count)
        self._idle: list[Connection] = []
        self._is_closed = False
        self.wait_seconds = 0.0
        self.connects = 0
        self.request_seconds = Distribution(REQUEST.bounds)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Connection]:
        """A connection that nobody else uses meanwhile; `EngineBusy` if none is free in the request's time."""
        await self._wait()
        connection: Connection | None = None
        is_idle = False
        try:
            connection = self._take() or await self._connect()
            yield connection
            is_idle = True
        except DRIVER_ERRORS as error:
            if isinstance(error, LOST):
                self._forget_idle()
            # After any other error that PostgreSQL answers, the connection is as before.
            is_idle = isinstance(error, asyncpg.PostgresError)
            hosts = self._address.netloc.rpartition("@")[2]
            raise in_our_words(error, hosts) from error
        finally:
            # Without an answer, or if the caller was cancelled, the driver is still in the middle of a call.
            if connection is not None:
                self._put_back(connection, is_idle=is_idle)
            self._free.release()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection whose reads all see the moment of the first one."""
        async with self.one() as connection:
            await connection.fetch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield connection
            # What was read is right, whatever becomes of this: `_put_back` keeps no connection in a transaction.
            with contextlib.suppress(*DRIVER_ERRORS):
                async with asyncio.timeout(ROLLBACK_SECONDS_MAX):
                    await connection.driver.execute("ROLLBACK")

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[Connection]:
        """A new connection beside the others, closed at the end; raises what the driver raises, or `EngineRefused`."""
        driver = await connect(self._address, writes=self._writes)
        connection = Connection(driver, self.request_seconds)
        try:
            await require_storage(connection.driver, self._address, self._storage, is_alone=True)
            yield connection
        finally:
            connection.driver.terminate()

    async def _wait(self) -> None:
        seconds = left()
        if seconds <= 0:
            raise EngineBusy("Storage does not answer in the time of a request.")
        if not self._free.locked():
            await self._free.acquire()  # at once
            return
        began = monotonic_seconds()
        try:
            async with asyncio.timeout(None if seconds == inf else seconds):
                await self._free.acquire()
        except TimeoutError as error:
            raise EngineBusy("All connections to PostgreSQL are in use.") from error
        finally:
            self.wait_seconds += monotonic_seconds() - began

    def _take(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.driver.is_closed():
                return connection
        return None

    def _put_back(self, connection: Connection, *, is_idle: bool) -> None:
        driver = connection.driver
        if self._is_closed or not is_idle or driver.is_closed() or driver.is_in_transaction():
            driver.terminate()
        else:
            self._idle.append(connection)

    async def _connect(self) -> Connection:
        seconds = max(min(left(), CONNECT_SECONDS_MAX), 0.001)
        driver = await connect(self._address, writes=self._writes, seconds=seconds)
        self.connects += 1
        try:
            async with asyncio.timeout(seconds):
                # Behind the name of a host, there may be another database by now.
                self._note(await examine(driver, self._address, seconds))
                await require_storage(driver, self._address, self._storage, is_alone=self._is_alone)
        except BaseException as error:
            driver.terminate()
            if isinstance(error, EngineRefused):
                raise EngineUnavailable(str(error)) from error
            raise
        return Connection(driver, self.request_seconds)

    async def examine(self) -> None:
        async with self.one() as connection:
            self._note(await examine(connection.driver, self._address, CONNECT_SECONDS_MAX))

    def _forget_idle(self) -> None:
        """The others were made to the same server: they would each fail once."""
        for connection in self._idle:
            connection.driver.terminate()
        self._idle.clear()

    async def close(self) -> None:
        self._is_closed = True
        for connection in self._idle:
            with contextlib.suppress(*DRIVER_ERRORS):
                await connection.driver.close(timeout=CONNECT_SECONDS_MAX)
        self._idle.clear()


async def connect(
    address: DatabaseAddress, *, writes: bool, seconds: float = CONNECT_SECONDS_MAX
) -> asyncpg.Connection[Any]:
    """A connection of the driver, to the first host that is the primary; raises what the driver raises.

    The driver itself asks the next host only after an answer: it would wait for a machine that is gone.
    """
    settings = SETTINGS | {
        "search_path": f'"{address.schema}"',
        "default_transaction_read_only": "off" if writes else "on",
    }
    dsns, until = address.dsns(writes=writes), monotonic_seconds() + seconds
    attempts: list[asyncio.Task[asyncpg.Connection[Any]]] = []
    errors: list[BaseException] = []
    try:
        while dsns or attempts:
            if dsns:
                timeout = max(until - monotonic_seconds(), 0.001)
                attempts.append(asyncio.create_task(_asked(dsns.pop(0), timeout, settings)))
            wait = HEAD_START_SECONDS if dsns else None
            await asyncio.wait(attempts, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            for attempt in [attempt for attempt in attempts if attempt.done()]:
                attempts.remove(attempt)
                error = attempt.exception()
                if error is None:
                    return attempt.result()
                errors.append(error)
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(_give_up)
    raise min(errors, key=_how_little_it_says)


async def _asked(dsn: str, seconds: float, settings: dict[str, str]) -> asyncpg.Connection[Any]:
    try:
        return await asyncpg.connect(dsn, timeout=seconds, server_settings=settings)
    except OSError as error:  # of the time, too
        host = urlsplit(dsn).netloc.rpartition("@")[2]
        port = "" if re.search(":[0-9]+$", host) else f":{os.environ.get('PGPORT', '5432')}"
        raise ConnectionError(f"there is no connection to {host}{port} ({_why(error)})") from error
    except (ValueError, OverflowError) as error:  # of `int`, of the name's encoding, of the socket
        if isinstance(error, DRIVER_ERRORS):
            raise
        raise asyncpg.InterfaceError(f"no such host or port ({error})") from error


def _give_up(attempt: asyncio.Task[asyncpg.Connection[Any]]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().terminate()


def _how_little_it_says(error: BaseException) -> tuple[bool, bool]:
    """What a standby says least: it is one. Then that of a host which was not reached."""
    is_standby = isinstance(error, asyncpg.exceptions.TargetServerAttributeNotMatched)
    return is_standby, isinstance(error, OSError)


def _why(error: OSError) -> str:
    """In words; a name with several addresses has an error of each, in one text."""
    if isinstance(error, TimeoutError):
        return what_it_says(error)
    numbers = re.findall(r"\[Errno ([0-9]+)\]", str(error))
    words = dict.fromkeys(os.strerror(int(number)) for number in numbers)
    return ", ".join(words) or error.strerror or str(error)
