"""A counter over several partitions, for more increments than one entity or partition takes."""

import hashlib
import random
import time
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from azure.data.tables import EdmType, EntityProperty, TableClient, UpdateMode

from table_patterns.errors import AnotherSize, Conflicts, NotCreated
from table_patterns.keys import CompositeKey, Padded
from table_patterns.service_time import MARGIN, ServiceTime
from table_patterns.sync.answers import (
    FAILED,
    etag_of,
    if_unchanged,
    is_refused,
    pause_after,
    require_client,
    stored_entity,
    submitted,
)
from table_patterns.sync.partitions import bulk_delete

ATTEMPTS_MAX: Final = 200
PAUSE_SECONDS: Final = 0.02
IDS_ARE_KEPT: Final = timedelta(hours=24)
SHARDS_MAX: Final = 1000
_NAME: Final = CompositeKey(str)
_SHARD: Final = CompositeKey(str, Padded(3))
_ID: Final = CompositeKey(str, prefix="id!")
_COUNT_ROW: Final = "count"


class ShardedCounter:
    """A counter of this name. `create` it once; its number of shards is fixed then.

    An increment has an id: repeated within 24 h, after a time-out say, it counts once. The id chooses the shard.
    """

    def __init__(self, table: TableClient, name: str) -> None:
        self._table = require_client(table)
        self._name = name
        self._shards = 0

    def create(self, shards: int = 8) -> None:
        """Create the counter, unless it is there. Raises `AnotherSize` if it is there with another number of shards."""
        if type(shards) is not int or not 1 <= shards <= SHARDS_MAX:
            raise ValueError(f"A counter has 1 to {SHARDS_MAX} shards, a whole number.")
        self._partition(0)  # refuses a name that leaves no room for the number of a shard
        keys = {"PartitionKey": _NAME.encode(self._name), "RowKey": "shards"}
        if stored_entity(self._table, keys["PartitionKey"], keys["RowKey"]) is None:
            submitted(self._table, [("create", {**keys, "Shards": shards})], 409)
        if (stored := self._size()) != shards:
            raise AnotherSize(f"{self._name} has {stored} shards, not {shards}.")

    def increment(self, by: int = 1, increment_id: str | None = None) -> bool:
        """Count; returns False if an increment of this id had been counted before.

        Raises `Conflicts` if other clients change the shard each time. After any other error, the outcome is unknown:
        ask again with the same id.
        """
        mark = uuid4().hex
        increment_id = mark if increment_id is None else increment_id
        row = _ID.encode(increment_id)
        if type(by) is not int:
            raise TypeError(f"{by!r} is no int to count.")
        digest = hashlib.sha256(increment_id.encode("utf-8", "surrogatepass")).digest()
        partition = self._partition(int.from_bytes(digest[:8], "big") % self._size())
        once = {"PartitionKey": partition, "RowKey": row, "Mark": mark}
        unanswered = 0
        for attempt in range(ATTEMPTS_MAX):
            stored = stored_entity(self._table, partition, _COUNT_ROW)
            value = (stored["Value"].value if stored else 0) + by
            if not -(1 << 63) <= value < 1 << 63:
                raise OverflowError(f"{value} does not fit into a shard, an Edm.Int64.")
            count = {
                "PartitionKey": partition,
                "RowKey": _COUNT_ROW,
                "Value": EntityProperty(value, EdmType.INT64),
            }
            operation: Any = ("create", count)
            if stored:
                replace = {"mode": UpdateMode.REPLACE, **if_unchanged(etag_of(stored))}
                operation = ("update", count, replace)
            try:
                self._table.submit_transaction([("create", once), operation])
                return True
            except FAILED as error:
                if is_refused(error, 409):
                    if counted := stored_entity(self._table, partition, row):
                        return counted.get("Mark") == mark  # by an attempt whose answer was lost
                elif not is_refused(
                    error, 412
                ):  # the next attempt is refused by the id, if this one was carried out
                    unanswered = pause_after(error, unanswered)
            time.sleep(PAUSE_SECONDS * random.uniform(0, min(attempt + 1, 20)))
        raise Conflicts(f"{ATTEMPTS_MAX} attempts to count in {partition} met other clients.")

    def total(self) -> int:
        """The sum over the shards, a point read for each.

        It has every increment that was acknowledged before, and none that begins later; it is no snapshot of a moment.
        """
        stored = [
            stored_entity(self._table, self._partition(shard), _COUNT_ROW)
            for shard in range(self._size())
        ]
        return sum(each["Value"].value for each in stored if each)

    def forget(self) -> int:
        """Delete the ids that are older than 24 h by the service's clock; returns how many. Run it each hour or day."""
        deleted = 0
        for shard in range(self._size()):
            clock = ServiceTime()
            partition = self._partition(shard)
            stored_entity(self._table, partition, _COUNT_ROW, raw_response_hook=clock)
            before = (clock.now - IDS_ARE_KEPT - MARGIN).strftime("%Y-%m-%dT%H:%M:%SZ")
            old = f"PartitionKey eq '{partition}' and {_ID.filter('RowKey')} and Timestamp lt datetime'{before}'"
            deleted += (bulk_delete(self._table, old)).deleted
        return deleted

    def _partition(self, shard: int) -> str:
        return _SHARD.encode(self._name, shard)

    def _size(self) -> int:
        if not self._shards:
            stored = stored_entity(self._table, _NAME.encode(self._name), "shards")
            if stored is None:
                raise NotCreated(f"There is no counter {self._name}: create it once.")
            self._shards = stored["Shards"]
        return self._shards
