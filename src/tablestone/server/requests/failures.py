"""The answer to a request that fails, and its messages in the log. Knows no HTTP."""

from __future__ import annotations

import logging

from tablestone.engines.contract import (
    EngineBusy,
    EngineDamaged,
    EngineUnavailable,
    OutcomeUnknown,
)
from tablestone.model.errors import RETRY_AFTER, StorageError
from tablestone.server.requests.redaction import without_signatures

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
