"""The tests of the orders, with faults, a snapshot and a clock over HTTP."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError
from azure.data.tables import TableClient, TableSasPermissions, generate_table_sas
from placed_orders import PlacedOrders
from tablestone_server import TablestoneServer

ORDER = {"PartitionKey": "anna", "RowKey": "1", "total": 5, "status": "new"}


@pytest.fixture(scope="module")
def server() -> Iterator[TablestoneServer]:
    server = TablestoneServer()
    yield server
    server.stop()


@pytest.fixture
def account(server: TablestoneServer) -> Iterator[Any]:
    """An empty account for this test; afterwards no faults, and the machine's time."""
    yield server.ask("POST", "/accounts")
    server.ask("DELETE", "/faults")
    server.ask("POST", "/clock/reset")


@pytest.fixture
def table(account: Any) -> Iterator[TableClient]:
    with TableClient.from_connection_string(account["connection_string"], "Orders") as table:
        table.create_table()
        yield table


def statuses(server: TablestoneServer, account: Any, operation: str) -> list[int]:
    made = server.ask("GET", "/requests")["requests"]
    mine = [each for each in made if each["account"] == account["name"]]
    return [each["status"] for each in mine if each["operation"] == operation]


def test_an_order_is_placed_though_the_server_is_busy(
    server: TablestoneServer, account: Any, table: TableClient
) -> None:
    busy = {"operation": "InsertEntity", "count": 2, "error": "ServerBusy", "retry_after": 0}
    server.ask("POST", "/faults", busy)
    PlacedOrders(table).place("anna", "1", 5)
    assert statuses(server, account, "InsertEntity") == [503, 503, 201]


def test_an_order_whose_answer_was_lost_is_stored_once(
    server: TablestoneServer, account: Any, table: TableClient
) -> None:
    server.ask("POST", "/faults", {"operation": "InsertEntity", "count": 1, "reset": "after"})
    PlacedOrders(table).place("anna", "1", 5)
    assert server.ask("GET", f"/dump?account={account['name']}") == {"Orders": [ORDER]}


def test_a_payment_that_is_overtaken_is_made_again(
    server: TablestoneServer, account: Any, table: TableClient
) -> None:
    server.ask("POST", f"/seed?account={account['name']}", {"Orders": [ORDER]})
    server.ask("POST", "/faults", {"conflict": True, "count": 1})
    PlacedOrders(table).pay("anna", "1")
    assert statuses(server, account, "MergeEntity") == [412, 204]
    assert table.get_entity("anna", "1")["status"] == "paid"


def test_a_snapshot_brings_everything_back(
    server: TablestoneServer, account: Any, table: TableClient
) -> None:
    PlacedOrders(table).place("anna", "1", 5)
    snapshot = server.ask("POST", "/snapshots")["id"]
    PlacedOrders(table).pay("anna", "1")
    server.ask("POST", f"/snapshots/{snapshot}/restore")
    assert server.ask("GET", f"/dump?account={account['name']}") == {"Orders": [ORDER]}


@pytest.mark.usefixtures("table")
def test_a_signature_expires(server: TablestoneServer, account: Any) -> None:
    signature = generate_table_sas(
        AzureNamedKeyCredential(account["name"], account["key"]),
        "Orders",
        permission=TableSasPermissions(read=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    credential = AzureSasCredential(signature)
    with TableClient(account["endpoint"], "Orders", credential=credential) as guest:
        assert list(guest.list_entities()) == []
        server.ask("POST", "/clock/advance", {"hours": 2})
        with pytest.raises(ClientAuthenticationError):
            list(guest.list_entities())


def test_the_orders_of_a_customer_cost_one_request(
    server: TablestoneServer, account: Any, table: TableClient
) -> None:
    before = server.ask("GET", "/requests")["count"]
    PlacedOrders(table).of("anna")
    limits = {"since": before, "scans": 0, "requests": 1, "account": account["name"]}
    assert server.ask("POST", "/cost", limits) == {"complaints": []}
