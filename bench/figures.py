"""The figures of a run's rounds: medians, and ratios with the least and the greatest of single rounds.

Knows the shape of a run's JSON, and of an earlier run's, but no bounds or tables.
"""

from collections.abc import Iterable
from statistics import median
from typing import Any, NamedTuple

from bench.servers import AZURITE, FLOOR, TABLESTONE, kind_of

Figures = dict[str, Any]


class Spread(NamedTuple):
    """A figure over all rounds, and the least and the greatest that a single round would give."""

    whole: float
    least: float
    greatest: float


def of_rounds(outcome: Figures, measure: str) -> list[float]:
    return [measured[measure] for measured in outcome["rounds"]]


def median_of(outcome: Figures, measure: str) -> float:
    return float(median(of_rounds(outcome, measure)))


def paired(above: list[float], below: list[float]) -> Spread | None:
    """A ratio of medians. Round n of one is compared with round n of the other, since they ran in the same minute."""
    base = median(below)
    ratios = [one / other for one, other in zip(above, below, strict=False) if other]
    return Spread(median(above) / base, min(ratios), max(ratios)) if base else None


def first_of(names: Iterable[str], kind: str) -> str | None:
    """The first server of a kind, whatever number of workers its name has."""
    return next((name for name in names if kind_of(name) == kind), None)


def ratio(outcomes: Figures, kind: str, to: str) -> Spread | None:
    """The ratio of throughputs: the first server of one kind to the first of another."""
    server, other = first_of(outcomes, kind), first_of(outcomes, to)
    if server is None or other is None:
        return None
    rates = [of_rounds(outcomes[name], "per_second") for name in (server, other)]
    return paired(*rates)


def cpu_ratio(outcomes: Figures) -> Spread | None:
    """Azurite's CPU per request divided by Tablestone's, which is steadier than throughput."""
    own, other = first_of(outcomes, TABLESTONE), first_of(outcomes, AZURITE)
    if own is None or other is None:
        return None
    costs = [of_rounds(outcomes[name], "server_cpu") for name in (other, own)]
    return paired(*costs)


def entity_rate(workload: Figures, outcome: Figures) -> Spread:
    """Entities read or written per second: counted in the answers, or from the workload's own number."""
    rates = of_rounds(outcome, "entities_per_second")
    if not median(rates):
        each = workload["entities_per_operation"]
        rates = [rate * each for rate in of_rounds(outcome, "per_second")]
    return Spread(median(rates), min(rates), max(rates))


def is_walk(outcome: Figures) -> bool:
    """Whether the walk had enough pages for a last tenth."""
    return all(measured["last_pages_p50"] is not None for measured in outcome["rounds"])


def late_page(outcome: Figures) -> Spread | None:
    """The median page of a walk's last tenth divided by the median first page."""
    return _to_the_first(outcome, "last_pages_p50")


def slow_page(outcome: Figures) -> Spread | None:
    """The 99th percentile of all pages divided by the median first page."""
    return _to_the_first(outcome, "p99")


def _to_the_first(outcome: Figures, measure: str) -> Spread | None:
    if not is_walk(outcome):
        return None
    return paired(of_rounds(outcome, measure), of_rounds(outcome, "first_page_p50"))


def compared_servers(run: Figures) -> list[str]:
    """The server of each kind that the ratios use: the first one."""
    names = list(dict.fromkeys(_server_names(run)))
    found = [first_of(names, kind) for kind in (TABLESTONE, AZURITE, FLOOR)]
    return [name for name in found if name is not None]


def _server_names(run: Figures) -> Iterable[str]:
    for workload in run["workloads"].values():
        yield from workload["outcomes"]
