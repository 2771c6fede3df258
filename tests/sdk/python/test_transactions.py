"""azure-data-tables: entity group transactions and how a failure names its operation (wire 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.data.tables import (
    RequestTooLargeError,
    TableTransactionError,
    TransactionOperation,
    UpdateMode,
)

from sdk.endpoint import fresh_table_name
from sdk.python.clients import code_of

if TYPE_CHECKING:
    from azure.data.tables.aio import TableClient

    from sdk.python.clients import Clients

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]

CREATE, UPDATE = TransactionOperation.CREATE, TransactionOperation.UPDATE
UPSERT, DELETE = TransactionOperation.UPSERT, TransactionOperation.DELETE
REPLACE = {"mode": UpdateMode.REPLACE}
MERGE = {"mode": UpdateMode.MERGE}
STALE = {
    "etag": "W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\"",
    "match_condition": MatchConditions.IfNotModified,
}


def entity(row_key: str, **properties: Any) -> dict[str, Any]:
    return {"PartitionKey": "p", "RowKey": row_key} | properties


async def contents(table: TableClient) -> list[dict[str, Any]]:
    return [dict(read) async for read in table.list_entities()]


async def test_every_kind_of_operation_in_one_transaction(table: TableClient) -> None:
    for row_key in ("merged", "replaced", "upmerged", "upreplaced", "deleted"):
        await table.create_entity(entity(row_key, Kept=1, Changed=1))
    answers = await table.submit_transaction(
        [
            (CREATE, entity("created", Changed=2)),
            (UPDATE, entity("merged", Changed=2), MERGE),
            (UPDATE, entity("replaced", Changed=2), REPLACE),
            (UPSERT, entity("upmerged", Changed=2), MERGE),
            (UPSERT, entity("upreplaced", Changed=2), REPLACE),
            (UPSERT, entity("upmerged new", Changed=2), MERGE),
            (UPSERT, entity("upreplaced new", Changed=2), REPLACE),
            (DELETE, entity("deleted")),
        ]
    )
    assert await contents(table) == [
        entity("created", Changed=2),
        entity("merged", Kept=1, Changed=2),
        entity("replaced", Changed=2),
        entity("upmerged", Kept=1, Changed=2),
        entity("upmerged new", Changed=2),
        entity("upreplaced", Changed=2),
        entity("upreplaced new", Changed=2),
    ]
    assert len(answers) == 8
    etags = [answer.get("etag") for answer in answers]
    assert etags[-1] is None  # a delete has no ETag (wire 3.9)
    assert etags[0] == (await table.get_entity("p", "created")).metadata["etag"]
    assert etags[1] == (await table.get_entity("p", "merged")).metadata["etag"]
    assert all(etags[:-1])


async def test_operations_may_be_named_by_their_words_and_come_from_an_iterator(
    table: TableClient,
) -> None:
    await table.submit_transaction(("create", entity(str(number))) for number in range(3))
    await table.submit_transaction([("delete", entity("0")), ("update", entity("1", Value=1))])
    assert await contents(table) == [entity("1", Value=1), entity("2")]


async def test_conditions_are_checked_for_each_operation(table: TableClient) -> None:
    for row_key in ("a", "b", "c"):
        await table.create_entity(entity(row_key, Number=1))
    reads = [await table.get_entity("p", row_key) for row_key in ("a", "b", "c")]
    condition = {"match_condition": MatchConditions.IfNotModified}
    await table.submit_transaction(
        [
            ("update", reads[0] | {"Number": 2}, condition | {"etag": reads[0].metadata["etag"]}),
            ("update", reads[1] | {"Number": 2}, condition | {"etag": reads[1].metadata["etag"]}),
            ("delete", reads[2], condition | {"etag": reads[2].metadata["etag"]}),
        ]
    )
    assert await contents(table) == [entity("a", Number=2), entity("b", Number=2)]


async def test_a_hundred_operations_are_the_most(table: TableClient) -> None:
    operations = [("create", entity(f"{number:03}")) for number in range(101)]
    answers = await table.submit_transaction(operations[:100])
    assert len(answers) == 100
    assert len(await contents(table)) == 100


async def test_an_empty_transaction_does_nothing(table: TableClient) -> None:
    """The SDK expects the service's 400 for it and returns an empty list."""
    assert await table.submit_transaction([]) == []


async def test_two_partitions_are_refused_by_the_sdk(table: TableClient) -> None:
    with pytest.raises(ValueError, match="Partition Keys in the batch must all be the same"):
        await table.submit_transaction(
            [("create", entity("r")), ("create", {"PartitionKey": "q", "RowKey": "r"})]
        )


