"""The figures of the bench: ratios of the rounds, verdicts and their text, two runs side by side."""

from __future__ import annotations

from typing import Any

import pytest

from bench.comparison import comparison
from bench.figures import late_page, paired, slow_page
from bench.report import ratios_header, ratios_rows, summary, whose_ratios
from bench.verdicts import RATIO, SECONDS, SHARE, WHOLE, Form, Verdict, verdicts_rows

Figures = dict[str, Any]


def _round(per_second: float, **more: Any) -> Figures:
    """A round as the load generator gave it."""
    measured: Figures = {
        "per_second": per_second,
        "p50": 1000.0,
        "p99": 2000.0,
        "max": 3000.0,
        "server_cpu": 1e6 / per_second,
        "server_cores": 1.0,
        "generator_share": 0.1,
        "others_cores": 0.0,
        "entities_per_second": per_second,
        "first_page_p50": None,
        "last_pages_p50": None,
        "company_per_second": None,
        "company_p99": None,
    }
    return measured | more


def _workload(
    title: str, factor: float | None, rounds: dict[str, list[Figures]], mib: float = 50.0
) -> Figures:
    return {
        "title": title,
        "factor": factor,
        "entities_per_operation": 1,
        "company": None,
        "outcomes": {
            server: {"rounds": measured, "resident_mib": mib} for server, measured in rounds.items()
        },
    }


def _run(rates: dict[str, list[float]], mib: float = 50.0) -> Figures:
    """A run of point reads."""
    rounds = {server: [_round(rate) for rate in each] for server, each in rates.items()}
    return {
        "started": "2026-11-20T10:00:00+00:00",
        "machine": {"processor": "any", "cores": 2, "memory_gib": 1, "load_average": 0.0},
        "versions": {},
        "schedule": {"rounds": 3, "seconds": 1.0, "warmup": 0.5, "connections": 16, "seed": 1},
        "flushes_per_second": 1000.0,
        "loaded": [],
        "workloads": {"point-read": _workload("point read", 6.0, rounds, mib)},
    }


@pytest.mark.parametrize(
    ("figure", "bound", "form", "at_most", "text", "word"),
    [
        (0.496, 0.5, SHARE, False, "49.6%", "MISSED"),
        (0.4996, 0.5, SHARE, False, "49.96%", "MISSED"),
        (0.5, 0.5, SHARE, False, "50%", "reached"),
        (0.504, 0.5, SHARE, False, "50%", "reached"),
        (0.37, 0.5, SHARE, False, "37%", "MISSED"),
        (5.97, 6.0, RATIO, False, "5.97", "MISSED"),
        (5.997, 6.0, RATIO, False, "5.997", "MISSED"),
        (2.003, 2.0, RATIO, True, "2.003", "MISSED"),
        (1.997, 2.0, RATIO, True, "2.00", "reached"),
        (150.3, 150, WHOLE, True, "150.3", "MISSED"),
        (19_999.7, 20_000, WHOLE, False, "19,999.7", "MISSED"),
        (0.5001, 0.5, SECONDS, True, "0.5001", "MISSED"),
        (0.104, 0.1, SHARE, True, "10.4%", "MISSED"),
        # A bound between two of the numbers that the form can write.
        (0.57, 0.6, Form(1), False, "0.57", "MISSED"),
        (0.26, 0.25, Form(1), False, "0.3", "reached"),
        (0.25, 0.249, Form(1), False, "0.25", "reached"),
    ],
)
def test_what_is_written_does_not_contradict_the_verdict(
    figure: float, bound: float, form: Form, *, at_most: bool, text: str, word: str
) -> None:
    verdict = Verdict("anything", figure, bound, form, at_most)
    assert (verdict.measured, verdict.word) == (text, word)


def test_ratios_of_rounds_are_paired() -> None:
    """The second round was slow for both: that is no spread of the ratio."""
    assert paired([60, 30, 66], [10, 5, 11]) == (6.0, 6.0, 6.0)
    assert paired([60, 30, 60], [10, 10, 10]) == (6.0, 3.0, 6.0)
    assert paired([1, 1], [0, 0]) is None


