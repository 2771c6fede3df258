"""Clients that reach a storage without a socket: every kind of request works, and signatures are checked."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ClientAuthenticationError, ResourceExistsError
from azure.data.tables import (
    AccountSasPermissions,
    ResourceTypes,
    TableServiceClient,
    UpdateMode,
    generate_account_sas,
)
from azure.data.tables.aio import TableServiceClient as AsyncTableServiceClient

from tablestone.testing import AsyncStorageTransport, StorageAsgi, StorageTransport, TableStorage

ROWS = [{"PartitionKey": "p", "RowKey": f"{n:04}", "name": f"Ω {n}"} for n in range(5)]


@pytest.fixture
def storage() -> Iterator[TableStorage]:
    with TableStorage() as storage:
        yield storage


def test_a_client_works_without_a_socket(storage: TableStorage) -> None:
    service = TableServiceClient.from_connection_string(
        storage.connection_string, transport=StorageTransport(storage)
    )
    table = service.create_table("Orders")
    with pytest.raises(ResourceExistsError):
        service.create_table("Orders")
    table.create_entity(ROWS[0])
    table.submit_transaction([("create", row) for row in ROWS[1:]])
    table.update_entity(ROWS[0] | {"more": 1}, mode=UpdateMode.MERGE)
    table.delete_entity("p", "0004")
    assert list(table.list_entities(results_per_page=2)) == [ROWS[0] | {"more": 1}, *ROWS[1:4]]
    assert [each.name for each in service.query_tables("TableName eq 'Orders'")] == ["Orders"]
    service.set_service_properties(cors=[])
    assert service.get_service_properties()["cors"] == []
    table.set_table_access_policy({"readers": None})
    assert list(table.get_table_access_policy()) == ["readers"]


def test_an_asynchronous_client_works_without_a_socket(storage: TableStorage) -> None:
    async def main() -> list[object]:
        service = AsyncTableServiceClient.from_connection_string(
            storage.connection_string, transport=AsyncStorageTransport(storage)
        )
        table = await service.create_table("Orders")
        await table.create_entity(ROWS[0])
        await table.submit_transaction([("create", row) for row in ROWS[1:]])
        return [entity async for entity in table.list_entities(results_per_page=2)]

    assert asyncio.run(main()) == ROWS


def test_a_wrong_key_is_refused(storage: TableStorage) -> None:
    account = storage.create_account()
    forged = account.connection_string.replace(account.key, storage.account.key)
    service = TableServiceClient.from_connection_string(forged, transport=StorageTransport(storage))
    with pytest.raises(ClientAuthenticationError):
        service.create_table("Orders")


@pytest.mark.parametrize(
    ("signed", "status", "text"),
    [(True, 200, '"TableName":"Orders"'), (False, 403, "AuthenticationFailed")],
)
def test_httpx_reaches_it_through_asgi(
    storage: TableStorage, *, signed: bool, status: int, text: str
) -> None:
    account = storage.account
    with TableServiceClient.from_connection_string(account.connection_string) as service:
        service.create_table("Orders")
    signature = generate_account_sas(
        AzureNamedKeyCredential(account.name, account.key),
        ResourceTypes(service=True, object=True, container=True),
        AccountSasPermissions(list=True, read=True),
        datetime.now(UTC) + timedelta(hours=1),
    )

    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(StorageAsgi(storage))
        async with httpx.AsyncClient(transport=transport) as client:
            query = signature if signed else ""
            return await client.get(
                f"{storage.endpoint}/Tables?{query}", headers={"accept": "application/json"}
            )

    answer = asyncio.run(main())
    assert (answer.status_code, text in answer.text) == (status, True), answer.text
