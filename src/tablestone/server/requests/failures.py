"""The answer to a request that fails, and its messages in the log. Knows no HTTP."""

from __future__ import annotations

import logging
import re
from typing import Final

from tablestone.engines.contract import EngineBusy, EngineDamaged, EngineUnavailable, OutcomeUnknown
from tablestone.model.errors import RETRY_AFTER, StorageError

_ENCODED_QUERY: Final = re.compile(r"%(?:25)*3f.*", re.IGNORECASE | re.DOTALL)
_SIGNATURE: Final = re.compile(r"(sig(?:=|%(?:25)*3d))[^&\s'\"]+", re.IGNORECASE)


def loggable_path(raw_path: bytes) -> str:
    """A path up to an encoded question mark, because the client meant the rest as a query string."""
    return without_signatures(_ENCODED_QUERY.sub("%3F...", raw_path.decode("latin-1")))


def without_signatures(text: str) -> str:
    """A text without the values of parameters that have the name of a signature in a URL."""
    return _SIGNATURE.sub(r"\1...", text)


log = logging.getLogger("tablestone")


def failure_of(fault: Exception, request_id: str, method: str) -> StorageError:
    """The error that is answered when the fault is not the client's. The log has the details."""
    if isinstance(fault, EngineDamaged):
        log.error(
            "request %s met damaged storage: run tablestone check", request_id, exc_info=fault
        )
        return StorageError("InternalError")
    if isinstance(fault, EngineUnavailable):
        log.warning("storage cannot answer request %s: %s", request_id, fault)
        headers = RETRY_AFTER if isinstance(fault, EngineBusy) else ()
        return StorageError("ServerBusy", reason=f"storage cannot answer: {fault}", headers=headers)
    if isinstance(fault, OutcomeUnknown):
        log.warning("it is not known whether request %s was carried out: %s", request_id, fault)
        return StorageError("OperationTimedOut")
    # A bug of Tablestone: the client gets the request id, which is in the log too.
    log.error("request %s failed: %s", request_id, method, exc_info=fault)
    return StorageError("InternalError")


def log_reason(error: StorageError, request_id: str) -> None:
    """Log why the service refuses, with the part of the request that it is about, at the debug level."""
    if error.reason is None or not log.isEnabledFor(logging.DEBUG):
        return
    reason = error.reason if error.detail is None else f"{error.reason}: {error.detail}"
    log.debug("request %s: %s: %s", request_id, error.code, without_signatures(reason))
