"""Writes of entities: what each operation changes under which condition, and one atomic commit for all of a group.

`decide` turns an operation into one `Change` for the engine (an expectation, and the value to store), and
`conflict_error` turns a `Conflict` back into the service's error (outcome matrix of wire 3.9). `commit_writes` reads
the entities that merges need, commits, and tries again if another write came between a merge's read and its commit.
A single write is a group of one: there is no second path.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tablestone import limits
from tablestone.engines import request_time
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    PRESENT,
    Change,
    Committed,
    Engine,
    EngineUnavailable,
    Expectation,
    Key,
    KeyRange,
    Put,
    WriteSet,
    expectation_holds,
)
from tablestone.engines.request_time import WriteQueues
from tablestone.model.entity_json import (
    entity_renderer,
    in_ordinal_order,
    key_of,
    read_raw,
    require_entity_limits,
    split_members,
    version_of,
)
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey, encode_key
from tablestone.model.operations import (
    IF_MATCH_ANY,
    Deleted,
    DeleteEntity,
    EntityInserted,
    EntityWrite,
    EntityWritten,
    IfMatch,
    InsertEntity,
    InsertOrMergeEntity,
    InsertOrReplaceEntity,
    MergeEntity,
    WriteResult,
    entity_key,
)
from tablestone.tables import storage_keys


class Overtaken(EngineUnavailable):
    """Other commits were first again and again. Nothing was applied, and the caller may try again."""


def one_more_conflict(conflicts: int, what: str) -> int:
    """The number of conflicts including this one; `Overtaken` if it reaches `limits.COMMIT_ATTEMPTS_MAX`.

    `what` names the contended object in the error's text.
    """
    if conflicts + 1 >= limits.COMMIT_ATTEMPTS_MAX:
        raise Overtaken(f"Other requests keep changing {what}.")
    return conflicts + 1


_MERGES: Final = (MergeEntity, InsertOrMergeEntity)
"""The operations that cannot be decided without reading the entity."""


def may_decide_again(write: EntityWrite) -> bool:
    """True if the change only expects the version that was read, so it is decided again after a conflict."""
    if isinstance(write, MergeEntity):
        return write.if_match == IF_MATCH_ANY
    return isinstance(write, InsertOrMergeEntity)


def _expectation(if_match: IfMatch) -> Expectation:
    return PRESENT if if_match == IF_MATCH_ANY else if_match


def _put(key: EntityKey, texts: Mapping[str, str]) -> Put:
    """A replacement; the service stores its properties in ordinal order (wire 3.11)."""
    return Put(entity_renderer(key, in_ordinal_order(texts)))


def decide(write: EntityWrite, current: bytes | None) -> Change:
    """The change that carries out the operation. `current` is the entity that was read, for an operation that merges.

    Raises an error only for a merge: if the entity that was read fails its precondition, or if its result breaks a
    limit.
    """
    if isinstance(write, InsertEntity):
        key, members = write.entity
        return Change(encode_key(key.row_key), ABSENT, Put(entity_renderer(key, members.values())))
    row = encode_key(entity_key(write).row_key)
    if isinstance(write, DeleteEntity):
        return Change(row, _expectation(write.if_match), DELETE)
    if isinstance(write, _MERGES):
        return _decide_merge(write, row, current)
    expectation = ANY if isinstance(write, InsertOrReplaceEntity) else _expectation(write.if_match)
    return Change(row, expectation, _put(write.entity.key, write.entity.members))


def _decide_merge(
    write: MergeEntity | InsertOrMergeEntity, row: bytes, current: bytes | None
) -> Change:
    """Merge keeps what the operation does not name; a null never removes anything (wire 3.10)."""
    texts: dict[str, str] = {}
    version = ABSENT
    if current is not None:
        texts, version = split_members(current), version_of(current)
    if isinstance(write, MergeEntity) and not expectation_holds(
        _expectation(write.if_match), version
    ):
        raise conflict_error(write, version)
    texts.update(write.entity.members)
    require_entity_limits(write.entity.key, texts)
    return Change(row, version, _put(write.entity.key, texts))


def conflict_error(write: EntityWrite, version_found: int) -> StorageError:
    """The error of an operation whose precondition failed, by the version that was found (wire 3.9)."""
    if isinstance(write, InsertEntity):
        return StorageError("EntityAlreadyExists")
    if version_found == ABSENT:
        return StorageError("ResourceNotFound")
    return StorageError("UpdateConditionNotSatisfied")


def write_result(write: EntityWrite, change: Change, version: int) -> WriteResult:
    if isinstance(write, InsertEntity):
        assert isinstance(change.mutation, Put)
        return EntityInserted(change.mutation.render, version)
    return Deleted() if isinstance(write, DeleteEntity) else EntityWritten(version)


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


async def commit_writes(
    engine: Engine, queues: WriteQueues[Key], table_id: bytes, writes: Sequence[EntityWrite]
) -> list[WriteResult]:
    """Apply all writes (of one partition, each entity once) or none. All calls for one engine share the queues.

    A merge that another write came before queues at the entity, and later merges of the entity queue behind it:
    otherwise each round would let one of many merges through, and the others would have asked storage in vain.
    Raises the error of the first operation that fails, with its index as `operation_index`.
    """
    partition = storage_keys.entity_partition(table_id, entity_key(writes[0]).partition_key)
    merges = any(isinstance(write, _MERGES) for write in writes)
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
    places = sorted([storage_keys.entity_place(table_id, entity_key(write)) for write in writes])
    ranges = [KeyRange.of_row(*place) for place in places]
    rows = await engine.read(ranges, rows_max=len(ranges), bytes_max=1 << 62)
    return {key_of(read_raw(stored)): stored for stored in rows.values}


def _decide_on(current: dict[EntityKey, bytes], writes: Sequence[EntityWrite]) -> list[Change]:
    """The changes of all operations, decided in order. An operation before a merge that fails is checked too."""
    changes: list[Change] = []
    for index, write in enumerate(writes):
        stored = current.get(entity_key(write))
        try:
            change = decide(write, stored)
        except StorageError as error:
            error.operation_index = index
            raise
        version = ABSENT if stored is None else version_of(stored)
        if not expectation_holds(change.expectation, version):
            raise conflict_error(write, version).at(index)
        changes.append(change)
    return changes
