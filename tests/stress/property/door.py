"""A server's entrance, in this process: it takes requests as signed bytes, and returns the server's answers.

Each `Door` is a whole server above the socket, on its own engine and a clock that the test moves.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest.mock import AsyncMock, patch

from signing import shared_key
from storage.engines_under_test import engine_for
from storage.replica import differences, replayed, stored_rows
from stress.property.model import Refused
from stress.property.payloads import ACCOUNT, Request
from stress.simulation.simulated_loop import SimulatedLoop
from tablestone.accounts.identities import Identities
from tablestone.accounts.known_accounts import KnownAccounts
from tablestone.accounts.stored_accounts import AccountRefused, StoredAccounts
from tablestone.clock import TICKS_PER_SECOND
from tablestone.configuration import AccountKeys, TokenRules
from tablestone.engines.change_record import Retention
from tablestone.engines.contract import Engine
from tablestone.model.errors import StorageError
from tablestone.model.expiry import ExpiryPolicy
from tablestone.server.requests.account_address import Addresses
from tablestone.server.requests.pipeline import Pipeline
from tablestone.tables import catalog
from tablestone.tables.account_incarnation import Named
from tablestone.tables.expiry_sweeping import ExpirySweeper
from tablestone.tables.index_building import IndexRefused, IndexWork
from tablestone.tables.integrity import check_rows
from tablestone.tables.metadata import Documents
from tablestone.tables.service import TableService
from tablestone.tables.sweeping import Sweeper
from tablestone.telemetry.request_record import RequestRecord
from tablestone.wire.messages import RawRequest
from wire.service_under_test import KEY, Clock, Headers, default_headers

ETAG_OF_PART = re.compile(rb"^ETag: (.*?)\r?$", re.MULTILINE)
STATUS_OF_PART = re.compile(rb"^HTTP/1\.1 (\d{3}) ", re.MULTILINE)
SIMULATED = "simulated cluster"
INDEX = re.compile(r"(\d+):")
MakeService = Callable[..., TableService]


@dataclass(frozen=True)
class Answer:
    """An answer. Header names are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def require(self, *statuses: int) -> Answer:
        """This answer if it is a success with one of these statuses; raises `Refused` for the service's error."""
        if self.status in statuses:
            return self
        assert self.status >= 400, f"status {self.status}"
        if (code := self.headers.get("x-ms-error-code")) is not None:
            raise Refused(code)
        raise refusal(self.body)


def refusal(body: bytes) -> Refused:
    """The error in a body, with the index before its text, 0 without one (wire 7.3)."""
    error: dict[str, Any] = json.loads(body)["odata.error"]
    index = INDEX.match(error["message"]["value"])
    return Refused(error["code"], 0 if index is None else int(index[1]))


def batch_etags(answer: Answer) -> list[str | None]:
    """The ETag of each operation of a transaction; raises `Refused` for the one that failed."""
    parts = answer.require(202).body.split(b"--changesetresponse_")[1:-1]
    statuses = [int(found[1]) for part in parts if (found := STATUS_OF_PART.search(part))]
    if statuses[0] >= 400:
        assert len(parts) == 1, "a failed change set has one part (wire 7.3)"
        error = refusal(parts[0][parts[0].index(b'{"odata.error"') :].splitlines()[0])
        raise error
    assert set(statuses) <= {201, 204}
    found_etags = [ETAG_OF_PART.search(part) for part in parts]
    return [None if found is None else found[1].decode() for found in found_etags]


