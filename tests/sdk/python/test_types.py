"""azure-data-tables: every EDM type written and read back, with the limits of each (wire 5.3)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import EdmType, EntityProperty

from sdk.python.clients import code_of

if TYPE_CHECKING:
    from azure.data.tables.aio import TableClient

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]


class Colour(Enum):
    RED = "red"


def int64(value: int) -> EntityProperty:
    return EntityProperty(value, EdmType.INT64)


GUID = UUID("c9da6455-213d-42c9-9a79-3e9149a57833")
INSTANT = datetime(2012, 11, 10, 3, 4, 5, 123456, tzinfo=UTC)

# Sent, and read back: the same value of the same Python type, unless a second value is given. The ends of each type
# are in tests/sdk/interchange/entities.json.
SAME: list[Any] = [
    'it\'s "quoted" \\ / <&>',
    "2014-05-07T08:20:53Z",
    "\x00\x01\x7f",
    42,
    int64(7),
    10.0,
    0.1 + 0.2,
    -math.inf,
    True,
    INSTANT,
    datetime(2012, 11, 10, 3, 4, 5, 200000, tzinfo=UTC),
    datetime(1601, 1, 1, tzinfo=UTC),
    GUID,
    b"",
    bytes(range(256)),
    b"x" * 65536,  # the limit (wire 9)
]

CHANGED: list[tuple[Any, Any]] = [
    (Colour.RED, "Colour.RED"),  # the SDK sends an Enum as its text
    (EntityProperty("text", EdmType.STRING), "text"),
    (EntityProperty(7, EdmType.INT32), 7),
    (EntityProperty(True, EdmType.BOOLEAN), True),
    (EntityProperty("true", EdmType.BOOLEAN), True),
    (EntityProperty("FALSE", EdmType.BOOLEAN), False),
    (EntityProperty(4, EdmType.DOUBLE), 4.0),
    (EntityProperty("10", EdmType.DOUBLE), 10.0),
    (EntityProperty("NaN", EdmType.DOUBLE), math.nan),
    (EntityProperty("-Infinity", EdmType.DOUBLE), -math.inf),
    (math.nan, math.nan),
    (EntityProperty("99", EdmType.INT64), int64(99)),
    (EntityProperty(str(GUID).upper(), EdmType.GUID), GUID),
    (EntityProperty("c29tZQ==", EdmType.BINARY), b"c29tZQ=="),  # the SDK encodes it again
    (EntityProperty("2012-11-10T03:04:05.123456Z", EdmType.DATETIME), INSTANT),
    (EntityProperty("2012-11-10T05:04:05.123456+02:00", EdmType.DATETIME), INSTANT),
    (EntityProperty("2012-11-10T03:04:05.123456", EdmType.DATETIME), INSTANT),
    (INSTANT.astimezone(timezone(timedelta(hours=-3, minutes=-30))), INSTANT),
]


def is_the_same(read: Any, expected: Any) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(read, float) and math.isnan(read)
    if isinstance(expected, datetime):  # the SDK reads an instant as a datetime of its own class
        return isinstance(read, datetime) and read == expected and read.utcoffset() == timedelta(0)
    return type(read) is type(expected) and read == expected


def shown(value: Any) -> str:
    return ascii(value)[:60]


@pytest.mark.parametrize(("sent", "expected"), [(same, same) for same in SAME] + CHANGED, ids=shown)
async def test_a_value_comes_back_as_it_was_sent(
    table: TableClient, sent: Any, expected: Any
) -> None:
    await table.create_entity({"PartitionKey": "p", "RowKey": "r", "Value": sent})
    read = await table.get_entity("p", "r")
    assert is_the_same(read["Value"], expected), read["Value"]
    listed = [each async for each in table.list_entities()]
    assert is_the_same(listed[0]["Value"], expected), listed
    # An entity that was read is written back unchanged.
    read["RowKey"] = "again"
    await table.upsert_entity(read)
    again = await table.get_entity("p", "again")
    assert is_the_same(again["Value"], expected), again["Value"]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("2012-11-10T03:04:05.1234567Z", "2012-11-10T03:04:05.1234567Z"),
        ("2012-11-10T03:04:05.0000001Z", "2012-11-10T03:04:05.0000001Z"),
        ("2012-11-10T03:04:05.2000000Z", "2012-11-10T03:04:05.2Z"),
        ("2012-11-10T03:04:05.0000000Z", "2012-11-10T03:04:05Z"),
        ("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.9999999Z"),
        ("1601-01-01T00:00:00Z", "1601-01-01T00:00:00Z"),
    ],
)
async def test_an_instant_keeps_its_hundred_nanoseconds(
    table: TableClient, sent: str, kept: str
) -> None:
    """Wire 0.2 rule 2: seven digits, trailing zeros trimmed; the SDK sends them back unchanged."""
    value = EntityProperty(sent, EdmType.DATETIME)
    await table.create_entity({"PartitionKey": "p", "RowKey": "r", "Value": value})
    read = await table.get_entity("p", "r")
    assert read["Value"].tables_service_value == kept
    await table.update_entity(read)
    assert (await table.get_entity("p", "r"))["Value"].tables_service_value == kept


async def test_the_timestamp_in_the_metadata_is_now(table: TableClient) -> None:
    before = datetime.now(UTC)
    await table.create_entity({"PartitionKey": "p", "RowKey": "r"})
    timestamp = (await table.get_entity("p", "r")).metadata["timestamp"]
    assert timestamp is not None
    assert abs(timestamp - before) < timedelta(minutes=1)


async def test_a_timestamp_sent_by_the_client_is_ignored(table: TableClient) -> None:
    """Wire 4."""
    sent = datetime(2001, 1, 1, tzinfo=UTC)
    await table.create_entity({"PartitionKey": "p", "RowKey": "r", "Timestamp": sent})
    read = await table.get_entity("p", "r")
    assert "Timestamp" not in read
    assert read.metadata["timestamp"] is not None
    assert read.metadata["timestamp"] > sent + timedelta(days=365)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        # A date before 1601 is out of range (wire 9); what does not parse is invalid input (wire 5.5).
        (datetime(1600, 12, 31, tzinfo=UTC), "OutOfRangeInput"),
        (EntityProperty("0001-01-01T00:00:00Z", EdmType.DATETIME), "OutOfRangeInput"),
        (EntityProperty("yesterday", EdmType.DATETIME), "InvalidInput"),
        (EntityProperty("not a guid", EdmType.GUID), "InvalidInput"),
        (EntityProperty("1.2.3", EdmType.DOUBLE), "InvalidInput"),
        (EntityProperty("perhaps", EdmType.BOOLEAN), "InvalidInput"),
    ],
    ids=shown,
)
async def test_a_value_outside_its_type_is_refused(
    table: TableClient, sent: Any, code: str
) -> None:
    with pytest.raises(HttpResponseError) as caught:
        await table.create_entity({"PartitionKey": "p", "RowKey": "r", "Value": sent})
    assert caught.value.status_code == 400
    assert code_of(caught.value) == code
    assert [each async for each in table.list_entities()] == []
