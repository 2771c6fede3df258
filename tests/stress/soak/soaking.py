"""A soak: a server of several workers under a steady load, sampled, and its end compared with its start."""

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from server_process import ServerProcess, start_server
from stress.soak.measures import Sample, Window, compared, sample, window
from stress.soak.steady_load import SteadyLoad, fill

PLANTED: Final = (sys.executable, str(Path(__file__).with_name("leaking_server.py")))
CLIENTS: Final = 6
SAMPLES: Final = 120
SAMPLE_SECONDS_MIN: Final = 0.25
WARM_SHARE: Final = 0.2
"""The share of the run before the start is measured, while caches fill up."""
WINDOW_SHARE: Final = 0.2
"""The share of the run at either end that is compared."""
LONG_SECONDS: Final = 600
"""A shorter run does not judge the speed: the machine may be busy for all of it."""


@dataclass
class Soaked:
    """The result of a run: its two windows, and a sentence for each problem."""

    start: Window
    end: Window
    requests: int
    problems: list[str] = field(default_factory=list)


def soak(data: Path, seconds: float, rate: float, seed: int, leak: str | None = None) -> Soaked:
    """Soak a server on a directory for so long, with `rate` requests a second. `leak` names a planted one."""
    server = start_server(
        data,
        "--workers=2",
        "--admin=0",
        command=None if leak is None else PLANTED,
        environment=None if leak is None else {"PLANTED_LEAK": leak},
    )
    try:
        samples, requests = _sampled(server, seconds, rate, seed)
        status = server.stop()
    finally:
        if server.process.poll() is None:
            server.kill()
    warm, part = int(len(samples) * WARM_SHARE), max(2, int(len(samples) * WINDOW_SHARE))
    start, end = window(samples[warm : warm + part]), window(samples[-part:])
    soaked = Soaked(start, end, requests)
    soaked.problems += compared(start, end, with_speed=seconds >= LONG_SECONDS)
    if status or "Traceback" in server.stderr:
        soaked.problems.append(f"the server ended with {status}: {server.stderr[-2000:]}")
    return soaked


def _sampled(
    server: ServerProcess, seconds: float, rate: float, seed: int
) -> tuple[list[Sample], int]:
    fill(server, CLIENTS)
    loads = [SteadyLoad(server, number, CLIENTS, rate, seed) for number in range(CLIENTS)]
    for each in loads:
        each.start()
    every = max(SAMPLE_SECONDS_MIN, seconds / SAMPLES)
    samples: list[Sample] = []
    ends = time.monotonic() + seconds
    try:
        while time.monotonic() < ends:
            time.sleep(every)
            for each in loads:
                if each.failure is not None:
                    raise each.failure
            took = [seconds for each in loads for seconds in each.take_times()]
            requests = sum(each.requests for each in loads)
            samples.append(sample(server.process.pid, requests, took))
    finally:
        for each in loads:
            each.end()
        for each in loads:
            each.join(30)
    return samples, sum(each.requests for each in loads)
