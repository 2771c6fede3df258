"""The figures of a run in words: one table, ratios of medians first, and what the run was."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from bench.servers import AZURITE, FLOOR, TABLESTONE
from bench.workloads import ALONE

if TYPE_CHECKING:
    from collections.abc import Iterable

SATURATED = 0.9
DISTURBED = 0.2

Figures = dict[str, Any]


def median_of(outcome: Figures, measure: str) -> float:
    return float(median(measured[measure] for measured in outcome["rounds"]))


def ratio(outcomes: Figures, server: str, to: str) -> float | None:
    if server not in outcomes or to not in outcomes:
        return None
    base = median_of(outcomes[to], "per_second")
    return median_of(outcomes[server], "per_second") / base if base else None


def cpu_ratio(outcomes: Figures) -> float:
    """How many times Tablestone's CPU per request Azurite's is: steadier than throughput is."""
    own = median_of(outcomes[TABLESTONE], "server_cpu")
    return median_of(outcomes[AZURITE], "server_cpu") / own if own else 0.0


def summary(run: Figures) -> str:
    return "\n\n".join(
        part
        for part in (
            conditions(run),
            generator_check(run),
            table(figures_header(), figures_rows(run)),
            table(ratios_header(), ratios_rows(run)),
            table(company_header(), company_rows(run)),
            walks(run),
            loads(run),
            table(growth_header(), growth_rows(run)),
            disturbance(run),
            saturation(run),
        )
        if part
    )


def conditions(run: Figures) -> str:
    machine, schedule = run["machine"], run["schedule"]
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB; "
        f"{versions}\n"
        f"{schedule['rounds']} rounds of {schedule['seconds']} s after {schedule['warmup']} s, "
        f"{schedule['connections']} connections, seed {schedule['seed']}; load average at "
        f"the start {machine['load_average']}\n"
        f"the disk under the data: {run['flushes_per_second']:,.0f} appends of 4 KiB made durable "
        "per second, one after the other"
    )


def generator_check(run: Figures) -> str:
    alone = run.get("generator_alone")
    if not alone:
        return ""
    return (
        f"the load generator alone against the floor server: "
        f"{alone['per_second']:,.0f} requests/s with {alone['generator_share']:.0%} of "
        f"one core; it needs {alone['generator_cpu']:.1f} µs of CPU per request "
        f"(so {1e6 / alone['generator_cpu']:,.0f}/s would fill one core), the server "
        f"{alone['server_cpu']:.1f} µs"
    )


def figures_header() -> list[str]:
    return [
        "operation", "server", "per second", "entities/s", "p50 ms", "p99 ms",
        "server CPU µs/req", "cores", "MiB", "generator", "others",
    ]  # fmt: skip


def figures_rows(run: Figures) -> Iterable[list[str]]:
    for workload in run["workloads"].values():
        for server, outcome in workload["outcomes"].items():
            rate = median_of(outcome, "per_second")
            yield [
                workload["title"],
                server,
                plain(rate),
                entities_per_second(workload, server, outcome),
                f"{median_of(outcome, 'p50') / 1000:.2f}",
                f"{median_of(outcome, 'p99') / 1000:.2f}",
                "" if workload["company"] else f"{median_of(outcome, 'server_cpu'):,.0f}",
                "" if workload["company"] else f"{median_of(outcome, 'server_cores'):.2f}",
                f"{outcome['resident_mib']:,.0f}",
                f"{median_of(outcome, 'generator_share'):.0%}",
                f"{median_of(outcome, 'others_cores'):.2f}",
            ]


def plain(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:,.2f}"


def entities_per_second(workload: Figures, server: str, outcome: Figures) -> str:
    rate = entity_rate(workload, outcome)
    return f"{rate:,.0f}" if rate and not server.startswith(FLOOR) else ""


def entity_rate(workload: Figures, outcome: Figures) -> float:
    """Entities read or written per second: as the answers had them, or by the workload's own number."""
    counted = median_of(outcome, "entities_per_second")
    return counted or median_of(outcome, "per_second") * workload["entities_per_operation"]


def ratios_header() -> list[str]:
    return ["operation", "to Azurite", "at least", "", "by CPU", "to the HTTP floor"]


def ratios_rows(run: Figures) -> Iterable[list[str]]:
    for workload in run["workloads"].values():
        outcomes = workload["outcomes"]
        to_azurite = ratio(outcomes, TABLESTONE, AZURITE)
        to_floor = ratio(outcomes, TABLESTONE, FLOOR)
        if to_azurite is None and to_floor is None:
            continue
        factor = workload["factor"]
        verdict = ""
        if factor is not None and to_azurite is not None:
            verdict = "reached" if to_azurite >= factor else "MISSED"
        yield [
            workload["title"],
            "" if to_azurite is None else f"{to_azurite:.2f}",
            "" if factor is None else f"{factor:g}",
            verdict,
            "" if to_azurite is None or workload["company"] else f"{cpu_ratio(outcomes):.2f}",
            "" if to_floor is None else f"{to_floor:.0%}",
        ]


