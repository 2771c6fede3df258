"""azure-data-tables: lists and queries, parameters of every type, projections, pages and continuation tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import EdmType, EntityProperty

from sdk.python.clients import code_of, token_of

if TYPE_CHECKING:
    from azure.data.tables.aio import TableClient

    from sdk.python.clients import Clients

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]

GUID = UUID("c9da6455-213d-42c9-9a79-3e9149a57833")
NOON = datetime(2026, 6, 1, 12, 0, 0, 123456, tzinfo=UTC)


def int64(value: int) -> EntityProperty:
    return EntityProperty(value, EdmType.INT64)


# Three entities a, b, c: in each property a < b < c, and c lacks one.
ENTITIES: list[dict[str, Any]] = [
    {
        "PartitionKey": "p",
        "RowKey": "a",
        "String": "apple",
        "Int32": -1,
        "Int64": int64(3_000_000_000),
        "Double": 0.5,
        "Whole": 3.0,
        "Boolean": False,
        "Instant": NOON - timedelta(microseconds=1),
        "Guid": UUID(int=1),
        "Binary": b"\x00",
        "Sometimes": 1,
    },
    {
        "PartitionKey": "p",
        "RowKey": "b",
        "String": "it's b@nana",
        "Int32": 42,
        "Int64": int64(2**53 + 1),
        "Double": 1e20,
        "Whole": 5.0,
        "Boolean": True,
        "Instant": NOON,
        "Guid": GUID,
        "Binary": b"\x01\xff",
        "Sometimes": 2,
    },
    {
        "PartitionKey": "q",
        "RowKey": "c",
        "String": "été",
        "Int32": 2**31 - 1,
        "Int64": int64(2**63 - 1),
        "Double": 1.5e300,
        "Whole": 7.0,
        "Boolean": True,
        "Instant": NOON + timedelta(days=1),
        "Guid": UUID(int=2**128 - 1),
        "Binary": b"\x01\xff\x00",
    },
]


async def rows_found(
    table: TableClient, filter_text: str, parameters: dict[str, Any] | None = None
) -> str:
    found = table.query_entities(filter_text, parameters=parameters)
    return "".join([entity["RowKey"] async for entity in found])


async def fill(table: TableClient) -> None:
    for entity in ENTITIES:
        await table.create_entity(entity)


PARAMETERS: list[tuple[str, Any, str]] = [
    ("String eq @x", "it's b@nana", "b"),
    ("String ge @x", "it's", "bc"),
    ("Int32 eq @x", 42, "b"),
    ("Int32 lt @x", 42, "a"),
    ("Int64 gt @x", 2**53, "bc"),
    ("Int64 ge @x", 2**63 - 1, "c"),
    ("Double eq @x", 0.5, "a"),
    ("Double ge @x", 1e20, "bc"),
    ("Double lt @x", 1e20, "a"),
    ("Whole le @x", 5.0, "ab"),
    ("Whole eq @x", 5, "b"),  # a literal is widened to the property's type (wire 6.4)
    ("Boolean eq @x", True, "bc"),
    ("Boolean ne @x", True, "a"),
    ("Instant eq @x", NOON, "b"),
    ("Instant lt @x", NOON, "a"),
    ("Instant gt @x", NOON, "c"),
    ("Guid eq @x", GUID, "b"),
    ("Guid ne @x", GUID, "ac"),
    ("Binary eq @x", b"\x01\xff", "b"),
    ("Binary gt @x", b"\x01\xff", "c"),
    ("PartitionKey eq @x", "p", "ab"),
    ("RowKey gt @x", "a", "bc"),
    ("PartitionKey eq @x and RowKey eq 'b'", "p", "b"),
    ("@x lt Int32", 0, "bc"),  # the constant may stand on the left (wire 6.1)
]


@pytest.mark.parametrize(("filter_text", "value", "rows"), PARAMETERS)
async def test_a_parameter_of_every_type_is_compared(
    table: TableClient, filter_text: str, value: Any, rows: str
) -> None:
    await fill(table)
    assert await rows_found(table, filter_text, {"x": value}) == rows


async def test_a_parameter_beyond_int32_that_the_sdk_writes_without_l(table: TableClient) -> None:
    """The SDK writes no L for numbers of up to 32 bits, and the service reads an Int32 (wire 6.2, 12.3)."""
    await fill(table)
    with pytest.raises(HttpResponseError, match=r"Unrecognized 'Edm.Int32' literal '3000000000'"):
        await rows_found(table, "Int64 eq @x", {"x": 3_000_000_000})


FILTERS: list[tuple[str, str]] = [
    ("String eq 'it''s b@nana'", "b"),
    ("PartitionKey ge 'p' and PartitionKey lt 'q'", "ab"),
    ("Int32 eq 42 or Int32 eq -1", "ab"),
    ("not (Int32 eq 42)", "ac"),
    ("not Boolean", "a"),
    ("Boolean", "bc"),
    ("Boolean and not (RowKey eq 'b')", "c"),
    ("(Int32 eq 42)and(Boolean eq true)", "b"),
    ("Int32 eq -1 or Int32 eq 42 and Boolean eq false", "a"),
    ("Int64 eq 9007199254740993L", "b"),
    ("Int64 ne 9007199254740993L", "ac"),
    ("Instant ge datetime'2026-06-01T12:00:00.1234560Z'", "bc"),
    ("Guid eq guid'C9DA6455-213D-42C9-9A79-3E9149A57833'", "b"),
    ("Binary eq binary'01ff'", "b"),
    # A comparison with a missing property is false, and `not` makes it true (wire 6.4).
    ("Sometimes eq 2", "b"),
    ("Sometimes ne 2", "a"),
    ("not (Sometimes eq 2)", "ac"),
    ("Nowhere ne 1", ""),
    # A stored value of another type is less than any literal (wire 6.4).
    ("String eq 42", ""),
    ("String ne 42", "abc"),
    ("String lt 42", "abc"),
    ("Int32 gt '0'", ""),
    ("Int32 eq 42L", ""),
    ("Int64 eq 3000000000L", "a"),
    ("String", ""),
]


@pytest.mark.parametrize(("filter_text", "rows"), FILTERS)
async def test_a_filter_finds_its_rows(table: TableClient, filter_text: str, rows: str) -> None:
    """Wire 6."""
    await fill(table)
    assert await rows_found(table, filter_text) == rows


@pytest.mark.parametrize(
    ("filter_text", "status", "code"),
    [
        ("String eq", 400, "InvalidInput"),
        ("aaa bbb ccc", 400, "InvalidInput"),
        ("Int32 EQ 42", 400, "InvalidInput"),
        ("PartitionKey eq 5", 400, "InvalidInput"),
        ("1 eq 2", 501, "NotImplemented"),
        ("Int32 eq Int64", 501, "NotImplemented"),
    ],
)
async def test_a_filter_that_cannot_be_evaluated_is_refused(
    table: TableClient, filter_text: str, status: int, code: str
) -> None:
    """Wire 6.1, 6.4, 6.5."""
    with pytest.raises(HttpResponseError) as caught:
        await rows_found(table, filter_text)
    assert (caught.value.status_code, code_of(caught.value)) == (status, code)


async def test_select_narrows_lists_and_queries(table: TableClient) -> None:
    """Wire 5.6: a selected property that is absent is None."""
    await fill(table)
    listed = table.list_entities(select=["RowKey", "Sometimes"])
    assert [dict(entity) async for entity in listed] == [
        {"RowKey": "a", "Sometimes": 1},
        {"RowKey": "b", "Sometimes": 2},
        {"RowKey": "c", "Sometimes": None},
    ]
    queried = [
        entity
        async for entity in table.query_entities("PartitionKey eq 'q'", select="Int32,Nowhere")
    ]
    assert [dict(entity) for entity in queried] == [{"Int32": 2**31 - 1, "Nowhere": None}]
    assert queried[0].metadata["etag"] is not None


async def fill_rows(table: TableClient, count: int) -> list[str]:
    names = [f"{number:05}" for number in range(count)]
    for start in range(0, count, 100):
        await table.submit_transaction(
            [
                ("create", {"PartitionKey": "p", "RowKey": name, "Even": int(name) % 2 == 0})
                for name in names[start : start + 100]
            ]
        )
    return names


async def test_pages_have_the_asked_for_size_and_lose_nothing(table: TableClient) -> None:
    names = await fill_rows(table, 7)
    pages = [
        [entity["RowKey"] async for entity in page]
        async for page in table.list_entities(results_per_page=3).by_page()
    ]
    assert pages == [names[0:3], names[3:6], names[6:7]]
    listed = [entity["RowKey"] async for entity in table.list_entities(results_per_page=2)]
    assert listed == names


async def test_a_page_ends_at_a_thousand_entities(table: TableClient) -> None:
    """Wire 6.6."""
    names = await fill_rows(table, 1003)
    pages = [
        [entity["RowKey"] async for entity in page]
        async for page in table.list_entities().by_page()
    ]
    assert pages == [names[:1000], names[1000:]]


async def test_a_token_is_continued_by_another_client(clients: Clients, table: TableClient) -> None:
    """Wire 6.9: the token says where to continue; the same filter is sent with it."""
    names = await fill_rows(table, 9)
    paged = table.query_entities("Even eq true", results_per_page=2).by_page()
    first = [entity["RowKey"] async for entity in await anext(paged)]
    token = token_of(paged)
    assert first == names[0:4:2]
    assert token
    # Written between the pages, before and after the token's place.
    await table.create_entity({"PartitionKey": "p", "RowKey": "00000x", "Even": True})
    await table.create_entity({"PartitionKey": "p", "RowKey": "00009", "Even": True})
    async with clients.table(table.table_name) as another:
        rest = another.query_entities("Even eq true", results_per_page=2).by_page(token)
        pages = [[entity["RowKey"] async for entity in page] async for page in rest]
    assert [row for page in pages for row in page] == ["00004", "00006", "00008", "00009"]
    assert all(len(page) <= 2 for page in pages)


async def test_a_token_survives_the_deletion_of_the_entity_it_names(table: TableClient) -> None:
    names = await fill_rows(table, 4)
    paged = table.list_entities(results_per_page=2).by_page()
    assert [entity["RowKey"] async for entity in await anext(paged)] == names[:2]
    await table.delete_entity("p", names[2])
    assert [entity["RowKey"] async for entity in await anext(paged)] == names[3:]


@pytest.mark.parametrize("keys", [["", "'", "+ &%"], ["é", "表", "\U0001f600"]], ids=ascii)
async def test_a_token_carries_any_key(table: TableClient, keys: list[str]) -> None:
    pairs = [(first, second) for first in sorted(keys) for second in sorted(keys)]
    for partition_key, row_key in pairs:
        await table.create_entity({"PartitionKey": partition_key, "RowKey": row_key})
    seen: list[tuple[str, str]] = []
    async for entity in table.list_entities(results_per_page=1):
        seen.append((entity["PartitionKey"], entity["RowKey"]))
        assert seen == pairs[: len(seen)]  # a token that leads back would never end
    assert seen == pairs


@pytest.mark.parametrize("size", [0, -1, 1001])
async def test_a_page_size_outside_its_bounds(table: TableClient, size: int) -> None:
    """Wire 6.7: 0 gives an empty page; anything else outside is refused."""
    await fill_rows(table, 1)
    if size == 0:
        pages = table.list_entities(results_per_page=0).by_page()
        assert [entity async for entity in await anext(pages)] == []
        assert token_of(pages) is None  # with a token, a client would ask forever
        return
    with pytest.raises(HttpResponseError) as caught:
        [entity async for entity in table.list_entities(results_per_page=size)]
    assert (caught.value.status_code, code_of(caught.value)) == (400, "InvalidInput")
