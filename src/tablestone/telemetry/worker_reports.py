"""The reports of worker processes, in memory that all processes of a server share. It is mapped before the fork.

Each worker writes a report, a JSON object, about once a second. The reader never waits: the age of a report shows
whether the worker is busy or stuck. A worker that replaces another goes on with the counts of its last report.
"""

import asyncio
import logging
import mmap
import os
import resource
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, Final

import orjson

from tablestone.clock import monotonic_seconds

logger = logging.getLogger(__name__)


def added(one: Any, other: Any) -> Any:
    """The sum of two totals of the same structure. A member that only one has is copied."""
    if isinstance(one, Mapping):
        sums = dict(one)
        for name, value in other.items():
            sums[name] = added(sums[name], value) if name in sums else value
        return sums
    if isinstance(one, list):
        if len(one) != len(other):  # histograms with different bounds
            return other
        return [left + right for left, right in zip(one, other, strict=True)]
    return one + other


def sum_of(all_totals: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    empty: dict[str, Any] = {}
    return reduce(added, all_totals, empty)


REPORT_BYTES_MAX: Final = 4 * 1024 * 1024
"""The longest report. A mapping this large costs nothing: pages that no report has reached are never touched."""
_HEAD: Final = struct.Struct("QQQ")
"""The number of reports so far, the length of the newest, and its checksum."""
_HEAD_BYTES: Final = 32
_SLOT_BYTES: Final = _HEAD_BYTES + 2 * REPORT_BYTES_MAX
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class WorkerReport:
    process: int
    at: float
    """`monotonic_seconds` before anything was measured."""
    content: dict[str, Any] = field(default_factory=dict)


class WorkerReports:
    """The newest reports of up to `workers` processes. A slot has one writer at a time, and any number of readers."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._memory = mmap.mmap(-1, workers * _SLOT_BYTES)

    def leave(self, worker: int, report: WorkerReport) -> None:
        """Make this the worker's newest report. Raises `ValueError` if it is too long."""
        written = orjson.dumps([report.process, report.at, report.content])
        if len(written) > REPORT_BYTES_MAX:
            raise ValueError(f"a report of {len(written)} bytes is too long")
        slot = worker * _SLOT_BYTES
        number = _HEAD.unpack_from(self._memory, slot)[0] + 1
        place = _place(slot, number)
        # Reports alternate between two places, so a reader has about a second before its report is overwritten.
        self._memory[place : place + len(written)] = written
        _HEAD.pack_into(self._memory, slot, number, len(written), zlib.crc32(written))

    def newest(self, worker: int) -> WorkerReport | None:
        """The newest report of a worker or of its predecessor; None before the first."""
        slot = worker * _SLOT_BYTES
        for _ in range(_TRIES):
            number, length, checksum = _HEAD.unpack_from(self._memory, slot)
            if number == 0:
                return None
            place = _place(slot, number)
            written = self._memory[place : place + min(length, REPORT_BYTES_MAX)]
            if zlib.crc32(written) == checksum:  # else it was being overwritten
                process, at, content = orjson.loads(written)
                return WorkerReport(process, at, content)
        return None


def _place(slot: int, number: int) -> int:
    return slot + _HEAD_BYTES + number % 2 * REPORT_BYTES_MAX


REPORT_SECONDS: Final = 1.0
"""Seconds between two reports."""


@dataclass
class WorkerReporter:
    """Writes the reports of a worker. `measure` returns its totals since the start, and its present values.

    Totals are added to those of the worker that this one replaces. `windows` returns the report for `insight`.
    """

    reports: WorkerReports
    worker: int
    measure: Callable[[], tuple[dict[str, Any], dict[str, Any]]]
    windows: Callable[[], dict[str, Any]] | None = None
    insight: WorkerReports | None = None

    def __post_init__(self) -> None:
        before = self.reports.newest(self.worker)
        self._before: dict[str, Any] = {} if before is None else before.content["totals"]

    def report(self, lag: float = 0.0) -> None:
        """Write a report; `lag` is its delay in seconds."""
        began = monotonic_seconds()
        used = resource.getrusage(resource.RUSAGE_SELF)
        totals, now = self.measure()
        totals["cpu_seconds"] = used.ru_utime + used.ru_stime
        now |= {"resident_bytes": resident_bytes(), "lag_seconds": lag}
        content = {"totals": added(self._before, totals), "now": now}
        self._leave(self.reports, began, content, "Metrics are")
        if self.windows is not None and self.insight is not None:
            self._leave(self.insight, began, self.windows(), "Insight is")

    def _leave(self, reports: WorkerReports, at: float, content: dict[str, Any], what: str) -> None:
        try:
            reports.leave(self.worker, WorkerReport(os.getpid(), at, content))
        except ValueError as error:
            logger.error("%s out of date: %s.", what, error)  # noqa: TRY400 - the sentence says it all

    async def run(self) -> None:
        """Report until cancelled, even after a report has failed."""
        while True:
            due = monotonic_seconds() + REPORT_SECONDS
            await asyncio.sleep(REPORT_SECONDS)
            try:
                self.report(max(0.0, monotonic_seconds() - due))
            except Exception:
                logger.exception("A report of this worker failed.")


def resident_bytes() -> int:
    """The resident memory of this process, or its maximum so far if the system does not tell it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * resource.getpagesize()
