"""The figures of a run as text: one table, with the ratios of medians first, and a description of the run."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.figures import (
    Figures,
    Spread,
    compared_servers,
    cpu_ratio,
    entity_rate,
    is_walk,
    median_of,
    ratio,
)
from bench.servers import AZURITE, FLOOR, RAW, TABLESTONE, UVICORN, kind_of
from bench.verdicts import (
    RATIO,
    SHARE,
    Form,
    ratio_verdict,
    rounds_text,
    verdicts_header,
    verdicts_rows,
)
from bench.workloads import ALONE

if TYPE_CHECKING:
    from collections.abc import Iterable

SATURATED = 0.9
DISTURBED = 0.2


def summary(run: Figures) -> str:
    return "\n\n".join(
        part
        for part in (
            conditions(run),
            generator_check(run),
            table(figures_header(), figures_rows(run)),
            whose_ratios(run),
            table(ratios_header(), ratios_rows(run)),
            table(company_header(), company_rows(run)),
            walks(run),
            loads(run),
            table(growth_header(), growth_rows(run)),
            table(verdicts_header(), verdicts_rows(run)),
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
    rate = entity_rate(workload, outcome).whole
    return f"{rate:,.0f}" if rate and kind_of(server) not in {FLOOR, RAW, UVICORN} else ""


def whose_ratios(run: Figures) -> str:
    """The servers of the ratios, where their names do not say it; and why there are no ratios, if there are none."""
    if not run["workloads"]:
        return ""
    compared = compared_servers(run)
    kinds = [kind_of(name) for name in compared]
    if TABLESTONE not in kinds:
        return "no ratios: they are of Tablestone's throughput, and no tablestone was among the servers"
    if len(kinds) == 1:
        return "no ratios: neither azurite nor floor was among the servers"
    names = {name for each in run["workloads"].values() for name in each["outcomes"]}
    if set(compared) == names and kinds == compared:
        return ""
    return f"ratios are of {compared[0]} to {' and '.join(compared[1:])}, the first of each kind"


def ratios_header() -> list[str]:
    return [
        "operation", "to Azurite", "of the rounds", "at least", "",
        "by CPU", "of the rounds", "to the HTTP floor", "of the rounds",
    ]  # fmt: skip


def ratios_rows(run: Figures) -> Iterable[list[str]]:
    for workload in run["workloads"].values():
        outcomes = workload["outcomes"]
        to_azurite = ratio(outcomes, TABLESTONE, AZURITE)
        to_floor = ratio(outcomes, TABLESTONE, FLOOR)
        if to_azurite is None and to_floor is None:
            continue
        factor, verdict = workload["factor"], ratio_verdict(workload)
        whole, rounds = with_rounds(to_azurite, RATIO)
        yield [
            workload["title"],
            whole if verdict is None else verdict.measured,
            rounds,
            "" if factor is None else f"{factor:g}",
            "" if verdict is None else verdict.word,
            *with_rounds(None if workload["company"] else cpu_ratio(outcomes), RATIO),
            *with_rounds(to_floor, SHARE),
        ]


def with_rounds(spread: Spread | None, form: Form) -> tuple[str, str]:
    """The figure, with the least and the greatest of the rounds."""
    if spread is None:
        return "", ""
    return form.text(spread.whole), rounds_text(spread[1:], form)


def walks(run: Figures) -> str:
    """Whether a page later in a walk costs more than the first."""
    lines = [
        f"{workload['title']}, {server}: first page p50 "
        f"{median_of(outcome, 'first_page_p50') / 1000:.1f} ms, pages of the last tenth "
        f"{median_of(outcome, 'last_pages_p50') / 1000:.1f} ms, all pages p99 "
        f"{median_of(outcome, 'p99') / 1000:.1f} ms, the slowest "
        f"{median_of(outcome, 'max') / 1000:.1f} ms"
        for workload in run["workloads"].values()
        for server, outcome in workload["outcomes"].items()
        if is_walk(outcome)
    ]
    return "\n".join(lines)


def company_header() -> list[str]:
    return [
        "point reads", "server", "reads/s", "p50 ms", "p99 ms", "p99 alone", "max ms",
        "company's answers/s", "its p99 ms",
    ]  # fmt: skip


def company_rows(run: Figures) -> Iterable[list[str]]:
    """Whether scans and transactions make a point read wait."""
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
    """Empty if no answer was counted."""
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
    """A Markdown table that lines up in a terminal too, so that it can be pasted as it is."""
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
