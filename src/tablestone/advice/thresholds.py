"""The advice's thresholds. The service documents none, so they are our choice; limits are in `tablestone.limits`."""

from typing import Final

RATIO: Final = 10
"""Entities read for each that is returned."""
ENTITIES_READ: Final = 100
"""Entities that one run of a query reads. A smaller table needs no other key."""
KEY_VALUES: Final = 8
"""A property whose queries named at most this many values, several times each, makes no PartitionKey."""
WHOLE_READS: Final = 10
"""Runs of a query without a filter, or of queries for several entities where each has its own PartitionKey."""
SHARE: Final = 0.5
"""The share of a table's operations that makes a partition hot if no rate is known."""
PARTITIONS: Final = 4
"""Partitions that a table needs for one of them to be hot by its share."""
RATE_PART: Final = 0.5
"""The part of the service's target at which the newest partition of keys that follow time is busy."""
GIANT_ENTITIES: Final = 100_000
"""Entities in the one partition of a table."""
MANY_WRITES: Final = 10_000
"""Inserts or deletes in a period."""
CONFLICT_RATIO: Final = 0.1
"""Refused writes for each update."""
ENTITY_PART: Final = 0.5
"""The part of an entity's limit, in properties or bytes, at which it is wide or large."""
LARGE_COPY_BYTES: Final = 16 * 1024
"""The mean size of entities at which a copy should hold keys only."""
