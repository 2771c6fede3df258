"""azure-data-tables with the account in the host name, as in Azure: `ACCOUNT.table.localhost` (wire 1.1)."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.data.tables import TableServiceClient as SyncTableServiceClient
from azure.data.tables import UpdateMode

from sdk.endpoint import fresh_table_name
from sdk.python.clients import code_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from azure.data.tables.aio import TableServiceClient

    from sdk.endpoint import Endpoint
    from sdk.python.clients import Clients

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]


@pytest.fixture(autouse=True)
def local_names(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names below `localhost` mean this machine (RFC 6761 6.3); not every resolver knows that."""
    if urlsplit(endpoint.url).hostname != "127.0.0.1":
        pytest.skip("the server under test does not listen on 127.0.0.1")
    resolve = socket.getaddrinfo

    def resolve_local(host: Any, *more: Any, **named: Any) -> Any:
        is_local = isinstance(host, str) and host.rstrip(".").lower().endswith(".localhost")
        return resolve("127.0.0.1" if is_local else host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_local)


def host_style(endpoint: Endpoint, account: str | None = None) -> str:
    """The URL of an account by its host name."""
    return (
        f"http://{account or endpoint.account_name}.table.localhost:{urlsplit(endpoint.url).port}"
    )


@pytest_asyncio.fixture
async def service(clients: Clients) -> AsyncIterator[TableServiceClient]:
    async with clients.service(url=host_style(clients.endpoint)) as client:
        yield client


async def test_what_is_written_in_host_style_is_read_in_path_style(
    clients: Clients, service: TableServiceClient
) -> None:
    name = fresh_table_name()
    await service.create_table(name)
    assert name in [table.name async for table in service.list_tables()]
    entity = {"PartitionKey": "it's", "RowKey": "a+b %20"}
    async with service.get_table_client(name) as table:
        await table.upsert_entity(entity | {"Kept": 1, "Changed": 1}, mode=UpdateMode.MERGE)
        await table.update_entity(entity | {"Changed": 2}, mode=UpdateMode.MERGE)
        other = {"PartitionKey": "it's", "RowKey": "ü(x)"}
        await table.submit_transaction(
            [("upsert", entity | {"Changed": 3}, {"mode": UpdateMode.MERGE}), ("create", other)]
        )
        found = [each async for each in table.query_entities("PartitionKey eq 'it''s'")]
        assert len(found) == 2
        with pytest.raises(ResourceNotFoundError) as nothing:
            await table.get_entity("it's", "nothing")
        assert code_of(nothing.value) == "ResourceNotFound"
    async with clients.table(name) as same:
        assert dict(await same.get_entity("it's", "a+b %20")) == entity | {"Kept": 1, "Changed": 3}
        assert dict(await same.get_entity("it's", "ü(x)")) == other
    await service.delete_table(name)


async def test_a_connection_string_in_host_style(
    clients: Clients, service: TableServiceClient
) -> None:
    name = fresh_table_name()
    await service.create_table(name)
    endpoint = clients.endpoint
    text = (
        f"AccountName={endpoint.account_name};AccountKey={endpoint.account_key};"
        f"TableEndpoint={host_style(endpoint)}/;"
    )
    async with clients.table_from(text, name) as table:
        await table.create_entity({"PartitionKey": "p", "RowKey": "r"})
        assert [each["RowKey"] async for each in table.list_entities()] == ["r"]
    await service.delete_table(name)


async def test_the_secondary_in_host_style_is_read_and_not_written(
    clients: Clients, service: TableServiceClient
) -> None:
    name = fresh_table_name()
    await service.create_table(name)
    secondary = host_style(clients.endpoint, f"{clients.endpoint.account_name}-secondary")
    async with clients.table(name) as table:
        await table.create_entity({"PartitionKey": "p", "RowKey": "r"})
    async with clients.service(url=secondary) as reader:
        copy = reader.get_table_client(name)
        assert dict(await copy.get_entity("p", "r")) == {"PartitionKey": "p", "RowKey": "r"}
        with pytest.raises(HttpResponseError) as refused:
            await copy.upsert_entity({"PartitionKey": "p", "RowKey": "s"})
        assert code_of(refused.value) == "InsufficientAccountPermissions"
    await service.delete_table(name)


@pytest.mark.parametrize("account", ["otheraccount", "nobody"])
async def test_a_host_that_names_another_account_gets_nothing(
    clients: Clients, account: str
) -> None:
    url = host_style(clients.endpoint, account)
    async with clients.service(url=url, credential=clients.credential()) as service:
        with pytest.raises((ClientAuthenticationError, ResourceNotFoundError)):
            await service.create_table(fresh_table_name())


async def test_the_clients_own_way_to_the_secondary(endpoint: Endpoint) -> None:
    """A client of the primary that is told to read from the secondary; the asynchronous one takes the same option."""
    name = fresh_table_name()
    credential = AzureNamedKeyCredential(endpoint.account_name, endpoint.account_key)
    primary = host_style(endpoint)
    secondary_host = urlsplit(host_style(endpoint, f"{endpoint.account_name}-secondary")).netloc
    with SyncTableServiceClient(
        primary, credential=credential, secondary_hostname=secondary_host
    ) as service:
        service.create_table(name)
        service.get_table_client(name).create_entity({"PartitionKey": "p", "RowKey": "r"})
    with SyncTableServiceClient(
        primary, credential=credential, secondary_hostname=secondary_host, location_mode="secondary"
    ) as service:
        assert name in [table.name for table in service.list_tables()]
