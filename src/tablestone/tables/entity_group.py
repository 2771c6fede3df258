"""Entity writes carried out: one alone or a whole entity group transaction, as one atomic commit.

Reads what merges need, lets `writes` decide, commits, and tries again where another write came between a merge's read
and its commit. A lone write is a group of one: there is no second path. Does not know HTTP or batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from tablestone import limits
from tablestone.engines.contract import (
    ABSENT,
    Change,
    Committed,
    Engine,
    WriteSet,
    expectation_holds,
)
from tablestone.entity import EntityKey
from tablestone.entity_json import key_of, read_raw, version_of
from tablestone.errors import StorageError
from tablestone.operations import EntityWrite, WriteResult, entity_key
from tablestone.tables import keys
from tablestone.tables.writes import (
    conflict_error,
    decide,
    may_decide_again,
    needs_current,
    write_result,
)

_NO_LIMIT = 1 << 62


class EntityGroup:
    """Writes collected for one transaction, held to its rules as they come (wire 7.1, 7.3)."""

    def __init__(self) -> None:
        self.writes: list[EntityWrite] = []
        self._row_keys: set[str] = set()

    def add(self, write: EntityWrite) -> None:
        """Add a write, or raise what is wrong with it beside those before it."""
        if len(self.writes) == limits.CHANGE_SET_OPERATIONS_MAX:
            raise StorageError(
                "InvalidInput",
                "The batch request operation exceeds the maximum 100 changes per change set.",
            )
        key = entity_key(write)
        if self.writes:
            first = self.writes[0]
            same_table = write.table == first.table or write.table.lower() == first.table.lower()
            if not same_table or key.partition_key != entity_key(first).partition_key:
                raise StorageError("CommandsInBatchActOnDifferentPartitions")
        if key.row_key in self._row_keys:
            raise StorageError("InvalidDuplicateRow")
        self._row_keys.add(key.row_key)
        self.writes.append(write)


async def commit_writes(
    engine: Engine, table_id: bytes, writes: Sequence[EntityWrite]
) -> list[WriteResult]:
    """Apply all writes (of one partition, each entity once) or none.

    Raises the error of the first operation that fails, with its index as `operation_index`.
    """
    partition = keys.entity_partition(table_id, entity_key(writes[0]).partition_key)
    merges = any(map(needs_current, writes))
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        if merges:
            changes = _decide_on(await _read_current(engine, table_id, writes), writes)
        else:
            changes = [decide(write, None) for write in writes]
        outcome = await engine.commit(WriteSet(partition, changes))
        if isinstance(outcome, Committed):
            committed = zip(writes, changes, outcome.versions, strict=True)
            return [write_result(write, change, version) for write, change, version in committed]
        write = writes[outcome.index]
        if not may_decide_again(write):
            raise conflict_error(write, outcome.version_found).at(outcome.index)
    raise StorageError("ServerBusy")


async def _read_current(
    engine: Engine, table_id: bytes, writes: Sequence[EntityWrite]
) -> dict[EntityKey, bytes]:
    """The entities of all operations as they are at one moment: a failing merge must not hide an earlier failure."""
    if len(writes) == 1:
        key = entity_key(writes[0])
        found = await engine.get(keys.entity_place(table_id, key))
        return {} if found is None else {key: found}
    ranges = sorted(keys.entity_range(table_id, entity_key(write)) for write in writes)
    rows = await engine.read(ranges, rows_max=len(ranges), bytes_max=_NO_LIMIT)
    return {key_of(read_raw(stored)): stored for stored in rows.values}


def _decide_on(current: dict[EntityKey, bytes], writes: Sequence[EntityWrite]) -> list[Change]:
    """Every operation decided, in order; what was read judges those before a failing merge too."""
    changes: list[Change] = []
    for index, write in enumerate(writes):
        stored = current.get(entity_key(write))
        try:
            change = decide(write, stored)
        except StorageError as error:
            raise error.at(index) from error
        version = ABSENT if stored is None else version_of(stored)
        if not expectation_holds(change.expectation, version):
            raise conflict_error(write, version).at(index)
        changes.append(change)
    return changes
