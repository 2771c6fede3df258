"""azure-data-tables: the SDK's error classes for what the service refuses, and the limits as a client meets them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError

from sdk.endpoint import fresh_table_name
from sdk.python.clients import code_of

if TYPE_CHECKING:
    from azure.data.tables.aio import TableClient

    from sdk.python.clients import Clients

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]

WRONG_KEY = base64.b64encode(b"not the key of this account").decode("ascii")


async def test_a_wrong_key_is_an_authentication_error(clients: Clients) -> None:
    """Wire 8.4; the SDK adds its hint because it recognises the text (wire 12.3)."""
    credential = AzureNamedKeyCredential(clients.endpoint.account_name, WRONG_KEY)
    async with clients.service(credential=credential) as service:
        with pytest.raises(ClientAuthenticationError) as caught:
            await service.create_table(fresh_table_name())
        assert caught.value.status_code == 403
        assert code_of(caught.value) == "AuthenticationFailed"
        assert "A possible cause of this error" in str(caught.value)
        with pytest.raises(ClientAuthenticationError):
            [table async for table in service.list_tables()]


async def test_a_wrong_key_reads_and_changes_nothing(clients: Clients, table: TableClient) -> None:
    await table.create_entity({"PartitionKey": "p", "RowKey": "r"})
    credential = AzureNamedKeyCredential(clients.endpoint.account_name, WRONG_KEY)
    async with (
        clients.service(credential=credential) as service,
        service.get_table_client(table.table_name) as stranger,
    ):
        with pytest.raises(ClientAuthenticationError):
            await stranger.get_entity("p", "r")
        with pytest.raises(ClientAuthenticationError):
            await stranger.upsert_entity({"PartitionKey": "p", "RowKey": "r", "Value": 1})
        with pytest.raises(ClientAuthenticationError):
            await stranger.delete_entity("p", "r")
        with pytest.raises(ClientAuthenticationError):
            await stranger.submit_transaction([("delete", {"PartitionKey": "p", "RowKey": "r"})])
        with pytest.raises(ClientAuthenticationError):
            await stranger.delete_table()
    assert dict(await table.get_entity("p", "r")) == {"PartitionKey": "p", "RowKey": "r"}


async def test_a_credential_updated_in_use_is_used(clients: Clients) -> None:
    """`AzureNamedKeyCredential.update` is how a program follows a rotated key."""
    endpoint = clients.endpoint
    credential = AzureNamedKeyCredential(endpoint.account_name, WRONG_KEY)
    async with clients.service(credential=credential) as service:
        with pytest.raises(ClientAuthenticationError):
            [table async for table in service.list_tables()]
        credential.update(endpoint.account_name, endpoint.account_key)
        assert isinstance([table async for table in service.list_tables()], list)


@pytest.mark.parametrize("key", ["PartitionKey", "RowKey"])
async def test_an_entity_without_a_key_is_the_sdks_value_error(
    table: TableClient, key: str
) -> None:
    """The SDK explains the service's PropertiesNeedValue (wire 9, 12.3)."""
    entity = {"PartitionKey": "p", "RowKey": "r"}
    del entity[key]
    with pytest.raises(ValueError, match=f"{key} must be present in an entity"):
        await table.create_entity(entity)


@pytest.mark.parametrize(
    "character", ["/", "\\", "#", "?", "\t", "\n", "\r", "\x1f", "\x7f", "\x9f"], ids=ascii
)
@pytest.mark.parametrize("key", ["PartitionKey", "RowKey"])
async def test_a_forbidden_character_in_a_key_is_out_of_range(
    table: TableClient, key: str, character: str
) -> None:
    """Wire 1.3."""
    entity = {"PartitionKey": "p", "RowKey": "r"} | {key: f"a{character}b"}
    with pytest.raises(HttpResponseError) as caught:
        await table.create_entity(entity)
    assert (caught.value.status_code, code_of(caught.value)) == (400, "OutOfRangeInput")
    assert f"The '{key}' parameter of value" in str(caught.value)


# What is wrong with an entity; its error code; the source.
TOO_MUCH: list[tuple[str, dict[str, Any], str]] = [
    ("a long string", {"Text": "x" * 65536}, "PropertyValueTooLarge"),
    ("a long string of astral characters", {"Text": "\U0001f600" * 16385}, "PropertyValueTooLarge"),
    ("a long binary", {"Data": b"x" * 131072}, "PropertyValueTooLarge"),
    ("253 properties", {f"P{number}": number for number in range(253)}, "TooManyProperties"),
    ("a long name", {"N" * 256: 1}, "PropertyNameTooLong"),
    ("a name with a dash", {"with-dash": 1}, "PropertyNameInvalid"),
    ("a name that begins with a digit", {"1st": 1}, "PropertyNameInvalid"),
    ("more than 1 MiB", {f"P{number}": "x" * 32000 for number in range(17)}, "EntityTooLarge"),
]


@pytest.mark.parametrize(
    ("what", "properties", "code"), TOO_MUCH, ids=[each[0] for each in TOO_MUCH]
)
async def test_too_much_is_refused_by_its_name(
    table: TableClient, what: str, properties: dict[str, Any], code: str
) -> None:
    """Wire 9."""
    entity = {"PartitionKey": "p", "RowKey": "r"} | properties
    for write in (table.create_entity, table.upsert_entity):
        with pytest.raises(HttpResponseError) as caught:
            await write(entity)
        assert (caught.value.status_code, code_of(caught.value)) == (400, code), what
    assert [each async for each in table.list_entities()] == []


ENOUGH: list[tuple[str, dict[str, Any]]] = [
    ("252 properties", {f"P{number}": number for number in range(252)}),
    ("a name of 255", {"N" * 255: 1}),
    ("just below 1 MiB", {f"P{number}": "x" * 32000 for number in range(16)}),
    ("sixteen thousand astral characters", {"Text": "\U0001f600" * 16384}),
]


@pytest.mark.parametrize(("what", "properties"), ENOUGH, ids=[each[0] for each in ENOUGH])
async def test_the_limit_itself_is_allowed(
    table: TableClient, what: str, properties: dict[str, Any]
) -> None:
    """Wire 9."""
    entity = {"PartitionKey": "p", "RowKey": "r"} | properties
    await table.create_entity(entity)
    assert dict(await table.get_entity("p", "r")) == entity, what


# aiohttp's advice about large bodies, meant for the SDK.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_body_of_more_than_four_mebibytes_is_refused(table: TableClient) -> None:
    """Wire 9: 413 RequestBodyTooLarge."""
    entity = {"PartitionKey": "p", "RowKey": "r", "Data": "x" * (4 * 1024 * 1024 + 1)}
    with pytest.raises(HttpResponseError) as caught:
        await table.create_entity(entity)
    assert (caught.value.status_code, code_of(caught.value)) == (413, "RequestBodyTooLarge")
    assert [each async for each in table.list_entities()] == []
