"""azure-data-tables: the calls whose operations Tablestone does not have yet are refused by name, not half answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableAccessPolicy, TableAnalyticsLogging
from azure.data.tables import TableClient as SyncTableClient
from azure.data.tables import TableServiceClient as SyncTableServiceClient

from sdk.python.clients import code_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from azure.data.tables.aio import TableClient, TableServiceClient

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]

# Every public call of the two clients that the other files do not make; each leaves this list when its operation comes.
SERVICE_CALLS: dict[str, Callable[[TableServiceClient], Awaitable[Any]]] = {
    "get_service_properties": lambda service: service.get_service_properties(),
    "set_service_properties": lambda service: service.set_service_properties(
        analytics_logging=TableAnalyticsLogging()
    ),
    "get_service_stats": lambda service: service.get_service_stats(),
}
TABLE_CALLS: dict[str, Callable[[TableClient], Awaitable[Any]]] = {
    "get_table_access_policy": lambda table: table.get_table_access_policy(),
    "set_table_access_policy": lambda table: table.set_table_access_policy(
        {"id": TableAccessPolicy(permission="r")}
    ),
}


@pytest.mark.parametrize("call", SERVICE_CALLS)
async def test_a_call_on_the_service_is_refused(service: TableServiceClient, call: str) -> None:
    with pytest.raises(HttpResponseError) as caught:
        await SERVICE_CALLS[call](service)
    assert (caught.value.status_code, code_of(caught.value)) == (501, "NotImplemented")


@pytest.mark.parametrize("call", TABLE_CALLS)
async def test_a_call_on_the_table_is_refused(table: TableClient, call: str) -> None:
    with pytest.raises(HttpResponseError) as caught:
        await TABLE_CALLS[call](table)
    assert (caught.value.status_code, code_of(caught.value)) == (501, "NotImplemented")
    assert [entity async for entity in table.list_entities()] == []


PUBLIC_CALLS_ELSEWHERE = {
    "TableServiceClient": {
        "close",  # by every `async with`
        "create_table",
        "create_table_if_not_exists",
        "delete_table",
        "from_connection_string",
        "get_table_client",
        "list_tables",
        "query_tables",
    },
    "TableClient": {
        "close",
        "create_entity",
        "create_table",
        "delete_entity",
        "delete_table",
        "from_connection_string",
        "from_table_url",
        "get_entity",
        "list_entities",
        "query_entities",
        "submit_transaction",
        "update_entity",
        "upsert_entity",
    },
}


async def test_no_public_call_is_forgotten() -> None:
    """A release of the SDK with a new call fails here until the call has a test."""
    for kind, here in ((SyncTableServiceClient, SERVICE_CALLS), (SyncTableClient, TABLE_CALLS)):
        public = {
            name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))
        }
        assert public == PUBLIC_CALLS_ELSEWHERE[kind.__name__] | here.keys()
