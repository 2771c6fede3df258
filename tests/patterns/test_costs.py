"""What each call costs: requests and entities read, as docs/patterns says."""

from collections.abc import Callable
from typing import Any

import pytest
from azure.data.tables import TableClient

from patterns.test_large_value import noise
from table_patterns import (
    IndexedTable,
    LargeValues,
    Lock,
    ShardedCounter,
    bulk_delete,
    copy_partition,
)
from tablestone.testing.storage import StorageAccount, TableStorage

SMITH = {"PartitionKey": "sales", "RowKey": "1", "Name": "Smith", "City": "Oslo"}
JONES = {**SMITH, "Name": "Jones", "City": "Rome"}


class Given:
    """What a call finds: one of everything."""

    def __init__(self, connection_string: str) -> None:
        self.table, self.other = (
            TableClient.from_connection_string(connection_string, name)
            for name in ("Things", "Others")
        )
        for table in (self.table, self.other):
            table.create_table()
        self.near = IndexedTable(self.table, near=("Name",))
        self.far = IndexedTable(self.other, far=("City",))
        self.near.insert(SMITH)
        self.far.insert(SMITH)
        self.values = LargeValues(self.table)
        self.values.put("v", "small", b"x")
        self.values.put("v", "large", noise(1_200_000))
        self.counter = ShardedCounter(self.table, "visits")
        self.counter.create(8)
        self.counter.increment()
        self.one_shard = ShardedCounter(self.table, "sales")
        self.one_shard.create(1)
        self.one_shard.increment()
        self.lock = Lock(self.table, "report")
        self.held = Lock(self.table, "held").acquire()
        for start in (0, 100):
            rows = [
                {"PartitionKey": "q", "RowKey": f"{row:03}"} for row in range(start, start + 100)
            ]
            self.table.submit_transaction([("create", row) for row in rows])


def counted_after_another(given: Given) -> None:
    """Another client counts between the read and the transaction."""
    submit = given.table.submit_transaction

    def submit_second(operations: Any) -> Any:
        given.table.submit_transaction = submit  # type: ignore[method-assign]
        ShardedCounter(given.table, "sales").increment()
        return submit(operations)

    given.table.submit_transaction = submit_second  # type: ignore[assignment, method-assign]
    given.one_shard.increment()


COSTS: dict[str, tuple[Callable[[Given], Any], int, int]] = {
    # what is called, requests, entities read
    "insert, a near index": (lambda given: given.near.insert({**SMITH, "RowKey": "2"}), 2, 0),
    "change, a near index": (lambda given: given.near.put(JONES), 2, 1),
    "delete, a near index": (lambda given: given.near.delete("sales", "1"), 3, 1),
    "insert, a far index": (lambda given: given.far.insert({**SMITH, "RowKey": "2"}), 6, 2),
    "change, a far index": (lambda given: given.far.put(JONES), 7, 3),
    "delete, a far index": (lambda given: given.far.delete("sales", "1"), 6, 1),
    "find one, a near index": (lambda given: list(given.near.find("Name", "Smith", "sales")), 2, 2),
    "find one, a far index": (lambda given: list(given.far.find("City", "Oslo")), 2, 2),
    "find none": (lambda given: list(given.far.find("City", "Rome")), 1, 0),
    "put a small value": (lambda given: given.values.put("v", "new", b"x"), 2, 0),
    "put a value of two parts": (
        lambda given: given.values.put("v", "new", noise(1_200_000)),
        5,
        0,
    ),
    "put over a value of two parts": (lambda given: given.values.put("v", "large", b"x"), 4, 3),
    "get a small value": (lambda given: given.values.get("v", "small"), 1, 1),
    "get a value of two parts": (lambda given: given.values.get("v", "large"), 2, 3),
    "count": (lambda given: given.one_shard.increment(), 2, 1),
    "the first count of a client": (
        lambda given: ShardedCounter(given.table, "sales").increment(),
        3,
        2,
    ),
    # 3 of them are the other client's.
    "count after a conflict": (counted_after_another, 3 + 4, 2 + 2),
    "the sum of eight shards": (lambda given: given.counter.total(), 8, 1),
    "acquire a lock": (lambda given: given.lock.acquire(), 2, 0),
    "renew a lock": (lambda given: Lock(given.table, "held").renew(given.held), 2, 1),
    "release a lock": (lambda given: Lock(given.table, "held").release(given.held), 2, 1),
    "delete 200 entities": (lambda given: bulk_delete(given.table, "PartitionKey eq 'q'"), 3, 200),
    "copy 200 entities": (lambda given: copy_partition(given.table, given.other, "q"), 3, 200),
}


@pytest.mark.parametrize("what", COSTS)
def test_a_call_costs(
    table_account: StorageAccount, table_storage: TableStorage, what: str
) -> None:
    given = Given(table_account.connection_string)
    call, requests, entities = COSTS[what]
    before = table_storage.requests_count
    with table_storage.expect(requests=requests, rows_read=entities):
        call(given)
    # Not less either: the page would say too much.
    made = table_storage.requests_since(before)
    assert (len(made), sum(each.rows_read for each in made)) == (requests, entities)