class Door:
    """One server. `close` reports what its storage must not hold."""

    def __init__(self, engine: str, make_service: MakeService = TableService) -> None:
        self.clock = Clock()
        self._directory = tempfile.mkdtemp()
        self._ends = ExitStack()
        """The patches that end with the server."""
        self._loop = asyncio.Runner(loop_factory=SimulatedLoop if engine == SIMULATED else None)
        self._offset = 0
        self.engine = self._opened(engine)
        if self.engine.changes is not None:
            self._loop.run(self.engine.changes.keep(Retention(None, None)))
        ids = iter(range(1, 1 << 32))
        self.service = make_service(
            self.engine, self.ticks, lambda: 0.0, lambda: next(ids).to_bytes(8, "big")
        )
        documents = Documents(self.engine)
        identities = Identities(documents, TokenRules(), lambda: 0.0)
        accounts = KnownAccounts(
            [AccountKeys(ACCOUNT, (KEY,))], documents, self.service.catalog.incarnations
        )
        self._expiry = ExpirySweeper(
            self.engine, self.service.catalog, accounts.find, self.ticks, lambda: 0.0, "a server"
        )
        self._stored_accounts = StoredAccounts(self.engine, self.ticks)
        self._pipeline = Pipeline(
            *(self.service, Addresses(accounts), identities, self.ticks), query_extensions=True
        )

    def _opened(self, engine: str) -> Engine:
        if engine == SIMULATED:
            from stress.property import simulated_engine  # noqa: PLC0415 - needs the driver

            self._ends.enter_context(simulated_engine.simulated_time())
            return self._loop.run(simulated_engine.open_simulated(self.ticks, Random(0)))
        return self._loop.run(_open(engine, self.ticks, self._directory))

    def ticks(self) -> int:
        """The server's time, a little off the date in the requests."""
        return self.clock.ticks() + self._offset

    def move_clock(self, ticks: int) -> None:
        """Forward or back."""
        self._offset += ticks

    def administer(self, act: Callable[[StoredAccounts], Awaitable[object]]) -> bool:
        """Whether a change of the stored accounts, as `tablestone account` makes it, succeeded."""

        async def acting() -> None:
            await act(self._stored_accounts)

        try:
            self._loop.run(acting())
        except AccountRefused:
            return False
        return True

    def change_index(self, account: str, table: str, name: str, change: int) -> None:
        """Make an index over all partitions or within each, drop it, or check it; nothing if that is refused."""
        if not self.engine.capabilities.keeps_entries:
            return
        index = IndexWork(self.service.catalog, Named(account), table, name)

        async def acting() -> None:
            if change == 2:
                await index.drop()
            elif change == 3:
                checked = await index.check()
                assert checked[1:] == (0, 0)
            else:
                await index.create(within_partition=change == 1)

        with suppress(IndexRefused, StorageError):
            self._loop.run(acting())

    def change_expiry(
        self, account: str, table: str, policy: ExpiryPolicy | None
    ) -> tuple[str, int] | None:
        """Replace the policy of a table; the error if that fails."""
        changing = self.service.catalog.change_expiry(Named(account), table, lambda _old: policy)
        try:
            with patch.object(catalog, "outlast", AsyncMock()):  # nothing is swept meanwhile
                self._loop.run(changing)
        except StorageError as error:
            return error.code, 0
        return None

    def sweep_expired(self) -> None:
        """Remove all that has expired by now."""

        async def sweep() -> None:
            async for _ in self._expiry.steps(0):
                pass

        self._loop.run(sweep())

    def close(self) -> list[str]:
        """Sweep, check everything that is stored, and release it."""
        found = self._loop.run(self._check())
        self.release()
        return found

    def release(self) -> None:
        """The same without the check."""
        self._loop.run(self.engine.close())
        self._loop.close()
        self._ends.close()
        shutil.rmtree(self._directory)

    async def _check(self) -> list[str]:
        found = await check_rows(self.engine)
        if self.engine.changes is not None and self.engine.leases is None:  # marks have no records
            found += differences(await stored_rows(self.engine), await replayed(self.engine))
        sweeper = Sweeper(self.engine, self.ticks, lambda: b"a server")
        while await sweeper.sweep(ACCOUNT):
            pass
        self._offset += 3600 * TICKS_PER_SECOND
        await sweeper.sweep(ACCOUNT)
        return found + await check_rows(self.engine) + await self.engine.check()

    def send(self, request: Request) -> Answer:
        return self.send_at_once([request])[0]

    def send_at_once(self, requests: Sequence[Request]) -> list[Answer]:
        """Send all of them, none waiting for another."""
        # Not `Runner.run`, which sets two signal handlers each time.
        return self._loop.get_loop().run_until_complete(self._gather(requests))

    async def _gather(self, requests: Sequence[Request]) -> list[Answer]:
        return await asyncio.gather(*map(self._answer, requests))

    async def _answer(self, request: Request) -> Answer:
        target = f"/{request.account}{request.path}"
        pairs = self._signed(request, target)
        by_name = {name.lower().encode(): value.encode("latin-1") for name, value in pairs}
        path, _, query = target.encode().partition(b"?")

        async def read_body(_bytes_max: int) -> bytes:
            return request.body

        raw = RawRequest(request.method, path, query, by_name)
        response = await self._pipeline.answer(raw, read_body, RequestRecord(0.0))
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }
        return Answer(response.status, headers, response.body)

    def _signed(self, request: Request, target: str) -> Headers:
        given = list(request.headers.items())
        own = [] if request.key is None else [("Authorization", "-")]
        method, date = request.method, self.clock.http_date()
        pairs = default_headers(method, target, date, [*given, *own], request.body)
        if not request.key:
            return pairs
        content_type = dict(pairs).get("Content-Type", "")
        signed = shared_key(
            request.account,
            request.key,
            method=method,
            target=target,
            date=date,
            content_type=content_type,
        )
        return [*pairs, ("Authorization", signed)]


async def _open(url: str, clock: Callable[[], int], directory: str) -> Engine:
    return engine_for(url, clock, directory=directory, one_of_many=True)
