"""A run beside an earlier one. On a shared machine only ratios within one run are steady, so the
ratio to Azurite is compared where both runs have it, and the plain figures stand beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.report import median_of, plain, ratio, table
from bench.servers import AZURITE, TABLESTONE

if TYPE_CHECKING:
    from collections.abc import Iterable

Figures = dict[str, Any]


def comparison(earlier: Figures, later: Figures) -> str:
    header = [
        "operation", "server", "per second before", "now", "change",
        "p99 ms before", "now", "to Azurite before", "now", "change",
    ]  # fmt: skip
    text = table(header, comparison_rows(earlier, later))
    if not text:
        return "the two runs have no workload on the same server in common"
    return f"beside the run of {earlier['started']}:\n\n{text}"


def comparison_rows(earlier: Figures, later: Figures) -> Iterable[list[str]]:
    for name, workload in later["workloads"].items():
        before = earlier["workloads"].get(name, {"outcomes": {}})["outcomes"]
        for server, outcome in workload["outcomes"].items():
            if server not in before:
                continue
            old_rate = median_of(before[server], "per_second")
            new_rate = median_of(outcome, "per_second")
            old_ratio = ratio(before, TABLESTONE, AZURITE) if server == TABLESTONE else None
            new_ratio = (
                ratio(workload["outcomes"], TABLESTONE, AZURITE) if server == TABLESTONE else None
            )
            yield [
                workload["title"],
                server,
                plain(old_rate),
                plain(new_rate),
                change(old_rate, new_rate),
                f"{median_of(before[server], 'p99') / 1000:.2f}",
                f"{median_of(outcome, 'p99') / 1000:.2f}",
                "" if old_ratio is None else f"{old_ratio:.2f}",
                "" if new_ratio is None else f"{new_ratio:.2f}",
                change(old_ratio, new_ratio),
            ]


def change(before: float | None, after: float | None) -> str:
    if not before or after is None:
        return ""
    return f"{after / before - 1:+.0%}"
