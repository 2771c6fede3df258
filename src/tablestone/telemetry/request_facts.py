"""Facts of a request for the counts of insight: its table and partition, the keys of its page, its largest entity.

Knows operations and results; counts nothing.
"""

from __future__ import annotations

from typing import Final

from tablestone.model.entity import entity_size
from tablestone.model.entity_json import key_of, read_raw, typed_properties
from tablestone.model.errors import StorageError
from tablestone.model.operations import (
    DeleteEntity,
    EntitiesPage,
    EntityGroupTransaction,
    GetEntity,
    InsertEntity,
    InsertOrMergeEntity,
    InsertOrReplaceEntity,
    MergeEntity,
    QueryEntities,
    UpdateEntity,
)
from tablestone.telemetry.query_shapes import partition_of

LARGE_BODY_BYTES: Final = 256 * 1024
"""The body from which its entities are measured: half of the largest entity has no shorter text."""
UPSERTS: Final = (InsertOrReplaceEntity, InsertOrMergeEntity)
"""The types of writes of an entity that may be there or not; no answer tells which it was."""
WITH_ENTITY: Final = (*(InsertEntity, UpdateEntity, MergeEntity), *UPSERTS)
"""The types of writes that have an entity."""


def place_of(operation: object) -> tuple[str, str | None] | None:
    """The table and the PartitionKey of an operation on entities; None for any other operation."""
    if isinstance(operation, GetEntity | DeleteEntity):
        return operation.table, operation.key.partition_key
    if isinstance(operation, QueryEntities):
        return operation.table, partition_of(operation.filter)
    if isinstance(operation, EntityGroupTransaction):
        return operation.table, operation.partition_key
    if isinstance(operation, WITH_ENTITY):
        return operation.table, operation.entity.key.partition_key
    return None


def span_of(query: QueryEntities, page: EntitiesPage) -> tuple[str, str | None]:
    """The first and the last PartitionKey that a page of a scan passed; "" and None for the ends of the table."""
    reads_all = page.plan == "table"
    first, last = "", None
    if query.token is not None:
        first = query.token.next_partition_key
    elif page.stored and not reads_all:
        first = key_of(read_raw(page.stored[0])).partition_key
    if page.token is not None:
        last = page.token.next_partition_key
    elif page.stored and not reads_all:
        last = key_of(read_raw(page.stored[-1])).partition_key
    return first, last


def is_answer(operation: object, failure: StorageError) -> bool:
    """Whether the error only says that there is nothing to read, or nothing new: no fault of the request."""
    return isinstance(operation, GetEntity) and (
        failure.code == "ResourceNotFound" or failure.status == 304
    )


def largest_entity(operation: object) -> int:
    """The bytes of the largest entity that is written, by the documented formula (wire 9)."""
    writes = operation.writes if isinstance(operation, EntityGroupTransaction) else (operation,)
    most = 0
    for write in writes:
        if isinstance(write, WITH_ENTITY):
            members = write.entity.members.values()
            if (
                sum(map(len, members)) > most // 4
            ):  # a text has at least a quarter of the bytes that it stands for
                raw = read_raw(f"{{{','.join(members)}}}".encode("utf-8", "surrogatepass"))
                most = max(most, entity_size(write.entity.key, typed_properties(raw)))
    return most