RATES = {"tablestone": [600.0, 300.0, 620.0], "azurite": [100.0, 100.0, 100.0]}
FLOOR = {"floor": [1200.0, 1200.0, 1200.0]}


def test_a_ratio_has_the_least_and_the_greatest_of_its_rounds() -> None:
    (row,) = ratios_rows(_run(RATES | FLOOR))
    assert dict(zip(ratios_header()[:5], row[:5], strict=True)) == {
        "operation": "point read",
        "to Azurite": "6.00",
        "of the rounds": "3.00 - 6.20",
        "at least": "6",
        "": "reached",
    }
    assert row[5:] == ["6.00", "3.00 - 6.20", "50%", "25% - 52%"]
    (verdict,) = verdicts_rows(_run(RATES | FLOOR))
    assert verdict == ["point read, of the HTTP floor", "50%", "25% - 52%", "≥ 50%", "reached"]


@pytest.mark.parametrize(
    ("servers", "sentence", "rows"),
    [
        (("tablestone", "azurite", "floor"), "", 1),
        (("tablestone:1", "azurite"), "ratios are of tablestone:1 to azurite", 1),
        (("tablestone:2", "tablestone:1", "floor:1"), "ratios are of tablestone:2 to floor:1", 1),
        (("tablestone",), "no ratios: neither azurite nor floor was among the servers", 0),
        (("azurite", "floor"), "no ratios: they are of Tablestone's throughput", 0),
    ],
)
def test_the_first_server_of_a_kind_is_compared_or_it_is_said_why_none_is(
    servers: tuple[str, ...], sentence: str, rows: int
) -> None:
    run = _run({server: [100.0] * 3 for server in servers})
    said = whose_ratios(run)
    assert said.startswith(sentence) if sentence else not said
    assert len(list(ratios_rows(run))) == rows
    assert sentence in summary(run)


def test_later_pages_of_a_walk_are_held_to_the_first() -> None:
    """The p50 of its end, and p99 of all: a slow page in the middle is none of the last tenth."""
    rounds = [
        _round(1.0, first_page_p50=1000.0, last_pages_p50=1100.0, p99=p99)
        for p99 in (2500.0, 1500.0, 2600.0)
    ]
    run = _run({}) | {"workloads": {"walk": _workload("walk", None, {"tablestone:1": rounds})}}
    outcome = run["workloads"]["walk"]["outcomes"]["tablestone:1"]
    assert late_page(outcome) == (1.1, 1.1, 1.1)
    assert slow_page(outcome) == (2.5, 1.5, 2.6)
    assert list(verdicts_rows(run)) == [
        ["walk: p50 of the last tenth of the pages to p50 of the first", "1.10", "1.10 - 1.10", "≤ 2", "reached"],
        ["walk: p99 of all pages to p50 of the first", "2.50", "1.50 - 2.60", "≤ 2", "MISSED"],
    ]  # fmt: skip
    assert "all pages p99 2.5 ms, the slowest 3.0 ms" in summary(run)


def test_two_runs_are_compared_in_cost_and_verdict_too() -> None:
    earlier = _run({"tablestone": [550.0] * 3, "azurite": [100.0] * 3}, mib=50)
    text = comparison(earlier, _run(RATES, mib=75))
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in text.splitlines()
        if line.startswith("| point read")
    ]
    assert rows[0][2:] == ["550", "600", "+9%", "2.00", "2.00", "5.50", "6.00", "+9%"]
    assert rows[2] == ["point read", "tablestone", "1,818", "1,667", "-8%", "50", "75", "+50%"]
    assert (
        "point read, to Azurite: MISSED with 5.50 before, reached with 6.00 now (≥ 6)"
        in text.splitlines()
    )
    assert comparison(earlier, earlier).endswith("no verdict changed")
