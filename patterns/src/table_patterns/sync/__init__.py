"""The patterns on the client, `azure.data.tables`."""

from table_patterns.results import Built, Checked, Copied, Deleted, Held, Swept
from table_patterns.sync.indexed_table import IndexedTable
from table_patterns.sync.large_value import LargeValues
from table_patterns.sync.lock import Lock
from table_patterns.sync.partitions import bulk_delete, copy_partition
from table_patterns.sync.sharded_counter import ShardedCounter

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
