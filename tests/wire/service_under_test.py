"""The service inside this process, without a socket: it takes requests as bytes and returns its responses.

It is the whole server above the socket, with an engine in memory and a clock that the test sets. The tests' own code
signs the requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import count

from signing import VERSION, shared_key
from storage.engines_under_test import URL, engine_for
from tablestone.accounts.identities import Identities
from tablestone.accounts.known_accounts import KnownAccounts
from tablestone.accounts.stored_accounts import StoredAccounts
from tablestone.auth.roles import Assignment, Assignments
from tablestone.clock import monotonic_seconds
from tablestone.configuration import (
    DEVELOPMENT_ACCOUNT_KEY,
    DEVELOPMENT_ACCOUNT_NAME,
    AccountKeys,
    TokenRules,
)
from tablestone.engines.contract import Engine
from tablestone.limits import OF_SERVICE, EntityLimits
from tablestone.model.errors import StorageError
from tablestone.server.requests.account_address import Addresses
from tablestone.server.requests.pipeline import Pipeline
from tablestone.tables.metadata import DocumentKind, Documents
from tablestone.tables.service import TableService
from tablestone.tables.table_work import TableWork
from tablestone.tables.throughput_targets import Throughput
from tablestone.telemetry.request_record import RequestRecord
from tablestone.wire.messages import RawRequest, single_headers
from tablestone.wire.versions import UnknownVersions

ACCOUNT = DEVELOPMENT_ACCOUNT_NAME
KEY = DEVELOPMENT_ACCOUNT_KEY
SECOND_KEY = "c2Vjb25kIGtleSBvZiB0aGUgZGV2ZWxvcG1lbnQgYWNjb3VudA=="
OTHER_ACCOUNT = "otheraccount"
OTHER_KEY = "dGhlIGtleSBvZiB0aGUgb3RoZXIgYWNjb3VudA=="
DOMAINS = ("Tables.Example",)
CUSTOM_DOMAINS = {
    "data.example": ACCOUNT,
    "data-secondary.example": f"{ACCOUNT}-secondary",
    "tables": OTHER_ACCOUNT,
    "gone.example": "nobody",
}
HOST = "127.0.0.1:10002"

Headers = Sequence[tuple[str, str]]

_TICKS_PER_MICROSECOND = 10


@dataclass
class Clock:
    """Stands still until it is set."""

    now: datetime = datetime(2017, 1, 5, 3, 25, 45, 588957, UTC)

    def ticks(self) -> int:
        since = self.now - datetime(1, 1, 1, tzinfo=UTC)
        return since // timedelta(microseconds=1) * _TICKS_PER_MICROSECOND

    def http_date(self) -> str:
        return format_datetime(self.now.replace(microsecond=0), usegmt=True)


@dataclass(frozen=True)
class Response:
    """An answer. Header names are lower-case; no header occurs twice."""

    status: int
    headers: dict[str, str]
    body: bytes


def default_headers(method: str, target: str, date: str, given: Headers, body: bytes) -> Headers:
    """The headers that every SDK sends, unless the test sets its own; a value of "-" leaves a header out."""
    names = {name.lower() for name, _ in given}
    headers = [(name, value) for name, value in given if value != "-"]
    defaults = {
        "Host": HOST,
        "x-ms-version": VERSION,
        "x-ms-date": date,
        "Accept": "application/json;odata=minimalmetadata",
    }
    if body:
        defaults["Content-Type"] = "application/json"
    headers += [(name, value) for name, value in defaults.items() if name.lower() not in names]
    if "authorization" not in names:
        sent = {name.lower(): value for name, value in headers}
        signed = shared_key(
            ACCOUNT,
            KEY,
            method=method,
            target=target,
            date=sent.get("x-ms-date", ""),
            content_type=sent.get("content-type", ""),
            content_md5=sent.get("content-md5", ""),
        )
        headers.append(("Authorization", signed))
    return headers


async def _fresh_engine(url: str, clock: Callable[[], int]) -> Engine:
    """An empty engine, opened on the loop that will use it."""
    return engine_for(url, clock, one_of_many=True)


class ServiceUnderTest:
    """A service with one account, empty at first or on another one's engine. Close it when done."""

    def __init__(
        self,
        other: ServiceUnderTest | None = None,
        tokens: TokenRules = TokenRules(),  # noqa: B008 - it is frozen
        scheme: str = "http",
        *,
        table_deletion_seconds: int = 0,
        reached: Callable[[Engine], Engine] = lambda engine: engine,
        unknown_versions: UnknownVersions = UnknownVersions.LATER,
        throughput: Throughput | None = None,
        remote_indexes: bool = False,
        query_extensions: bool = False,
        account: AccountKeys = AccountKeys(ACCOUNT, (KEY, SECOND_KEY)),  # noqa: B008 - as above
        acl_by_roles: bool = False,
        explorer_key: str | None = None,
        entity_limits: EntityLimits = OF_SERVICE,
        engine: str = URL or "memory",
    ) -> None:
        """On the engine that ENGINE_UNDER_TEST names; `reached` says how: at once, or over a network."""
        self.clock: Clock = Clock() if other is None else other.clock
        self.client, self.scheme, self.is_local = "127.0.0.1", scheme, False
        self.seconds = count(0, 0)  # the readings of the clock that never steps back
        self._is_first = other is None
        self._loop: asyncio.Runner = asyncio.Runner() if other is None else other._loop
        self.engine: Engine = (
            self._loop.run(_fresh_engine(engine, self.clock.ticks))
            if other is None
            else other.engine
        )
        ids = iter(range(1, 1 << 32))
        reached_engine = reached(self.engine)
        self.documents = Documents(reached_engine)
        service = TableService(
            reached_engine,
            self.clock.ticks,
            lambda: next(self.seconds),
            lambda: next(ids).to_bytes(8, "big"),
            table_deletion_seconds=table_deletion_seconds,
            throughput=throughput,
            may_change_format=remote_indexes,
            entity_limits=entity_limits,
        )
        self.tables = service
        accounts = KnownAccounts(
            [account, AccountKeys(OTHER_ACCOUNT, (OTHER_KEY,))],
            self.documents,
            service.catalog.incarnations,
        )
        identities = Identities(self.documents, tokens, monotonic_seconds)
        addresses = Addresses(accounts, DOMAINS, CUSTOM_DOMAINS)
        self._pipeline = Pipeline(
            *(service, addresses, identities, self.clock.ticks),
            remote_indexes=remote_indexes,
            query_extensions=query_extensions,
            acl_by_roles=acl_by_roles,
            explorer_key=explorer_key,
            unknown_versions=unknown_versions,
        )
        self._work = TableWork(reached_engine, service.catalog, service.counts, accounts.find)

    def close(self) -> None:
        if self._is_first:
            self._loop.run(self.engine.close())
            self._loop.close()

    def work(self) -> None:
        """Carry out what requests have asked for, as the worker that leads does."""
        self._loop.run(self._work.once())

    def assign(self, *assignments: Assignment) -> None:
        """Replace the roles assigned in the account with these."""
        members = Assignments(assignments).members()
        self._loop.run(self.documents.change(DocumentKind.ROLES, ACCOUNT, lambda _before: members))

    def store_account(self, name: str) -> None:
        """Store an account beside the tables; one of the same name is deleted first."""

        async def make() -> None:
            stored = StoredAccounts(self.engine, self.clock.ticks)
            if name in [account.name for account in await stored.all()]:
                await stored.delete(name, with_tables=True)
            await stored.create(name, (KEY,))

        self._loop.run(make())

    def exchange(
        self, method: str, target: str, headers: Headers = (), body: bytes = b""
    ) -> Response:
        """Send a request for a whole target, path and query, signed unless it brings its own Authorization."""
        has_length = any(name.lower() == "content-length" for name, _ in headers)
        length = [("Content-Length", str(len(body)))] if body and not has_length else []
        pairs = default_headers(method, target, self.clock.http_date(), [*length, *headers], body)
        return self._answer(method, target, pairs, body)

    def send(self, method: str, path: str, headers: Headers = (), body: bytes = b"") -> Response:
        """Send a request for a path below the account: `/Tables`, `/t()?$top=1`."""
        return self.exchange(method, f"/{ACCOUNT}{path}", headers, body)

    def _answer(self, method: str, target: str, pairs: Headers, body: bytes) -> Response:
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs]
        duplicated: StorageError | None = None
        try:
            by_name = single_headers(raw)
        except StorageError as error:
            by_name, duplicated = dict(raw), error
        path, _, query = target.encode().partition(b"?")
        request = RawRequest(
            *(method, path, query, by_name, self.scheme, self.client),
            duplicated=duplicated,
            is_local=self.is_local,
        )

        async def read_body(bytes_max: int) -> bytes:
            if len(body) > bytes_max:
                raise StorageError("RequestBodyTooLarge", at_front_door=True)
            return body

        response = self._loop.run(self._pipeline.answer(request, read_body, RequestRecord(0.0)))
        assert all(name == name.lower() for name, _ in response.headers), response.headers
        found = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }
        assert len(found) == len(response.headers), "a header was sent twice"
        return Response(response.status, found, response.body)
