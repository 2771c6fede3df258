"""Transports without a socket, for `azure-core` (synchronous and asynchronous) and, as an ASGI application, for httpx.

A request takes the same steps as over HTTP, and its signature is checked. Where a fault ends the connection, the
transports raise what the SDK's own would raise. Only HTTP's connections and time-outs are missing.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

from azure.core.exceptions import IncompleteReadError, ServiceResponseError
from azure.core.pipeline.transport import (
    AsyncHttpResponse,
    AsyncHttpTransport,
    HttpResponse,
    HttpTransport,
)
from azure.core.rest import HttpRequest

from tablestone.server.asgi import Message, Receive, Send
from tablestone.testing.faults import ConnectionLost
from tablestone.testing.storage import HOST, TableStorage
from tablestone.testing.storage_service import StorageService
from tablestone.tools.transport import ReadResponse
from tablestone.wire.messages import RawRequest, RawResponse, raw_request

Response = TypeVar("Response", bound=ReadResponse)


class _AsyncResponse(AsyncHttpResponse, ReadResponse):  # type: ignore[misc]
    async def read(self) -> bytes:  # type: ignore[override]
        return self.content

    async def parts(self) -> AsyncIterator[AsyncHttpResponse]:  # type: ignore[override]
        """The answers of a transaction, which the SDK awaits one by one."""
        async for part in super().parts():
            yield _AsyncResponse(
                part.request, part.status_code, part.reason, part.headers, part.body()
            )


class _Arrived:
    """The body of a request that has arrived whole, from a client that stays."""

    has_more = False

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def next_piece(self) -> bytes:
        return self._body

    async def until_ended(self) -> None:
        await asyncio.get_running_loop().create_future()


def exchange(storage: TableStorage, request: RawRequest, body: bytes) -> Future[RawResponse]:
    """Answer a request on the storage's loop. The future raises `ConnectionLost` if a fault cuts the answer off."""

    async def answer(service: StorageService) -> RawResponse:
        response = await service.answer(request, _Arrived(body))
        assert response is not None, "the answer of a fault needs a connection"
        response.headers.append((b"date", service.date().encode("ascii")))
        return response

    return storage.begin(answer)


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
        request = raw_request(
            *(scope["method"], scope["raw_path"], scope["query_string"], scope["headers"]),
            *(scope["scheme"], scope["client"][0] if scope["client"] else ""),
        )
        answer = await asyncio.wrap_future(exchange(self._storage, request, body))
        headers = answer.sized_headers()
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})


def _exchange_request(storage: TableStorage, request: HttpRequest) -> Future[RawResponse]:
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
    path, query = url.path.encode("latin-1") or b"/", url.query.encode("latin-1")
    asked = raw_request(request.method, path, query, headers, url.scheme, HOST)
    return exchange(storage, asked, body)


def _response(kind: type[Response], request: HttpRequest, answer: RawResponse) -> Response:
    reason = answer.reason or HTTPStatus(answer.status).phrase
    headers = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in answer.sized_headers()
    }
    return kind(request, answer.status, reason, headers, answer.body)


def _error(lost: ConnectionLost) -> Exception:
    """The error that the transports over HTTP raise."""
    if lost.began:
        return IncompleteReadError(str(lost), error=lost)
    return ServiceResponseError(str(lost), error=lost)
