"""What a write to an entity means: pure decisions from an operation and what is there now.

Turns each operation into one `Change` for the engine (what must hold, what to store then), and a `Conflict` back into
the service's error (outcome matrix of wire 3.9). Does no I/O and does not know tables, ranges or HTTP.
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
from tablestone.entity import EntityKey, encode_key
from tablestone.entity_json import (
    entity_renderer,
    in_ordinal_order,
    require_entity_limits,
    split_members,
    version_of,
)
from tablestone.errors import StorageError
from tablestone.operations import (
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
    """True where the expectation of the change is only what was read, so that a conflict means: decide again."""
    return needs_current(write) and not (
        isinstance(write, MergeEntity) and write.if_match != IF_MATCH_ANY
    )


def _expectation(if_match: IfMatch) -> Expectation:
    return PRESENT if if_match == IF_MATCH_ANY else if_match


def _put(key: EntityKey, texts: Mapping[str, str]) -> Put:
    """A replacement, whose properties the service leaves in ordinal order (wire 3.11)."""
    return Put(entity_renderer(key, in_ordinal_order(texts)))


def decide(write: EntityWrite, current: bytes | None) -> Change:
    """The change that carries the operation out. `current` is what was read, for those that `needs_current`.

    Raises the error of a merge whose precondition what was read already fails, or whose entity breaks a limit; nothing
    of the others.
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
    """The error of an operation whose precondition failed on what is there (wire 3.9)."""
    if isinstance(write, InsertEntity):
        return StorageError("EntityAlreadyExists")
    if version_found == ABSENT:
        return StorageError("ResourceNotFound")
    return StorageError("UpdateConditionNotSatisfied")


def write_result(write: EntityWrite, change: Change, version: int) -> WriteResult:
    """What the operation answers once its change has been given a version."""
    if isinstance(write, InsertEntity):
        assert isinstance(change.mutation, Put)
        return EntityInserted(change.mutation.render, version)
    return Deleted() if isinstance(write, DeleteEntity) else EntityWritten(version)
