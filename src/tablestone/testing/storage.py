"""A table service in this process: a thread with an event loop, a free port on the loopback address, real HTTP.

Any thread or coroutine may call the methods of a `TableStorage`. Most take far less than a millisecond on the storage's
own loop, and none needs the loop of the caller.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import orjson
import uvloop

from tablestone.configuration import (
    DEVELOPMENT_ACCOUNT_KEY,
    DEVELOPMENT_ACCOUNT_NAME,
    Configuration,
)
from tablestone.engines.change_record import Retention
from tablestone.engines.kind import EngineUrl
from tablestone.model.errors import StorageError
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.operations import ChangesFound, ChangesSince, Since
from tablestone.server.http_server import HttpServer
from tablestone.server.start import base_address, listen
from tablestone.testing.clock import StorageClock
from tablestone.testing.expectations import Budget, Expectation
from tablestone.testing.faults import Faults
from tablestone.testing.realism import Secondary
from tablestone.testing.recorded_requests import LastRequests, RecordedRequest
from tablestone.testing.state import Dump, Seed, Snapshot, StorageRefused, read_seed
from tablestone.testing.storage_service import StorageService
from tablestone.wire.changes import lines_of
from tablestone.wire.versions import UnknownVersions


@dataclass(frozen=True, slots=True)
class StorageAccount:
    name: str
    key: str = field(repr=False)
    endpoint: str

    @property
    def connection_string(self) -> str:
        """The connection string, for the SDK of any language."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={self.name};AccountKey={self.key};"
            f"TableEndpoint={self.endpoint};"
        )


Value = TypeVar("Value")

HOST: Final = "127.0.0.1"
CHANGE_POLL_SECONDS: Final = 0.01
CALL_SECONDS_MAX: Final = 60
"""How long a call waits for the thread of the storage."""
PORT_MAX: Final = 65_535
ENGINES: Final = ("memory", "sqlite")
"""The engines with a name. Others have a URL, as for `tablestone serve --engine`."""


