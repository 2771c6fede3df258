"""What the project wants of itself that is no ratio to Azurite: each a row with what was measured, the bound, and
whether it holds. A row stands only where the run has measured it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench import workloads
from bench.report import entity_rate, late_page, ratio
from bench.servers import FLOOR, TABLESTONE

if TYPE_CHECKING:
    from collections.abc import Iterable

Figures = dict[str, Any]


def verdicts_header() -> list[str]:
    return ["also wanted of Tablestone", "measured", "bound", ""]


def verdicts_rows(run: Figures) -> Iterable[list[str]]:
    found = run["workloads"]
    if "point-read" in found:
        share = ratio(found["point-read"]["outcomes"], TABLESTONE, FLOOR)
        if share is not None:
            least = workloads.HTTP_FLOOR_SHARE_LEAST
            yield at_least("point read, of the HTTP floor", share, least, "{:.0%}")
    if TABLESTONE in found.get("transaction", {"outcomes": {}})["outcomes"]:
        outcome = found["transaction"]["outcomes"][TABLESTONE]
        rate = entity_rate(found["transaction"], outcome)
        least = workloads.TRANSACTION_ENTITIES_LEAST
        yield at_least("entities/s by transactions of 100", rate, least, "{:,.0f}")
    for workload in found.values():
        outcome = workload["outcomes"].get(TABLESTONE)
        late = late_page(outcome) if outcome else None
        if late is not None:
            title = f"{workload['title']}: a late page to the first"
            yield at_most(title, late, workloads.LATE_PAGE_MOST, "{:.2f}")
    if run.get("filter_to_by_hand") is not None:
        share, least = run["filter_to_by_hand"], workloads.BY_HAND_SHARE_LEAST
        yield at_least("filter over 20,000, of SQL by hand", share, least, "{:.0%}")
    yield from growth_rows(run.get(workloads.GROWTH, {}).get(TABLESTONE, []))


def growth_rows(sizes: list[Figures]) -> Iterable[list[str]]:
    for size in sizes:
        title, most = (
            f"start-up with {size['entities']:,} entities, s",
            workloads.START_SECONDS_MOST,
        )
        yield at_most(title, size["start_seconds"], most, "{:.3f}")
    counted = [size for size in sizes if size["entities"] >= workloads.RESIDENT_FROM]
    for size in counted:
        title, most = f"MiB under load with {size['entities']:,}", workloads.RESIDENT_MIB_MOST
        yield at_most(title, size["resident_mib"], most, "{:.0f}")
    if len(counted) > 1:
        held = [size["resident_mib"] for size in counted]
        apart, most = max(held) / min(held) - 1, workloads.RESIDENT_SPREAD_MOST
        yield at_most("these, apart by", apart, most, "{:.0%}")


def at_least(title: str, measured: float, bound: float, form: str) -> list[str]:
    verdict = "reached" if measured >= bound else "MISSED"
    return [title, form.format(measured), f"≥ {form.format(bound)}", verdict]


def at_most(title: str, measured: float, bound: float, form: str) -> list[str]:
    verdict = "reached" if measured <= bound else "MISSED"
    return [title, form.format(measured), f"≤ {form.format(bound)}", verdict]
