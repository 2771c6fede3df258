"""The control API of a server for tests in any language: `tablestone serve --control PORT`.

The API listens on the loopback address only. A web page of any site can make a browser on this machine send requests,
so the API refuses those that name an origin or another host (docs/decisions/0012-control.md).
"""

import asyncio
import math
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import asdict, fields, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from tablestone import __version__
from tablestone.accounts.stored_accounts import AccountRefused
from tablestone.configuration import DEVELOPMENT_ACCOUNT_NAME, Configuration
from tablestone.dns_rebinding import cannot_be_rebound
from tablestone.server.asgi import AsgiAnswering
from tablestone.server.http_server import HttpServer
from tablestone.server.start import base_address, listen
from tablestone.testing import control_schema as schema
from tablestone.testing.clock import ClockRefused, StorageClock
from tablestone.testing.control_schema import BYTES, JSON, LATENCIES, Operation, checked, openapi
from tablestone.testing.expectations import Budget, ExpectationRefused, judge
from tablestone.testing.fault_rules import WHOLE, FaultRefused, Rule, fixed, long_tail, normal
from tablestone.testing.faults import Faults
from tablestone.testing.recorded_requests import REQUESTS_KEPT_MAX, LastRequests
from tablestone.testing.state import (
    SeedRefused,
    SeedRow,
    Snapshot,
    StateRefused,
    StorageRefused,
    read_seed,
)
from tablestone.testing.storage import HOST, StorageAccount
from tablestone.testing.storage_service import StorageService

Value = TypeVar("Value")

BODY_BYTES_MAX: Final = 256 * 1024 * 1024
STOP_SECONDS_MAX: Final = 2.0
SEED_FILES: Final = {
    "application/jsonl": ".jsonl",
    "application/x-ndjson": ".jsonl",
    "text/csv": ".csv",
}
"""The media types of a seed other than JSON, and the suffixes of such files."""
REFUSALS: Final = (
    *(AccountRefused, ClockRefused, ExpectationRefused, FaultRefused, schema.MemberRefused),
    *(SeedRefused, StateRefused, StorageRefused),
)
"""Errors that are answered 400 with their text."""
Perform = Callable[..., Coroutine[Any, Any, Any]]
OPERATIONS: Final[dict[Perform, Operation]] = {}


def operation(route: str, *parts: Any, **options: Any) -> Callable[[Perform], Perform]:
    """Add the decorated method to the API, with the arguments of `Operation`; `route` is `METHOD /path`."""
    method, _, path = route.partition(" ")

    def add(perform: Perform) -> Perform:
        OPERATIONS[perform] = Operation(method, path, *parts, **options)
        return perform

    return add


