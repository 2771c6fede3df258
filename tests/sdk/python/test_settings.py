"""azure-data-tables: stored access policies, service properties and replication statistics."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from azure.core.exceptions import HttpResponseError
from azure.data.tables import (
    TableAccessPolicy,
    TableAnalyticsLogging,
    TableCorsRule,
    TableMetrics,
    TableRetentionPolicy,
)

from sdk.endpoint import fresh_table_name
from sdk.python.clients import code_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from azure.data.tables.aio import TableClient, TableServiceClient

    from sdk.python.clients import Clients

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]

START = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
EXPIRY = START + timedelta(days=1)
OFF = TableRetentionPolicy(enabled=False)
RULES = [
    TableCorsRule(["http://www.example.com"], ["GET"]),
    TableCorsRule(
        ["http://*.example.com", "http://localhost"],
        ["GET", "PUT"],
        allowed_headers=["x-ms-date", "x-ms-meta-*"],
        exposed_headers=["x-ms-request-id", "x-ms-continuation-*"],
        max_age_in_seconds=500,
    ),
]


def told(value: Any) -> Any:
    """A model of the SDK as its attributes, because it does not support comparison."""
    if isinstance(value, list | tuple):
        return [told(item) for item in value]
    return told_members(vars(value)) if hasattr(value, "__dict__") else value


def told_members(members: dict[str, Any]) -> dict[str, Any]:
    return {name: told(value) for name, value in members.items()}


@pytest_asyncio.fixture
async def settings(service: TableServiceClient) -> AsyncIterator[TableServiceClient]:
    """A service with the properties of a new account, which are restored afterwards."""

    async def reset() -> None:
        await service.set_service_properties(
            analytics_logging=TableAnalyticsLogging(
                version="1.0", read=False, write=False, delete=False, retention_policy=OFF
            ),
            hour_metrics=TableMetrics(version="1.0", enabled=False, retention_policy=OFF),
            minute_metrics=TableMetrics(version="1.0", enabled=False, retention_policy=OFF),
            cors=[],
        )

    await reset()
    yield service
    await reset()


async def test_a_fresh_table_has_no_policies(table: TableClient) -> None:
    assert await table.get_table_access_policy() == {}


async def test_policies_are_given_back(table: TableClient) -> None:
    await table.set_table_access_policy(
        {
            "full": TableAccessPolicy(start=START, expiry=EXPIRY, permission="raud"),
            "partial": TableAccessPolicy(permission="r"),
            "empty": TableAccessPolicy(),
            "none": None,
            "text": TableAccessPolicy(start="2024-05-06T07:08:09Z", expiry="2024-05-07"),
        }
    )
    found = {
        name: policy and (policy.start, policy.expiry, policy.permission)
        for name, policy in (await table.get_table_access_policy()).items()
    }
    assert found["full"] == (START, EXPIRY, "raud")
    assert found["partial"] == (None, None, "r")
    assert (found["empty"], found["none"]) == (None, None)
    assert found["text"] == (START, datetime(2024, 5, 7, tzinfo=UTC), None)


async def test_policies_are_replaced_and_cleared(table: TableClient) -> None:
    await table.set_table_access_policy({"a": TableAccessPolicy(permission="r"), "b": None})
    await table.set_table_access_policy({"c": TableAccessPolicy(permission="a")})
    assert list(await table.get_table_access_policy()) == ["c"]
    await table.set_table_access_policy({})
    assert await table.get_table_access_policy() == {}


async def test_six_policies_are_too_many(table: TableClient) -> None:
    with pytest.raises(ValueError, match="more than 5"):
        await table.set_table_access_policy({f"id{number}": None for number in range(6)})
    assert await table.get_table_access_policy() == {}


async def test_a_table_created_again_has_no_policies(table: TableClient) -> None:
    await table.set_table_access_policy({"a": None})
    await table.delete_table()
    await table.create_table()
    assert await table.get_table_access_policy() == {}


async def test_policies_of_no_table(clients: Clients) -> None:
    async with clients.table(fresh_table_name()) as absent:
        for call in (absent.get_table_access_policy(), absent.set_table_access_policy({})):
            with pytest.raises(HttpResponseError) as caught:
                await call
            assert (caught.value.status_code, code_of(caught.value)) == (404, "TableNotFound")


async def test_service_properties_are_given_back(settings: TableServiceClient) -> None:
    week = TableRetentionPolicy(enabled=True, days=7)
    sent: dict[str, Any] = {
        "analytics_logging": TableAnalyticsLogging(
            version="1.0", read=True, write=False, delete=True, retention_policy=week
        ),
        "hour_metrics": TableMetrics(
            version="1.0", enabled=True, include_apis=True, retention_policy=week
        ),
        "minute_metrics": TableMetrics(version="1.0", enabled=False, retention_policy=OFF),
        "cors": RULES,
    }
    await settings.set_service_properties(**sent)
    assert told_members(await settings.get_service_properties()) == told_members(sent)


async def test_what_is_not_named_is_kept(settings: TableServiceClient) -> None:
    await settings.set_service_properties(cors=RULES)
    metrics = TableMetrics(version="1.0", enabled=True, include_apis=False, retention_policy=OFF)
    await settings.set_service_properties(minute_metrics=metrics)
    found = await settings.get_service_properties()
    assert told(found["cors"]) == told(RULES)
    assert told(found["minute_metrics"]) == told(metrics)
    await settings.set_service_properties(cors=[])
    found = await settings.get_service_properties()
    assert found["cors"] == []
    assert told(found["minute_metrics"]) == told(metrics)


@pytest.mark.parametrize(
    "changes",
    [
        {"cors": [TableCorsRule(["http://example.com"], ["GET"])] * 6},
        {
            "hour_metrics": TableMetrics(
                version="1.0",
                enabled=True,
                include_apis=True,
                retention_policy=TableRetentionPolicy(enabled=True, days=366),
            )
        },
    ],
    ids=["six rules", "366 days"],
)
async def test_what_is_no_service_properties(
    settings: TableServiceClient, changes: dict[str, Any]
) -> None:
    before = told_members(await settings.get_service_properties())
    with pytest.raises(HttpResponseError) as caught:
        await settings.set_service_properties(**changes)
    assert (caught.value.status_code, code_of(caught.value)) == (400, "InvalidXmlDocument")
    assert told_members(await settings.get_service_properties()) == before


async def test_replication_is_live(service: TableServiceClient) -> None:
    stats: Any = await service.get_service_stats()
    replication = stats["geo_replication"]
    assert replication["status"] == "live"
    moment = replication["last_sync_time"]
    assert abs(moment - datetime.now(UTC)) < timedelta(minutes=5)
