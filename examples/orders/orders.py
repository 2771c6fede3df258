"""Orders of customers, found by their status too: an indexed table of `patterns/` keeps an index entity for each.

A status is another partition than a customer, so the index follows the order, and `repair` finishes what a process that
was stopped has left. Every write may be repeated, because the outcome of a request that failed may not be known.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.data.tables import TableServiceClient

from table_patterns import IndexedTable

Answer = TypeVar("Answer")
Order = dict[str, Any]
ATTEMPTS_MAX = 12


class Orders:
    """The orders of one account. `pause` is called with the number of each attempt that failed."""

    def __init__(self, service: TableServiceClient, pause: Callable[[int], None]) -> None:
        self._orders = IndexedTable(service.get_table_client("Orders"), far=("status",))
        self._pause = pause

    def place(self, customer: str, number: str, total: float) -> None:
        """Store a new order; the same order may be placed again."""
        order = {"PartitionKey": customer, "RowKey": number, "total": total, "status": "new"}
        self._persist(lambda: self._orders.put(order))

    def change_status(self, customer: str, number: str, status: str) -> None:
        """Give an order another status, whatever others write at the same time."""
        change = {"PartitionKey": customer, "RowKey": number, "status": status}
        self._persist(lambda: self._orders.merge(change))

    def with_status(self, status: str) -> list[Order]:
        """The orders of a status."""
        return self._persist(lambda: list(self._orders.find("status", status)))

    def repair(self) -> None:
        """Index the orders from before the index, and finish what writers have left ten minutes ago."""
        self._persist(self._orders.build)
        self._persist(self._orders.sweep)

    def _persist(self, work: Callable[[], Answer]) -> Answer:
        """The answer of the first attempt that succeeds."""
        attempt = 1
        while True:
            try:
                return work()
            except (AzureError, OSError) as error:
                if isinstance(error, ResourceNotFoundError) or attempt == ATTEMPTS_MAX:
                    raise
            self._pause(attempt)
            attempt += 1
