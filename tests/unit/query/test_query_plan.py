"""The plan of a filter, row by row; for random filters, no plan misses an entity, and its residual is complete."""

import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spec_tables import Row, load
from tablestone import limits
from tablestone.model.edm import EdmValue
from tablestone.model.filter_tree import (
    UNORDERED,
    And,
    FilterNode,
    leaves,
    print_filter,
    property_names,
)
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, encode_key
from tablestone.query import plan
from tablestone.query.evaluate import compile_filter
from tablestone.query.filter_parser import parse_filter
from tablestone.query.plan import (
    END,
    EVERYTHING,
    Bounds,
    KeyInterval,
    KeySet,
    Plan,
    PlanKind,
    Slab,
    plan_query,
)
from unit.query.query_model import matches
from unit.query.query_strategies import ENTITIES, KEY_FILTERS, KEYS
from unit.query.query_tables import parameters, parsed


def _interval(texts: list[str]) -> KeyInterval:
    partition, row, *end = [encode_key(text) for text in texts]
    return KeyInterval((partition, row), (end[0], end[1]) if end else None)


@pytest.mark.parametrize("row", parameters(load("plan.toml")["case"]))
def test_a_filter_reads(row: Row) -> None:
    found = plan_query(parse_filter(row["filter"]))
    residual = None if found.residual is None else print_filter(found.residual)
    assert (found.kind.value, found.ranges, residual) == (
        row["kind"],
        tuple(_interval(texts) for texts in row["ranges"]),
        row.get("residual"),
    )


def test_every_kind_of_plan_has_a_row() -> None:
    kinds = {kind.value for kind in PlanKind if kind is not PlanKind.INDEX}  # not of the keys alone
    assert {row["kind"] for row in load("plan.toml")["case"]} == kinds


def _holds(found: Plan, key: tuple[bytes, bytes]) -> bool:
    return any(start <= key and (end is None or key < end) for start, end in found.ranges)


def _assert_sound(found: Plan, node: FilterNode, entity: dict[str, EdmValue]) -> None:
    """An entity inside the ranges matches the residual exactly when it matches the filter; none outside matches."""
    key = (encode_key(str(entity[PARTITION_KEY].value)), encode_key(str(entity[ROW_KEY].value)))
    answer = _holds(found, key) and (
        found.residual is None or compile_filter(found.residual)(entity.get)
    )
    assert answer is matches(node, entity)


def _assert_well_formed(found: Plan) -> None:
    position = None
    for start, end in found.ranges:
        assert position is None or position < start  # ascending, and adjacent ranges are merged
        assert end is None or start < end
        assert position != (END, b"")  # nothing comes after the table's end
        position = (END, b"") if end is None else end
    assert len(found.ranges) <= limits.FILTER_KEY_RANGES_MAX
    assert (found.kind is PlanKind.NOTHING) is (not found.ranges)


@settings(max_examples=200)
@given(KEY_FILTERS, st.lists(ENTITIES, min_size=1, max_size=10))
def test_plan_and_residual_are_the_filter(
    node: FilterNode, entities: list[dict[str, EdmValue]]
) -> None:
    found = plan_query(node)
    _assert_well_formed(found)
    for entity in entities:
        _assert_sound(found, node, entity)


