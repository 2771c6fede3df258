"""azure-data-tables: how a program names the account: connection strings, URLs, key credentials, host names."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import pytest
from azure.data.tables import UpdateMode

from sdk.endpoint import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Endpoint

if TYPE_CHECKING:
    from azure.core.credentials import AzureNamedKeyCredential
    from azure.data.tables.aio import TableClient

    from sdk.python.clients import Clients

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]


def connection_strings(endpoint: Endpoint) -> dict[str, str]:
    """The forms people paste."""
    name, key, url = endpoint.account_name, endpoint.account_key, endpoint.url
    return {
        "with a protocol": endpoint.connection_string,
        "no last semicolon": endpoint.connection_string.rstrip(";"),
        "endpoint first": f"TableEndpoint={url};AccountName={name};AccountKey={key}",
        "endpoint with a slash": f"AccountName={name};AccountKey={key};TableEndpoint={url}/",
        "other services too": f"DefaultEndpointsProtocol=http;AccountName={name};AccountKey={key};"
        f"BlobEndpoint=http://127.0.0.1:10000/{name};QueueEndpoint=http://127.0.0.1:10001/{name};"
        f"TableEndpoint={url};",
        "with a secondary": f"AccountName={name};AccountKey={key};TableEndpoint={url};"
        f"TableSecondaryEndpoint={url}-secondary;",
        "keys in other case": f"accountname={name};ACCOUNTKEY={key};tableendpoint={url}",
    }


@pytest.mark.parametrize("form", connection_strings(Endpoint("http://127.0.0.1:10002/a", "a", "k")))
async def test_a_connection_string_reaches_the_account(
    clients: Clients, table: TableClient, form: str
) -> None:
    text = connection_strings(clients.endpoint)[form]
    async with clients.service_from(text) as service:
        assert table.table_name in [listed.name async for listed in service.list_tables()]
    async with clients.table_from(text, table.table_name) as same:
        await same.create_entity({"PartitionKey": "p", "RowKey": "r"})
        await same.submit_transaction([("upsert", {"PartitionKey": "p", "RowKey": "s"})])
    assert [read["RowKey"] async for read in table.list_entities()] == ["r", "s"]


async def test_the_development_shorthand_means_this_account_at_port_10002(clients: Clients) -> None:
    """Wire 1.1: the shorthand carries no port; it expands to the address of `tablestone serve`."""
    async with clients.service_from("UseDevelopmentStorage=true") as service:
        assert service.url == f"http://127.0.0.1:10002/{DEVELOPMENT_ACCOUNT}"
        assert service.account_name == DEVELOPMENT_ACCOUNT
        assert cast("AzureNamedKeyCredential", service.credential).named_key.key == DEVELOPMENT_KEY


async def test_a_table_url_reaches_the_table(clients: Clients, table: TableClient) -> None:
    async with clients.table_from_url(f"{clients.endpoint.url}/{table.table_name}") as same:
        await same.create_entity({"PartitionKey": "p", "RowKey": "r"})
    assert (await table.get_entity("p", "r"))["PartitionKey"] == "p"


async def test_localhost_is_taken_for_cosmos_and_still_works(
    clients: Clients, table: TableClient
) -> None:
    """On `localhost` with another port than 10002, the SDK tunnels its PATCH.

    It sends POST with X-HTTP-Method: MERGE (wire 3.10, auth 0.2).
    """
    url = clients.endpoint.url
    if urlsplit(url).hostname != "127.0.0.1":
        pytest.skip("the server under test does not listen on 127.0.0.1")
    async with clients.table(table.table_name, url=url.replace("127.0.0.1", "localhost")) as tunnel:
        entity = {"PartitionKey": "it's", "RowKey": "a+b %20"}
        await tunnel.upsert_entity(entity | {"Kept": 1, "Changed": 1}, mode=UpdateMode.MERGE)
        await tunnel.update_entity(entity | {"Changed": 2}, mode=UpdateMode.MERGE)
        await tunnel.submit_transaction(
            [("update", entity | {"Changed": 3}, {"mode": UpdateMode.MERGE})]
        )
    assert dict(await table.get_entity("it's", "a+b %20")) == entity | {"Kept": 1, "Changed": 3}
