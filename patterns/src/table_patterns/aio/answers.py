"""Reads that several patterns share, and what follows when a write has no answer."""

import asyncio
import random
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.data.tables import TableEntity, TableErrorCode
from azure.data.tables.aio import TableClient

FAILED: Final = (HttpResponseError, ServiceRequestError, ServiceResponseError, OSError)
"""What the client raises. Where the answer to a transaction is cut, the errors of its transport are not wrapped."""
UNANSWERED_MAX: Final = 5
PAUSE_SECONDS: Final = 0.2


def require_client(table: TableClient) -> TableClient:
    """The table; raises `TypeError` for what is no client of this half of the library."""
    if not isinstance(table, TableClient):
        raise TypeError(f"{table!r} is no {TableClient.__module__}.{TableClient.__name__}.")
    return table


async def stored_entity(
    table: TableClient, partition_key: str, row_key: str, **options: Any
) -> TableEntity | None:
    """The entity, or None. A table that is not there, or that is being deleted, is an error."""
    try:
        return await table.get_entity(partition_key, row_key, **options)
    except ResourceNotFoundError as error:
        if is_of_table(error):
            raise
        return None


def is_of_table(error: BaseException) -> bool:
    """Whether an error says that the table is not there, or is being deleted."""
    codes = (TableErrorCode.TABLE_NOT_FOUND, TableErrorCode.TABLE_BEING_DELETED)
    return getattr(error, "error_code", None) in codes


def is_refused(error: BaseException, *statuses: int) -> bool:
    """Whether the service answered one of these statuses, so that nothing was written; not because of the table."""
    return getattr(error, "status_code", None) in statuses and not is_of_table(error)


def etag_of(entity: TableEntity | None) -> str | None:
    return None if entity is None else str(entity.metadata["etag"])


def if_unchanged(etag: str | None) -> dict[str, Any]:
    """The options of a write that is refused if others have written since."""
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def quoted(text: str) -> str:
    """For a filter, between single quotes."""
    return text.replace("'", "''")


async def submitted(table: TableClient, operations: list[Any], *refusals: int) -> Exception | None:
    """Send a transaction until it is answered; returns the error if the service refused it with one of these statuses.

    Then an attempt before, whose answer was lost, may have been carried out. Raises what `pause_after` does.
    """
    unanswered = 0
    while True:
        try:
            await table.submit_transaction(operations)
            return None
        except FAILED as error:
            if is_refused(error, *refusals):
                return error
            unanswered = await pause_after(error, unanswered)


async def pause_after(error: Exception, unanswered: int) -> int:
    """Wait a little after a write that may have been carried out; returns how many there were now.

    The client does not send transactions and inserts again by itself. Raises the error if it is another one, or the
    fifth.
    """
    status = getattr(error, "status_code", None)
    if (status is not None and status < 500) or unanswered + 1 == UNANSWERED_MAX:
        raise error
    await asyncio.sleep(PAUSE_SECONDS * 2**unanswered * random.uniform(0.5, 1))
    return unanswered + 1
