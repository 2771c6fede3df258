"""azure-data-tables: signatures that refer to stored access policies (auth 3.9)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableAccessPolicy, generate_table_sas

from sdk.python.clients import Clients, code_of

if TYPE_CHECKING:
    from azure.data.tables.aio import TableClient

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
END = datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC)


def policy(permission: str | None = "r", **given: Any) -> TableAccessPolicy:
    return TableAccessPolicy(permission=permission, **given)


def signed(clients: Clients, table: TableClient, **given: Any) -> TableClient:
    token = generate_table_sas(clients.credential(), table.table_name, **given)
    return clients.table(table.table_name, credential=AzureSasCredential(token))


async def code_of_reading(table: TableClient) -> str:
    """The error code of a query, "" if it succeeds."""
    try:
        found = [read async for read in table.list_entities()]
    except HttpResponseError as error:
        return code_of(error) if error.status_code == 403 else repr(error)
    return repr(found) if found else ""


async def test_a_policy_acts_on_the_very_next_request(clients: Clients, table: TableClient) -> None:
    async with signed(clients, table, policy_id="readers") as reader:
        assert await code_of_reading(reader) == "AuthenticationFailed"
        for given, code in (
            (policy("r", expiry=END), ""),
            (policy("a", expiry=END), "AuthorizationPermissionMismatch"),
            (policy("ra", start=START, expiry=END), ""),
            (policy("r", expiry=datetime.now(UTC) - timedelta(seconds=1)), "AuthenticationFailed"),
            (policy("r", start=END, expiry=END + timedelta(days=1)), "AuthenticationFailed"),
            (policy("r"), "AuthenticationFailed"),
            (policy("r", expiry=END), ""),
        ):
            await table.set_table_access_policy({"readers": given})
            assert await code_of_reading(reader) == code, given
        await table.set_table_access_policy({"Readers": policy("r", expiry=END)})
        assert await code_of_reading(reader) == "AuthenticationFailed"


async def test_policy_and_signature_complete_each_other(
    clients: Clients, table: TableClient
) -> None:
    await table.set_table_access_policy(
        {"times": policy(None, start=START, expiry=END), "permission": policy("r"), "none": None}
    )
    for given, code in (
        ({"policy_id": "times", "permission": "r"}, ""),
        ({"policy_id": "permission", "expiry": END}, ""),
        ({"policy_id": "none", "permission": "r", "expiry": END}, ""),
        ({"policy_id": "times"}, "AuthenticationFailed"),
        ({"policy_id": "permission", "expiry": END, "permission": "r"}, "AuthenticationFailed"),
        ({"policy_id": "times", "expiry": END, "permission": "r"}, "AuthenticationFailed"),
    ):
        async with signed(clients, table, **given) as reader:
            assert await code_of_reading(reader) == code, given


async def test_a_table_created_again_has_no_policies(clients: Clients, table: TableClient) -> None:
    await table.set_table_access_policy({"readers": policy("r", expiry=END)})
    await table.delete_table()
    await table.create_table()
    assert await table.get_table_access_policy() == {}
    async with signed(clients, table, policy_id="readers") as reader:
        assert await code_of_reading(reader) == "AuthenticationFailed"
