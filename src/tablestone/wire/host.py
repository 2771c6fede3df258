"""What a Host header names: a host by its name, and in it the label and the suffix that can stand for an account.

`ACCOUNT.table.SUFFIX` is the service's own form (wire 1.1). Names are compared in lower case, without a trailing dot
and without the port. Knows no accounts: whether a label is one is decided above.
"""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from tablestone import limits
from tablestone.errors import StorageError

# As RFC 3986 has it (3.2.2), without what an address literal's form would say: it is never an account.
_HOST = re.compile(
    r"(\[[0-9A-Za-z:.%_~-]+\]|(?:[\w.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::\d*)?", re.ASCII
)
_IP_V4 = re.compile(r"[\d.]+", re.ASCII)
_SERVICE_LABEL: Final = "table"


class Host(NamedTuple):
    """A host, its first label, and what follows `.table.`: both empty where it has no such thing.

    An IP address has no label, and neither has a name of one label, or with an empty one: they cannot name an account.
    """

    name: str
    label: str = ""
    suffix: str = ""


NO_HOST: Final = Host("")


def parse_host(raw: bytes) -> Host:
    """The host of a Host header; raises `InvalidHeaderValue` for what cannot be one."""
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
    """A host's name as it is compared: in lower case, without the trailing dot of a fully qualified one."""
    return name.lower().removesuffix(".")
