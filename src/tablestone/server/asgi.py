"""ASGI, where the applications of others are served: the explorer, the control API and the pages of the admin address.

`AsgiAnswering` serves an ASGI application behind our own connection.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import unquote

from tablestone.server.admission import Limit
from tablestone.server.exchange import Exchange
from tablestone.wire.messages import RawRequest, RawResponse

Message = MutableMapping[str, Any]
"""A request's scope, or one message of a connection."""
Receive = Callable[[], Awaitable[Message]]
"""Waits for the next message of the client: a piece of the body, or its end."""
Send = Callable[[Message], Awaitable[None]]
"""Takes the next message of the answer: its start, or a piece of its body."""
AsgiApplication = Callable[[Message, Receive, Send], Awaitable[None]]

_CONTENT_LENGTH: Final = b"content-length"
_PLAIN_TEXT: Final = [(b"content-type", b"text/plain; charset=utf-8")]


class AsgiAnswering:
    """An ASGI application that answers requests. One beyond a limit is refused, and its connection ends."""

    def __init__(self, application: AsgiApplication, *, waits: bool = True) -> None:
        self._application = application
        self.waits = waits

    async def answer(self, request: RawRequest, exchange: Exchange) -> RawResponse | None:
        hosts = sum(name == b"host" for name, _ in exchange.fields)
        if hosts != 1 and (hosts or not exchange.is_http_1_0):  # RFC 9112 3.2, as nginx
            return RawResponse(400, _PLAIN_TEXT, b"A request has one Host header.\n")
        await _answer(self._application, request, exchange)
        return None

    async def refuse(
        self, _request: RawRequest, _exchange: Exchange, limit: Limit
    ) -> RawResponse | None:
        headers = [*_PLAIN_TEXT, (b"connection", b"close")]
        return RawResponse(503, headers, f"There are {limit.value}.\n".encode())


async def _answer(application: AsgiApplication, request: RawRequest, exchange: Exchange) -> None:
    messages = _Messages(exchange)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": unquote(request.raw_path.decode("ascii")),
        "raw_path": request.raw_path,
        "query_string": request.query_string,
        "root_path": "",
        "headers": exchange.fields,
        "client": (request.client, 0),
        "server": None,
    }
    await application(scope, messages.receive, messages.send)
    if not (exchange.is_complete or exchange.connection.is_lost):
        raise RuntimeError("The application ended without a whole answer.")


class _Messages:
    """The messages of one exchange. The head of the answer waits for the first piece of its body."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._has_received = False
        self._head = b""
        self._is_chunked = False
        self._bytes_left: int | None = 0
        """None: the end of the connection ends the body."""

    async def receive(self) -> Message:
        exchange = self._exchange
        if not self._has_received:
            piece = await exchange.next_piece()
            if piece is not None:
                self._has_received = not exchange.has_more
                return {"type": "http.request", "body": piece, "more_body": exchange.has_more}
        await exchange.until_lost()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        exchange = self._exchange
        if exchange.is_complete:
            raise RuntimeError("The answer is complete already.")
        if message["type"] == "http.response.start":
            self._begin(message["status"], list(message["headers"]))
            return
        await exchange.connection.until_writable()
        if exchange.connection.is_lost:
            return
        body, is_last = message.get("body", b""), not message.get("more_body", False)
        head, self._head = self._head, b""
        exchange.write(head, self._framed(body, is_last=is_last))
        if is_last and self._bytes_left:
            raise RuntimeError("The body is shorter than its content-length.")
        if is_last:
            exchange.end()

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        length = dict(headers).get(_CONTENT_LENGTH)
        has_body = self._exchange.request.method != "HEAD" and status not in (204, 304)
        if length is not None:
            self._bytes_left = int(length) if has_body else 0
        elif has_body and self._exchange.is_http_1_0:
            self._exchange.keep_alive, self._bytes_left = False, None
        elif has_body:
            self._is_chunked = True
            headers.append((b"transfer-encoding", b"chunked"))
        self._head = self._exchange.head(status, headers, None)

    def _framed(self, body: bytes, *, is_last: bool) -> bytes:
        """A piece of the body as it goes over the connection."""
        if self._exchange.request.method == "HEAD":
            return b""
        if self._is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk + b"0\r\n\r\n" if is_last else chunk
        if self._bytes_left is not None:
            self._bytes_left -= len(body)
            if self._bytes_left < 0:
                raise RuntimeError("The body is longer than its content-length.")
        return body
