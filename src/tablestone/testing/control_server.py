"""The control API over HTTP, beside the server that it controls: `tablestone serve --control PORT`.

It listens on the loopback address only. It refuses the scripts of web pages, whose requests name an origin or another
host, because a page of any site may send requests to this machine. Knows HTTP; the operations do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import orjson

from tablestone.accounts.stored_accounts import AccountRefused
from tablestone.configuration import Configuration, WorkerSlot
from tablestone.server.asgi import Message, Receive, Send
from tablestone.server.http_server import HttpServer
from tablestone.server.start import base_address, listen
from tablestone.server.worker import admission_of, uvicorn_config
from tablestone.testing.clock import ClockRefused
from tablestone.testing.control_document import openapi
from tablestone.testing.control_operations import JSON, Asked, ControlledStorage, NotThere
from tablestone.testing.control_routes import ROUTES, MemberRefused, Route, checked, parsed_query
from tablestone.testing.expectations import ExpectationRefused
from tablestone.testing.fault_rules import FaultRefused
from tablestone.testing.recorded_requests import LastRequests
from tablestone.testing.seeds import SeedRefused
from tablestone.testing.state import StateRefused
from tablestone.testing.storage_service import (
    StorageRefused,
    StorageService,
    machine_clock,
    no_faults,
)

HOST: Final = "127.0.0.1"
_HOSTS: Final = frozenset(("127.0.0.1", "localhost", "[::1]"))
"""The names under which a program on this machine asks for it; any other may be a page's that was sent here."""
BODY_BYTES_MAX: Final = 256 * 1024 * 1024
"""A longer body, such as a seed or a snapshot, is refused."""
STOP_SECONDS_MAX: Final = 2.0
_REFUSALS: Final = (
    *(AccountRefused, ClockRefused, ExpectationRefused, FaultRefused, MemberRefused),
    *(SeedRefused, StateRefused, StorageRefused),
)


class _Refused(Exception):
    """The end of a request that is not carried out: its status, and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class ControlApplication:
    """The ASGI application of the control API."""

    waits = True

    def __init__(self, storage: ControlledStorage, address: str) -> None:
        self._storage = storage
        self._address = address

    async def startup(self) -> None:
        """There is nothing to open: the storage is the server's."""

    async def shutdown(self) -> None:
        """There is nothing to close."""

    def reopen_logs(self) -> None:
        """There is no log."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            status, answer = await self._answer(scope, receive)
        except _Refused as refused:
            status, answer = refused.status, {"error": str(refused)}
        except NotThere as missing:
            status, answer = 404, {"error": str(missing)}
        except _REFUSALS as refused:
            status, answer = 400, {"error": str(refused)}
        await _send(send, status, answer)

    async def refuse(self, _scope: Message, _receive: Receive, send: Send) -> None:
        """Answer that there are too many connections."""
        await _send(send, 503, {"error": "There are too many connections."})

    async def _answer(self, scope: Message, receive: Receive) -> tuple[int, Any]:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        _require_program(headers)
        path = unquote(scope["raw_path"].decode("latin-1"))
        if (scope["method"], path) == ("GET", "/openapi.json"):
            return 200, openapi(self._address)
        route, names = _route_of(scope["method"], path)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        body = await _body_of(receive)
        content_type = headers.get("content-type", JSON).partition(";")[0].strip().lower()
        if not body or content_type not in route.bodies:
            content_type = JSON
        members = _members_of(route, body) if content_type == JSON else {}
        asked = Asked(names, parsed_query(route.query, query), members, body, content_type)
        return route.status, await route.perform(self._storage, asked)


def _require_program(headers: Mapping[str, str]) -> None:
    host = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
    if "origin" in headers or host.lower() not in _HOSTS:
        raise _Refused(403, "The control API is for programs on this machine, not for web pages.")


def _route_of(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """The route of a request, and the names in its path. A path without names goes first."""
    asked = path.split("/")
    methods = set()
    for route in sorted(ROUTES, key=lambda each: "{" in each.path):
        parts = route.path.split("/")
        names = {
            part: given
            for part, given in zip(parts, asked, strict=False)
            if part.startswith("{") and given
        }
        if [names.get(part, part) for part in parts] == asked:
            if route.method == method:
                return route, {part.strip("{}"): given for part, given in names.items()}
            methods.add(route.method)
    if methods:
        raise _Refused(405, f"{path[:80]} takes {' and '.join(sorted(methods))}, not {method}.")
    raise _Refused(404, f"There is nothing at {path[:80]}: /openapi.json lists the API.")


def _members_of(route: Route, body: bytes) -> dict[str, Any]:
    try:
        given = orjson.loads(body) if body.strip() else {}
    except orjson.JSONDecodeError as error:
        raise _Refused(400, f"The body is not JSON: {error}.") from None
    if not isinstance(given, dict):
        raise _Refused(400, "The body is a JSON object.")
    if route.members is not None:
        return checked(route.members, given)
    for name, entities in given.items():
        if not isinstance(entities, list) or not all(isinstance(each, dict) for each in entities):
            raise _Refused(400, f"{name[:40]!r} is a list of entities, each an object.")
    return given


async def _body_of(receive: Receive) -> bytes:
    pieces = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(400, "The body did not arrive.")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > BODY_BYTES_MAX:
            raise _Refused(413, f"A body has at most {BODY_BYTES_MAX} bytes.")
        if not message.get("more_body", False):
            return b"".join(pieces)


async def _send(send: Send, status: int, answer: Any) -> None:
    is_json = not isinstance(answer, bytes)
    body = b"" if answer is None else orjson.dumps(answer) if is_json else answer
    headers = [(b"cache-control", b"no-store")]
    if status != 204:
        form = b"application/json" if is_json else b"application/octet-stream"
        headers += [(b"content-type", form), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class ControlledServer:
    """The application of a server under control, and the port of its control. `StartRefused` if that port is taken."""

    def __init__(self, configuration: Configuration) -> None:
        assert configuration.control_port is not None
        self._configuration = configuration
        self._listener = listen(HOST, configuration.control_port)
        self.address = base_address(self._listener)
        self._service: ControlledService | None = None

    def create(self, configuration: Configuration, _slot: WorkerSlot) -> ControlledService:
        """The application that the server runs."""
        clock = machine_clock()
        faults = no_faults(clock, realism=configuration.realism)
        self._service = ControlledService(configuration, clock, LastRequests(), faults)
        return self._service

    def begin(self, address: str) -> None:
        """Serve the control API: the server that it controls has this address. Call it on the loop."""
        assert self._service is not None
        storage = ControlledStorage(self._service)
        storage.address = address
        # Reached without TLS and without a proxy, whatever the server itself is behind.
        plain = replace(self._configuration, trusted_proxies=(), tls=None, workers=1)
        application, admission = ControlApplication(storage, self.address), admission_of(plain)
        config = uvicorn_config(plain, application, None, admission)
        control = HttpServer(config, self._listener, lambda: None, admission)
        self._service.serve_control(control)


class ControlledService(StorageService):
    """The application of a server under control. It ends the control with itself."""

    _control: HttpServer | None = None
    _serving: asyncio.Task[None] | None = None

    def serve_control(self, control: HttpServer) -> None:
        """Serve the control API from now on."""
        self._control = control
        self._serving = asyncio.create_task(control.run_until_stopped())

    async def shutdown(self) -> None:
        if self._control is not None and self._serving is not None:
            self._control.stop()
            await asyncio.wait({self._serving}, timeout=STOP_SECONDS_MAX)
        await super().shutdown()
