"""Transports without a socket, for `azure-core` (synchronous and asynchronous) and, as an ASGI application, for httpx.

A request takes the same steps as over HTTP, and its signature is checked. Where a fault ends the connection, the
transports raise what the SDK's own would raise. Only HTTP's connections and time-outs are missing.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from azure.core.exceptions import IncompleteReadError, ServiceResponseError
from azure.core.pipeline.transport import (
    AsyncHttpResponse,
    AsyncHttpTransport,
    HttpResponse,
    HttpTransport,
)
from azure.core.rest import HttpRequest

from tablestone.server.asgi import AsgiApplication, Message, Receive, Send
from tablestone.testing.faults import ConnectionLost
from tablestone.testing.storage import TableStorage
from tablestone.tools.transport import ReadResponse

_PORTS: Final = {"http": 80, "https": 443}

Response = TypeVar("Response", bound=ReadResponse)


@dataclass(slots=True)
class ReceivedAnswer:
    status: int = 0
    reason: str | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""


class _AsyncResponse(AsyncHttpResponse, ReadResponse):  # type: ignore[misc]
    async def read(self) -> bytes:  # type: ignore[override]
        return self.content

    async def parts(self) -> AsyncIterator[AsyncHttpResponse]:  # type: ignore[override]
        """The answers of a transaction, which the SDK awaits one by one."""
        async for part in super().parts():
            yield _AsyncResponse(
                part.request, part.status_code, part.reason, part.headers, part.body()
            )


def exchange(storage: TableStorage, scope: Message, body: bytes) -> Future[ReceivedAnswer]:
    """Answer a request on the storage's loop. The future raises `ConnectionLost` if a fault cuts the answer off."""
    return storage.begin(lambda service: _answer(service, scope, body))


async def _answer(application: AsgiApplication, scope: Message, body: bytes) -> ReceivedAnswer:
    answer = ReceivedAnswer()
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not messages:  # it waits for a disconnection, and none comes
            await asyncio.get_running_loop().create_future()
        return messages.pop()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.reason = message["status"], message["reason"]
            answer.headers = list(message["headers"])
        else:
            answer.body += message.get("body", b"")

    await application(scope, receive, send)
    return answer


class StorageTransport(HttpTransport[HttpRequest, HttpResponse]):
    """For clients of `azure.data.tables`: `TableServiceClient(..., transport=StorageTransport(storage))`."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    def send(self, request: HttpRequest, **_options: Any) -> HttpResponse:
        try:
            answer = _exchange_request(self._storage, request).result()
        except ConnectionLost as lost:
            raise _error(lost) from lost
        return _response(ReadResponse, request, answer)

    def open(self) -> None:
        """There is no connection to open."""

    def close(self) -> None:
        """There is no connection to close."""

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncStorageTransport(AsyncHttpTransport[HttpRequest, AsyncHttpResponse]):
    """For clients of `azure.data.tables.aio`, on any event loop."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    async def send(self, request: HttpRequest, **_options: Any) -> AsyncHttpResponse:
        try:
            answer = await asyncio.wrap_future(_exchange_request(self._storage, request))
        except ConnectionLost as lost:
            raise _error(lost) from lost
        return _response(_AsyncResponse, request, answer)

    async def open(self) -> None:
        """There is no connection to open."""

    async def close(self) -> None:
        """There is no connection to close."""

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class StorageAsgi:
    """An ASGI application for httpx: `httpx.AsyncClient(transport=httpx.ASGITransport(StorageAsgi(storage)))`."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request. Raises `ConnectionLost` where a fault ends the connection."""
        assert scope["type"] == "http", "httpx sends nothing else"
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        answer = await asyncio.wrap_future(exchange(self._storage, scope, body))
        await send(
            {"type": "http.response.start", "status": answer.status, "headers": answer.headers}
        )
        await send({"type": "http.response.body", "body": answer.body})


def _exchange_request(storage: TableStorage, request: HttpRequest) -> Future[ReceivedAnswer]:
    content: Any = request.content or b""
    body = content.encode("utf-8") if isinstance(content, str) else bytes(content)
    url = urlsplit(request.url)
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in request.headers.items()
    ]
    names = {name for name, _ in headers}
    if b"host" not in names:
        headers.append((b"host", url.netloc.encode("latin-1")))
    if body and not names & {b"content-length", b"transfer-encoding"}:
        headers.append((b"content-length", b"%d" % len(body)))
    scope = {
        "type": "http",
        "method": request.method,
        "scheme": url.scheme,
        "path": url.path,
        "raw_path": url.path.encode("latin-1") or b"/",
        "query_string": url.query.encode("latin-1"),
        "headers": headers,
        "client": ("127.0.0.1", 0),
        "server": (url.hostname, url.port or _PORTS.get(url.scheme, 0)),
    }
    return exchange(storage, scope, body)


def _response(kind: type[Response], request: HttpRequest, answer: ReceivedAnswer) -> Response:
    reason = answer.reason or HTTPStatus(answer.status).phrase
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in answer.headers}
    return kind(request, answer.status, reason, headers, answer.body)


def _error(lost: ConnectionLost) -> Exception:
    """The error that the transports over HTTP raise."""
    if lost.began:
        return IncompleteReadError(str(lost), error=lost)
    return ServiceResponseError(str(lost), error=lost)
