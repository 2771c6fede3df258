"""The tests of the order service: `pip install '.[testing]' ./patterns && pytest examples/orders`."""

from datetime import UTC, datetime
from typing import Any

import pytest
from azure.core.exceptions import AzureError
from azure.data.tables import TableServiceClient
from orders import Orders

from tablestone.testing import StorageAccount, StorageTransport, TableStorage


@pytest.fixture
def orders(table_storage: TableStorage, connection_string: str) -> Orders:
    """The service on empty tables. It retries at once, and the SDK does not, so that no test waits."""
    client = TableServiceClient.from_connection_string(
        connection_string, transport=StorageTransport(table_storage), retry_total=0
    )
    client.create_table_if_not_exists("Orders")
    return Orders(client, lambda _attempt: None)


def numbers(found: list[dict[str, Any]]) -> list[str]:
    return sorted(order["RowKey"] for order in found)


def test_orders_are_found_by_status(orders: Orders) -> None:
    for number in ("1", "2", "3"):
        orders.place("anna", number, 5.0)
    orders.change_status("anna", "2", "paid")
    assert numbers(orders.with_status("new")) == ["1", "3"]
    assert numbers(orders.with_status("paid")) == ["2"]


def test_finding_by_status_scans_no_table(table_storage: TableStorage, orders: Orders) -> None:
    for number in range(5):
        orders.place("anna", str(number), 5.0)
    with table_storage.expect(scans=0, requests=6):
        orders.with_status("new")


def test_an_order_whose_answer_was_lost_is_stored_once(
    table_storage: TableStorage, orders: Orders
) -> None:
    table_storage.faults.add(
        table="Orders", operation="EntityGroupTransaction", count=1, reset="after"
    )
    orders.place("anna", "1", 5.0)
    assert numbers(orders.with_status("new")) == ["1"]


def test_a_change_that_is_overtaken_is_made_again(
    table_storage: TableStorage, orders: Orders
) -> None:
    orders.place("anna", "1", 5.0)
    table_storage.faults.add(table="Orders", conflict=True, count=2)
    orders.change_status("anna", "1", "paid")
    assert numbers(orders.with_status("paid")) == ["1"]


def test_what_the_index_missed_is_repaired(table_storage: TableStorage, orders: Orders) -> None:
    table_storage.faults.add(operation="InsertOrReplaceEntity", error="ServerBusy")
    orders.place("anna", "1", 5.0)
    table_storage.faults.clear()
    assert orders.with_status("new") == []
    table_storage.clock.advance(minutes=11)
    orders.repair()
    assert numbers(orders.with_status("new")) == ["1"]


@pytest.mark.parametrize("seed", range(5))
def test_a_bad_hour_loses_nothing(table_storage: TableStorage, orders: Orders, seed: int) -> None:
    table_storage.faults.azure_like(seed)
    for number in range(20):
        orders.place("anna", f"{number:02}", 5.0)
    for number in range(0, 20, 2):
        orders.change_status("anna", f"{number:02}", "paid")
    table_storage.faults.clear()
    table_storage.clock.advance(minutes=11)
    orders.repair()
    assert numbers(orders.with_status("paid")) == [f"{number:02}" for number in range(0, 20, 2)]
    assert numbers(orders.with_status("new")) == [f"{number:02}" for number in range(1, 20, 2)]


def test_an_outage_is_told(table_storage: TableStorage, orders: Orders) -> None:
    table_storage.faults.add(error="ServerBusy")
    with pytest.raises(AzureError):
        orders.place("anna", "1", 5.0)


@pytest.mark.table_data("fixtures")
def test_orders_from_before_the_index_are_found(
    table_storage: TableStorage, table_account: StorageAccount, orders: Orders
) -> None:
    assert numbers(orders.with_status("new")) == []
    orders.repair()
    assert numbers(orders.with_status("new")) == ["1"]
    assert numbers(orders.with_status("paid")) == ["2", "3"]
    stored = table_storage.dump(table_account)["Orders"]
    places = [entity["PartitionKey"] for entity in stored if entity["PartitionKey"][0] == "~"]
    assert places == ["~index!status!snew", *["~index!status!spaid"] * 2]


def test_two_changes_from_the_same_beginning(table_storage: TableStorage, orders: Orders) -> None:
    orders.place("anna", "1", 5.0)
    beginning = table_storage.snapshot()
    ends = []
    for overtaken in (0, 1):
        table_storage.restore(beginning)
        table_storage.faults.clear()
        if overtaken:
            table_storage.faults.add(table="Orders", conflict=True, count=1)
        orders.change_status("anna", "1", "paid")
        ends.append(orders.with_status("paid"))
    assert ends[0] == ends[1]


def test_an_order_that_changes_gets_a_new_timestamp(
    table_storage: TableStorage, connection_string: str, orders: Orders
) -> None:
    table_storage.clock.freeze(datetime(2030, 1, 1, tzinfo=UTC))
    orders.place("anna", "1", 5.0)
    table_storage.clock.advance(days=1)
    orders.change_status("anna", "1", "paid")
    with TableServiceClient.from_connection_string(connection_string) as client:
        order = client.get_table_client("Orders").get_entity("anna", "1")
    assert str(order.metadata["timestamp"]).startswith("2030-01-02")


def test_every_order_is_found_on_pages_that_end_early() -> None:
    with TableStorage(realism=True) as storage:
        storage.seed(
            {
                "Orders": [
                    {
                        "PartitionKey": f"customer {number:02}",
                        "RowKey": "1",
                        "total": 5.0,
                        "status": "new",
                    }
                    for number in range(40)
                ]
            }
        )
        client = TableServiceClient.from_connection_string(
            storage.connection_string, transport=StorageTransport(storage)
        )
        orders = Orders(client, lambda _attempt: None)
        orders.repair()
        assert len(orders.with_status("new")) == 40
