"""One HTTP request to the application of a storage without a socket: it takes the same steps as over HTTP.

Knows ASGI; knows neither threads nor the clients that send a request in this way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tablestone.server.asgi import Message, Receive, Send

_PORTS: Final = {"http": 80, "https": 443}

AsgiApplication = Callable[[Message, Receive, Send], Awaitable[None]]


class SentRequest(NamedTuple):
    """A request as a client sends it. `url` is absolute."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(slots=True)
class ReceivedAnswer:
    """Status, headers and body as a client receives them."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


async def exchange(application: AsgiApplication, request: SentRequest) -> ReceivedAnswer:
    """The answer to a request. Raises `ConnectionLost` if a fault ends the connection before the answer is complete."""
    answer = ReceivedAnswer()

    async def receive() -> Message:
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = [
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in message["headers"]
            ]
        else:
            answer.body += message.get("body", b"")

    await application(scope_of(request), receive, send)
    return answer


def scope_of(request: SentRequest) -> Message:
    """The ASGI scope of a request."""
    url = urlsplit(request.url)
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers
    ]
    names = {name for name, _ in headers}
    if b"host" not in names:
        headers.append((b"host", url.netloc.encode("latin-1")))
    if request.body and not names & {b"content-length", b"transfer-encoding"}:
        headers.append((b"content-length", b"%d" % len(request.body)))
    return {
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
