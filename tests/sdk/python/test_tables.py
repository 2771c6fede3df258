"""azure-data-tables, the service client: tables are created, listed, queried and deleted; the rules for their names."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from sdk.endpoint import fresh_table_name
from sdk.python.clients import code_of, token_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from azure.data.tables.aio import TableClient, TableServiceClient

    from sdk.python.clients import Clients

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]


@asynccontextmanager
async def tables_named(service: TableServiceClient, *names: str) -> AsyncIterator[None]:
    """Tables that exist for one test."""
    try:
        for name in names:
            await service.create_table(name)
        yield
    finally:
        for name in names:
            await service.delete_table(name)


async def names_listed(service: TableServiceClient) -> list[str]:
    return [table.name async for table in service.list_tables()]


async def test_a_table_is_created_listed_and_deleted(service: TableServiceClient) -> None:
    name = fresh_table_name()
    client = await service.create_table(name)
    assert client.table_name == name
    assert name in await names_listed(service)
    await service.delete_table(name)
    assert name not in await names_listed(service)


async def test_the_table_client_creates_and_deletes_its_table(
    clients: Clients, service: TableServiceClient
) -> None:
    async with clients.table(fresh_table_name()) as table:
        created = await table.create_table()
        assert created.name == table.table_name
        assert table.table_name in await names_listed(service)
        await table.delete_table()
        assert table.table_name not in await names_listed(service)


async def test_get_table_client_speaks_to_the_named_table(
    service: TableServiceClient, table: TableClient
) -> None:
    async with service.get_table_client(table.table_name) as same:
        await same.create_entity({"PartitionKey": "p", "RowKey": "r"})
    assert (await table.get_entity("p", "r"))["RowKey"] == "r"


@pytest.mark.parametrize("spelling", [str, str.upper], ids=["the same", "other case"])
async def test_an_existing_table_is_not_created_again(
    service: TableServiceClient, table: TableClient, spelling: type[str]
) -> None:
    """Wire 1.4, 3.3."""
    with pytest.raises(ResourceExistsError) as caught:
        await service.create_table(spelling(table.table_name))
    assert caught.value.status_code == 409
    assert code_of(caught.value) == "TableAlreadyExists"
    assert "The table specified already exists." in caught.value.message


async def test_create_table_if_not_exists_is_content_with_a_table_that_exists(
    service: TableServiceClient,
) -> None:
    name = fresh_table_name()
    async with tables_named(service, name):
        client = await service.create_table_if_not_exists(name)
        assert client.table_name == name
        assert (await names_listed(service)).count(name) == 1
    assert name not in await names_listed(service)
    await service.create_table_if_not_exists(name)
    assert name in await names_listed(service)
    await service.delete_table(name)


async def test_deleting_a_table_that_is_not_there_is_silent(service: TableServiceClient) -> None:
    """The SDK swallows 404 (wire 12.3): any other status would be raised."""
    await service.delete_table(fresh_table_name())


async def test_a_deleted_table_has_no_entities(clients: Clients) -> None:
    """Wire 3.4, 3.9."""
    async with clients.table(fresh_table_name()) as table:
        await table.create_table()
        await table.create_entity({"PartitionKey": "p", "RowKey": "r"})
        await table.delete_table()
        with pytest.raises(ResourceNotFoundError) as caught:
            await table.get_entity("p", "r")
        assert code_of(caught.value) == "TableNotFound"
        with pytest.raises(ResourceNotFoundError) as caught:
            await table.create_entity({"PartitionKey": "p", "RowKey": "r"})
        assert code_of(caught.value) == "TableNotFound"
        with pytest.raises(ResourceNotFoundError) as caught:
            [entity async for entity in table.list_entities()]
        assert code_of(caught.value) == "TableNotFound"


async def test_a_table_created_again_shows_nothing_old(table: TableClient) -> None:
    await table.create_entity({"PartitionKey": "p", "RowKey": "r"})
    await table.delete_table()
    await table.create_table()
    assert [entity async for entity in table.list_entities()] == []


async def test_the_name_keeps_its_case_and_any_case_finds_it(
    clients: Clients, service: TableServiceClient
) -> None:
    """Wire 1.4."""
    name = "MixedCase" + fresh_table_name()
    async with tables_named(service, name), clients.table(name.lower()) as lower:
        assert name in await names_listed(service)
        await lower.create_entity({"PartitionKey": "p", "RowKey": "r"})
        async with clients.table(name.upper()) as upper:
            assert (await upper.get_entity("p", "r"))["PartitionKey"] == "p"


async def test_tables_come_in_pages_and_a_token_goes_on(
    clients: Clients, service: TableServiceClient
) -> None:
    prefix = fresh_table_name()
    names = [f"{prefix}{number}" for number in range(5)]
    prefixed = "TableName ge @low and TableName lt @high"
    parameters = {"low": prefix, "high": prefix + "{"}
    async with tables_named(service, *names):
        paged = service.query_tables(prefixed, parameters=parameters, results_per_page=2).by_page()
        first = [table.name async for table in await anext(paged)]
        token = token_of(paged)
        rest: list[list[str]] = []
        async with clients.service() as another:
            query = another.query_tables(prefixed, parameters=parameters, results_per_page=2)
            async for page in query.by_page(token):
                rest.append([table.name async for table in page])  # noqa: PERF401 - pages of names
        assert [first, *rest] == [names[0:2], names[2:4], names[4:5]]


async def test_list_tables_follows_the_pages_by_itself(service: TableServiceClient) -> None:
    names = [fresh_table_name() for _ in range(3)]
    async with tables_named(service, *names):
        listed = [table.name async for table in service.list_tables(results_per_page=1)]
        assert set(names) <= set(listed)
        assert listed == sorted(listed, key=str.lower)


@pytest.mark.parametrize(
    ("filter_text", "found"),
    [
        ("TableName eq @b", ["b"]),
        ("@b eq TableName", ["b"]),
        ("TableName ne @b and TableName ge @a and TableName le @c", ["a", "c"]),
        ("TableName gt @a and TableName lt @c", ["b"]),
        ("TableName eq @a or TableName eq @c", ["a", "c"]),
        ("not ( TableName lt @b ) and TableName le @c", ["b", "c"]),
    ],
)
async def test_tables_are_queried_by_name(
    service: TableServiceClient, filter_text: str, found: list[str]
) -> None:
    """Wire 3.1."""
    prefix = fresh_table_name()
    parameters = {letter: prefix + letter for letter in "abc"}
    async with tables_named(service, *parameters.values()):
        # The SDK replaces whole words that begin with @, so they need blanks around them.
        query = service.query_tables(filter_text, parameters=parameters)
        assert [table.name async for table in query] == [parameters[letter] for letter in found]


@pytest.mark.parametrize(
    "name", ["ab", "a" * 64, "1table", "with-dash", "under_score", "tāble", "dot.ted"]
)
async def test_a_bad_table_name_is_the_sdks_value_error(
    service: TableServiceClient, name: str
) -> None:
    """The SDK recognises the service's code and text, and explains the rule (wire 1.4, 12.3)."""
    with pytest.raises(ValueError, match="Storage table names must be alphanumeric"):
        await service.create_table(name)


@pytest.mark.parametrize("name", ["tables", "Tables"])
async def test_the_reserved_name_is_refused(service: TableServiceClient, name: str) -> None:
    """Wire 1.4."""
    with pytest.raises(HttpResponseError) as caught:
        await service.create_table(name)
    assert caught.value.status_code == 400
    assert code_of(caught.value) == "InvalidInput"


async def test_an_entity_of_a_badly_named_table_is_the_sdks_value_error(clients: Clients) -> None:
    """Wire 1.4: for entities, the service spells the code in the other way."""
    async with clients.table("bad-name") as table:
        with pytest.raises(ValueError, match="Storage table names must be alphanumeric"):
            await table.create_entity({"PartitionKey": "p", "RowKey": "r"})
