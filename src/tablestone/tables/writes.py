"""Writes of entities: what each operation changes under which condition, and one atomic commit for all of a group.

`change_of` turns an operation into one `Change` for the engine, and `conflict_error` turns a `Conflict` back into the
service's error (outcome matrix of wire 3.9). A single write is a group of one: there is no second path.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from tablestone import limits
from tablestone.engines.change_record import Note
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    PRESENT,
    Change,
    Committed,
    Engine,
    Expectation,
    Mutation,
    Put,
    Refusal,
    ReliedRows,
    Update,
    WriteSet,
    WriteTooLarge,
)
from tablestone.limits import EntityLimits
from tablestone.model.entity import Entity
from tablestone.model.entity_json import (
    entity_renderer,
    in_ordinal_order,
    require_entity_limits,
    split_members,
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
    MergeEntity,
    UpdateEntity,
    WriteResult,
    entity_key,
)
from tablestone.tables import storage_keys
from tablestone.tables.expiry import LiveRows
from tablestone.tables.indexes import EntriesOf


def _expectation(if_match: IfMatch) -> Expectation:
    return PRESENT if if_match == IF_MATCH_ANY else if_match


def _put(key: EntityKey, texts: Mapping[str, str]) -> Put:
    """A replacement; the service stores its properties in ordinal order (wire 3.11)."""
    return Put(entity_renderer(key, in_ordinal_order(texts)))


def change_of(write: EntityWrite, most: EntityLimits) -> Change:
    """The change that carries out the operation: what it expects of the entity, and what is stored then."""
    if isinstance(write, InsertEntity):
        key, members = write.entity
        return Change(encode_key(key.row_key), ABSENT, Put(entity_renderer(key, members.values())))
    row = encode_key(entity_key(write).row_key)
    if isinstance(write, DeleteEntity):
        return Change(row, _expectation(write.if_match), DELETE)
    expectation = ANY
    if isinstance(write, (UpdateEntity, MergeEntity)):
        expectation = _expectation(write.if_match)
    if isinstance(write, (MergeEntity, InsertOrMergeEntity)):
        return Change(row, expectation, Update(partial(_merged, write.entity, most)))
    return Change(row, expectation, _put(write.entity.key, write.entity.members))


def _merged(entity: Entity, most: EntityLimits, current: bytes | None) -> Put | Refusal:
    """Merge keeps what the operation does not name; a null never removes anything (wire 3.10)."""
    key, members = entity
    if current is None:
        return _put(key, members)
    old = split_members(current)
    texts = {**old, **members}
    try:
        require_entity_limits(key, texts, most)
    except StorageError as error:
        return Refusal(error)
    render = entity_renderer(key, in_ordinal_order(texts))
    return Put(render, partial(_replaced, current, old, members))


def _replaced(current: bytes, old: Mapping[str, str], members: Mapping[str, str]) -> bytes:
    """The ETag of an entity and those of its properties that a merge names, as JSON."""
    replaced = [old[name] for name in members if name in old]
    etag = current[: current.index(b",")].decode("ascii")
    return (",".join((etag, *replaced)) + "}").encode("ascii")


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
                early=False,
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


def _limited(changes: Sequence[Change], most: int) -> list[Change]:
    """The changes of a transaction that is refused if the entities, as they are stored, have more bytes than `most`.

    An update keeps what is stored, so it is measured inside the commit.
    """
    put = sum(_stored_bytes(change.mutation) for change in changes)
    if put > most:
        raise _too_large(most)
    sizes = [0] * len(changes)

    def decide(index: int, update: Update, current: bytes | None) -> Put | Refusal:
        decided = update.decide(current)
        # Engines decide updates in their order; after an attempt in vain, later ones have their size of that attempt.
        sizes[index] = _stored_bytes(decided)
        if put + sum(sizes[: index + 1]) <= most:
            return decided
        return Refusal(_too_large(most))

    return [
        change._replace(mutation=Update(partial(decide, index, change.mutation)))
        if isinstance(change.mutation, Update)
        else change
        for index, change in enumerate(changes)
    ]


def _too_large(most: int) -> StorageError:
    text = f"The entities that the transaction writes would have more than {most >> 20} MiB as they are stored."
    return StorageError("RequestBodyTooLarge", text)


def _stored_bytes(mutation: Mutation | Refusal) -> int:
    return len(mutation.render(1)) if isinstance(mutation, Put) else 0


async def commit_writes(
    engine: Engine | LiveRows,
    note: Note,
    writes: Sequence[EntityWrite],
    most: EntityLimits,
    entries_of: EntriesOf | None = None,
    relies_on: ReliedRows | None = None,
) -> list[WriteResult] | None:
    """Apply all writes (of one partition, each entity once) or none; None if a row of `relies_on` has changed.

    Raises the error of the first operation that fails, with its `operation_index`. The note's subject is the table id.
    """
    partition = storage_keys.entity_partition(note.subject, entity_key(writes[0]).partition_key)
    changes = [change_of(write, most) for write in writes]
    if most.transaction_bytes is not None and len(changes) > 1:
        changes = _limited(changes, most.transaction_bytes)
    write_set = WriteSet(partition, changes, note=note, entries_of=entries_of, relies_on=relies_on)
    try:
        outcome = await engine.commit(write_set)
    except WriteTooLarge as too_large:
        raise StorageError("RequestBodyTooLarge", str(too_large)) from too_large
    if isinstance(outcome, Committed):
        return [write_result(*each) for each in zip(writes, changes, outcome.versions, strict=True)]
    if outcome.outdated:
        return None
    error = outcome.refused
    if not isinstance(error, StorageError):
        error = conflict_error(writes[outcome.index], outcome.version_found)
    error.operation_index = outcome.index
    raise error
