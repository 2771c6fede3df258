"""A table service for tests: in the test's own process, fresh for every test in a millisecond.

A name is loaded at its first use: in a project that has this package installed, pytest imports it at every start.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tablestone.testing.clock import ClockRefused, StorageClock
    from tablestone.testing.expectations import ExpectationRefused, TooExpensive
    from tablestone.testing.fault_rules import FaultRefused, fixed, long_tail, normal
    from tablestone.testing.recorded_requests import RecordedRequest
    from tablestone.testing.state import SeedRefused, Snapshot, StateRefused, StorageRefused
    from tablestone.testing.storage import StorageAccount, StorageChanges, TableStorage
    from tablestone.testing.transports import AsyncStorageTransport, StorageAsgi, StorageTransport

__all__ = [
    "AsyncStorageTransport",
    "ClockRefused",
    "ExpectationRefused",
    "FaultRefused",
    "RecordedRequest",
    "SeedRefused",
    "Snapshot",
    "StateRefused",
    "StorageAccount",
    "StorageAsgi",
    "StorageChanges",
    "StorageClock",
    "StorageRefused",
    "StorageTransport",
    "TableStorage",
    "TooExpensive",
    "fixed",
    "long_tail",
    "normal",
]

_CHAPTERS: Final = {
    "clock": ("ClockRefused", "StorageClock"),
    "expectations": ("ExpectationRefused", "TooExpensive"),
    "fault_rules": ("FaultRefused", "fixed", "long_tail", "normal"),
    "recorded_requests": ("RecordedRequest",),
    "state": ("SeedRefused", "Snapshot", "StateRefused", "StorageRefused"),
    "storage": ("StorageAccount", "StorageChanges", "TableStorage"),
    "transports": ("AsyncStorageTransport", "StorageAsgi", "StorageTransport"),
}


def __getattr__(name: str) -> Any:
    for chapter, names in _CHAPTERS.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{chapter}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