@settings(max_examples=200)
@given(
    KEY_FILTERS, st.lists(ENTITIES, min_size=1, max_size=10), st.integers(1, 3), st.integers(1, 6)
)
def test_a_coarser_plan_is_sound_too(
    node: FilterNode, entities: list[dict[str, EdmValue]], ranges_max: int, size_max: int
) -> None:
    """The limits are so small that every step has to use a coarser plan."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "FILTER_KEY_RANGES_MAX", ranges_max)
        patch.setattr(plan, "SIZE_MAX", max(size_max, 3))
        patch.setattr(plan, "PAIRWISE_MAX", ranges_max)
        patch.setattr(plan, "SIMPLIFY_STEPS_MAX", size_max * 4)
        found = plan._plan(node)
        _assert_well_formed(found)
    for entity in entities:
        _assert_sound(found, node, entity)


@pytest.mark.slow
@given(KEY_FILTERS)
def test_conditions_of_keys_in_one_partition_are_all_ranges(node: FilterNode) -> None:
    assume(property_names(node) <= {PARTITION_KEY, ROW_KEY})
    assume(all(getattr(leaf, "operator", None) not in UNORDERED for leaf in leaves(node)))
    assert plan_query(And((parsed("PartitionKey eq 'a'"), node))).residual is None


_SETS = st.lists(
    st.tuples(
        st.sampled_from(KEYS), st.sampled_from(KEYS), st.sampled_from(KEYS), st.sampled_from(KEYS)
    ),
    max_size=5,
)


def _set_of(rectangles: list[tuple[str, str, str, str]]) -> KeySet:
    parts = [Bounds(plan.NOTHING, exact=True)]
    for texts in rectangles:
        a, b, c, d = (encode_key(text) for text in texts)
        if a < b and c < d:
            parts.append(Bounds((Slab(a, b, ((c, d),)),), exact=True))
    return plan.union(parts).keys


def _members(keys: KeySet) -> set[tuple[str, str]]:
    return {
        (partition, row)
        for partition in KEYS
        for row in KEYS
        for slab in keys
        if slab.start <= encode_key(partition) < slab.end
        and any(start <= encode_key(row) < end for start, end in slab.rows)
    }


@given(_SETS, _SETS)
def test_sets_of_keys_are_sets(
    first: list[tuple[str, str, str, str]], second: list[tuple[str, str, str, str]]
) -> None:
    one, two = Bounds(_set_of(first), exact=True), Bounds(_set_of(second), exact=True)
    both, either = plan.intersection([one, two]), plan.union([one, two])
    assert both.exact
    assert either.exact
    assert _members(both.keys) == _members(one.keys) & _members(two.keys)
    assert _members(either.keys) == _members(one.keys) | _members(two.keys)
    # There is only one form: equal sets are equal values.
    assert plan.union([two, one]).keys == either.keys
    assert plan.intersection([two, one]).keys == both.keys
    assert plan.union([both, one]).keys == one.keys
    assert plan.intersection([either, one]).keys == one.keys
    assert plan.intersection([one, Bounds(EVERYTHING, exact=True)]).keys == one.keys


def test_of_very_many_sets_the_intersection_is_around_each() -> None:
    """It only looks at the first and the last partition, and the first and the last row, of each set."""
    crossed = (Slab(b"a", b"b", ((b"c", b"d"),)), Slab(b"m", b"n", ((b"a", b"b"), (b"e", b"f"))))
    sets = [Bounds(EVERYTHING, exact=True)] * plan.PAIRWISE_MAX + [Bounds(crossed, exact=True)]
    assert plan.intersection(sets) == Bounds((Slab(b"a", b"n", ((b"a", b"f"),)),), exact=False)


def _points(count: int) -> str:
    return " or ".join(f"(PartitionKey eq 'p{i}' and RowKey eq 'r{i}')" for i in range(count))


def test_as_many_points_as_allowed_are_read_as_points() -> None:
    found = plan_query(parsed(_points(limits.FILTER_KEY_RANGES_MAX)))
    assert found.kind is PlanKind.POINTS
    assert len(found.ranges) == limits.FILTER_KEY_RANGES_MAX
    assert found.residual is None


def test_one_point_more_is_their_hull() -> None:
    node = parsed(_points(limits.FILTER_KEY_RANGES_MAX + 1))
    found = plan_query(node)
    assert found == Plan(
        PlanKind.PARTITION_RANGE, (KeyInterval((b"p0", b"r0"), (b"p999", b"r999\0")),), node
    )


def test_too_many_rows_of_few_partitions_are_a_range_of_each() -> None:
    rows = " or ".join(f"RowKey eq 'r{i:04}'" for i in range(limits.FILTER_KEY_RANGES_MAX))
    found = plan_query(parsed(f"(PartitionKey eq 'p' or PartitionKey eq 'q') and ({rows})"))
    last = f"r{limits.FILTER_KEY_RANGES_MAX - 1:04}".encode() + b"\0"
    assert found.ranges == (
        KeyInterval((b"p", b"r0000"), (b"p", last)),
        KeyInterval((b"q", b"r0000"), (b"q", last)),
    )
    assert found.residual == parsed(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (_points(5000), PlanKind.PARTITION_RANGE),
        (f"PartitionKey eq 'p7' and RowKey eq 'r7' and ({_points(5000)})", PlanKind.POINT),
        (" and ".join(f"RowKey ne 'r{i}'" for i in range(5000)), PlanKind.TABLE),
        (
            " or ".join(f"(PartitionKey ge 'p{i:04}' and RowKey eq 'r{i}')" for i in range(5000)),
            PlanKind.PARTITION_RANGE,
        ),
        (
            " or ".join(f"(PartitionKey ge 'p{i:04}' and RowKey eq 'r{i}')" for i in range(1500)),
            PlanKind.PARTITION_RANGE,
        ),
        (
            " and ".join(
                "("
                + " or ".join(f"PartitionKey eq '{i}' and RowKey ge '{j}'" for i in range(70))
                + ")"
                for j in range(70)
            ),
            PlanKind.RANGES,
        ),
        (
            " and ".join(f"(RowKey eq '{i}' or PartitionKey eq '{i}')" for i in range(2000)),
            PlanKind.NOTHING,
        ),
    ],
    ids=[
        "5000 points",
        "5000 points and one",
        "5000 exceptions",
        "5000 overlapping",
        "1500 overlapping",
        "and of ors",
        "and of 2000 pairs",
    ],
)
def test_a_large_filter_is_planned_quickly(text: str, kind: PlanKind) -> None:
    """No filter makes planning explode; the limit is ten times the time that a slow machine needs."""
    node = parsed(text)
    started = time.process_time()
    found = plan_query(node)
    assert time.process_time() - started < 3
    assert found.kind is kind


@given(st.sampled_from(KEYS), st.sampled_from(KEYS))
def test_the_short_way_for_a_point_is_the_long_way(partition: str, row: str) -> None:
    texts = [partition.replace("'", "''"), row.replace("'", "''")]
    node = parsed(f"PartitionKey eq '{texts[0]}' and RowKey eq '{texts[1]}'")
    assert plan._plan_of_point(node) == plan._plan(node)
    assert plan._plan_of_point(node) is not None