class Control:
    """The operations. Arguments come from the path, keywords from query and JSON, or are `body` and `content_type`."""

    def __init__(self, storage: StorageService, address: str) -> None:
        self._storage = storage
        self._faults = storage.faults
        self._clock = storage.clock
        self._address = address
        self._snapshots: dict[str, Snapshot] = {}
        self._taken = 0

    @operation("GET /", "What serves here.", "About")
    async def about(self) -> Any:
        return {"version": __version__, "address": self._address, "openapi": "/openapi.json"}

    @operation("GET /accounts", "The names of all accounts.", "Accounts")
    async def list_accounts(self) -> Any:
        return {"accounts": await self._storage.state.account_names()}

    @operation("POST /accounts", "Create an empty account.", "Account", 201, schema.NAME)
    async def create_account(self, name: str | None = None) -> Any:
        name, key = await self._storage.state.create_account(name)
        account = StorageAccount(name, key, f"{self._address}/{name}")
        return {**asdict(account), "connection_string": account.connection_string}

    @operation("DELETE /accounts/{name}", "Delete an account.", None, 204)
    async def delete_account(self, name: str) -> None:
        try:
            await self._storage.state.delete_account(name)
        except StorageRefused as refused:
            raise HTTPException(404, str(refused)) from None

    @operation("POST /reset", "Empty all accounts, one, or one table.", None, 204, schema.RESET)
    async def reset(self, account: str | None = None, table: str | None = None) -> None:
        if table is not None and account is None:
            account = DEVELOPMENT_ACCOUNT_NAME
        await self._storage.state.reset(account, table)

    @operation(
        *("POST /seed", "Store entities: by table, or a file.", "Stored"),
        members=None,
        query=schema.FILE,
        bodies=tuple(SEED_FILES),
    )
    async def seed(
        self,
        account: str = DEVELOPMENT_ACCOUNT_NAME,
        table: str | None = None,
        entities: Mapping[str, Any] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
    ) -> Any:
        if entities is not None:
            if table is not None:
                raise SeedRefused("In a seed of JSON the members are the tables: leave out table.")
            rows, tables = read_seed(entities, None)
        else:
            if table is None:
                raise SeedRefused(f"A seed of {content_type} needs the table: ?table=Orders.")
            rows, tables = _read_body(body, content_type, table)
        return {"stored": await self._storage.state.seed(account, rows, tables)}

    @operation(
        "GET /dump", "All entities of an account by table.", "Entities", query=(schema.ACCOUNT,)
    )
    async def dump(self, account: str = DEVELOPMENT_ACCOUNT_NAME) -> Any:
        return await self._storage.state.dump(account)

    @operation("POST /indexes", "Make an index.", None, 204, schema.INDEX)
    async def create_index(
        self,
        table: str,
        property: str,  # noqa: A002
        account: str = DEVELOPMENT_ACCOUNT_NAME,
        *,
        partition: bool = False,
    ) -> None:
        await self._storage.state.create_index(account, table, property, partition=partition)

    @operation("DELETE /indexes", "Drop an index.", None, 204, query=schema.INDEXED)
    async def drop_index(
        self,
        table: str,
        property: str,  # noqa: A002
        account: str = DEVELOPMENT_ACCOUNT_NAME,
    ) -> None:
        await self._storage.state.drop_index(account, table, property)

    @operation("GET /snapshots", "The snapshots.", "Snapshots")
    async def list_snapshots(self) -> Any:
        return {"snapshots": list(self._snapshots)}

    @operation(
        *("POST /snapshots", "Take a snapshot of everything, or upload one.", "Snapshot", 201),
        bodies=(BYTES,),
    )
    async def take_snapshot(self, body: bytes | None = None, content_type: str = JSON) -> Any:
        if content_type == BYTES and body is not None:
            snapshot = Snapshot.from_bytes(body)
        else:
            snapshot = await self._storage.state.snapshot()
        self._taken += 1
        self._snapshots[str(self._taken)] = snapshot
        return {"id": str(self._taken)}

    @operation("GET /snapshots/{id}", "A snapshot as bytes.", BYTES)
    async def snapshot_bytes(self, number: str) -> bytes:
        return _found(self._snapshots, number, "snapshot").to_bytes()

    @operation("DELETE /snapshots/{id}", "Drop a snapshot.", None, 204)
    async def delete_snapshot(self, number: str) -> None:
        _found(self._snapshots, number, "snapshot")
        del self._snapshots[number]

    @operation("POST /snapshots/{id}/restore", "Go back to a snapshot.", None, 204)
    async def restore_snapshot(self, number: str) -> None:
        await self._storage.state.restore(_found(self._snapshots, number, "snapshot"))

    @operation("GET /faults", "The rules, and the secondary.", "Faults")
    async def list_faults(self) -> Any:
        seconds = self._faults.secondary.seconds_behind
        return {
            "seed": self._faults.seed,
            "rules": [json_of_rule(number, rule) for number, rule in self._faults.numbered.items()],
            "secondary": {"seconds": None if math.isinf(seconds) else seconds},
        }

    @operation("POST /faults", "Add a rule after the others.", "Rule", 201, schema.RULE)
    async def add_fault(self, **parts: Any) -> Any:
        if isinstance(parts.get("latency"), dict):
            ((name, numbers),) = parts["latency"].items()
            parts["latency"] = LATENCIES[name](**numbers)
        self._faults.add(**parts)
        return json_of_rule(*list(self._faults.numbered.items())[-1])

    @operation("DELETE /faults", "Remove all rules.", None, 204, query=schema.SEED)
    async def clear_faults(self, seed: int = 0) -> None:
        self._faults.clear(seed)

    @operation("DELETE /faults/{id}", "Remove a rule.", None, 204)
    async def remove_fault(self, number: str) -> None:
        rules = {str(each): rule for each, rule in self._faults.numbered.items()}
        self._faults.remove(_found(rules, number, "rule"))

    @operation(
        "POST /faults/azure-like", "Set the rules to a bad hour.", "Faults", members=schema.BAD_HOUR
    )
    async def set_azure_like(self, seed: int = 1) -> Any:
        self._faults.azure_like(seed)
        return await self.list_faults()

    @operation("PUT /secondary", "Set how far behind the secondary is.", None, 204, schema.BEHIND)
    async def set_secondary(self, seconds: float | None) -> None:
        self._faults.secondary.follow(math.inf if seconds is None else seconds)

    @operation("GET /clock", "The time of the storage.", "Clock")
    async def show_clock(self) -> Any:
        now = self._clock.now().replace(tzinfo=None).isoformat("T", "microseconds")
        return {"now": f"{now}Z", "rate": self._clock.rate}

    @operation("POST /clock/freeze", "Stop the clock, now or at a moment.", "Clock", 200, schema.AT)
    async def freeze_clock(self, at: str | None = None) -> Any:
        self._clock.freeze(None if at is None else datetime.fromisoformat(at))
        return await self.show_clock()

    @operation("POST /clock/set", "Set the clock to a moment.", "Clock", members=schema.TO)
    async def set_clock(self, to: str) -> Any:
        self._clock.set(datetime.fromisoformat(to))
        return await self.show_clock()

    @operation("POST /clock/advance", "Skip some time.", "Clock", members=schema.DURATION)
    async def advance_clock(self, **duration: Any) -> Any:
        self._clock.advance(**duration)
        return await self.show_clock()

    @operation("POST /clock/tick", "Set the rate of the clock.", "Clock", members=schema.RATE)
    async def tick_clock(self, rate: float = 1.0) -> Any:
        self._clock.tick(rate)
        return await self.show_clock()

    @operation("POST /clock/reset", "Go back to the machine's time.", "Clock")
    async def reset_clock(self) -> Any:
        self._clock.reset()
        return await self.show_clock()

    @operation("GET /requests", "The last requests.", "Requests", query=schema.SINCE)
    async def list_requests(self, since: int = 0) -> Any:
        requests = self._storage.requests
        shown = [
            {name: getattr(each, name) for name in schema.REQUEST} for each in requests.since(since)
        ]
        return {"count": requests.count, "requests": shown}

    @operation("POST /cost", "Judge what the last requests cost.", "Complaints", 200, schema.BUDGET)
    async def judge_cost(self, since: int = 0, **limits: Any) -> Any:
        budget = Budget(**limits)
        requests = self._storage.requests
        made = [each for each in requests.since(since) if budget.account in (None, each.account)]
        complaints = judge(budget, made)
        if requests.count - since > REQUESTS_KEPT_MAX:
            complaints.append(
                f"more than {REQUESTS_KEPT_MAX} requests since then: only the last ones were judged"
            )
        return {"complaints": complaints}


