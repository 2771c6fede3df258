"""The project's own targets: each floor with the measured figure, its rounds, the bound, and whether it holds.

Only a figure that the run has measured gets a verdict. This module also decides how a figure is written, because the
text must not contradict the verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bench import workloads
from bench.figures import Figures, Spread, entity_rate, first_of, late_page, ratio, slow_page
from bench.servers import AZURITE, FLOOR, RAW, TABLESTONE

DECIMALS_MAX = 15
"""A float has no meaningful digits beyond this."""


class Form(NamedTuple):
    """A figure's number of decimals, and whether it is a percentage."""

    decimals: int
    is_share: bool = False

    def text(self, figure: float, more: int = 0) -> str:
        return f"{figure:,.{self.decimals + more}{'%' if self.is_share else 'f'}}"

    def written(self, figure: float, more: int) -> float:
        """The figure, rounded as in its text."""
        text = self.text(figure, more).replace(",", "")
        return float(text.removesuffix("%")) / 100 if self.is_share else float(text)


SHARE, RATIO, WHOLE, SECONDS = Form(0, is_share=True), Form(2), Form(0), Form(3)


class Verdict(NamedTuple):
    """A figure, its bound, and the figures of the single rounds, if there are rounds."""

    title: str
    figure: float
    bound: float
    form: Form
    at_most: bool = False
    rounds: tuple[float, float] | None = None

    @classmethod
    def of(
        cls, title: str, spread: Spread, bound: float, form: Form, *, at_most: bool = False
    ) -> Verdict:
        whole, least, greatest = spread
        return cls(title, whole, bound, form, at_most, (least, greatest))

    def holds(self, figure: float | None = None) -> bool:
        figure = self.figure if figure is None else figure
        return figure <= self.bound if self.at_most else figure >= self.bound

    @property
    def word(self) -> str:
        return "reached" if self.holds() else "MISSED"

    @property
    def measured(self) -> str:
        """The text with enough decimals to be on its own side of the bound: never "50%, MISSED" of 50%."""
        more = 0
        while (
            more < DECIMALS_MAX and self.holds(self.form.written(self.figure, more)) != self.holds()
        ):
            more += 1
        return self.form.text(self.figure, more)

    @property
    def wanted(self) -> str:
        text = self.form.text(self.bound) if self.form.is_share else f"{self.bound:,g}"
        return f"{'≤' if self.at_most else '≥'} {text}"

    def row(self) -> list[str]:
        return [
            self.title,
            self.measured,
            rounds_text(self.rounds, self.form),
            self.wanted,
            self.word,
        ]


def rounds_text(rounds: tuple[float, float] | None, form: Form) -> str:
    """The least and the greatest of the rounds; empty for a single measurement."""
    return "" if rounds is None else " - ".join(form.text(figure) for figure in rounds)


def verdicts_header() -> list[str]:
    return ["also wanted of Tablestone", "measured", "of the rounds", "bound", ""]


def verdicts_rows(run: Figures) -> list[list[str]]:
    return [verdict.row() for verdict in other_verdicts(run)]


def all_verdicts(run: Figures) -> Iterator[Verdict]:
    for workload in run["workloads"].values():
        verdict = ratio_verdict(workload)
        if verdict is not None:
            yield verdict
    yield from other_verdicts(run)


def ratio_verdict(workload: Figures) -> Verdict | None:
    """The verdict on the ratio to Azurite's throughput, if there is one and it has a floor."""
    to_azurite = ratio(workload["outcomes"], TABLESTONE, AZURITE)
    if to_azurite is None or workload["factor"] is None:
        return None
    return Verdict.of(f"{workload['title']}, to Azurite", to_azurite, workload["factor"], RATIO)


def other_verdicts(run: Figures) -> Iterator[Verdict]:
    """The verdicts on figures that are not ratios to Azurite."""
    found = run["workloads"]
    if "point-read" in found:
        for floor, title, least in (
            (FLOOR, "point read, of the HTTP floor", workloads.HTTP_FLOOR_SHARE_LEAST),
            (RAW, "point read, of the raw floor", workloads.RAW_FLOOR_SHARE_LEAST),
        ):
            share = ratio(found["point-read"]["outcomes"], TABLESTONE, floor)
            if share is not None:
                yield Verdict.of(title, share, least, SHARE)
    own = own_outcome(found.get("transaction", {"outcomes": {}}))
    if own is not None:
        rate = entity_rate(found["transaction"], own)
        least = workloads.TRANSACTION_ENTITIES_LEAST
        yield Verdict.of("entities/s by transactions of 100", rate, least, WHOLE)
    for workload in found.values():
        yield from page_verdicts(workload)
    if run.get("filter_to_by_hand") is not None:
        share_of_by_hand, least = run["filter_to_by_hand"], workloads.BY_HAND_SHARE_LEAST
        yield Verdict("filter over 20,000, of SQL by hand", share_of_by_hand, least, SHARE)
    growth = run.get(workloads.GROWTH, {})
    yield from growth_verdicts(growth.get(first_of(growth, TABLESTONE), []))


def own_outcome(workload: Figures) -> Figures | None:
    outcomes: Figures = workload["outcomes"]
    return outcomes.get(first_of(outcomes, TABLESTONE) or "")


def page_verdicts(workload: Figures) -> Iterator[Verdict]:
    """A walk's pages compared with its first page, which is warm because an uncounted walk came before."""
    outcome = own_outcome(workload)
    if outcome is None:
        return
    for title, spread in (
        ("p50 of the last tenth of the pages", late_page(outcome)),
        ("p99 of all pages", slow_page(outcome)),
    ):
        if spread is not None:
            yield Verdict.of(
                f"{workload['title']}: {title} to p50 of the first",
                spread,
                workloads.LATE_PAGE_MOST,
                RATIO,
                at_most=True,
            )


def growth_verdicts(sizes: list[Figures]) -> Iterable[Verdict]:
    for size in sizes:
        title, most = (
            f"start-up with {size['entities']:,} entities, s",
            workloads.START_SECONDS_MOST,
        )
        yield Verdict(title, size["start_seconds"], most, SECONDS, at_most=True)
    counted = [size for size in sizes if size["entities"] >= workloads.RESIDENT_FROM]
    for size in counted:
        title, most = f"MiB under load with {size['entities']:,}", workloads.RESIDENT_MIB_MOST
        yield Verdict(title, size["resident_mib"], most, WHOLE, at_most=True)
    if len(counted) > 1:
        held = [size["resident_mib"] for size in counted]
        apart, most = max(held) / min(held) - 1, workloads.RESIDENT_SPREAD_MOST
        yield Verdict("these, apart by", apart, most, SHARE, at_most=True)
