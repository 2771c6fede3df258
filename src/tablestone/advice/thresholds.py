"""The thresholds of the advice: when a partition is hot, a query wasteful, an entity wide or large."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """The numbers from which a rule speaks. Those that the service does not document are our choice."""

    ratio: float = 10
    """Entities read for each that is returned."""
    entities_read: float = 100
    """Entities that one run of a query reads. A smaller table needs no other key."""
    whole_reads: int = 10
    """Runs of a query without a filter, and of queries for several entities where each has its own PartitionKey."""
    share: float = 0.5
    """The part of a table's operations that makes a partition hot where no rate is known."""
    partitions: int = 4
    """Partitions of a table from which one can be hotter than the others."""
    rate_part: float = 0.5
    """The part of the service's target from which the newest partition of keys that follow time is busy."""
    giant_entities: int = 100_000
    """Entities of a table that has one partition only."""
    many_writes: int = 10_000
    """Inserts or deletes of a period."""
    conflict_ratio: float = 0.1
    """Refused writes for each update."""
    entity_part: float = 0.5
    """The part of the largest entity, in properties or bytes, from which an entity is wide or large."""
    large_copy_bytes: float = 16 * 1024
    """The mean entity from which a copy holds keys only."""
