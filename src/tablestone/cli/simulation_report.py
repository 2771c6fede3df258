"""The report of `tablestone simulate-keys`, for a person and as JSON. Knows words, and counts nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tablestone.limits import PARTITION_RATE_TARGET
from tablestone.query.plan import PlanKind
from tablestone.tools.progress import shown_bytes
from tablestone.tools.simulated_keys import PERCENTILES
from tablestone.tools.simulated_queries import QueryFigures
from tablestone.tools.simulating import Simulation

_PLANS = {PlanKind.TABLE: "table scan"}
PARTITIONS_SHOWN_MAX = 5
REJECTED_SHOWN_MAX = 3


def lines_of(report: Simulation) -> list[str]:
    """The report in lines."""
    return list(_lines(report))


def _lines(report: Simulation) -> Iterator[str]:
    keys = report.keys
    yield f"{report.source}: {_rows(report.rows)}, PartitionKey {report.partition_key}, RowKey {report.row_key}"
    if report.example is not None:
        number, partition_key, row_key = report.example
        yield f"  row {number:,} gets PartitionKey {partition_key!r}, RowKey {row_key!r}"
    partitions = f"{keys.partitions:,} {'partition' if keys.partitions == 1 else 'partitions'}"
    yield f"{_entities(keys.entities)} in {partitions}, {shown_bytes(keys.bytes)}"
    if keys.partitions:
        sizes = ", ".join(f"{n} %: {keys.percentiles[f'p{n}']:,}" for n in PERCENTILES)
        yield f"  entities of a partition: {sizes}, largest: {keys.percentiles['max']:,}"
    for each in keys.largest[:PARTITIONS_SHOWN_MAX]:
        is_spread = report.rate is not None and keys.newest_partition is None
        rate = f"  {(report.rate or 0) * each.share:,.0f} entities/s" if is_spread else ""
        size = f"{_entities(each.entities)}  {shown_bytes(each.bytes)}"
        yield f"  {each.share:6.1%}  {size}{rate}  {each.partition_key!r}"
    if report.rate is not None:
        yield _told_hot(report)
    yield from _refused(report)
    for query in report.queries:
        yield from _told_query(query)
    for advice in report.advice:
        yield f"{advice.severity.value}: {advice.text}"


def _told_hot(report: Simulation) -> str:
    target = f"{PARTITION_RATE_TARGET:,} entities/s"
    if not report.hot:
        spread = (
            "as the entities are"
            if report.keys.newest_partition is None
            else "over time as it is now"
        )
        return f"no partition above Azure's target of {target}, if use is spread {spread}"
    return f"above Azure's target of {target}: {', '.join(map(repr, report.hot))}"


def _refused(report: Simulation) -> Iterator[str]:
    keys = report.keys
    if not keys.same_rows:
        yield "no two rows have the same key"
    else:
        yield f"{keys.same_rows:,} rows have the key of an earlier row; {keys.same_keys:,} keys occur more than once:"
        for same in keys.same:
            more = "" if same.rows == 2 else f" and {same.rows - 2:,} more"
            yield (
                f"  PartitionKey {same.partition_key!r}, RowKey {same.row_key!r}: "
                f"rows {same.first:,} and {same.second:,}{more}"
            )
    if report.rejected:
        yield f"{_rows(report.rejected)} cannot be stored:"
        shown = report.rejected_rows[:REJECTED_SHOWN_MAX]
        yield from (f"  row {each.number:,}: {each.reason}" for each in shown)
        if report.rejected > len(shown):
            yield f"  and {report.rejected - len(shown):,} more"


def _told_query(query: QueryFigures) -> Iterator[str]:
    runs = (
        "" if query.runs is None else f"  ({query.runs:,} {'run' if query.runs == 1 else 'runs'})"
    )
    what = "point reads by the present keys" if query.is_point_read else f"query: {query.filter}"
    yield f"{what}{runs}"
    if query.present_plan is not None:
        yield f"  now:  {_told_plan(query.present_plan, query.present_entities_read, query.entities_returned)}"
    read = query.entities_read
    if query.is_shape:
        about = "" if read is None else f", up to the {_entities(read)} of a typical partition"
        if query.plan in (PlanKind.POINT, PlanKind.TABLE):
            about = f", {_entities(read or 0)}"
        yield f"  then: {_plan(query.plan)}{about}"
    elif query.missed:
        found = (query.entities_returned or 0) - query.missed
        yield f"  then: {_plan(query.plan)}, finds {found:,} of the {query.entities_returned:,} that match"
    else:
        yield f"  then: {_told_plan(query.plan, read, query.entities_returned)}"
    if query.missed:
        yield (
            f"  {query.missed:,} of the matching entities are outside of these keys: their values have another type or "
            "form than the filter, so the query cannot use the keys"
        )
    before = query.present_entities_read
    if before is not None and read is not None and read > before and not query.missed:
        yield "  worse: with these keys, the query reads more"
    yield from (f"  {note}" for note in query.notes)


def _told_plan(kind: PlanKind, read: int | None, returned: int | None) -> str:
    if read is None:
        return _plan(kind)
    returns = "" if returned is None else f" for {returned:,} returned"
    return f"{_plan(kind)}, {_entities(read)} read{returns}"


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def _entities(count: int) -> str:
    return f"{count:,} {'entity' if count == 1 else 'entities'}"


def _plan(kind: PlanKind) -> str:
    return _PLANS.get(kind, kind.value)


def members_of(report: Simulation) -> dict[str, Any]:
    """The report as members of a JSON object."""
    found = asdict(report)
    found["keys"]["partition_form"] = report.keys.partition_form.value
    found["keys"]["row_form"] = report.keys.row_form.value
    found["queries"] = [
        {
            **asdict(each),
            "plan": each.plan.value,
            "present_plan": each.present_plan.value if each.present_plan else None,
        }
        for each in report.queries
    ]
    found["example"] = report.example and report.example._asdict()
    found["advice"] = [each.members() for each in report.advice]
    return found
