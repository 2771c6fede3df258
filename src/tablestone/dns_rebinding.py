"""The defence against DNS rebinding.

A web page can let its own name point to 127.0.0.1 and then read the answers of a server there. Its requests still have
that name as their `Host`, so a server that refuses such a `Host` is safe.
"""

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit


def cannot_be_rebound(host: str, names: Collection[str]) -> bool:
    """Whether the value of a `Host` header is one of `names` (lower case) or an address, with or without a port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
