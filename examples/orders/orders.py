"""Orders of customers, found by their status too: one table has the orders, another has an index entity for each.

A transaction does not reach over two tables, so an order is written first and its index entity afterwards. An order
notes in `indexed` under which status the index has it; where that is another than its own status, `repair` has work.
Every write may be repeated, because the outcome of a request that failed may not be known.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ResourceModifiedError, ResourceNotFoundError
from azure.data.tables import TableServiceClient, UpdateMode

Answer = TypeVar("Answer")
Order = dict[str, Any]
ATTEMPTS_MAX = 12


class Orders:
    """The orders of one account. `pause` is called with the number of each attempt that failed."""

    def __init__(self, service: TableServiceClient, pause: Callable[[int], None]) -> None:
        self._orders = service.get_table_client("Orders")
        self._index = service.get_table_client("OrdersByStatus")
        self._pause = pause

    def place(self, customer: str, number: str, total: float) -> None:
        """Store a new order; the same order may be placed again."""
        order = {"PartitionKey": customer, "RowKey": number, "total": total, "status": "new"}
        self._persist(lambda: self._orders.upsert_entity(order | {"indexed": ""}))
        self._update_index(customer, number)

    def change_status(self, customer: str, number: str, status: str) -> None:
        """Give an order another status, whatever others write at the same time."""
        self._change(
            customer,
            number,
            lambda order: {"status": status} if order["status"] != status else None,
        )
        self._update_index(customer, number)

    def with_status(self, status: str) -> list[Order]:
        """The orders of a status. An index entity that is out of date is passed over."""
        found = self._persist(
            lambda: list(self._index.query_entities("PartitionKey eq @s", parameters={"s": status}))
        )
        orders = [self._get(entry["customer"], entry["number"]) for entry in found]
        return [order for order in orders if order["status"] == status]

    def repair(self, customer: str) -> None:
        """Write the index entities that are missing or out of date."""
        for order in self._persist(lambda: list(self._of(customer))):
            if order["indexed"] != order["status"]:
                self._update_index(customer, order["RowKey"])

    def _of(self, customer: str) -> Iterator[Order]:
        return iter(self._orders.query_entities("PartitionKey eq @c", parameters={"c": customer}))

    def _get(self, customer: str, number: str) -> Any:
        return self._persist(lambda: self._orders.get_entity(customer, number))

    def _update_index(self, customer: str, number: str) -> None:
        """First the new index entity, then the end of the old one, then the note: so there may be two."""
        order = self._get(customer, number)
        status, before = order["status"], order["indexed"]
        row = f"{customer} {number}"
        entry = {"PartitionKey": status, "RowKey": row, "customer": customer, "number": number}
        try:
            self._persist(lambda: self._index.upsert_entity(entry))
            if before not in ("", status):
                self._persist(lambda: self._index.delete_entity(before, row))
        except AzureError:
            return  # the order is stored: repair() does it later
        self._change(
            customer, number, lambda now: {"indexed": status} if now["status"] == status else None
        )

    def _change(self, customer: str, number: str, change: Callable[[Order], Order | None]) -> None:
        """Merge a change into an order; `change` decides again if the order was changed since, None is no change."""

        def attempt() -> None:
            order = self._orders.get_entity(customer, number)
            changes = change(order)
            if changes is not None:
                self._orders.update_entity(
                    {"PartitionKey": customer, "RowKey": number, **changes},
                    mode=UpdateMode.MERGE,
                    etag=order.metadata["etag"],
                    match_condition=MatchConditions.IfNotModified,
                )

        self._persist(attempt)

    def _persist(self, work: Callable[[], Answer]) -> Answer:
        """The answer of the first attempt that succeeds. 412 is an attempt too: the work reads again."""
        attempt = 1
        while True:
            try:
                return work()
            except AzureError as error:
                if isinstance(error, ResourceNotFoundError) and not isinstance(
                    error, ResourceModifiedError
                ):
                    raise
                if attempt == ATTEMPTS_MAX:
                    raise
            self._pause(attempt)
            attempt += 1
