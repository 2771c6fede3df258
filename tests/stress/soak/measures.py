"""What a soak measures of a server's processes, and how it compares the end with the start.

Reads /proc. A window is a part of the run; its figures are medians, so that one odd sample does not decide.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

MEMORY_GROWTH_MAX: Final = 0.10
"""By how much the memory of all processes may grow, as a share."""
MEMORY_GROWTH_MIB: Final = 8.0
"""MiB that it may grow beyond that, for caches that fill up late."""
DESCRIPTORS_MAX: Final = 8
"""By how many descriptors the end may exceed the start: connections come and go."""
PROCESSOR_GROWTH_MAX: Final = 0.5
"""By how much the processor time of a request may grow, as a share; a busy machine changes it by a third."""
MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class Sample:
    """The processes of a server at one moment; `processor_seconds` and `requests` count since the start."""

    memory_mib: float
    descriptors: int
    processor_seconds: float
    requests: int
    read_milliseconds: float


@dataclass(frozen=True)
class Window:
    """The medians of a part of the run; `processor_microseconds` is per request."""

    memory_mib: float
    descriptors: float
    processor_microseconds: float
    read_milliseconds: float

    def __str__(self) -> str:
        return (
            f"{self.memory_mib:.1f} MiB, {self.descriptors:.0f} descriptors, "
            f"{self.processor_microseconds:.0f} µs of processor time a request, "
            f"point read {self.read_milliseconds:.2f} ms"
        )


def memory_mib(process: int) -> float:
    """The resident memory of a server, given its first process, and of all processes below it."""
    return sum(map(_resident_bytes, [process, *_children(process)])) / MIB


def sample(process: int, requests: int, read_seconds: Sequence[float]) -> Sample:
    """A sample of the server with this first process, and of all processes below it."""
    processes = [process, *_children(process)]
    ticks = os.sysconf("SC_CLK_TCK")
    return Sample(
        memory_mib=memory_mib(process),
        descriptors=sum(len(list(Path(f"/proc/{each}/fd").iterdir())) for each in processes),
        processor_seconds=sum(_processor_ticks(each) for each in processes) / ticks,
        requests=requests,
        read_milliseconds=1000 * median(read_seconds) if read_seconds else 0.0,
    )


def window(samples: Sequence[Sample]) -> Window:
    """The medians of these samples, two or more."""
    first, last = samples[0], samples[-1]
    requests = max(1, last.requests - first.requests)
    return Window(
        memory_mib=median(each.memory_mib for each in samples),
        descriptors=median(each.descriptors for each in samples),
        processor_microseconds=1e6 * (last.processor_seconds - first.processor_seconds) / requests,
        read_milliseconds=median(each.read_milliseconds for each in samples),
    )


def compared(start: Window, end: Window, *, with_speed: bool) -> list[str]:
    """A sentence for each figure that is worse at the end; a short run does not judge the speed."""
    problems = []
    most = start.memory_mib * (1 + MEMORY_GROWTH_MAX) + MEMORY_GROWTH_MIB
    if end.memory_mib > most:
        problems.append(f"memory grew from {start.memory_mib:.1f} to {end.memory_mib:.1f} MiB")
    if end.descriptors > start.descriptors + DESCRIPTORS_MAX:
        problems.append(f"descriptors grew from {start.descriptors:.0f} to {end.descriptors:.0f}")
    slower = start.processor_microseconds * (1 + PROCESSOR_GROWTH_MAX)
    if with_speed and end.processor_microseconds > slower:
        problems.append(
            f"a request took {start.processor_microseconds:.0f} µs of processor time at the start, "
            f"{end.processor_microseconds:.0f} µs at the end"
        )
    return problems


def _children(process: int) -> list[int]:
    return [
        int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


def _resident_bytes(process: int) -> int:
    resident = Path(f"/proc/{process}/statm").read_text().split()[1]
    return int(resident) * os.sysconf("SC_PAGESIZE")


def _processor_ticks(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
