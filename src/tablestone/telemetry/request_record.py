"""The record of one request for the operator: the operation, the result, the failure.

The steps of a request store values in it. The properties make names and numbers of these values. They never return a
key, a property or a signature, although the operation contains them.
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import Final, NamedTuple

from tablestone.model.errors import ERRORS, StorageError
from tablestone.model.keys import TABLE_NAME
from tablestone.model.operations import (
    EntitiesPage,
    EntityGroupTransaction,
    GetEntity,
    Operation,
    Result,
    TablesPage,
    TransactionCommitted,
)

BATCH: Final = "Batch"
"""The name of a batch whose operation did not become known."""


LOOK_AGENTS: Final = b"tablestone-"
"""The beginning of the User-Agent of tools that look at tables: the explorer, `count` and `simulate-keys`."""


class RefusedTable(NamedTuple):
    """The table in the address of a request that was refused before its operation was understood.

    `is_found`: the table is there. Otherwise that is not known, and a client may have made its name up.
    """

    table: str
    is_found: bool


class RequestDetails:
    """The part of a record that access logs and traces show, and metrics do not.

    `at_seconds` is of the wall; `authenticated_at`, the moment at which the caller was known, is of the record's clock.
    """

    def __init__(self, method: str, client: str) -> None:
        self.method = method
        self.client = client
        self.request_id = ""
        self.client_request_id: bytes | None = None
        self.caller = ""
        self.authenticated_at = 0.0
        self.at_seconds = 0.0


class RequestRecord:
    """One request. `started` and `ended` are of a clock that never steps back.

    `failure` is the error that was answered; for a batch, the error inside the answer. Only with a failure there may be
    `refused`. `is_look`: a tool of ours asked for the page that is the result, to look at a table.
    `bytes_in` and `bytes_out` count bodies. A record is small, because every request has one:
    only an access log or a trace adds `details`, and a point read has no `result`.
    """

    def __init__(self, started: float, details: RequestDetails | None = None) -> None:
        self.started = started
        self.ended = started
        self.details = details
        self.account = ""
        self.is_batch = False
        self.operation: Operation | None = None
        self.result: Result | None = None
        self.failure: StorageError | None = None
        self.refused: RefusedTable | None = None
        self.is_look = False
        self.status = 0
        self.bytes_in = 0
        self.bytes_out = 0

    def forget(self) -> None:
        """Forget the request, so that another one can have this record. Each request sets the other members itself."""
        self.account = ""
        self.is_batch = False
        self.operation = None
        if self.result is not None:
            self.result = None
            self.is_look = False
        if self.failure is not None:
            self.failure = None
            self.refused = None
        self.bytes_in = 0

    @property
    def operation_name(self) -> str:
        """The operation by its name in `model.operations`; empty if the request did not get so far."""
        if self.operation is not None:
            return type(self.operation).__name__
        return BATCH if self.is_batch else ""

    @property
    def table(self) -> str:
        """The table that the operation names, or the address of a request that was refused before; else empty.

        An address may have anything in the place of the table, even a signature. Only a name that a table can have
        counts.
        """
        if self.operation is None:
            named = "" if self.refused is None else self.refused.table
            return named if TABLE_NAME.fullmatch(named) else ""
        return getattr(self.operation, "table", "")

    @property
    def entities(self) -> int:
        """Entities in the answer, or written."""
        if isinstance(self.operation, GetEntity):
            return int(self.failure is None)
        result = self.result
        if isinstance(result, EntitiesPage):
            return len(result.stored)
        if isinstance(result, TransactionCommitted):
            return len(result.results)
        if result is None or isinstance(result, TablesPage):
            return 0
        return 1 if hasattr(result, "version") else 0

    @property
    def writes(self) -> int:
        """The operations of an entity group transaction; 0 for any other operation."""
        operation = self.operation
        return len(operation.writes) if isinstance(operation, EntityGroupTransaction) else 0

    @property
    def plan(self) -> str:
        """The name of the plan of a read; empty for any other operation."""
        if isinstance(self.result, EntitiesPage):
            return self.result.plan
        return "point" if isinstance(self.operation, GetEntity) else ""

    @property
    def error_code(self) -> str:
        """The code of the error that was answered, if one was."""
        return "" if self.failure is None else self.failure.code

    @property
    def reason(self) -> str:
        """Why the request failed, in words that hold nothing of it."""
        return "" if self.failure is None else reason_of(self.failure)


def reason_of(error: StorageError) -> str:
    """The error's own reason; without one the text of its code, and the function that found the mistake.

    The text that the client gets is not taken: it may repeat a property.
    """
    if error.reason is not None:
        return error.reason
    text = _PLACEHOLDER.sub("...", ERRORS[error.code].text)
    place = _raised_in(error.__traceback__)
    return f"{text} ({place})" if place else text


_PLACEHOLDER: Final = re.compile(r"\{\w*\}")


def _raised_in(traceback: TracebackType | None) -> str:
    """The module and the function that raised, as `json_payload.read_entity`."""
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = traceback.tb_frame
    module = str(frame.f_globals.get("__name__", "")).rpartition(".")[2]
    return f"{module}.{frame.f_code.co_name}"
