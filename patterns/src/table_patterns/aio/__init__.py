"""The patterns on the asyncio client, `azure.data.tables.aio`."""

from table_patterns.aio.indexed_table import IndexedTable
from table_patterns.aio.large_value import LargeValues
from table_patterns.aio.lock import Lock
from table_patterns.aio.partitions import bulk_delete, copy_partition
from table_patterns.aio.sharded_counter import ShardedCounter
from table_patterns.results import Built, Checked, Copied, Deleted, Held, Swept

__all__ = [
    "Built",
    "Checked",
    "Copied",
    "Deleted",
    "Held",
    "IndexedTable",
    "LargeValues",
    "Lock",
    "ShardedCounter",
    "Swept",
    "bulk_delete",
    "copy_partition",
]