def walks(run: Figures) -> str:
    """Does a page late in a walk cost more than the first?"""
    lines = [
        f"{workload['title']}, {server}: first page p50 "
        f"{median_of(outcome, 'first_page_p50') / 1000:.1f} ms, pages of the last tenth "
        f"{median_of(outcome, 'last_pages_p50') / 1000:.1f} ms"
        for workload in run["workloads"].values()
        for server, outcome in workload["outcomes"].items()
        if all(measured["last_pages_p50"] is not None for measured in outcome["rounds"])
    ]
    return "\n".join(lines)


def late_page(outcome: Figures) -> float | None:
    """How many times the first page of a walk a page of its last tenth takes."""
    if any(measured["last_pages_p50"] is None for measured in outcome["rounds"]):
        return None
    return median_of(outcome, "last_pages_p50") / median_of(outcome, "first_page_p50")


def company_header() -> list[str]:
    return [
        "point reads", "server", "reads/s", "p50 ms", "p99 ms", "p99 alone", "max ms",
        "company's answers/s", "its p99 ms",
    ]  # fmt: skip


def company_rows(run: Figures) -> Iterable[list[str]]:
    """Do scans and transactions make a point read wait?"""
    alone = run["workloads"].get(ALONE.name, {"outcomes": {}})["outcomes"]
    for workload in run["workloads"].values():
        for server, outcome in workload["outcomes"].items():
            if not workload["company"]:
                continue
            yield [
                workload["title"],
                server,
                plain(median_of(outcome, "per_second")),
                f"{median_of(outcome, 'p50') / 1000:.2f}",
                f"{median_of(outcome, 'p99') / 1000:.2f}",
                f"{median_of(alone[server], 'p99') / 1000:.2f}" if server in alone else "",
                f"{median_of(outcome, 'max') / 1000:.1f}",
                plain(median_of(outcome, "company_per_second")),
                milliseconds(median_of(outcome, "company_p99")),
            ]


def milliseconds(microseconds: float) -> str:
    """Nothing where no answer was counted."""
    return f"{microseconds / 1000:.1f}" if microseconds else ""


def loads(run: Figures) -> str:
    return "\n".join(
        f"{load['entities']:,} {load['what']} into {load['server']}, in {load['transactions']:,} "
        f"transactions: {load['seconds']:.1f} s, {load['entities'] / load['seconds']:,.0f}/s"
        for load in run["loaded"]
    )


def growth_header() -> list[str]:
    return [
        "entities",
        "server",
        "MiB idle",
        "MiB under load",
        "start s",
        "seeded/s",
        "on disk MiB",
    ]


def growth_rows(run: Figures) -> Iterable[list[str]]:
    for server, sizes in run.get("growth", {}).items():
        for size in sizes:
            yield [
                f"{size['entities']:,}",
                server,
                f"{size['idle_mib']:,.0f}",
                f"{size['resident_mib']:,.0f}",
                f"{size['start_seconds']:.3f}"
                + ("" if size["starts_with_the_data"] else " (empty)"),
                f"{size['seeded_per_second']:,.0f}",
                f"{size['disk_mib']:,.0f}" if size["starts_with_the_data"] else "",
            ]


def disturbance(run: Figures) -> str:
    others = [
        measured["others_cores"]
        for workload in run["workloads"].values()
        for outcome in workload["outcomes"].values()
        for measured in outcome["rounds"]
    ]
    if not others or median(others) < DISTURBED:
        return ""
    return (
        f"something else kept {median(others):.1f} cores of this machine busy (median over all "
        f"rounds, at most {max(others):.1f}): the throughputs are not what an idle machine gives; "
        "trust CPU per request first, ratios second"
    )


def saturation(run: Figures) -> str:
    busy = [
        f"{workload['title']} on {server}"
        for workload in run["workloads"].values()
        for server, outcome in workload["outcomes"].items()
        if median_of(outcome, "generator_share") > SATURATED
    ]
    if not busy:
        return ""
    return "the load generator itself was busy here, read these as lower bounds: " + ", ".join(busy)


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table that lines up in a terminal, so that it can be pasted as it is."""
    lines = [header, *rows]
    if len(lines) == 1:
        return ""
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    texts = [column_text(line, widths, left=2 if header[1] == "server" else 1) for line in lines]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([texts[0], rule, *texts[1:]])


def column_text(line: list[str], widths: list[int], left: int) -> str:
    cells = [
        cell.ljust(width) if column < left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]
    return "| " + " | ".join(cells) + " |"
