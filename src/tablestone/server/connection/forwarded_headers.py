"""The headers of a trusted proxy, which describe the client's connection: uvicorn's reading of them, and one addition.

The addition is more forms of `X-Forwarded-Proto`: some proxies write the scheme in capitals, and several proxies write
a list. Knows no ASGI application.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tablestone.server.connection.admission import address_of

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

_FOR: Final = b"x-forwarded-for"
_PROTOCOL: Final = b"x-forwarded-proto"


class TrustedProxies(ProxyHeadersMiddleware):
    """Gives a request the scheme and the client that a trusted proxy names."""

    def is_trusted(self, address: str) -> bool:
        """Whether this is the address of a trusted proxy."""
        return address in self.trusted_hosts

    def client_of(self, scope: Scope) -> str:
        """The address of the client of a request, by which it is counted."""
        client = scope["client"]  # type: ignore[typeddict-item]
        if not client or client[0] not in self.trusted_hosts:
            return address_of(client[0]) if client else ""
        values = [value for name, value in scope["headers"] if name == _FOR]  # type: ignore[typeddict-item]
        if not values:
            return address_of(client[0])
        host, _ = self.trusted_hosts.get_trusted_client_address(b", ".join(values).decode("latin1"))
        return address_of(host or client[0])

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        if scope["type"] == "http":
            scope["headers"] = [
                (name, forwarded_scheme(value)) if name == _PROTOCOL else (name, value)
                for name, value in scope["headers"]
            ]
        await super().__call__(scope, receive, send)


def forwarded_scheme(value: bytes) -> bytes:
    """`https` if every proxy on the way says so, `http` if one of them says `http`; empty for anything else."""
    said = {each.strip().lower() for each in value.split(b",")}
    if not said <= {b"http", b"https"}:
        return b""
    return b"https" if said == {b"https"} else b"http"
