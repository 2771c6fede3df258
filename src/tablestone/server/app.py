"""The application: everything put together, and ASGI on the outside.

Turns an ASGI call into a `RawRequest` and a `RawResponse` into ASGI messages, and keeps the sweep of deleted tables
going. What a request means stands in `pipeline`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from tablestone import limits
from tablestone.clock import monotonic_seconds, system_clock
from tablestone.engines.contract import Engine, EngineUnavailable
from tablestone.engines.registry import open_engine
from tablestone.errors import StorageError
from tablestone.server.accounts import KnownAccounts
from tablestone.server.addresses import Addresses
from tablestone.server.body import (
    Message,
    Patience,
    Receive,
    RequestBody,
    is_worth_discarding,
)
from tablestone.server.configuration import DEVELOPMENT_ACCOUNT, Configuration, Place
from tablestone.server.identities import Identities
from tablestone.server.logged import loggable_path
from tablestone.server.pipeline import Pipeline
from tablestone.tables.catalog import Catalog
from tablestone.tables.documents import Documents
from tablestone.tables.keys import TABLE_ID_LENGTH
from tablestone.tables.service import TableService
from tablestone.wire.messages import RawRequest, RawResponse, single_headers

log = logging.getLogger(__name__)

Send = Callable[[Message], Awaitable[None]]

_LENGTHLESS = frozenset((204, 304))
"""Statuses without a body, whose Content-Length, if any, is the answer's own."""

SWEEP_PAUSE_SECONDS = 1.0
"""How long the sweeper rests when no deleted table has rows left."""


class Application:
    """The ASGI application of one process. `startup` before the first request, `shutdown` after the last."""

    def __init__(self, configuration: Configuration, place: Place) -> None:
        self._configuration = configuration
        self._place = place
        self._engine: Engine | None = None
        self._pipeline: Pipeline | None = None
        self._patience = Patience()
        self._background: list[asyncio.Task[None]] = []

    async def startup(self) -> None:
        """Open the engine; raises `EngineRefused` with one sentence if it cannot be."""
        configuration = self._configuration
        self._engine = open_engine(
            configuration.engine,
            system_clock,
            shared=self._place.workers > 1,
            storage=self._place.storage,
        )
        service = TableService(
            self._engine,
            system_clock,
            monotonic_seconds,
            lambda: secrets.token_bytes(TABLE_ID_LENGTH),
            table_deletion_seconds=configuration.table_deletion_seconds,
        )
        documents = Documents(self._engine)
        identities = Identities(
            documents, configuration.tokens, monotonic_seconds, tells=self._place.worker == 0
        )
        accounts = KnownAccounts(
            configuration.accounts,
            documents,
            (DEVELOPMENT_ACCOUNT,) if configuration.has_development_account else (),
            service.catalog.tenures,
        )
        addresses = Addresses(accounts, configuration.domains, dict(configuration.custom_domains))
        self._pipeline = Pipeline(
            service,
            addresses,
            identities,
            system_clock,
            https_only=configuration.https_only,
        )
        self._background = [
            asyncio.create_task(self._patience.watch()),
            asyncio.create_task(identities.watch()),
            asyncio.create_task(self._engine.watch(tells=self._place.worker == 0)),
        ]
        if self._place.worker == 0:  # one sweeper is enough, and two would be in each other's way
            self._background.append(asyncio.create_task(self._sweep(service.catalog)))

    async def shutdown(self) -> None:
        """Stop sweeping, finish what was accepted, release the data."""
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        if self._engine is not None:
            await self._engine.close()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        assert self._pipeline is not None
        headers = scope["headers"]
        duplicated: StorageError | None = None
        try:
            by_name = single_headers(headers)
        except StorageError as error:
            by_name, duplicated = dict(headers), error
        if len(b"".join(by_name)) + len(b"".join(by_name.values())) > limits.HEADERS_BYTES_MAX:
            await _refuse(431, send)
            return
        request = request_of(scope, by_name, duplicated)
        body = RequestBody(receive, by_name, self._patience)
        response = await self._pipeline.answer(request, body.read)
        if log.isEnabledFor(logging.INFO):
            _log_request(request, response)
        if not body.is_read and is_worth_discarding(by_name):
            await body.discard()
        if response.status not in _LENGTHLESS:
            response.headers.append((b"content-length", b"%d" % len(response.body)))
        await send(
            {"type": "http.response.start", "status": response.status, "headers": response.headers}
        )
        await send({"type": "http.response.body", "body": response.body})

    async def refuse(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request that comes when there are too many: that is said, and its connection ends."""
        assert self._pipeline is not None
        headers = dict(scope["headers"])
        response = self._pipeline.refusal(headers)
        if is_worth_discarding(headers):
            await RequestBody(receive, headers, self._patience).discard()
        length = b"%d" % len(response.body)
        response.headers += ((b"content-length", length), (b"connection", b"close"))
        await send(
            {"type": "http.response.start", "status": response.status, "headers": response.headers}
        )
        await send({"type": "http.response.body", "body": response.body})

    async def _sweep(self, catalog: Catalog) -> None:
        """Remove what deleted tables left, a little at a time, for as long as the server lives."""
        while True:
            busy = False
            try:
                async for name in catalog.accounts_to_sweep():
                    busy = await catalog.sweep(name) or busy
                    await asyncio.sleep(0)  # there may be many accounts: others get their turn
            except EngineUnavailable as error:
                log.warning("sweeping deleted tables waits: %s", error)
            except Exception:
                log.exception("sweeping deleted tables failed")
            await asyncio.sleep(0 if busy else SWEEP_PAUSE_SECONDS)


def request_of(
    scope: Message, headers: dict[bytes, bytes], duplicated: StorageError | None
) -> RawRequest:
    """What the steps of a request see of an ASGI call."""
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
    """Who sent a request, or for whom a trusted proxy did; IPv4 as such also on a socket for both families."""
    return client[0].removeprefix("::ffff:") if client else ""


def _log_request(request: RawRequest, response: RawResponse) -> None:
    """One line a request. The query string stays out of the log: it may hold a signature."""
    answered = dict(response.headers)
    log.info(
        "%s %s -> %d %s",
        request.method,
        loggable_path(request.raw_path),
        response.status,
        answered.get(b"x-ms-request-id", b"").decode("ascii"),
    )


async def _refuse(status: int, send: Send) -> None:
    """A plain HTTP refusal, for a request that is not even looked at; its connection ends."""
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def create_application(configuration: Configuration, place: Place) -> Application:
    """The application of this process of a server that is told this."""
    return Application(configuration, place)
