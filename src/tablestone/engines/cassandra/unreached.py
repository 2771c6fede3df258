"""Why there is no session with a cluster, as one sentence for the operator, without words of the driver or of Python.

The driver is imported here, so this module is only imported when a cluster is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Final

from cassandra.connection import ConnectionException, ProtocolError
from cassandra.protocol import ErrorMessage

import cassandra
from tablestone.engines.cassandra.cluster_url import ClusterAddress
from tablestone.engines.contract import EngineRefused

_TLS: Final = re.compile(r"\[SSL(?:: (\w+))?\]|\bEOF occurred in violation of protocol\b|_ssl\.c")
"""An error of OpenSSL, with its name, in the text of Python or of the driver."""
_UNTRUSTED: Final = re.compile(r"certificate verify failed: ([^(]*?)\s*(?:\(|$)")
_NO_TLS: Final = {
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
}
"""The names of what OpenSSL finds where the other side answers in another protocol."""


def refusal(address: ClusterAddress, error: Exception) -> EngineRefused:
    """The sentence about the error with which the driver gave up."""
    hosts = ", ".join(f"{name}:{port}" for name, port in address.hosts)
    causes = list(_causes(error))
    if any(isinstance(cause, cassandra.AuthenticationFailed) for cause in causes):
        said = "without a user" if address.user is None else f"for user {address.user!r}"
        return EngineRefused(f"The cluster at {hosts} refuses the credentials {said}.")
    if address.tls and (why := next(filter(None, map(_why_no_tls, causes)), None)):
        return EngineRefused(f"There is no TLS connection to the cluster at {hosts}: {why}.")
    return EngineRefused(f"No Cassandra node answers at {hosts}: {_why_no_answer(causes[0])}.")


def _causes(error: Exception) -> Iterator[Exception]:
    """The error of each node; the error itself if it names none."""
    told = getattr(error, "errors", None)
    found = list(told.values()) if isinstance(told, Mapping) else []
    yield from found or [error]


def _why_no_tls(cause: Exception) -> str | None:
    found = _TLS.search(str(cause))
    if found is None:
        return None
    name = found[1] or ""
    if untrusted := _UNTRUSTED.search(str(cause)):
        return f"its certificate is not trusted ({untrusted[1]})"
    if name in _NO_TLS:
        return "the node does not speak TLS"
    if "CERTIFICATE_REQUIRED" in name or "HANDSHAKE_FAILURE" in name:
        return "the node may want a certificate of its client (certificate-file and key-file)"
    return name.replace("_", " ").lower() or "the node ends it"


def _why_no_answer(cause: Exception) -> str:
    if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
        return os.strerror(cause.errno)
    if isinstance(cause, cassandra.OperationTimedOut | cassandra.Timeout | OSError):
        return "it did not answer in time"
    if isinstance(cause, ProtocolError | ErrorMessage):
        return "it does not speak the protocol of Cassandra 5.0"
    if isinstance(cause, ConnectionException):
        return "it ends the connection, as a node does that wants TLS (tls=yes)"
    return "the connection cannot be opened"
