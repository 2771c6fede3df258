"""The defence against DNS rebinding: which hosts in requests no name server can move to this machine.

A web page can let its own name point to 127.0.0.1, and then read what a server there answers. Its requests still have
its name as their `Host`.
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
