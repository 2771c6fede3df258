"""The table service and the engine of a server with traces: each call of a request is a span.

Imported only if traces are asked for. The sweeper and other work beside requests make no spans.
"""

from __future__ import annotations

from collections.abc import Sequence

from tablestone.engines.contract import (
    Committed,
    Conflict,
    Engine,
    Hint,
    Key,
    KeyRange,
    Rows,
    Snapshot,
    WriteSet,
)
from tablestone.engines.figures import MeasuredEngine, Values
from tablestone.engines.forwarding_engine import ForwardingEngine, ForwardingSnapshot
from tablestone.model.operations import Operation, Result
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.service import TableService
from tablestone.telemetry.tracing import current_trace

_ROWS = "db.response.returned_rows"
_BATCH_SIZE = "db.operation.batch.size"


class TracedTables(TableService):
    """Executes each operation inside a span."""

    async def execute(self, owner: Owner, operation: Operation) -> Result:
        trace = current_trace()
        if trace is None:
            return await super().execute(owner, operation)
        with trace.step(f"execute {type(operation).__name__}"):
            return await super().execute(owner, operation)


class TracedEngine(ForwardingEngine):
    """An engine whose reads and commits for a request are spans. `system` is the scheme of its URL."""

    def __init__(self, engine: Engine, system: str) -> None:
        super().__init__(engine)
        self._system = system

    async def get(self, key: Key) -> bytes | None:
        trace = current_trace()
        if trace is None:
            return await super().get(key)
        with trace.call(self._system, "get") as span:
            value = await super().get(key)
            span.set_attribute(_ROWS, int(value is not None))
            return value

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        trace = current_trace()
        if trace is None:
            return await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max)
        with trace.call(self._system, "read") as span:
            rows = await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max)
            span.set_attribute(_ROWS, len(rows.values))
            return rows

    async def snapshot(self) -> Snapshot:
        snapshot = await super().snapshot()
        return snapshot if current_trace() is None else _TracedSnapshot(snapshot, self._system)

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        trace = current_trace()
        if trace is None:
            return await super().commit(write_set)
        with trace.call(self._system, "commit") as span:
            if len(write_set.changes) > 1:  # a batch of one is none, say the conventions
                span.set_attribute(_BATCH_SIZE, len(write_set.changes))
            return await super().commit(write_set)

    def measure(self) -> Values:
        return self._engine.measure() if isinstance(self._engine, MeasuredEngine) else {}


class _TracedSnapshot(ForwardingSnapshot):
    def __init__(self, snapshot: Snapshot, system: str) -> None:
        super().__init__(snapshot)
        self._system = system

    async def read(
        self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int, hint: Hint | None = None
    ) -> Rows:
        trace = current_trace()
        if trace is None:
            return await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint)
        with trace.call(self._system, "read") as span:
            rows = await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint)
            span.set_attribute(_ROWS, len(rows.values))
            return rows
