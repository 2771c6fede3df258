"""The processor time of an input, at an eighth of its largest size and at the full size.

It is the least of several calls, because other work on the machine only makes a call slower. The bound on the growth
between the two sizes is wide: eight times the length may cost 24 times as much; a quadratic cost is 64 times as much.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from stress.fuzz.growing_inputs import GROWING
from stress.fuzz.parser import call
from stress.fuzz.parsers import PARSERS

EIGHTHS: Final = (1, 8)
"""The sizes that are compared. `python -m tests.stress.fuzz growth` also shows those between them."""
CALLS: Final = 3
TRIES: Final = 4
"""A row that seems to grow too fast is measured again; it fails only if it does so every time."""
RATIO_MAX: Final = 24
SECONDS_MIN: Final = 0.001
"""A lower cost counts as this one: it does no harm, and cannot be measured."""

Make = Callable[[int], bytes]


@contextmanager
def _without_collection() -> Iterator[None]:
    """Without Python's garbage collection, whose cost depends on everything else in memory."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def costs(
    parse: Callable[[bytes], object], make: Make, largest: int, eighths: Iterable[int] = EIGHTHS
) -> list[float]:
    """The costs at so many eighths of the largest size."""
    found = []
    for number in eighths:
        content = make(largest * number // 8)
        least = float("inf")
        with _without_collection():
            for _ in range(CALLS):
                began = time.thread_time()
                parse(content)
                least = min(least, time.thread_time() - began)
        found.append(least)
    return found


def grows_too_fast(measured: list[float]) -> bool:
    """Whether the cost at the largest size is far above what the length explains."""
    return max(measured[-1], SECONDS_MIN) / max(measured[0], SECONDS_MIN) > RATIO_MAX


def worst(parse: Callable[[bytes], object], make: Make, largest: int) -> list[float] | None:
    """The costs of a kind of input that grow too fast in every measurement; None if they do not."""
    measured: list[float] = []
    for _ in range(TRIES):
        measured = costs(parse, make, largest)
        if not grows_too_fast(measured):
            return None
    return measured


def shown() -> Iterator[str]:
    """Each kind of input with its costs in milliseconds at one, two, four and eight eighths; then the problems."""
    print(
        f"{'kind of input':50} {'bytes':>8}"
        + "".join(f"{number}/8 ms".rjust(10) for number in (1, 2, 4, 8))
    )
    for name, growing in GROWING.items():
        parse = partial(call, PARSERS[growing.parser])
        measured = costs(parse, growing.make, growing.largest, (1, 2, 4, 8))
        figures = "".join(f"{1000 * cost:10.2f}" for cost in measured)
        print(f"{name:50} {growing.largest:8,}{figures}", flush=True)
        if worst(parse, growing.make, growing.largest) is not None:
            yield f"{name}: the cost grows faster than the length"
