"""The last requests of a storage, filled in by the table service and the engine. Signatures are never recorded."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tablestone.engines.contract import Hint, Key, KeyRange, Rows, Snapshot
from tablestone.engines.forwarding_engine import ForwardingEngine, ForwardingSnapshot
from tablestone.insight.counts import place_of
from tablestone.model import operations
from tablestone.model.errors import StorageError
from tablestone.model.filter_tree import print_filter
from tablestone.query.plan import plan_query
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.service import TableService

REQUESTS_KEPT_MAX: Final = 1000


class Ending(NamedTuple):
    """`sent` is None for no answer; else how much of the body: a share from 0 to 1 before a reset, otherwise bytes."""

    sent: float | None
    is_reset: bool


@dataclass(slots=True)
class RecordedRequest:
    """One request and its answer. A batch with a transaction is one request.

    `operation`, `account` and `table` are empty if the request was refused before its operation was known. Only queries
    have a `plan`. `partition` is the PartitionKey of a write or a point read. `status` is 0 while the request is under
    way, and if a fault lost the answer.
    """

    number: int
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_secondary: bool = False
    has_machine_date: bool = field(default=False, repr=False)
    account: str = ""
    operation: str = ""
    table: str = ""
    plan: str = ""
    filter: str = ""
    partition: str = ""
    status: int = 0
    error: str = ""
    fault: str = ""
    rows_read: int = 0
    rows_returned: int = 0
    retry_after: int | None = None
    ending: Ending | None = None

    def __str__(self) -> str:
        parts = [f"#{self.number}", self.operation or f"{self.method} {self.path}"]
        if self.table:
            parts.append(self.table)
        if self.plan:
            parts.append(f"[{self.plan}: {self.rows_read} read, {self.rows_returned} returned]")
        parts.append(f"-> {self.status or 'no answer'}")
        if self.error:
            parts.append(self.error)
        if self.fault:
            parts.append(f"(fault: {self.fault})")
        return " ".join(parts)


CURRENT: Final[ContextVar[RecordedRequest | None]] = ContextVar("CURRENT", default=None)
"""The record of the request that the present task answers."""
Keep = Callable[[RecordedRequest], None]
"""Takes a record that `LastRequests` is about to drop."""


class LastRequests:
    """The last requests of one storage, the oldest first."""

    def __init__(self) -> None:
        self._requests: deque[RecordedRequest] = deque(maxlen=REQUESTS_KEPT_MAX)
        self.count = 0
        """How many requests there have been, those that were dropped included."""
        self.keepers: tuple[Keep, ...] = ()
        """Called on the loop of the storage with each request that is dropped."""

    def begin(self, method: str, path: str, headers: Mapping[str, str]) -> RecordedRequest:
        """Add the record of a request that has arrived, and return it."""
        self.count += 1
        if self.keepers and len(self._requests) == REQUESTS_KEPT_MAX:
            for keep in self.keepers:
                keep(self._requests[0])
        record = RecordedRequest(self.count, method, path, headers)
        self._requests.append(record)
        return record

    def since(self, count: int) -> list[RecordedRequest]:
        """The requests after the first `count` that are still kept."""
        return [record for record in tuple(self._requests) if record.number > count]


Next = Callable[[Owner, operations.Operation], Awaitable[operations.Result]]
Around = Callable[
    [RecordedRequest, Owner, operations.Operation, Next], Awaitable[operations.Result]
]
"""Carries out an operation with its last argument, or does something else instead."""


class ObservedTables(TableService):
    """A `TableService` that fills in the record of the present request and lets `around` carry out the operation."""

    def __init__(self, *arguments: Any, around: Around, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._around = around

    async def execute(self, owner: Owner, operation: operations.Operation) -> operations.Result:
        record = CURRENT.get()
        if record is None:
            return await super().execute(owner, operation)
        _describe(record, owner, operation)
        try:
            result = await self._around(record, owner, operation, super().execute)
        except StorageError as error:
            record.error = error.code
            raise
        if isinstance(result, operations.EntitiesPage):
            record.plan = result.plan or record.plan  # an index may serve it
            record.rows_returned += result.found
        elif isinstance(result, operations.TablesPage):
            record.rows_returned += len(result.tables)
        elif isinstance(result, operations.EntityFound):
            record.rows_returned += 1
        return result


def _describe(record: RecordedRequest, owner: Owner, operation: operations.Operation) -> None:
    record.account = owner.name
    record.operation = type(operation).__name__
    record.table = getattr(operation, "table", "")
    if isinstance(operation, operations.QueryEntities):
        record.plan = plan_query(operation.filter).kind.value
        record.filter = "" if operation.filter is None else print_filter(operation.filter)
    elif place := place_of(operation):
        record.partition = place[1] or ""
    # The URL names the secondary in its path or in its host (wire 1.1).
    secondary = f"{record.account}-secondary"
    host = record.headers.get("host", "")
    record.is_secondary = record.path.startswith(f"/{secondary}") or host.startswith(secondary)


def _count(rows: int, first: Key) -> None:
    """Count rows of entities, but not those of the catalog."""
    record = CURRENT.get()
    if record is not None and first.partition.startswith(storage_keys.ENTITIES):
        record.rows_read += rows


class ObservedEngine(ForwardingEngine):
    """An engine that counts the rows that it reads for the present request, also those that a hint leaves out."""

    async def get(self, key: Key) -> bytes | None:
        value = await super().get(key)
        _count(value is not None, key)
        return value

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        rows = await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max)
        _count(len(rows.values), ranges[0].start)
        return rows

    async def snapshot(self) -> Snapshot:
        return _ObservedSnapshot(await super().snapshot())

    async def close(self) -> None:
        """Do nothing: the storage that opened the engine closes it."""


class _ObservedSnapshot(ForwardingSnapshot):
    async def read(
        self,
        ranges: Sequence[KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: Hint | None = None,
        reverse: bool = False,
    ) -> Rows:
        rows = await super().read(
            ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint, reverse=reverse
        )
        _count(len(rows.values) + rows.left_out, ranges[0].start)
        return rows
