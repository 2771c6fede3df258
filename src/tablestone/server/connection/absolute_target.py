"""The host of a request whose target is a whole URL: it stands above the header (RFC 9112 3.2.2).

Knows the head of a request as bytes, and no connection.
"""

from __future__ import annotations

import httptools


def take_host_of_target(target: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Put the host and port of the target in the place of `Host`, if it has a host."""
    parts = httptools.parse_url(target)
    if parts.host:
        host = b"[%b]" % parts.host if b":" in parts.host else parts.host
        named = b"%b:%d" % (host, parts.port) if parts.port else host
        headers[:] = [(name, named if name == b"host" else value) for name, value in headers]
