"""Numbers on the command line: text that is not a number, or makes no sense, is refused before anything starts."""

import argparse
import math


def how_many(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on is needed, not {text!r}")
    return int(text)


def several(text: str) -> tuple[int, ...]:
    """Several whole numbers, separated by commas."""
    return tuple(how_many(each) for each in text.split(","))


def seconds(text: str) -> float:
    """Seconds, more than 0."""
    found = _finite(text)
    if found is None or found <= 0:
        raise argparse.ArgumentTypeError(f"seconds are a number above 0, not {text!r}")
    return found


def seconds_or_none(text: str) -> float:
    """Seconds, 0 or more."""
    found = _finite(text)
    if found is None or found < 0:
        raise argparse.ArgumentTypeError(f"seconds are a number, 0 or more, not {text!r}")
    return found


def _finite(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
