"""The command lines of the programs below `tests`: the numbers they take, and the packages that one of them needs.

Knows no test. A number that makes no sense is refused here, so that no run ends well without having tested anything.
"""

from __future__ import annotations

import argparse
import math
from importlib.util import find_spec


def whole_number(text: str) -> int:
    """The type of an option that counts something: a whole number from 1 on."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number


def number_above_zero(text: str) -> float:
    """The type of an option that measures something: a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def cluster_url(text: str) -> str:
    """The type of an option that names a cluster."""
    if not text.startswith("cassandra://"):
        raise argparse.ArgumentTypeError(f"{text!r} is not the URL of a cluster, cassandra://…")
    return text


def names(choices: object) -> str:
    """The help of an option with planted bugs: what it is, and its names, quoted as a shell needs them."""
    assert isinstance(choices, (dict, tuple))
    return "a planted bug, which is to be found: " + ", ".join(f"'{name}'" for name in choices)


def missing_driver() -> str | None:
    """The reason why the engine over Cassandra cannot run here, or None.

    Any directory of that name can be taken for the package, so this asks for a module of the driver.
    """
    try:
        found = find_spec("cassandra.cluster")
    except ModuleNotFoundError:
        found = None
    return None if found else "no driver of Cassandra: pip install '.[cassandra]'"


def missing_auditor() -> str | None:
    """The reason why no advisories can be looked up here, or None."""
    return None if find_spec("pip_audit") else "no pip-audit: pip install '.[dev]'"
