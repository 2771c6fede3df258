"""The table service and its engine, with a record of every operation: its parts, its plan, the rows read, the outcome.

A storage of the test kit uses these in the place of `TableService` and of its engine; a server outside of the test kit
never does. They change no answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tablestone.engines.contract import Hint, Key, KeyRange, Rows, Snapshot
from tablestone.engines.forwarding_engine import ForwardingEngine, ForwardingSnapshot
from tablestone.model.errors import StorageError
from tablestone.model.filter_tree import print_filter, property_names
from tablestone.model.operations import (
    EntitiesPage,
    EntityFound,
    EntityGroupTransaction,
    EntityWrite,
    GetEntity,
    Operation,
    QueryEntities,
    Result,
    TablesPage,
    entity_key,
)
from tablestone.query.plan import plan_query
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.service import TableService
from tablestone.testing.last_requests import CURRENT, RecordedRequest

Next = Callable[[Owner, Operation], Awaitable[Result]]
Around = Callable[[RecordedRequest, Owner, Operation, Next], Awaitable[Result]]
"""Carries out an operation with its last argument, or does something else in its place."""


class ObservedTables(TableService):
    """A `TableService` that fills in the record of the present request, and lets `around` carry out the operation."""

    def __init__(self, *arguments: Any, around: Around, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._around = around

    async def execute(self, owner: Owner, operation: Operation) -> Result:
        """Like `TableService.execute`."""
        record = CURRENT.get()
        if record is None:
            return await super().execute(owner, operation)
        describe(record, owner, operation)
        record.is_secondary = _names_secondary(record)
        try:
            result = await self._around(record, owner, operation, super().execute)
        except StorageError as error:
            record.error = error.code
            raise
        if isinstance(result, EntitiesPage):
            record.rows_returned += len(result.stored)
        elif isinstance(result, TablesPage):
            record.rows_returned += len(result.tables)
        elif isinstance(result, EntityFound):
            record.rows_returned += 1
        return result


def describe(record: RecordedRequest, owner: Owner, operation: Operation) -> None:
    """Write the operation and its parts into the record."""
    record.account = owner.name
    record.operation = type(operation).__name__
    record.table = getattr(operation, "table", "")
    if isinstance(operation, QueryEntities):
        record.plan = plan_query(operation.filter).kind.value
        record.filter = "" if operation.filter is None else print_filter(operation.filter)
        record.filter_properties = tuple(sorted(property_names(operation.filter)))
    record.partition = partition_of(operation)


def _names_secondary(record: RecordedRequest) -> bool:
    """Whether the URL names the secondary, in its path or its host (wire 1.1)."""
    name = f"{record.account}-secondary"
    return record.path.startswith(f"/{name}") or record.headers.get("host", "").startswith(name)


def partition_of(operation: Operation) -> str:
    """The PartitionKey of a write, of a transaction or of a point read; empty for any other operation."""
    if isinstance(operation, EntityGroupTransaction):
        return operation.partition_key
    if isinstance(operation, GetEntity):
        return operation.key.partition_key
    return entity_key(operation).partition_key if isinstance(operation, EntityWrite) else ""


def _count(rows: int, first: Key) -> None:
    """Count rows of entities. Rows of the catalog do not count: a query does not ask for them."""
    record = CURRENT.get()
    if record is not None and first.partition.startswith(storage_keys.ENTITIES):
        record.rows_read += rows


class ObservedEngine(ForwardingEngine):
    """An engine that counts the rows that the present request reads.

    Where an engine leaves out rows by a hint, only the rows that it returns count.
    """

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
        self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int, hint: Hint | None = None
    ) -> Rows:
        rows = await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint)
        _count(len(rows.values), ranges[0].start)
        return rows