class TableStorage:
    """A table service for tests. Use it inside `with` or `async with`, or call `start` and `close`.

    `engine` is `memory`, `sqlite` (in a directory that `close` removes) or the URL of an engine. The storage has the
    development account, whose key every SDK knows, and the accounts that `create_account` makes. With `realism`, the
    name of a deleted table stays taken for 40 seconds of the clock, pages end at the boundaries of partition ranges,
    even without an entity, and the secondary is 60 seconds behind. `any_version` and `query_extensions` are options of
    `tablestone serve`. `changes()` needs `keep_changes`.
    """

    def __init__(
        self,
        *,
        engine: str = "memory",
        port: int = 0,
        realism: bool = False,
        any_version: str = UnknownVersions.LATER.value,
        keep_changes: bool = False,
        query_extensions: bool = False,
    ) -> None:
        _require_possible(engine, port, any_version)
        self._engine_name = engine
        self._directory: Path | None = None
        self._thread: _ServingThread | None = None
        self._requests = LastRequests()
        self._configuration = Configuration(
            HOST, port, None, engine, (), "error",
            has_development_account=True,
            realism=realism,
            any_version=UnknownVersions(any_version),
            keep_changes=Retention(None, None) if keep_changes else None,
            remote_indexes=True,
            query_extensions=query_extensions,
        )  # fmt: skip
        self.clock = StorageClock()
        self.faults = Faults(self.clock, realism=realism)

    def start(self) -> Self:
        """Start serving. Raises `StartRefused` if the port or the engine is not available."""
        if self._thread is not None:
            raise StorageRefused("This storage has been started already.")
        configuration = replace(self._configuration, engine=self._engine_url())
        service = StorageService(configuration, self.clock, self._requests, self.faults)
        try:
            self._thread = _ServingThread(configuration, service)
        except BaseException:
            self._remove_directory()
            raise
        atexit.register(self.close)
        return self

    def close(self) -> None:
        """Stop, end the thread and drop all data. A second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        atexit.unregister(self.close)
        thread.stop()
        self._remove_directory()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    @property
    def address(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return self._running.address

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def account(self) -> StorageAccount:
        """`devstoreaccount1` with its public key."""
        return self._account(DEVELOPMENT_ACCOUNT_NAME, DEVELOPMENT_ACCOUNT_KEY)

    @property
    def endpoint(self) -> str:
        """The table endpoint of the development account."""
        return self.account.endpoint

    @property
    def connection_string(self) -> str:
        """The connection string of the development account."""
        return self.account.connection_string

    @property
    def secondary(self) -> Secondary:
        """`freeze()` keeps its state, `follow(60)` puts it 60 seconds behind; `faults.clear()` restores the usual."""
        return self.faults.secondary

    def expect(
        self,
        *,
        scans: int | None = None,
        requests: int | None = None,
        rows_read: int | None = None,
        read_ratio: float | None = None,
        account: StorageAccount | str | None = None,
    ) -> Expectation:
        """A `with` block that raises `TooExpensive` if the code in it exceeds these limits (see `Budget`)."""
        name = None if account is None else _name_of(account)
        return Expectation(self._requests, Budget(scans, requests, rows_read, read_ratio, name))

    @property
    def requests(self) -> list[RecordedRequest]:
        """The last thousand requests, the oldest first."""
        return self._requests.since(0)

    def reset(self, account: StorageAccount | str | None = None, table: str | None = None) -> None:
        """Delete the tables and service properties of all accounts, or of one; with `table`, the entities of one table.

        Accounts stay, with their keys. Without `account`, the `table` is one of the development account.
        """
        name = None if account is None and table is None else _name_of(account)
        self._call(lambda service: service.state.reset(name, table))

    def snapshot(self) -> Snapshot:
        """A copy of the present state, for `restore`: in milliseconds, but only with the memory engine."""
        return self._call(lambda service: service.state.snapshot())

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot: its accounts, tables, policies, and entities with the same ETags and Timestamps."""
        self._call(lambda service: service.state.restore(snapshot))

    def seed(
        self, seed: Seed, *, table: str | None = None, account: StorageAccount | str | None = None
    ) -> int:
        """Store entities and return their number. If one is wrong, store none and raise `SeedRefused`.

        A seed is a dict of entities by table, a file (`orders.jsonl`, `orders.csv`) that is named after its table
        unless `table` is given, or a directory of such files. Existing entities are replaced, and tables without
        entities created too.
        """
        rows, tables = read_seed(seed, table)
        return self._call(lambda service: service.state.seed(_name_of(account), rows, tables))

    def dump(self, account: StorageAccount | str | None = None) -> Dump:
        """All entities of an account by table, as the service's JSON without ETags and Timestamps. It can be a seed."""
        return self._call(lambda service: service.state.dump(_name_of(account)))

    def set_expiry(
        self,
        table: str,
        *,
        after: timedelta | None = None,
        property: str | None = None,  # noqa: A002 - as the command has it
        account: StorageAccount | str | None = None,
    ) -> None:
        """Let entities expire `after` their Timestamp, or at the time in a `property`; with neither, no longer."""
        if after is not None and not isinstance(after, timedelta):
            raise TypeError(f"after is a timedelta, such as timedelta(hours=24), not {after!r}.")
        if not isinstance(property, str | None):
            raise TypeError(f"property is the name of a property, not {property!r}.")
        seconds = None if after is None else int(after.total_seconds())
        policy = None if seconds is None and property is None else ExpiryPolicy(seconds, property)
        if policy is not None and not policy.is_valid:
            raise StorageRefused(
                "Give one of both: an age of a second or more, or the name of a property."
            )
        self._call(lambda service: service.state.set_expiry(_name_of(account), table, policy))

    def changes(self, account: StorageAccount | str | None = None) -> StorageChanges:
        """What is written to the tables of an account from now on. The storage must be made with `keep_changes`."""
        return StorageChanges(self, _name_of(account))

    @property
    def requests_count(self) -> int:
        """How many requests there have been, not only those that are kept."""
        return self._requests.count

    def requests_since(self, count: int) -> list[RecordedRequest]:
        """The requests after the first `count` that are still kept."""
        return self._requests.since(count)

    def create_account(self, name: str | None = None) -> StorageAccount:
        """Create an account without tables. Without `name`, it gets one that no other account of this storage has."""
        return self._account(*self._call(lambda service: service.state.create_account(name)))

    def delete_account(self, name: str) -> None:
        """Delete an account that `create_account` made, and its tables. Raises `StorageRefused` if there is none."""
        self._call(lambda service: service.state.delete_account(name))

    def delete_table(self, table: str, account: StorageAccount | str | None = None) -> None:
        """Delete a table, if it exists, without a request: no fault acts on it, and its name is free at once."""
        self._call(lambda service: service.state.delete_table(_name_of(account), table))

    def create_index(
        self,
        table: str,
        name: str,
        *,
        partition: bool = False,
        account: StorageAccount | str | None = None,
    ) -> None:
        """Make an index on a property, without a request: a query that it serves reads less, and answers the same.

        With `partition`, it serves queries of one partition only. Azure has no indexes.
        """
        of = _name_of(account)
        self._call(lambda service: service.state.create_index(of, table, name, partition=partition))

    def drop_index(
        self, table: str, name: str, *, account: StorageAccount | str | None = None
    ) -> None:
        self._call(lambda service: service.state.drop_index(_name_of(account), table, name))

    def begin(self, ask: Callable[[StorageService], Coroutine[Any, Any, Value]]) -> Future[Value]:
        """Start `ask` on the loop of the storage. Any other thread may wait for the future."""
        thread = self._running
        return asyncio.run_coroutine_threadsafe(ask(thread.service), thread.loop)

    def _account(self, name: str, key: str) -> StorageAccount:
        return StorageAccount(name, key, f"{self.address}/{name}")

    @property
    def _running(self) -> _ServingThread:
        if self._thread is None:
            raise StorageRefused("This storage is not running: start it, or use it inside `with`.")
        return self._thread

    def _call(self, ask: Callable[[StorageService], Coroutine[Any, Any, Value]]) -> Value:
        """Run `ask` on the loop of the storage, and return its result."""
        return self.begin(ask).result(CALL_SECONDS_MAX)

    def _engine_url(self) -> str:
        if self._engine_name not in ENGINES:
            return self._engine_name
        if self._engine_name == "sqlite":
            self._directory = Path(tempfile.mkdtemp(prefix="tablestone-"))
        return str(EngineUrl(self._engine_name, str(self._directory or "")))

    def _remove_directory(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


class StorageChanges:
    """The changes of an account since this object was made: dicts, as the lines of the feed of changes.

    `for` ends after the last change so far, and a later `for` goes on from there; `async for` waits for more. Both end
    when the storage is restored or the account is deleted.
    """

    def __init__(self, storage: TableStorage, account: str) -> None:
        self._storage = storage
        self._account = account
        self._lines: deque[dict[str, Any]] = deque()
        self._cursor: ChangesSince = Since.NOW
        self._cursor = storage.begin(self._next).result(CALL_SECONDS_MAX).cursor

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while self._lines or self._storage.begin(self._read).result(CALL_SECONDS_MAX):
            yield self._lines.popleft()

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        while True:
            if self._lines:
                yield self._lines.popleft()
            elif (found := await asyncio.wrap_future(self._storage.begin(self._read))) is None:
                return
            elif not found:
                await asyncio.sleep(CHANGE_POLL_SECONDS)

    async def _next(self, service: StorageService) -> ChangesFound:
        return await service.state.changes(self._account, self._cursor)

    async def _read(self, service: StorageService) -> bool | None:
        """Read more, and return whether there is any; None if there never will be."""
        has_more = True
        while has_more and not self._lines:
            try:
                found = await self._next(service)
            except (StorageError, StorageRefused):
                return None
            self._lines += map(orjson.loads, lines_of(found))
            self._cursor = found.cursor
            has_more = found.has_more
        return bool(self._lines)


def _name_of(account: StorageAccount | str | None) -> str:
    if account is None:
        return DEVELOPMENT_ACCOUNT_NAME
    return account if isinstance(account, str) else account.name


def _require_possible(engine: Any, port: Any, any_version: Any) -> None:
    if not isinstance(engine, str) or (engine not in ENGINES and ":" not in engine):
        raise StorageRefused(f"There is no engine {engine!r}: use memory, sqlite or a URL.")
    if not isinstance(port, int) or not 0 <= port <= PORT_MAX:
        raise StorageRefused(f"A port is a number from 0 to {PORT_MAX}, not {port!r}.")
    if any_version not in {form.value for form in UnknownVersions}:
        raise StorageRefused(f"any_version is 'later', 'true' or 'false', not {any_version!r}.")


class _ServingThread:
    """A server without signal handlers on a thread of its own: a daemon, so the process can end while it is open."""

    def __init__(self, configuration: Configuration, service: StorageService) -> None:
        self.service = service
        self._configuration = configuration
        self._listener = listen(configuration.host, configuration.port)
        self.address = base_address(self._listener)
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="tablestone", daemon=True)
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        """Finish the requests under way, and end the thread."""
        self.loop.call_soon_threadsafe(self._server.stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 - for the thread that starts it
            self._listener.close()
            if not self._started.done():
                self._started.set_exception(failure)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            await self.service.startup()
            self._server = HttpServer(
                self._configuration,
                self.service,
                self._listener,
                lambda: self._started.set_result(None),
            )
            self.service.set_date = self._server.set_date
            self.service.count_connections(
                self._server.connections, self._server.accepted, self._server.admission
            )
            await self._server.serve()
        finally:
            await self.service.shutdown()
