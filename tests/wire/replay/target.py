"""The server under test: its address, the account, and one signed request at a time.

Its signing code is written from the specification (auth 1; SharedKey: verb, MD5, type, date, resource) and shares
nothing with the server's. The request target goes out byte for byte as given, because signatures cover it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ssl
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from .shared_access import is_signed, signed_anew

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokens import RsaKey

ANSWER_SECONDS_MAX = 30
# Any well-formed key but the account's own.
WRONG_KEY = base64.b64encode(bytes(64)).decode()


@dataclass(frozen=True)
class Answer:
    """The server's answer. Header names are lower-case; a repeated header is here twice."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    reason: str = ""

    def header(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known == name), None)


class ConnectionLostError(Exception):
    """The server ended a kept-alive connection without having said so (RFC 9112, 9.6)."""


class Target:
    """One account of a running server, over one kept-alive connection."""

    def __init__(
        self,
        endpoint: str,
        account_name: str,
        account_key: str,
        *,
        certificate: Path | None = None,
        token_key: RsaKey | None = None,
    ) -> None:
        """`certificate` is trusted over https; tokens that `token_key` signs are accepted."""
        self.token_key = token_key
        self.endpoint = endpoint.rstrip("/")
        self.account_name = account_name
        self._account_key = account_key
        address = urlsplit(self.endpoint)
        self.base_path = address.path
        self._previous = "nothing"
        host = address.hostname or ""
        self._connection = (
            http.client.HTTPSConnection(
                host,
                address.port,
                timeout=ANSWER_SECONDS_MAX,
                context=ssl.create_default_context(cafile=certificate),
            )
            if address.scheme == "https"
            else http.client.HTTPConnection(host, address.port, timeout=ANSWER_SECONDS_MAX)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        wrong_key: bool = False,
        secondary: bool = False,
        token: str | None = None,
    ) -> Answer:
        """Sign a request, with the token, by the query's own signature or with the account's key, and send it.

        `path` is relative to the endpoint, as sent (still percent-encoded).
        """
        sent = dict(headers or {})
        sent["x-ms-date"] = formatdate(usegmt=True)
        target = self.base_path + ("-secondary" if secondary else "") + path
        key = WRONG_KEY if wrong_key else self._account_key
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        elif is_signed(query):
            query = signed_anew(query, self.account_name, partial(sign, key))
        else:
            signature = sign(key, self.string_to_sign(method, target, query, sent))
            sent["Authorization"] = f"SharedKey {self.account_name}:{signature}"
        if body or method in {"POST", "PUT", "PATCH", "MERGE"}:
            sent["Content-Length"] = str(len(body))
        connection = self._connection
        connection.putrequest(
            method, f"{target}?{query}" if query else target, skip_accept_encoding=True
        )
        for name, value in sent.items():
            connection.putheader(name, value)
        try:
            connection.endheaders(body or None)
            response = connection.getresponse()
        except (ConnectionError, http.client.RemoteDisconnected) as lost:
            raise ConnectionLostError(
                f"at {method} {target}, after {self._previous} had been answered"
            ) from lost
        self._previous = f"{method} {target} ({response.status})"
        received = tuple((name.lower(), value) for name, value in response.getheaders())
        return Answer(response.status, received, response.read(), response.reason)

    def string_to_sign(
        self, method: str, target: str, query: str, headers: Mapping[str, str]
    ) -> str:
        named = {name.lower(): value for name, value in headers.items()}
        component = next((pair for pair in query.split("&") if pair.startswith("comp=")), None)
        resource = f"/{self.account_name}{target}" + (f"?{component}" if component else "")
        return "\n".join(
            [
                method,
                named.get("content-md5", ""),
                named.get("content-type", ""),
                named["x-ms-date"],
                resource,
            ]
        )


def sign(account_key: str, string_to_sign: str) -> str:
    digest = hmac.digest(base64.b64decode(account_key), string_to_sign.encode(), hashlib.sha256)
    return base64.b64encode(digest).decode()
