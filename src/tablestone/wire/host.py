"""The Host header: the name of the host, and the label and suffix in it that can name an account.

`ACCOUNT.table.SUFFIX` is the service's own form (wire 1.1). Names are compared in lower case, without a trailing dot
and without the port. Knows no accounts: `server/requests/account_address.py` decides whether a label is an account.
"""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from tablestone import limits
from tablestone.model.errors import StorageError

# The host of RFC 3986 (3.2.2). The inside of an IP literal is not checked, because it never names an account.
_HOST = re.compile(
    r"(\[[0-9A-Za-z:.%_~-]+\]|(?:[\w.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::\d*)?", re.ASCII
)
_IP_V4 = re.compile(r"[\d.]+", re.ASCII)
_SERVICE_LABEL: Final = "table"


class Host(NamedTuple):
    """A host, its first label, and the suffix after `.table.`; the last two are empty if the host has none.

    IP addresses, names of one label and names with an empty label cannot name an account: their `label` is empty.
    """

    name: str
    label: str = ""
    suffix: str = ""


NO_HOST: Final = Host("")


def parse_host(raw: bytes) -> Host:
    """The host in a Host header; raises `InvalidHeaderValue` if the header is invalid."""
    if len(raw) > limits.HOST_LENGTH_MAX:
        raise StorageError("InvalidHeaderValue")
    return _parse(raw)


@functools.lru_cache(maxsize=1024)
def _parse(raw: bytes) -> Host:
    if not raw:
        return NO_HOST
    match = _HOST.fullmatch(raw.decode("latin-1"))
    if match is None:
        raise StorageError("InvalidHeaderValue")
    name = normalized_host(match[1])
    if name.startswith("[") or _IP_V4.fullmatch(name):
        return Host(name)
    label, _, rest = name.partition(".")
    if not rest or ".." in name:
        return Host(name)
    service, _, suffix = rest.partition(".")
    return Host(name, label, suffix if service == _SERVICE_LABEL else "")


def normalized_host(name: str) -> str:
    """A host's name for comparisons: in lower case, without the trailing dot of a fully qualified name."""
    return name.lower().removesuffix(".")
