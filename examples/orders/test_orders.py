"""The tests of the order service: `pip install 'tablestone[testing]' && pytest examples/orders`."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import AzureError
from azure.data.tables import TableServiceClient
from orders import Orders

from tablestone.testing import StorageTransport, TableStorage


@pytest.fixture
def orders(table_storage: TableStorage, connection_string: str) -> Orders:
    """The service on empty tables. It retries at once, and the SDK does not, so that no test waits."""
    client = TableServiceClient.from_connection_string(
        connection_string, transport=StorageTransport(table_storage), retry_total=0
    )
    client.create_table("Orders")
    client.create_table("OrdersByStatus")
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
        table="Orders", operation="InsertOrMergeEntity", count=1, reset="after"
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
    table_storage.faults.add(table="OrdersByStatus", error="ServerBusy")
    orders.place("anna", "1", 5.0)
    table_storage.faults.clear()
    assert orders.with_status("new") == []
    orders.repair("anna")
    assert numbers(orders.with_status("new")) == ["1"]


@pytest.mark.parametrize("seed", range(5))
def test_a_bad_hour_loses_nothing(table_storage: TableStorage, orders: Orders, seed: int) -> None:
    table_storage.faults.azure_like(seed)
    for number in range(20):
        orders.place("anna", f"{number:02}", 5.0)
    for number in range(0, 20, 2):
        orders.change_status("anna", f"{number:02}", "paid")
    table_storage.faults.clear()
    orders.repair("anna")
    assert numbers(orders.with_status("paid")) == [f"{number:02}" for number in range(0, 20, 2)]
    assert numbers(orders.with_status("new")) == [f"{number:02}" for number in range(1, 20, 2)]


def test_an_outage_is_told(table_storage: TableStorage, orders: Orders) -> None:
    table_storage.faults.add(error="ServerBusy")
    with pytest.raises(AzureError):
        orders.place("anna", "1", 5.0)
