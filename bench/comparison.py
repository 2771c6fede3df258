"""Compares a run with an earlier one.

On a shared machine only ratios within one run are steady, so it compares the ratio to Azurite where both runs have it;
CPU per request is the next best, and the table shows the plain figures too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.figures import Figures, first_of, median_of, ratio
from bench.report import plain, table
from bench.servers import AZURITE, TABLESTONE
from bench.verdicts import all_verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def comparison(earlier: Figures, later: Figures) -> str:
    speeds = [
        "operation", "server", "per second before", "now", "change",
        "p99 ms before", "now", "to Azurite before", "now", "change",
    ]  # fmt: skip
    costs = [
        "operation", "server", "server CPU µs/req before", "now", "change",
        "MiB before", "now", "change",
    ]  # fmt: skip
    text = table(speeds, paired_rows(earlier, later, speed_cells))
    if not text:
        return "the two runs have no workload on the same server in common"
    parts = (
        f"beside the run of {earlier['started']}:",
        text,
        table(costs, paired_rows(earlier, later, cost_cells)),
        changed_verdicts(earlier, later),
    )
    return "\n\n".join(parts)


def paired_rows(
    earlier: Figures, later: Figures, cells: Callable[[str, Figures, Figures], list[str]]
) -> Iterator[list[str]]:
    """A row for each workload on each server that both runs have."""
    for name, workload in later["workloads"].items():
        before = earlier["workloads"].get(name)
        if before is None:
            continue
        for server in workload["outcomes"]:
            if server in before["outcomes"]:
                yield [workload["title"], server, *cells(server, before, workload)]


def speed_cells(server: str, before: Figures, now: Figures) -> list[str]:
    old, new = before["outcomes"], now["outcomes"]
    old_rate, new_rate = (median_of(each[server], "per_second") for each in (old, new))
    ratios = [ratio(each, TABLESTONE, AZURITE) for each in (old, new)]
    is_compared = all(first_of(each, TABLESTONE) == server for each in (old, new))
    old_ratio, new_ratio = (each.whole if each and is_compared else None for each in ratios)
    return [
        plain(old_rate),
        plain(new_rate),
        change(old_rate, new_rate),
        f"{median_of(old[server], 'p99') / 1000:.2f}",
        f"{median_of(new[server], 'p99') / 1000:.2f}",
        "" if old_ratio is None else f"{old_ratio:.2f}",
        "" if new_ratio is None else f"{new_ratio:.2f}",
        change(old_ratio, new_ratio),
    ]


def cost_cells(server: str, before: Figures, now: Figures) -> list[str]:
    old, new = before["outcomes"][server], now["outcomes"][server]
    old_cpu, new_cpu = (median_of(each, "server_cpu") for each in (old, new))
    # With company, the CPU of a request includes that of the company's requests.
    cpu = ["", "", ""] if now["company"] else whole_cells(old_cpu, new_cpu)
    return [*cpu, *whole_cells(old["resident_mib"], new["resident_mib"])]


def whole_cells(before: float, now: float) -> list[str]:
    return [f"{before:,.0f}", f"{now:,.0f}", change(before, now)]


def changed_verdicts(earlier: Figures, later: Figures) -> str:
    """The floors that are reached in one of the two runs and missed in the other."""
    before = {verdict.title: verdict for verdict in all_verdicts(earlier)}
    changed = [
        f"{now.title}: {then.word} with {then.measured} before, "
        f"{now.word} with {now.measured} now ({now.wanted})"
        for now in all_verdicts(later)
        if (then := before.get(now.title)) is not None and then.word != now.word
    ]
    return "\n".join(["verdicts that changed:", *changed]) if changed else "no verdict changed"


def change(before: float | None, after: float | None) -> str:
    if not before or after is None:
        return ""
    return f"{after / before - 1:+.0%}"
