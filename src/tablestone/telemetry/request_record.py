"""The record of one request for the operator: its operation, its result and its failure.

The steps of a request store values in it, and its properties turn them into names and numbers. They never return a key,
a property or a signature, although the operation contains them.
"""

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
"""The name of a batch whose operation is unknown."""
TOOL_AGENTS: Final = b"tablestone-"
"""The User-Agent of our tools that look at tables (the explorer and `count`) begins with this."""


class RefusedTable(NamedTuple):
    """The table in the address of a request that was refused before its operation was decoded.

    Unless `is_found`, the table may not exist.
    """

    table: str
    is_found: bool


class RequestDetails:
    """The part of a record for access logs and traces.

    `at_seconds` is wall-clock time. `authenticated_at` is the moment, on the record's clock, when the caller was known.
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

    `failure` is the error in the answer; for a batch, the error inside it. `refused` can be set only with a failure.
    `from_tools`: the explorer or a data tool asked for the page. `bytes_in` and `bytes_out` count bodies. Every
    request has a record, so it is small: only an access log or a trace adds `details`, and a point read has no
    `result`.
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
        self.asked = ""
        """The name of the operation that a request asks for which was refused before it was decoded."""
        self.from_tools = False
        self.status = 0
        self.bytes_in = 0
        self.bytes_out = 0

    def forget(self) -> None:
        """Clear the record for another request, which sets the other members itself."""
        self.account = ""
        self.is_batch = False
        self.operation = None
        if self.result is not None:
            self.result = None
            self.from_tools = False
        if self.failure is not None:
            self.failure = None
            self.refused = None
            self.asked = ""
        self.bytes_in = 0

    @property
    def operation_name(self) -> str:
        """The operation's name in `model.operations`; empty if the request failed before it was known."""
        if self.operation is not None:
            return type(self.operation).__name__
        return BATCH if self.is_batch else ""

    @property
    def table(self) -> str:
        """The table of the operation, or in the address of a request that was refused before; else empty.

        An address may have anything in the table's place, even a signature, so only a valid table name counts.
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
        return "" if self.failure is None else self.failure.code

    @property
    def reason(self) -> str:
        """Why the request failed, in words that repeat nothing of it."""
        return "" if self.failure is None else reason_of(self.failure)


def reason_of(error: StorageError) -> str:
    """The error's reason; without one, the text of its code and the function that raised it.

    The text for the client is not used, because it may repeat a property.
    """
    if error.reason is not None:
        return error.reason
    text = _PLACEHOLDER.sub("...", ERRORS[error.code].text)
    place = _raised_in(error.__traceback__)
    return f"{text} ({place})" if place else text


_PLACEHOLDER: Final = re.compile(r"\{\w*\}")


def _raised_in(traceback: TracebackType | None) -> str:
    """The module and the function that raised, such as `json_payload.read_entity`."""
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = traceback.tb_frame
    module = str(frame.f_globals.get("__name__", "")).rpartition(".")[2]
    return f"{module}.{frame.f_code.co_name}"
