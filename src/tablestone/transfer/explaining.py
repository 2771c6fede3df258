"""A query explained in words: the plan that our planner makes of its filter, and the cost of its reads.

The plan is that of Tablestone; the kinds are the service's own as Microsoft's design guide for tables calls them. The
cost counts what a client receives: no service tells it how many entities were read for that. A scan has advice on a
key that narrows it. Knows plans and costs; does not read anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from tablestone.advice.advising import advise_on_query
from tablestone.advice.stored_types import with_stored_types
from tablestone.advice.workload import QueryUse, TableUse
from tablestone.model.edm import EdmType
from tablestone.model.filter_tree import print_filter
from tablestone.model.keys import decode_key
from tablestone.query.filter_parser import parse_filter
from tablestone.query.key_set import END
from tablestone.query.plan import KeyInterval, Plan, PlanKind, plan_query
from tablestone.transfer.progress import shown_bytes
from tablestone.transfer.reading import Cost
from tablestone.transfer.wire import Query

RANGES_SHOWN_MAX = 5
_NAMES = {PlanKind.TABLE: "table scan", PlanKind.POINT: "point"}


def explain(
    query: Query,
    cost: Cost,
    *,
    shown: int,
    seconds: float,
    newest: bool,
    types: Mapping[str, EdmType] | None = None,
) -> list[str]:
    """The lines that `--explain` prints. `newest`: only the last entities of what is read are shown.

    `types` are those of the properties of the entities that were received.
    """
    tree = parse_filter(query.filter) if query.filter else None
    plan = plan_query(tree)
    lines = [f"plan: {plan_name(plan)}", *(f"  {line}" for line in plan_lines(plan))]
    asked = None if tree is None else with_stored_types(tree, types or {})
    returned = 0 if cost.requests and not cost.entities else None
    use = QueryUse(asked, entities_returned=returned, plan=plan.kind, reads_newest=newest)
    for advice in advise_on_query(use, TableUse(query.table)):
        lines += [f"advice ({advice.rule}): {advice.change}", f"  cost of writes: {advice.cost}"]
    lines.append(
        f"cost: {_number(cost.requests, 'request', 'requests')}, "
        f"{_number(cost.entities, 'entity', 'entities')} received for {shown:,} shown, "
        f"{shown_bytes(cost.bytes)}, {seconds * 1000:,.0f} ms"
        + (f", {_number(cost.retries, 'retry', 'retries')}" if cost.retries else "")
    )
    return lines


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def plan_name(plan: Plan) -> str:
    """The kind of a plan as the design guide calls it: point, row range, partition, partition range or table scan."""
    return _NAMES.get(plan.kind, plan.kind.value)


def plan_lines(plan: Plan) -> list[str]:
    """The ranges of keys that a plan reads, and the condition that is tested on each entity there."""
    lines = [f"keys: {_range(interval)}" for interval in plan.ranges[:RANGES_SHOWN_MAX]]
    if len(plan.ranges) > RANGES_SHOWN_MAX:
        lines.append(f"and {len(plan.ranges) - RANGES_SHOWN_MAX:,} ranges more")
    if plan.residual is not None:
        lines.append(f"tested on each entity there: {print_filter(plan.residual)}")
    return lines


def _range(interval: KeyInterval) -> str:
    """A range of keys in words. A bound that ends in a zero byte is just behind the key before that byte."""
    start, end = interval
    if end is None and start == (b"", b""):
        return "all"
    if end is not None and end == (start[0], start[1] + b"\0"):
        return f"exactly {_shown(start)}"
    if end is not None and end == (start[0] + b"\0", b"") and not start[1]:
        return f"all of the partition {decode_key(start[0])!r}"
    return f"{_bound('from', 'after', start)}" + (
        "" if end is None else f" {_bound('before', 'through', end)}"
    )


def _bound(at: str, behind: str, point: tuple[bytes, bytes]) -> str:
    is_behind = point[1].endswith(b"\0") or (not point[1] and point[0].endswith(b"\0"))
    return f"{behind if is_behind else at} {_shown(point)}"


def _shown(point: tuple[bytes, bytes]) -> str:
    partition, row = (decode_key(part.removesuffix(END).removesuffix(b"\0")) for part in point)
    return (
        f"({partition!r}, {row!r})"
        if row or not point[0].endswith(b"\0")
        else f"partition {partition!r}"
    )
