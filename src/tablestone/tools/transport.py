"""HTTP below the SDK's pipeline: urllib3's pool of connections, with limits on answers. A proxy needs requests."""

import io
import json
import os
import ssl
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit
from urllib.request import getproxies

import urllib3
from azure.core.exceptions import IncompleteReadError, ServiceRequestError, ServiceResponseError
from azure.core.pipeline.transport import HttpResponse, HttpTransport
from azure.core.rest import HttpRequest
from azure.core.utils import case_insensitive_dict
from urllib3.exceptions import ClosedPoolError, HTTPError, ReadTimeoutError

from tablestone.clock import monotonic_seconds
from tablestone.tools.connection import CERTIFICATES_VARIABLE
from tablestone.tools.errors import TransferFailed, TransferRefused

TIMEOUT_SECONDS: Final = 60
"""The longest wait for a connection, and for the next bytes of an answer."""
_CONNECTIONS_KEPT: Final = 32
"""More than `--parallel` and the pages read ahead need."""
_FIRST_FINAL_STATUS: Final = 200


class AnswerLimits(NamedTuple):
    """The limits of an answer: an endpoint that is no table service may answer without end, or never.

    `seconds` limits the wait for the next bytes, or with `of_whole_answer` the time from the request to the last byte.
    `bytes_max` includes the head. A page of the service has at most 4 MiB, one of Azurite 1,000 entities of any size.
    """

    seconds: float = TIMEOUT_SECONDS
    of_whole_answer: bool = False
    bytes_max: int = 1024 * 1024 * 1024


class ReadResponse(HttpResponse):
    """A response whose body has been read, with the methods of both response interfaces of azure-core."""

    def __init__(
        self, request: Any, status: int, reason: str | None, headers: Any, content: bytes
    ) -> None:
        super().__init__(request, None)
        self.status_code = status
        self.reason = reason
        self.headers = case_insensitive_dict(headers)
        self.content_type = self.headers.get("Content-Type")
        self.content = content

    def body(self) -> bytes:
        return self.content

    read = body

    def json(self) -> Any:
        return json.loads(self.content)


