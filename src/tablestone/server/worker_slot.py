"""What one worker process gets from the process that started it."""

from dataclasses import dataclass

from tablestone.clock import Moment
from tablestone.engines.contract import StorageId
from tablestone.tables.throughput_targets import SharedSlots
from tablestone.telemetry.refused_callers import QuietAddresses
from tablestone.telemetry.worker_reports import WorkerReports


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    worker: int = 0
    """From 0 to `workers` - 1."""
    workers: int = 1
    storage: StorageId | None = None
    """Names the storage that several processes use. A worker that replaces another gets the same value."""
    reports: WorkerReports | None = None
    """Takes the worker's reports, if there is an admin address."""
    quiet: QuietAddresses | None = None
    shares: SharedSlots | None = None
    """What is left of the throughput targets."""
    insight: WorkerReports | None = None
    """Takes the counts of partitions and queries, if the admin address shows them."""
    scans: WorkerReports | None = None
    """Takes what workers count for automatic indexes, with a place for the one that leads; None: one of its own."""
    began: Moment | None = None
    """When the server started; None: now."""

    @property
    def leads(self) -> bool:
        """Whether this worker does what one of several is enough for."""
        return self.worker == 0
