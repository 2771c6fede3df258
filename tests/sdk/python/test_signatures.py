"""azure-data-tables: shared access signatures made by the SDK, what they permit, credentials updated in use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import ResourceTypes, generate_account_sas, generate_table_sas

from sdk.endpoint import fresh_table_name
from sdk.python.clients import Clients, code_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from azure.data.tables.aio import TableClient

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]

EVERYTHING = ResourceTypes(service=True, container=True, object=True)
ENTITIES = [("EWR", "1"), ("JFK", "1"), ("JFK", "2"), ("JFK", "3"), ("LGA", "1")]


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


def account_signature(clients: Clients, permission: str = "rwdlacu", **given: Any) -> str:
    defaults: dict[str, Any] = {"resource_types": EVERYTHING, "expiry": soon()}
    return generate_account_sas(clients.credential(), permission=permission, **(defaults | given))


def table_signature(clients: Clients, table: TableClient, **given: Any) -> str:
    given = {"expiry": soon()} | given
    return generate_table_sas(clients.credential(), table.table_name, **given)


def signed_table(clients: Clients, table: TableClient, token: str) -> TableClient:
    return clients.table(table.table_name, credential=AzureSasCredential(token))


def entity(partition_key: str, row_key: str, **properties: Any) -> dict[str, Any]:
    return {"PartitionKey": partition_key, "RowKey": row_key} | properties


async def fill(table: TableClient) -> None:
    for keys in ENTITIES:
        await table.create_entity(entity(*keys))


async def keys_in(table: TableClient) -> list[tuple[str, str]]:
    return [(read["PartitionKey"], read["RowKey"]) async for read in table.list_entities()]


async def assert_refused(call: Awaitable[Any], code: str, status: int = 403) -> None:
    with pytest.raises(HttpResponseError) as caught:
        await call
    assert (caught.value.status_code, code_of(caught.value)) == (status, code)


async def test_an_account_signature_does_all_that_it_permits(clients: Clients) -> None:
    credential = AzureSasCredential(account_signature(clients))
    async with clients.service(credential=credential) as service:
        table = await service.create_table(fresh_table_name())
        assert table.table_name in [listed.name async for listed in service.list_tables()]
        async with table:
            await table.create_entity(entity("p", "it's +%20"))
            await table.upsert_entity(entity("p", "it's +%20", number=2))
            await table.submit_transaction(
                [("create", entity("p", "s")), ("delete", entity("p", "it's +%20"))]
            )
            found = table.query_entities("PartitionKey eq @key", parameters={"key": "p"})
            assert [read["RowKey"] async for read in found] == ["s"]
        await service.delete_table(table.table_name)


async def test_an_account_signature_in_a_connection_string(
    clients: Clients, table: TableClient
) -> None:
    text = clients.endpoint.connection_string_with(account_signature(clients))
    async with clients.service_from(text) as service:
        assert table.table_name in [listed.name async for listed in service.list_tables()]
    async with clients.table_from(text, table.table_name) as same:
        await same.create_entity(entity("p", "r"))
        assert await keys_in(same) == [("p", "r")]


async def test_an_account_signature_needs_the_letter_and_the_resource(
    clients: Clients, table: TableClient
) -> None:
    reader = signed_table(clients, table, account_signature(clients, "rl"))
    tables_only = signed_table(
        clients, table, account_signature(clients, resource_types=ResourceTypes(container=True))
    )
    async with reader, tables_only:
        await assert_refused(
            reader.create_entity(entity("p", "r")), "AuthorizationPermissionMismatch"
        )
        assert await keys_in(reader) == []
        await assert_refused(
            tables_only.create_entity(entity("p", "r")), "AuthorizationResourceTypeMismatch"
        )


async def test_an_upsert_needs_both_letters(clients: Clients, table: TableClient) -> None:
    for permission in ("a", "u"):
        async with signed_table(clients, table, account_signature(clients, permission)) as half:
            await assert_refused(
                half.upsert_entity(entity("p", "r")), "AuthorizationPermissionMismatch"
            )
    async with signed_table(clients, table, account_signature(clients, "au")) as both:
        await both.upsert_entity(entity("p", "r"))


async def test_a_table_signature_does_what_it_permits(clients: Clients, table: TableClient) -> None:
    await fill(table)
    token = table_signature(clients, table, permission="ra")
    async with signed_table(clients, table, token) as reader:
        assert await keys_in(reader) == ENTITIES
        assert (await reader.get_entity("JFK", "2"))["RowKey"] == "2"
        await reader.create_entity(entity("JFK", "4"))
        await assert_refused(reader.delete_entity("JFK", "1"), "AuthorizationPermissionMismatch")
        await assert_refused(
            reader.update_entity(entity("JFK", "1", number=1)), "AuthorizationPermissionMismatch"
        )
        await assert_refused(reader.delete_table(), "AuthorizationFailure")


async def test_a_table_signature_in_a_url(clients: Clients, table: TableClient) -> None:
    await fill(table)
    token = table_signature(clients, table, permission="r")
    async with clients.table_from_url(
        f"{clients.endpoint.url}/{table.table_name}?{token}"
    ) as reader:
        assert await keys_in(reader) == ENTITIES


async def test_a_table_signature_is_of_one_table(clients: Clients, table: TableClient) -> None:
    token = table_signature(clients, table, permission="raud")
    async with clients.table(fresh_table_name(), credential=AzureSasCredential(token)) as other:
        await assert_refused(other.get_entity("p", "r"), "AuthenticationFailed")
    async with clients.service(credential=AzureSasCredential(token)) as service:
        await assert_refused(service.create_table(fresh_table_name()), "AuthorizationFailure")


async def test_a_transaction_needs_the_letter_of_every_operation(
    clients: Clients, table: TableClient
) -> None:
    await fill(table)
    token = table_signature(clients, table, permission="a")
    async with signed_table(clients, table, token) as adder:
        await adder.submit_transaction([("create", entity("JFK", "4"))])
        with pytest.raises(HttpResponseError) as caught:
            await adder.submit_transaction(
                [("create", entity("JFK", "5")), ("delete", entity("JFK", "1"))]
            )
        assert code_of(caught.value) == "AuthorizationPermissionMismatch"
    assert await keys_in(table) == [*ENTITIES[:4], ("JFK", "4"), ENTITIES[4]]


RANGES: dict[str, tuple[dict[str, str], list[tuple[str, str]]]] = {
    "one partition": ({"start_pk": "JFK", "end_pk": "JFK"}, ENTITIES[1:4]),
    "from a partition on": ({"start_pk": "JFK"}, ENTITIES[1:]),
    "up to an entity": ({"end_pk": "JFK", "end_rk": "2"}, ENTITIES[:3]),
    "between two entities": (
        {"start_pk": "EWR", "start_rk": "2", "end_pk": "JFK", "end_rk": "1"},
        ENTITIES[1:2],
    ),
}


@pytest.mark.parametrize("name", RANGES)
async def test_a_range_of_keys(clients: Clients, table: TableClient, name: str) -> None:
    """Readers find nothing outside of it, and writers are refused (auth 3.6)."""
    await fill(table)
    given, inside = RANGES[name]
    token = table_signature(clients, table, permission="raud", **given)
    async with signed_table(clients, table, token) as limited:
        assert await keys_in(limited) == inside
        pages = limited.list_entities(results_per_page=1).by_page()
        assert [read["RowKey"] async for page in pages async for read in page] == [
            row_key for _, row_key in inside
        ]
        for keys in ENTITIES:
            if keys in inside:
                await limited.upsert_entity(entity(*keys, seen=True))
                assert (await limited.get_entity(*keys))["seen"] is True
            else:
                await assert_refused(limited.get_entity(*keys), "ResourceNotFound", 404)
                for call in (
                    limited.upsert_entity(entity(*keys)),
                    limited.update_entity(entity(*keys)),
                    limited.create_entity(entity(keys[0], keys[1])),
                    limited.submit_transaction([("delete", entity(*keys))]),
                ):
                    await assert_refused(call, "AuthorizationFailure")
    assert await keys_in(table) == ENTITIES


CONDITIONS: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"expiry": datetime(2024, 5, 6, tzinfo=UTC)}, "AuthenticationFailed"),
    "not yet": (
        {"start": datetime(2090, 5, 6, tzinfo=UTC), "expiry": datetime(2099, 5, 6, tzinfo=UTC)},
        "AuthenticationFailed",
    ),
    "https only": ({"protocol": "https"}, "AuthorizationProtocolMismatch"),
    "another address": ({"ip_address_or_range": "10.0.0.1"}, "AuthorizationSourceIPMismatch"),
    "other addresses": (
        {"ip_address_or_range": "127.0.0.2-127.0.0.9"},
        "AuthorizationSourceIPMismatch",
    ),
    "this address": ({"ip_address_or_range": "127.0.0.1"}, ""),
    "these addresses": ({"ip_address_or_range": "127.0.0.0-127.0.0.9"}, ""),
    "both protocols": ({"protocol": "https,http"}, ""),
}


@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("kind", ["account", "table"])
async def test_conditions(clients: Clients, table: TableClient, kind: str, name: str) -> None:
    given, code = CONDITIONS[name]
    if kind == "account":
        token = account_signature(clients, **given)
    else:
        token = table_signature(clients, table, permission="raud", **given)
    async with signed_table(clients, table, token) as signed:
        call = signed.create_entity(entity("p", "r"))
        if code:
            await assert_refused(call, code)
        else:
            await call


async def test_a_signature_updated_in_use(clients: Clients, table: TableClient) -> None:
    credential = AzureSasCredential(table_signature(clients, table, permission="r"))
    async with clients.table(table.table_name, credential=credential) as client:
        await assert_refused(
            client.create_entity(entity("p", "r")), "AuthorizationPermissionMismatch"
        )
        credential.update(table_signature(clients, table, permission="ra"))
        await client.create_entity(entity("p", "r"))
        credential.update(table_signature(clients, table, permission="ra") + "x")
        await assert_refused(client.create_entity(entity("p", "s")), "AuthenticationFailed")
        credential.update(account_signature(clients))
        assert await keys_in(client) == [("p", "r")]


async def test_a_key_updated_in_use(clients: Clients, table: TableClient) -> None:
    name, key = clients.endpoint.account_name, clients.endpoint.account_key
    credential = AzureNamedKeyCredential(name, "bm90IHRoZSBrZXk=")
    async with clients.table(table.table_name, credential=credential) as client:
        await assert_refused(client.create_entity(entity("p", "r")), "AuthenticationFailed")
        credential.update(name, key)
        await client.create_entity(entity("p", "r"))
        credential.update(name, "bm90IHRoZSBrZXk=")
        await assert_refused(client.get_entity("p", "r"), "AuthenticationFailed")