class PooledTransport(HttpTransport[HttpRequest, ReadResponse]):
    """Sends the requests of one endpoint. `bundle`: a file or directory of certificates to trust, not certifi's."""

    def __init__(
        self, url: str, bundle: str | None = None, limits: AnswerLimits | None = None
    ) -> None:
        self._limits = limits or AnswerLimits()
        seconds = self._limits.seconds
        self._timeout = urllib3.Timeout(
            seconds if self._limits.of_whole_answer else None, connect=seconds, read=seconds
        )
        tls = {"ssl_context": _context(bundle)} if urlsplit(url).scheme == "https" else {}
        self._pool = urllib3.connection_from_url(url, maxsize=_CONNECTIONS_KEPT, **tls)
        self._pool.ConnectionCls = _limited(self._pool.ConnectionCls, self._limits)

    def send(self, request: HttpRequest, **_options: Any) -> ReadResponse:
        """Send once. `ServiceRequestError`: nothing was sent. After any other error the service may have acted."""
        parts = urlsplit(request.url)
        try:
            answer = self._pool.urlopen(
                request.method,
                (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
                request.content,
                request.headers,
                retries=False,
                redirect=False,
                timeout=self._timeout,
                decode_content=False,
            )
        except _CutOff as error:
            raise IncompleteReadError(str(error), error=error) from error
        except ClosedPoolError:
            # The command ended while it read a page ahead: a retry would delay the end.
            raise TransferFailed("Stopped.") from None
        except HTTPError as error:
            raise ServiceResponseError(self._reason(error), error=error) from error
        return ReadResponse(request, answer.status, answer.reason, answer.headers, answer.data)

    def _reason(self, error: HTTPError) -> str:
        cause = error.args[-1] if error.args else None
        if isinstance(error, ReadTimeoutError) or isinstance(cause, TimeoutError):
            whole = "whole " if self._limits.of_whole_answer else ""
            return f"no {whole}answer came within {self._limits.seconds:g} s"
        return _in_words(cause if isinstance(cause, Exception) else error)

    def open(self) -> None:
        """Do nothing: requests open connections as they need them."""

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _CutOff(Exception):
    """The answer is too large, or the connection ended before it was whole."""


def _limited(kind: Any, limits: AnswerLimits) -> Any:
    """A subclass of urllib3's connection that has an error of its own for a failure to connect, and limits answers."""

    class Connection(kind):  # type: ignore[misc]
        response_class = staticmethod(partial(_Answer, limits))

        def connect(self) -> None:
            try:
                super().connect()
            except (OSError, HTTPError) as error:
                reason = f"{self.host}:{self.port}: {_in_words(error.__cause__ or error)}"
                raise ServiceRequestError(reason, error=error) from error

    return Connection


class _Answer(HTTPResponse):
    """An answer that must be whole: http.client accepts a head that is cut off."""

    def __init__(self, limits: AnswerLimits, sock: Any, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self._received = _Received(self.fp.detach(), sock, limits)
        self.fp: Any = io.BufferedReader(self._received, 64 * 1024)

    def begin(self) -> None:
        super().begin()
        if self.status < _FIRST_FINAL_STATUS:
            raise HTTPException(f"the answer has the status {self.status}")
        self._received.may_end = self.length is None and not self.chunked


class _Received(io.RawIOBase):
    """The bytes of one answer as they come. Raises `TimeoutError` or `_CutOff` past a limit."""

    def __init__(self, raw: Any, sock: Any, limits: AnswerLimits) -> None:
        self._raw = raw
        self._socket = sock
        self._limits = limits
        self._end = monotonic_seconds() + sock.gettimeout()
        self._bytes = 0
        self.may_end = False
        """Whether the answer ends with its connection: it has no length of its own."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._limits.of_whole_answer:
            left = self._end - monotonic_seconds()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
        count: int = self._raw.readinto(buffer)
        self._bytes += count
        if self._bytes > self._limits.bytes_max:
            raise _CutOff(f"the answer is larger than {self._limits.bytes_max / 2**20:,.0f} MiB")
        if not (count or self.may_end):
            raise _CutOff("the connection ended before the answer was whole")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _context(bundle: str | None) -> ssl.SSLContext:
    if bundle is None:
        from requests.utils import DEFAULT_CA_BUNDLE_PATH  # noqa: PLC0415 - only TLS needs it, and it loads slowly

        bundle = DEFAULT_CA_BUNDLE_PATH
    try:
        if Path(bundle).is_file():
            return ssl.create_default_context(cafile=bundle)
        return ssl.create_default_context(capath=bundle)
    except OSError:
        raise TransferRefused(f"{bundle} has no certificates to trust: it must be PEM.") from None


_OTHER_NAMES: Final = (62, 64)
"""OpenSSL's codes for a certificate of another host or address: trusting it would not help."""


def _in_words(error: BaseException) -> str:
    """The reason of an error, without the number of a system error."""
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code not in _OTHER_NAMES:
        return f"{error.verify_message}; --ca-file names the certificates to trust"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "the answer is not TLS; for a server of plain HTTP, use an http:// URL"
    if isinstance(error, ConnectionRefusedError):
        return f"{error.strerror}, so no server runs there"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def transport_of(url: str, limits: AnswerLimits) -> dict[str, Any]:
    """The options of an SDK's client for the proxies and certificates that the environment names.

    Behind a proxy, only the wait for the next bytes is limited.
    """
    bundle = os.environ.get(CERTIFICATES_VARIABLE) or os.environ.get("CURL_CA_BUNDLE")
    proxies: dict[str, str] = {}
    if getproxies():
        from requests.utils import get_environ_proxies  # noqa: PLC0415 - an eighth of the start, and seldom needed

        proxies = get_environ_proxies(url)
    if not proxies:
        return {"transport": PooledTransport(url, bundle, limits)}
    from azure.core.pipeline.transport import RequestsTransport  # noqa: PLC0415 - loads requests

    verified = {"connection_verify": bundle} if bundle else {}
    seconds = {"connection_timeout": limits.seconds, "read_timeout": limits.seconds}
    transport = RequestsTransport(use_env_settings=False, **seconds, **verified)
    return {"transport": transport, "proxies": proxies, **verified}
