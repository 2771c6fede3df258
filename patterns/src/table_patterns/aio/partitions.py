"""Thousands of entities in transactions of at most 100, with progress; both can be run again after any failure."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import astuple
from itertools import groupby
from typing import Any, Final

from azure.data.tables import EntityProperty, TableEntity, TableTransactionError, UpdateMode
from azure.data.tables.aio import TableClient

from table_patterns.aio.answers import (
    FAILED,
    etag_of,
    if_unchanged,
    is_refused,
    pause_after,
    quoted,
    require_client,
    submitted,
)
from table_patterns.results import Copied, Deleted

OPERATIONS_MAX: Final = 100
BYTES_MAX: Final = 1_000_000
"""Of a transaction: the service allows 4 MiB, but aiohttp warns that a body over 1 MiB may hold up the event loop."""
ASKED_AGAIN_MAX: Final = 20


async def bulk_delete(
    table: TableClient, query_filter: str, progress: Callable[[Deleted], None] = lambda _: None
) -> Deleted:
    """Delete what a filter finds; an empty filter finds all.

    Each entity is deleted under the ETag that was read. One that has changed is asked again: it is deleted only if the
    filter still finds it. Nothing else is deleted. Call it again after an error: what is gone is gone.
    """
    if not isinstance(query_filter, str):
        raise TypeError(f"{query_filter!r} is no filter; an empty text deletes all.")
    so_far = Deleted()
    pages = (
        require_client(table)
        .query_entities(query_filter, select=["PartitionKey", "RowKey"])
        .by_page()
    )
    async for page in pages:
        entities = [entity async for entity in page]
        for partition, rows in groupby(entities, key=lambda entity: entity["PartitionKey"]):
            found = list(rows)
            for start in range(0, len(found), OPERATIONS_MAX):
                group = found[start : start + OPERATIONS_MAX]
                done = await _delete(table, query_filter, partition, group)
                so_far = Deleted(*map(sum, zip(astuple(so_far), astuple(done), strict=True)))
                progress(so_far)
    return so_far


async def _delete(
    table: TableClient, query_filter: str, partition: str, group: list[TableEntity]
) -> Deleted:
    """Delete entities of one partition that the filter has found."""
    first, last = (quoted(group[at]["RowKey"]) for at in (0, -1))
    these = f"PartitionKey eq '{quoted(partition)}' and RowKey ge '{first}' and RowKey le '{last}'"
    again = f"({query_filter}) and {these}" if query_filter.strip() else these
    read, left, unanswered = len(group), 0, 0
    for _ in range(ASKED_AGAIN_MAX):
        try:
            await table.submit_transaction([_deletion(entity) for entity in group])
            return Deleted(read, read - left, left)
        except FAILED as error:
            if not is_refused(error, 404, 412):
                unanswered = await pause_after(error, unanswered)
        wanted = {entity["RowKey"] for entity in group}
        group = await _found(table, again, wanted)
        # By their keys: others may have deleted some between the two queries.
        still = {entity["RowKey"] for entity in await _found(table, these, wanted)}
        left += len(still.difference(entity["RowKey"] for entity in group))
        if not group:
            return Deleted(read, read - left, left)
    # Those that are left change faster than they can be deleted together: one by one.
    changing = 0
    for entity in group:
        try:
            await table.submit_transaction([_deletion(entity)])
        except TableTransactionError as error:
            if not is_refused(error, 404, 412):
                raise
            changing += error.status_code != 404
    return Deleted(read, read - left - changing, left, changing)


async def _found(table: TableClient, query_filter: str, wanted: set[str]) -> list[TableEntity]:
    found = table.query_entities(query_filter, select=["PartitionKey", "RowKey"])
    return [entity async for entity in found if entity["RowKey"] in wanted]


def _deletion(entity: TableEntity) -> Any:
    return "delete", entity, if_unchanged(etag_of(entity))


async def copy_partition(
    source: TableClient,
    target: TableClient,
    partition_key: str,
    to_partition_key: str | None = None,
    after: str | None = None,
    progress: Callable[[Copied], None] = lambda _: None,
) -> Copied:
    """Copy the entities of a partition, in the order of their row keys; those of the target are replaced.

    To go on after an error, give the last `row_key` of `progress` as `after`. What is deleted from the source meanwhile
    stays in the target. Raises `ValueError` for a copy onto itself.
    """
    for table in (source, target):
        require_client(table)
    so_far = Copied(row_key=after)
    query_filter = f"PartitionKey eq '{quoted(partition_key)}'"
    if after is not None:
        query_filter += f" and RowKey gt '{quoted(after)}'"
    target_key = partition_key if to_partition_key is None else to_partition_key
    place = source.url, source.table_name, partition_key
    if place == (target.url, target.table_name, target_key):
        raise ValueError("A copy onto itself would undo what others write meanwhile.")
    group: list[Any] = []
    size = 0
    async for entity in source.query_entities(query_filter):
        cost = json_bytes(entity)
        if len(group) == OPERATIONS_MAX or (group and size + cost > BYTES_MAX):
            so_far = await _put(target, group, so_far, progress)
            group, size = [], 0
        copy = TableEntity(entity, PartitionKey=target_key)
        group.append(("upsert", copy, {"mode": UpdateMode.REPLACE}))
        size += cost
    return await _put(target, group, so_far, progress) if group else so_far


async def _put(
    target: TableClient, group: list[Any], so_far: Copied, progress: Callable[[Copied], None]
) -> Copied:
    await submitted(target, group)  # the same again changes nothing
    so_far = Copied(so_far.copied + len(group), group[-1][1]["RowKey"])
    progress(so_far)
    return so_far


def json_bytes(entity: Mapping[str, Any]) -> int:
    """About how many bytes an entity takes in the body of a transaction; at least as many as it does."""
    size = 600  # the headers of its part
    for name, value in entity.items():
        plain = value.value if isinstance(value, EntityProperty) else value
        if isinstance(plain, bytes):
            size += len(base64.b64encode(plain))
        else:
            size += len(json.dumps(plain if isinstance(plain, str) else str(plain)))
        size += 2 * len(json.dumps(name)) + 40  # with the name of its type
    return size
