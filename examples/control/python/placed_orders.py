"""Orders of customers: placed once, whatever happens to the answer; paid, whatever others write at the same time."""

from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ServiceResponseError
from azure.data.tables import TableClient, UpdateMode

ATTEMPTS_MAX = 5


class PlacedOrders:
    """The orders in one table."""

    def __init__(self, table: TableClient) -> None:
        self._table = table

    def place(self, customer: str, number: str, total: int) -> None:
        """Store an order. An order that is there already, from an attempt without an answer, is this one."""
        order = {"PartitionKey": customer, "RowKey": number, "total": total, "status": "new"}
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                self._table.create_entity(order)
            except ServiceResponseError:
                # No answer: the SDK does not repeat an insert whose outcome is not known.
                if attempt == ATTEMPTS_MAX:
                    raise
            except ResourceExistsError:
                if self._table.get_entity(customer, number)["total"] != total:
                    raise
                return
            else:
                return

    def pay(self, customer: str, number: str) -> None:
        """Mark an order as paid, unless another program has changed it since it was read: then read it again."""
        while True:
            order = self._table.get_entity(customer, number)
            try:
                self._table.update_entity(
                    {"PartitionKey": customer, "RowKey": number, "status": "paid"},
                    mode=UpdateMode.MERGE,
                    etag=order.metadata["etag"],
                    match_condition=MatchConditions.IfNotModified,
                )
            except ResourceModifiedError:
                continue
            return

    def of(self, customer: str) -> list[dict[str, Any]]:
        """The orders of a customer."""
        return list(
            self._table.query_entities(
                "PartitionKey eq @customer", parameters={"customer": customer}
            )
        )
