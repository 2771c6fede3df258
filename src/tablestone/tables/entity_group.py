"""Carrying out entity writes: a single one or a whole entity group transaction, as one atomic commit.

Reads the entities that merges need, lets `writes` decide, commits, and tries again if another write came between a
merge's read and its commit. A merge that met such a write queues at the entity, and later merges of the entity queue
behind it: otherwise each round would let one of many merges through, and the others would have asked storage in vain.
A single write is a group of one: there is no second path. Does not know HTTP or batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from tablestone import limits
from tablestone.engines import request_time
from tablestone.engines.contract import (
    ABSENT,
    Change,
    Committed,
    Engine,
    Key,
    WriteSet,
    expectation_holds,
)
from tablestone.engines.write_queues import WriteQueues
from tablestone.model.entity_json import key_of, read_raw, version_of
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey
from tablestone.model.operations import EntityWrite, WriteResult, entity_key
from tablestone.tables import storage_keys
from tablestone.tables.commit_retries import one_more_conflict
from tablestone.tables.writes import (
    conflict_error,
    decide,
    may_decide_again,
    needs_current,
    write_result,
)

_NO_LIMIT = 1 << 62


class EntityGroup:
    """The writes of one transaction. Each is checked when it is added (wire 7.1, 7.3)."""

    def __init__(self) -> None:
        self.writes: list[EntityWrite] = []
        self._row_keys: set[str] = set()

    def add(self, write: EntityWrite) -> None:
        """Add a write, or raise the error of a write that breaks a rule together with the earlier ones."""
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


def entity_queues() -> WriteQueues[Key]:
    """The queues that all calls of `commit_writes` for one engine share."""
    return WriteQueues("entity")


async def commit_writes(
    engine: Engine, queues: WriteQueues[Key], table_id: bytes, writes: Sequence[EntityWrite]
) -> list[WriteResult]:
    """Apply all writes (of one partition, each entity once) or none.

    Raises the error of the first operation that fails, with its index as `operation_index`.
    """
    partition = storage_keys.entity_partition(table_id, entity_key(writes[0]).partition_key)
    merges = any(map(needs_current, writes))
    conflicts = 0
    queued_at: Key | None = None  # one entity at most: no two groups wait for each other
    try:
        if merges and len(writes) == 1:
            place = storage_keys.entity_place(table_id, entity_key(writes[0]))
            if place in queues and may_decide_again(writes[0]):
                await queues.begin(place, request_time.left())
                queued_at = place
        while True:
            if merges:
                changes = _decide_on(await _read_current(engine, table_id, writes), writes)
            else:
                changes = [decide(write, None) for write in writes]
            outcome = await engine.commit(WriteSet(partition, changes))
            if isinstance(outcome, Committed):
                committed = zip(writes, changes, outcome.versions, strict=True)
                return [write_result(*each) for each in committed]
            write = writes[outcome.index]
            if not may_decide_again(write):
                raise conflict_error(write, outcome.version_found).at(outcome.index)
            conflicts = one_more_conflict(conflicts, "an entity")
            if queued_at is None:
                place = storage_keys.entity_place(table_id, entity_key(write))
                await queues.begin(place, request_time.left())
                queued_at = place
    finally:
        if queued_at is not None:
            queues.end(queued_at)


async def _read_current(
    engine: Engine, table_id: bytes, writes: Sequence[EntityWrite]
) -> dict[EntityKey, bytes]:
    """The entities of all operations at one moment: a merge that fails must not hide an earlier failure."""
    if len(writes) == 1:
        key = entity_key(writes[0])
        found = await engine.get(storage_keys.entity_place(table_id, key))
        return {} if found is None else {key: found}
    ranges = sorted(storage_keys.entity_range(table_id, entity_key(write)) for write in writes)
    rows = await engine.read(ranges, rows_max=len(ranges), bytes_max=_NO_LIMIT)
    return {key_of(read_raw(stored)): stored for stored in rows.values}


def _decide_on(current: dict[EntityKey, bytes], writes: Sequence[EntityWrite]) -> list[Change]:
    """The changes of all operations, decided in order. An operation before a merge that fails is checked too."""
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
