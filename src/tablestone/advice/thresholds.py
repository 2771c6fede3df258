"""The thresholds of the advice: when a partition is hot, a query wasteful, an entity wide or large.

Those that the service does not document are our choice.
"""

from typing import Final

RATIO: Final = 10
"""Entities read for each that is returned."""
ENTITIES_READ: Final = 100
"""Entities that one run of a query reads. A smaller table needs no other key."""
KEY_VALUES: Final = 8
"""Different values that queries fixed, up to which they make no PartitionKey, if each was seen several times."""
WHOLE_READS: Final = 10
"""Runs of a query without a filter, and of queries for several entities where each has its own PartitionKey."""
SHARE: Final = 0.5
"""The part of a table's operations that makes a partition hot where no rate is known."""
PARTITIONS: Final = 4
"""Partitions of a table from which one can be hotter than the others."""
RATE_PART: Final = 0.5
"""The part of the service's target from which the newest partition of keys that follow time is busy."""
GIANT_ENTITIES: Final = 100_000
"""Entities of a table that has one partition only."""
MANY_WRITES: Final = 10_000
"""Inserts or deletes of a period."""
CONFLICT_RATIO: Final = 0.1
"""Refused writes for each update."""
ENTITY_PART: Final = 0.5
"""The part of the largest entity, in properties or bytes, from which an entity is wide or large."""
LARGE_COPY_BYTES: Final = 16 * 1024
"""The mean entity from which a copy holds keys only."""