# operations, against a table that holds "old" with Number=1; index, status and code of the failure; its source.
FAILURES: list[tuple[list[tuple[Any, ...]], int, int, str, str]] = [
    ([("create", entity("old"))], 0, 409, "EntityAlreadyExists", "wire 7.3: single operation"),
    (
        [("create", entity("a")), ("upsert", entity("b")), ("create", entity("old"))],
        2,
        409,
        "EntityAlreadyExists",
        "wire 7.3",
    ),
    (
        [("create", entity("a")), ("update", entity("missing"))],
        1,
        404,
        "ResourceNotFound",
        "wire 3.9",
    ),
    (
        [("create", entity("a")), ("update", entity("missing"), REPLACE)],
        1,
        404,
        "ResourceNotFound",
        "wire 3.9",
    ),
    (
        [("delete", entity("missing")), ("create", entity("a"))],
        0,
        404,
        "ResourceNotFound",
        "wire 3.9",
    ),
    (
        [("create", entity("a")), ("update", entity("old", Number=2), STALE)],
        1,
        412,
        "UpdateConditionNotSatisfied",
        "wire 3.9",
    ),
    (
        [("create", entity("a")), ("create", entity("b")), ("delete", entity("old"), STALE)],
        2,
        412,
        "UpdateConditionNotSatisfied",
        "wire 3.9",
    ),
    (
        [("upsert", entity("a", Number=1)), ("upsert", entity("a", Number=2))],
        1,
        400,
        "InvalidDuplicateRow",
        "wire 7.3",
    ),
    (
        [("create", entity(f"{number:03}")) for number in range(101)],
        99,
        400,
        "InvalidInput",
        "wire 7.3: index 99",
    ),
    (
        [("create", entity("a")), ("create", entity("a/b"))],
        1,
        400,
        "OutOfRangeInput",
        "wire 1.3, 7.3",
    ),
    (
        [("create", entity("a")), ("create", entity("b", Text="x" * 70000))],
        1,
        400,
        "PropertyValueTooLarge",
        "wire 9",
    ),
]


@pytest.mark.parametrize(
    ("operations", "index", "status", "code", "source"),
    FAILURES,
    ids=[f"{code} at {index}" for _, index, _, code, _ in FAILURES],
)
async def test_a_failure_names_its_operation_and_nothing_is_done(
    table: TableClient,
    operations: list[tuple[Any, ...]],
    index: int,
    status: int,
    code: str,
    source: str,
) -> None:
    await table.create_entity(entity("old", Number=1))
    with pytest.raises(TableTransactionError) as caught:
        await table.submit_transaction(operations)
    error = caught.value
    assert (error.index, error.status_code, code_of(error)) == (index, status, code), source
    assert await contents(table) == [entity("old", Number=1)]


async def test_a_transaction_on_a_missing_table_is_not_found(clients: Clients) -> None:
    """Wire 7.3."""
    async with clients.table(fresh_table_name()) as table:
        with pytest.raises(TableTransactionError) as caught:
            await table.submit_transaction([("create", entity("a"))])
        assert (caught.value.index, code_of(caught.value)) == (0, "TableNotFound")
        with pytest.raises(ResourceNotFoundError):
            await table.get_entity("p", "a")


# aiohttp's advice about large bodies, meant for the SDK.
LARGE_BODY = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")


@LARGE_BODY
async def test_a_transaction_of_more_than_four_mebibytes_is_too_large(table: TableClient) -> None:
    """Wire 7.3, 9: 413, for which the SDK has its own class."""
    big = {f"Text{number}": "x" * 30000 for number in range(15)}
    with pytest.raises(RequestTooLargeError) as caught:
        await table.submit_transaction([("create", entity(str(row), **big)) for row in range(10)])
    assert caught.value.status_code == 413
    assert await contents(table) == []


@LARGE_BODY
async def test_a_transaction_just_below_the_limit_is_done(table: TableClient) -> None:
    big = {f"Text{number}": "x" * 30000 for number in range(13)}
    await table.submit_transaction([("create", entity(str(row), **big)) for row in range(10)])
    assert len(await contents(table)) == 10


async def test_a_failed_transaction_is_an_http_response_error(table: TableClient) -> None:
    """Callers who know nothing of transactions catch the general class and read the service's text."""
    await table.create_entity(entity("old"))
    with pytest.raises(HttpResponseError) as caught:
        await table.submit_transaction([("create", entity("a")), ("create", entity("old"))])
    assert caught.value.message.startswith("1:The specified entity already exists.\nRequestId:")
