"""Totals that only grow, as JSON values: numbers in lists and in objects, which are added member by member.

So the totals of a worker continue those of the one that it replaced, and the totals of a server are those of its
workers together. Knows nothing of what is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

Totals = float | list[float] | Mapping[str, Any]
"""A number, a list of numbers, or totals by name."""


def added(one: Any, other: Any) -> Any:
    """The sums of two totals of one form; a member that only one of them has is taken as it is."""
    if isinstance(one, Mapping):
        sums = dict(one)
        for name, value in other.items():
            sums[name] = added(sums[name], value) if name in sums else value
        return sums
    if isinstance(one, list):
        if len(one) != len(other):  # of other bounds: nothing to compare
            return other
        return [left + right for left, right in zip(one, other, strict=True)]
    return one + other


def sum_of(all_totals: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """All of them together; empty if there are none."""
    empty: dict[str, Any] = {}
    return reduce(added, all_totals, empty)
