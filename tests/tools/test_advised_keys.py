"""The keys that the advice names make a scan narrower: under them, the query has the promised plan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestone.advice.advising import advise_on_query
from tablestone.advice.filter_shape import read_shape
from tablestone.advice.workload import QueryUse, TableUse
from tablestone.model.edm import EdmType
from tablestone.model.filter_tree import FilterNode, print_filter
from tablestone.query.filter_parser import parse_filter
from tablestone.query.plan import PlanKind, plan_query
from tools.filter_under_keys import filter_under_keys
from unit.query.query_strategies import trees_of

IN_ONE_PARTITION = {PlanKind.POINT, PlanKind.POINTS, PlanKind.ROW_RANGE, PlanKind.PARTITION}


def plans_of(tree: FilterNode) -> list[tuple[str, PlanKind]]:
    """What each piece of advice promises, and the query's plan under its keys."""
    found = []
    for points in (None, 0, 7):
        for advice in advise_on_query(QueryUse(tree), TableUse("T", point_reads=points)):
            if advice.partition_key:
                mapped = filter_under_keys(tree, advice.partition_key, advice.row_key)
                found.append((advice.change, plan_query(mapped).kind))
    return found


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ("City eq ?", PlanKind.PARTITION),
        ("City eq ? and Age gt ?", PlanKind.ROW_RANGE),
        ("City eq ? and Day ge ? and Day lt ?", PlanKind.ROW_RANGE),
        ("City eq ? and Country eq ? and Name ne ?", PlanKind.PARTITION),
        ("City eq ? and PartitionKey ge ? and PartitionKey lt ?", PlanKind.ROW_RANGE),
        ("City eq ? and RowKey ge ?", PlanKind.ROW_RANGE),
        ("PartitionKey eq ? and City eq ?", PlanKind.ROW_RANGE),
        ("PartitionKey eq ? and Age le ?", PlanKind.ROW_RANGE),
        ("RowKey eq ?", PlanKind.PARTITION),
        ("City eq ? or City eq ?", PlanKind.RANGES),
    ],
)
def test_the_plan_of_a_shape_under_the_advised_keys(shape: str, kind: PlanKind) -> None:
    tree = read_shape(shape, {"Age": EdmType.INT32, "Day": EdmType.DATE_TIME})
    assert tree is not None
    plans = plans_of(tree)
    assert plans
    assert {found for _, found in plans} == {kind}


NAMES = st.sampled_from(["a", "b", "guid", "double", "binary", "PartitionKey", "RowKey"])
OPERATORS = st.sampled_from(["eq", "ne", "gt", "ge", "lt", "le"])
VALUES = {
    "a": st.sampled_from(["'m'", "'n'"]),
    "b": st.integers(-3, 99).map(str),
    "guid": st.just("guid'00000000-0000-0000-0000-000000000001'"),
    "double": st.sampled_from(["1.5", "-0.5", "7e3"]),
    "binary": st.just("X'01'"),
}
LEAVES = NAMES.flatmap(
    lambda name: st.builds(f"{name} {{}} {{}}".format, OPERATORS, VALUES.get(name, VALUES["a"]))
).map(parse_filter)


@given(trees_of(LEAVES, 6))  # type: ignore[arg-type]
def test_advised_keys_keep_their_promise(tree: FilterNode) -> None:
    """An `or` may allow every value, as in `x lt 1 or x ge 1`: then the range is the whole partition."""
    has_or = " or " in print_filter(tree) or "not " in print_filter(tree)
    for promise, kind in plans_of(tree):
        assert kind is not PlanKind.TABLE
        if "reads a row range" in promise and not has_or:
            assert kind in {PlanKind.ROW_RANGE, PlanKind.POINT, PlanKind.NOTHING, PlanKind.RANGES}
