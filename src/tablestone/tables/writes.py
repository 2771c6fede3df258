"""The meaning of a write to an entity: pure decisions from an operation and the present entity.

Turns each operation into one `Change` for the engine (an expectation, and the value to store), and a `Conflict` back
into the service's error (outcome matrix of wire 3.9). Does no I/O and does not know tables, ranges or HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    PRESENT,
    Change,
    Expectation,
    Put,
    expectation_holds,
)
from tablestone.model.entity_json import (
    entity_renderer,
    in_ordinal_order,
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

_MERGES: Final = (MergeEntity, InsertOrMergeEntity)


def needs_current(write: EntityWrite) -> bool:
    """True for the operations that cannot be decided without reading the entity: those that merge."""
    return isinstance(write, _MERGES)


def may_decide_again(write: EntityWrite) -> bool:
    """True if the change only expects the version that was read, so it is decided again after a conflict."""
    return needs_current(write) and not (
        isinstance(write, MergeEntity) and write.if_match != IF_MATCH_ANY
    )


def _expectation(if_match: IfMatch) -> Expectation:
    return PRESENT if if_match == IF_MATCH_ANY else if_match


def _put(key: EntityKey, texts: Mapping[str, str]) -> Put:
    """A replacement; the service stores its properties in ordinal order (wire 3.11)."""
    return Put(entity_renderer(key, in_ordinal_order(texts)))


def decide(write: EntityWrite, current: bytes | None) -> Change:
    """The change that carries out the operation. `current` is the entity that was read, if the write `needs_current`.

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
        texts = split_members(current)
        version = version_of(current)
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
    """The result of the operation, after its change got this version."""
    if isinstance(write, InsertEntity):
        assert isinstance(change.mutation, Put)
        return EntityInserted(change.mutation.render, version)
    return Deleted() if isinstance(write, DeleteEntity) else EntityWritten(version)