def _found(values: Mapping[str, Value], key: str, what: str) -> Value:
    if key not in values:
        raise HTTPException(404, f"There is no {what} {key[:40]!r}.")
    return values[key]


def _read_body(body: bytes, content_type: str, table: str) -> tuple[list[SeedRow], list[str]]:
    with tempfile.TemporaryDirectory(prefix="tablestone-") as directory:
        file = Path(directory, "seed").with_suffix(SEED_FILES[content_type])
        file.write_bytes(body)
        try:
            return read_seed(file, table)
        except SeedRefused as refused:
            sentence = str(refused).replace(f"{file}, ", "").replace(str(file), "The body")
            raise SeedRefused(sentence) from None


def json_of_rule(number: int, rule: Rule) -> dict[str, Any]:
    """The number of a rule and its parts that differ from the defaults."""
    shown: dict[str, Any] = {"id": str(number)}
    for part in fields(rule):
        value = getattr(rule, part.name)
        if value in (part.default, {}):
            continue
        if isinstance(value, fixed | normal | long_tail):
            value = {type(value).__name__: asdict(value)}
        shown[part.name] = value
    return shown


class ControlApplication(Starlette):
    def __init__(self, control: Control, address: str) -> None:
        async def document(_request: Request) -> Response:
            names = {perform.__name__: each for perform, each in OPERATIONS.items()}
            return _answer(200, openapi(names, address))

        super().__init__(
            routes=[
                Route("/openapi.json", document),
                *(
                    Route(
                        each.path, _endpoint(each, partial(perform, control)), methods=[each.method]
                    )
                    for perform, each in OPERATIONS.items()
                ),
            ],
            exception_handlers={
                405: _wrong_method,
                HTTPException: lambda _request, error: _refusal(error.status_code, error.detail),
                **dict.fromkeys(REFUSALS, lambda _request, error: _refusal(400, str(error))),
            },
        )
        self.router.redirect_slashes = False
        self.router.default = _unknown_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if "origin" in headers or not cannot_be_rebound(headers.get("host", ""), ("localhost",)):
            sentence = "The control API is for programs on this machine, not for web pages."
            await _refusal(403, sentence)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


