"""The record of one request for the operator: its operation, its result and its failure.

The steps of a request store values in it. Its properties turn them into names and numbers, and never into a key, a
property or a signature, although the operation contains them.
"""

import re
from types import TracebackType
from typing import Final, NamedTuple

from tablestone.model import operations
from tablestone.model.errors import ERRORS, StorageError
from tablestone.model.keys import TABLE_NAME

BATCH: Final = "Batch"
"""The name of a batch whose operation is unknown."""
OWN_AGENTS: Final = b"tablestone"
"""The User-Agent of all our tools begins with this."""
TOOL_AGENTS: Final = b"tablestone-"
"""That of the tools that look at tables or copy them: not of `query` and other commands that do a program's work."""


class RefusedTable(NamedTuple):
    """The table in the address of a request that was refused before its operation was decoded."""

    table: str
    is_found: bool
    """False: the table may not exist."""


class RequestDetails:
    """The part of a record for access logs and traces."""

    def __init__(self, method: str, client: str) -> None:
        self.method = method
        self.client = client
        self.request_id = ""
        self.client_request_id: bytes | None = None
        self.caller = ""
        self.authenticated_at = 0.0
        """When the caller was known, on the record's clock."""
        self.at_seconds = 0.0
        """Wall-clock time."""


class RequestRecord:
    """Every request has one, so it is small: only logs and traces add `details`. Its clock never steps back."""

    def __init__(self, started: float, details: RequestDetails | None = None) -> None:
        self.started = started
        self.ended = started
        self.details = details
        self.account = ""
        self.is_batch = False
        self.operation: operations.Operation | None = None
        self.result: operations.Result | None = None
        """None for a point read, to keep the record small."""
        self.failure: StorageError | None = None
        """The error in the answer; of a batch, the error inside it."""
        self.refused: RefusedTable | None = None
        """Set only with a failure, and so is `asked`."""
        self.asked = ""
        """The operation that a request asked for that was refused before it was decoded."""
        self.is_ours = False
        """Whether any tool of ours sent the request: no index is made for it."""
        self.from_tools = False
        """Whether a tool of ours that looks at tables or copies them sent it."""
        self.status = 0
        self.bytes_in = 0
        """Bytes of the body."""
        self.bytes_out = 0

    @property
    def operation_name(self) -> str:
        """The operation's name in `model.operations`; empty if the request failed too early."""
        if self.operation is not None:
            return type(self.operation).__name__
        return BATCH if self.is_batch else ""

    @property
    def table(self) -> str:
        """The operation's table, or a valid name in the address: there may be anything, even a signature."""
        if self.operation is None:
            named = "" if self.refused is None else self.refused.table
            return named if TABLE_NAME.fullmatch(named) else ""
        return getattr(self.operation, "table", "")

    @property
    def entities(self) -> int:
        """Entities in the answer, or that it counts, or entities written."""
        if isinstance(self.operation, operations.GetEntity):
            return int(self.failure is None)
        result = self.result
        if isinstance(result, operations.EntitiesPage):
            return result.found
        if isinstance(result, operations.TransactionCommitted):
            return len(result.results)
        if result is None or isinstance(result, operations.TablesPage):
            return 0
        return 1 if hasattr(result, "version") else 0

    @property
    def writes(self) -> int:
        """The operations of an entity group transaction; 0 for any other operation."""
        operation = self.operation
        return (
            len(operation.writes) if isinstance(operation, operations.EntityGroupTransaction) else 0
        )

    @property
    def plan(self) -> str:
        """The plan of a read; empty for any other operation."""
        if isinstance(self.result, operations.EntitiesPage):
            return self.result.plan
        return "point" if isinstance(self.operation, operations.GetEntity) else ""

    @property
    def error_code(self) -> str:
        return "" if self.failure is None else self.failure.code

    @property
    def reason(self) -> str:
        """Why the request failed, in words that repeat nothing of the request."""
        return "" if self.failure is None else reason_of(self.failure)


def reason_of(error: StorageError) -> str:
    """The error's reason, or else its code and the function that raised it: the client's text may repeat a property."""
    if error.reason is not None:
        return error.reason
    text = _PLACEHOLDER.sub("...", ERRORS[error.code].text)
    function = _raised_in(error.__traceback__)
    return f"{text} ({function})" if function else text


_PLACEHOLDER: Final = re.compile(r"\{\w*\}")


def _raised_in(traceback: TracebackType | None) -> str:
    """The module and function that raised, such as `json_payload.decode_entity`."""
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = traceback.tb_frame
    module = str(frame.f_globals.get("__name__", "")).rpartition(".")[2]
    return f"{module}.{frame.f_code.co_name}"
