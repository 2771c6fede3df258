"""The figures of a replay in words; a skipped class is named and counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .replayer import Outcome

PLACES_SHOWN = 25


def statistics(outcomes: Sequence[Outcome]) -> str:
    skipped = Counter(outcome.out_of_reach for outcome in outcomes if outcome.out_of_reach)
    in_reach = [outcome for outcome in outcomes if outcome.out_of_reach is None]
    identical = sum(outcome.is_identical for outcome in in_reach)
    share = f"{identical / len(in_reach):.2%}" if in_reach else "none"
    by_class = ", ".join(f"{name} {count}" for name, count in sorted(skipped.items())) or "nothing"
    return (
        f"{identical} of {len(in_reach)} exchanges in reach answered identically ({share}); "
        f"out of reach for now: {by_class}"
    )


def places(outcomes: Sequence[Outcome]) -> str:
    """Where differences were found, most frequent first."""
    found = Counter(difference.where for outcome in outcomes for difference in outcome.differences)
    return "\n".join(f"{count:6d}  {where}" for where, count in found.most_common(PLACES_SHOWN))
