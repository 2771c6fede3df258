"""The two Python clients, and a new table for every test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from sdk.endpoint import fresh_table_name
from sdk.python.clients import Clients

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from azure.data.tables.aio import TableClient, TableServiceClient

    from sdk.endpoint import Endpoint


@pytest.fixture(params=["sync", "aio"])
def clients(request: pytest.FixtureRequest, endpoint: Endpoint) -> Clients:
    return Clients(endpoint, synchronous=request.param == "sync")


@pytest_asyncio.fixture
async def service(clients: Clients) -> AsyncIterator[TableServiceClient]:
    async with clients.service() as client:
        yield client


@pytest_asyncio.fixture
async def table(clients: Clients) -> AsyncIterator[TableClient]:
    """An empty table, deleted afterwards, so that a server's data does not grow from run to run."""
    async with clients.table(fresh_table_name()) as client:
        await client.create_table()
        yield client
        await client.delete_table()