async def _unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    sentence = f"There is nothing at {scope['path'][:80]}: /openapi.json lists the API."
    await _refusal(404, sentence)(scope, receive, send)


def _wrong_method(request: Request, _error: Exception) -> Response:
    methods = {
        method
        for route in request.app.routes
        if route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods - {"HEAD"}
    }
    path = request.scope["path"][:80]
    return _refusal(405, f"{path} takes {' and '.join(sorted(methods))}, not {request.method}.")


def _endpoint(operation: Operation, perform: Perform) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        body = await _body_of(request)
        content_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        if body and content_type in operation.bodies:
            given: dict[str, Any] = {"body": body, "content_type": content_type}
        else:
            given = _members_of(operation, body)
        query = _query_of(operation, request.query_params)
        return _answer(
            operation.status, await perform(*request.path_params.values(), **query, **given)
        )

    return endpoint


def _query_of(operation: Operation, given: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of the query, checked; whole numbers are read from their texts."""
    wholes = {member.name for member in operation.query if member.kind is WHOLE}
    values = {
        name: int(text) if name in wholes and text.isascii() and text.isdigit() else text
        for name, text in given.items()
    }
    return checked(operation.query, values)


async def _body_of(request: Request) -> bytes:
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > BODY_BYTES_MAX:
                raise HTTPException(413, f"A body has at most {BODY_BYTES_MAX} bytes.")
    except ClientDisconnect:
        raise HTTPException(400, "The body did not arrive.") from None
    return bytes(body)


def _members_of(operation: Operation, body: bytes) -> dict[str, Any]:
    try:
        given = orjson.loads(body) if body.strip() else {}
    except orjson.JSONDecodeError as error:
        raise HTTPException(400, f"The body is not JSON: {error}.") from None
    if not isinstance(given, dict):
        raise HTTPException(400, "The body is a JSON object.")
    if operation.members is not None:
        return checked(operation.members, given)
    for name, entities in given.items():
        if not isinstance(entities, list) or not all(isinstance(each, dict) for each in entities):
            raise HTTPException(400, f"{name[:40]!r} is a list of entities, each an object.")
    return {"entities": given}


def _answer(status: int, value: Any) -> Response:
    headers = {"cache-control": "no-store"}
    if value is None:
        return Response(None, status, headers)
    if isinstance(value, bytes):
        return Response(value, status, headers, BYTES)
    return Response(orjson.dumps(value), status, headers, JSON)


def _refusal(status: int, sentence: str) -> Response:
    return _answer(status, {"error": sentence})


class ControlledService(StorageService):
    """A storage's service together with the control API. Raises `StartRefused` if the port of the API is taken."""

    def __init__(self, configuration: Configuration) -> None:
        assert configuration.control_port is not None
        clock = StorageClock()
        faults = Faults(clock, realism=configuration.realism)
        super().__init__(configuration, clock, LastRequests(), faults)
        # The control API has neither TLS nor a proxy, even if the server has both.
        self._plain = replace(configuration, trusted_proxies=(), tls=None, workers=1)
        self._listener = listen(HOST, configuration.control_port)
        self.control_address = base_address(self._listener)
        self._control: HttpServer | None = None
        self._serving: asyncio.Task[None] | None = None

    def begin_control(self, address: str) -> None:
        """Serve the control API of the server at this address. Runs on the event loop."""
        application = ControlApplication(Control(self, address), self.control_address)
        answering = AsgiAnswering(application)
        self._control = HttpServer(self._plain, answering, self._listener, lambda: None)
        self._serving = asyncio.create_task(self._control.serve())

    async def shutdown(self) -> None:
        if self._control is not None and self._serving is not None:
            self._control.stop()
            await asyncio.wait({self._serving}, timeout=STOP_SECONDS_MAX)
        await super().shutdown()
