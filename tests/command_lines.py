"""The command lines of the programs below `tests`: their number types, and the packages they need.

A number that makes no sense is refused here, so that no run succeeds without testing anything.
"""

import argparse
import math
from importlib.util import find_spec


def whole_number(text: str) -> int:
    """An option type for counts: a whole number from 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number


def number_above_zero(text: str) -> float:
    """An option type for measures: a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def cluster_url(text: str) -> str:
    """An option type for the URL of a cluster."""
    if not text.startswith("cassandra://"):
        raise argparse.ArgumentTypeError(f"{text!r} is not the URL of a cluster, cassandra://…")
    return text


def names(choices: object) -> str:
    """The help of an option that plants bugs: what it does, and the names, quoted for a shell."""
    assert isinstance(choices, (dict, tuple))
    return "a planted bug, which is to be found: " + ", ".join(f"'{name}'" for name in choices)


def missing_driver() -> str | None:
    """Why the Cassandra engine cannot run here, or None.

    Any directory of that name would pass for the package, so this looks for a module of the driver.
    """
    try:
        found = find_spec("cassandra.cluster")
    except ModuleNotFoundError:
        found = None
    return None if found else "no driver of Cassandra: pip install '.[cassandra]'"


def missing_auditor() -> str | None:
    """Why no advisories can be looked up here, or None."""
    return None if find_spec("pip_audit") else "no pip-audit: pip install '.[dev]'"
