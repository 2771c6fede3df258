"""The patterns of Azure's table design guide, on the official client: on Azure, on Azurite and on Tablestone.

Here on the client `azure.data.tables`; in `table_patterns.aio` on that of asyncio.
"""

from table_patterns.entities import FieldError, Int64, from_entity, to_entity
from table_patterns.errors import (
    AnotherSize,
    Conflicts,
    LockLost,
    LockNotAcquired,
    NotCreated,
    OutcomeUnknown,
    PatternError,
    ValueDamaged,
)
from table_patterns.keys import CompositeKey, KeyPartError, Padded, ReverseTicks
from table_patterns.results import Built, Checked, Copied, Deleted, Held, Swept
from table_patterns.sync.indexed_table import IndexedTable
from table_patterns.sync.large_value import LargeValues
from table_patterns.sync.lock import Lock
from table_patterns.sync.partitions import bulk_delete, copy_partition
from table_patterns.sync.sharded_counter import ShardedCounter

__all__ = [
    "AnotherSize",
    "Built",
    "Checked",
    "CompositeKey",
    "Conflicts",
    "Copied",
    "Deleted",
    "FieldError",
    "Held",
    "IndexedTable",
    "Int64",
    "KeyPartError",
    "LargeValues",
    "Lock",
    "LockLost",
    "LockNotAcquired",
    "NotCreated",
    "OutcomeUnknown",
    "Padded",
    "PatternError",
    "ReverseTicks",
    "ShardedCounter",
    "Swept",
    "ValueDamaged",
    "bulk_delete",
    "copy_partition",
    "from_entity",
    "to_entity",
]
