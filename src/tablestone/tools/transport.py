"""HTTP below the SDK's pipeline: connections that stay open, proxies of the environment, limits on answers."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit
from urllib.request import getproxies

import httptools
from azure.core.exceptions import IncompleteReadError, ServiceRequestError, ServiceResponseError
from azure.core.pipeline.transport import HttpTransport
from azure.core.rest import HttpRequest, HttpResponse
from azure.core.rest._http_response_impl import RestHttpClientTransportResponse

from tablestone.clock import monotonic_seconds

# The only response of azure-core that needs no HTTP library. It is not public; every test of the tools uses it.


TIMEOUT_SECONDS: Final = 60
"""Seconds in which a connection opens, and in which the next bytes of an answer come."""
PIECE_BYTES: Final = 256 * 1024
"""At most so much is read from a connection at a time."""
_FIRST_OF_FINAL: Final = 200
"""Statuses below are of informational answers, which another answer follows."""


class AnswerLimits(NamedTuple):
    """The limits of one request: an endpoint that is no table service may answer without end, or never.

    `request_seconds` is None for a request that may last as long as bytes come. A page of the service has 4 MiB at
    most; one of Azurite has 1,000 entities, whatever their size.
    """

    pause_seconds: float = TIMEOUT_SECONDS
    request_seconds: float | None = None
    answer_bytes: int = 1024 * 1024 * 1024


class KeepAliveTransport(HttpTransport[HttpRequest, HttpResponse]):
    """For clients of `azure.data.tables`. `bundle` is a file or a directory of certificates to trust, not certifi's."""

    def __init__(self, bundle: str | None = None, limits: AnswerLimits | None = None) -> None:
        self._bundle = bundle
        self._limits = limits or AnswerLimits()
        self._tls: ssl.SSLContext | None = None
        self._idle: dict[_Origin, list[_Connection]] = {}

    def send(self, request: HttpRequest, **_options: Any) -> HttpResponse:
        """The answer, read to its end. Raises the errors that the SDK's own transports raise.

        The limits are those of the transport, and not the options of one request.
        """
        left = _TimeLeft(self._limits)
        connection = self._connection(_origin_of(request.url), left)
        is_kept = False
        try:
            answer = connection.exchange(_bytes_of(request), left, self._limits.answer_bytes)
            is_kept = not answer.is_last
        except TimeoutError as error:
            raise ServiceResponseError(left.sentence, error=error) from error
        except _CutOff as error:
            raise IncompleteReadError(str(error), error=error) from error
        except (OSError, httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise ServiceResponseError(_told(error), error=error) from error
        finally:
            if is_kept:
                self._idle[connection.origin].append(connection)
            else:
                connection.socket.close()
        make: Any = RestHttpClientTransportResponse  # carries no types
        response: HttpResponse = make(request=request, internal_response=answer)
        response.read()
        return response

    def open(self) -> None:
        """A connection is opened for the first request that needs it."""

    def close(self) -> None:
        """Close the connections that no request uses."""
        for connections in self._idle.values():
            while connections:
                connections.pop().socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sleep(self, duration: float) -> None:
        """Wait between two attempts."""
        time.sleep(duration)

    def _connection(self, origin: _Origin, left: _TimeLeft) -> _Connection:
        idle = self._idle.setdefault(origin, [])
        while True:
            try:
                connection = idle.pop()
            except IndexError:
                break
            if connection.is_usable():
                return connection
            connection.socket.close()
        try:
            opened = socket.create_connection((origin.host, origin.port), left.until_bytes())
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if origin.is_tls:
                opened = self._context().wrap_socket(opened, server_hostname=origin.host)
        except OSError as error:
            raise ServiceRequestError(
                f"{origin.host}:{origin.port}: {_told(error)}", error=error
            ) from error
        return _Connection(origin, opened)

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            from requests.utils import DEFAULT_CA_BUNDLE_PATH  # noqa: PLC0415 - only TLS needs it, and it loads slowly

            bundle = self._bundle or DEFAULT_CA_BUNDLE_PATH
            is_file = Path(bundle).is_file()
            self._tls = ssl.create_default_context(
                cafile=bundle if is_file else None, capath=None if is_file else bundle
            )
        return self._tls


class _Origin(NamedTuple):
    """The place that connections go to."""

    is_tls: bool
    host: str
    port: int


class _TimeLeft:
    """The seconds that a request has left: until the next bytes come, and as a whole."""

    def __init__(self, limits: AnswerLimits) -> None:
        self._pause = limits.pause_seconds
        self._whole = limits.request_seconds
        self._end = None if self._whole is None else monotonic_seconds() + self._whole
        self.sentence = f"no answer came within {self._pause:g} s"

    def until_bytes(self) -> float:
        """Seconds in which the next bytes have to come; `TimeoutError` if the request has none left."""
        if self._end is None:
            return self._pause
        left = self._end - monotonic_seconds()
        if left <= self._pause:
            self.sentence = f"no whole answer came within {self._whole:g} s"
        if left <= 0:
            raise TimeoutError
        return min(left, self._pause)


class _CutOff(Exception):
    """The connection ended inside an answer, or before it began."""


class _Connection:
    """An open connection, which one request at a time uses."""

    def __init__(self, origin: _Origin, opened: socket.socket) -> None:
        self.origin = origin
        self.socket = opened

    def is_usable(self) -> bool:
        """Whether the other side has neither closed it nor sent anything since the last answer."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return not poll.poll(0)

    def exchange(self, request: bytes, left: _TimeLeft, bytes_max: int) -> _Answer:
        """Send a request and read its answer, of at most `bytes_max` with its headers."""
        self.socket.settimeout(left.until_bytes())
        # A server may refuse a request before it has read all of it. Its answer is there then.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(request)
        answer = _Answer()
        received = 0
        while not answer.is_whole:
            self.socket.settimeout(left.until_bytes())
            piece = self.socket.recv(PIECE_BYTES)
            received += len(piece)
            if received > bytes_max:
                raise _CutOff(f"the answer is larger than {bytes_max / 2**20:,.0f} MiB")
            if not piece:
                answer.end()
                break
            answer.feed(piece)
        return answer


class _Answer:
    """An answer while it arrives; then with the methods of an `http.client` response, which azure-core calls."""

    def __init__(self) -> None:
        self.status = 0
        self.reason = ""
        self.is_whole = False
        self.is_last = True
        """Whether the connection ends with this answer."""
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._has_head = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the connection."""
        self._parser.feed_data(piece)

    def end(self) -> None:
        """The connection has ended. An answer that does not tell its length is whole then."""
        names = {name.lower() for name, _ in self._headers}
        if not self._has_head or names & {"content-length", "transfer-encoding"}:
            raise _CutOff("the connection ended before the answer was whole")

    def on_message_begin(self) -> None:
        """The first byte of an answer."""
        if self.is_whole:
            raise _CutOff("more than one answer came")

    def on_status(self, reason: bytes) -> None:
        self.reason += reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= _FIRST_OF_FINAL

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self.status < _FIRST_OF_FINAL:
            self.reason, self._headers = "", []
            return
        self.is_whole = True
        self.is_last = not self._parser.should_keep_alive()

    def getheaders(self) -> list[tuple[str, str]]:
        return self._headers

    def read(self) -> bytes:
        return b"".join(self._body)

    def close(self) -> None:
        """The connection belongs to the transport."""


def _origin_of(url: str) -> _Origin:
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    return _Origin(is_tls, parts.hostname or "", parts.port or (443 if is_tls else 80))


def _bytes_of(request: HttpRequest) -> bytes:
    parts = urlsplit(request.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    content: Any = request.content
    if isinstance(content, str):
        content = content.encode("utf-8")
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {parts.netloc.rpartition('@')[2]}"]
    lines += [
        f"{name}: {value}"
        for name, value in request.headers.items()
        if name.lower() not in ("host", "content-length")
    ]
    if content or request.method not in ("GET", "HEAD"):
        lines.append(f"Content-Length: {len(content or b'')}")
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head + content if content else head


def _told(error: Exception) -> str:
    """An error in words: of the system's errors without their number."""
    strerror = getattr(error, "strerror", None)
    return strerror or str(error) or type(error).__name__


def transport_of(url: str, limits: AnswerLimits) -> dict[str, Any]:
    """The transport, by the proxies and certificates that the environment names, looked up once.

    Only requests knows how to speak to a proxy. It would look both up for every request. It has the limit of a pause
    alone.
    """
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    proxies = _proxies_for(url) if getproxies() else {}
    if not proxies:
        return {"transport": KeepAliveTransport(bundle, limits)}
    verified = {"connection_verify": bundle} if bundle else {}
    from azure.core.pipeline.transport import RequestsTransport  # noqa: PLC0415 - loads requests

    pause = limits.pause_seconds
    transport = RequestsTransport(
        use_env_settings=False, connection_timeout=pause, read_timeout=pause, **verified
    )
    return {"transport": transport, "proxies": proxies, **verified}


def _proxies_for(url: str) -> dict[str, str]:
    from requests.utils import get_environ_proxies  # noqa: PLC0415 - an eighth of the start, and seldom needed

    proxies: dict[str, str] = get_environ_proxies(url)
    return proxies
