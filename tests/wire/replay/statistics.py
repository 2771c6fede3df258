"""The figures of a replay in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .replayer import Outcome

PLACES_SHOWN = 25


def statistics(outcomes: Sequence[Outcome]) -> str:
    identical = sum(outcome.is_identical for outcome in outcomes)
    share = f"{identical / len(outcomes):.2%}" if outcomes else "none"
    return f"{identical} of {len(outcomes)} exchanges answered identically ({share})"


def places(outcomes: Sequence[Outcome]) -> str:
    """The places of the differences, most frequent first."""
    found = Counter(difference.where for outcome in outcomes for difference in outcome.differences)
    return "\n".join(f"{count:6d}  {where}" for where, count in found.most_common(PLACES_SHOWN))
