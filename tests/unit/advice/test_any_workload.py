"""Advice on random workloads: it never fails, it is the same each time, and no template keeps a gap."""

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from tablestone.advice.advising import advise
from tablestone.advice.filter_shape import read_shape, shape_of
from tablestone.advice.proposed_keys import conditions_of
from tablestone.advice.workload import KeyForm, PartitionUse, QueryUse, TableUse, Workload, WriteUse
from tablestone.model.errors import StorageError
from tablestone.model.filter_tree import FilterNode, print_filter, property_names
from tablestone.query.filter_parser import parse_filter
from tablestone.query.plan import PlanKind
from unit.query.query_strategies import FILTERS, KEY_FILTERS

ANY_FILTER = FILTERS | KEY_FILTERS
COUNTS = st.integers(0, 10**9)
KNOWN = st.none() | COUNTS
SHARES = st.none() | st.floats(0, 1)
RATES = st.none() | st.floats(0, 1e6)
FORMS = st.sampled_from(KeyForm)

QUERIES = st.builds(
    QueryUse,
    st.none() | ANY_FILTER,
    st.integers(1, 10**6),
    KNOWN,
    KNOWN,
    st.none() | st.sampled_from(PlanKind),
    st.booleans(),
)
PARTITIONS = st.builds(PartitionUse, st.text(max_size=9), SHARES, RATES, COUNTS, COUNTS)
TABLES = st.builds(
    TableUse,
    st.text(max_size=9),
    entities=KNOWN,
    partitions=KNOWN,
    hottest=st.lists(PARTITIONS, max_size=3).map(tuple),
    partition_form=FORMS,
    row_form=FORMS,
    properties_max=st.none() | st.integers(0, 252),
    entity_bytes_max=KNOWN,
    entity_bytes_mean=RATES,
    point_reads=KNOWN,
    queries=st.lists(QUERIES, max_size=3).map(tuple),
    writes=st.builds(WriteUse, COUNTS, COUNTS, COUNTS, COUNTS),
    is_one_task=st.booleans(),
)
WORKLOADS = st.builds(Workload, st.lists(TABLES, max_size=2).map(tuple), RATES)


@given(WORKLOADS)
def test_advice_never_fails_and_is_always_the_same(workload: Workload) -> None:
    first = advise(workload)
    assert first == advise(workload)
    assert [each.severity.rank for each in first] == sorted(each.severity.rank for each in first)
    assert all(each.sentence and each.sources for each in first)


@given(ANY_FILTER)
def test_each_property_of_a_filter_is_in_one_list(tree: FilterNode) -> None:
    branches = conditions_of(tree)
    assert branches
    for each in branches:
        assert len(set(each.names)) == len(each.names)
        assert each.several <= set(each.equal)
        assert set(each.names) <= property_names(tree)


def is_filter(tree: FilterNode) -> bool:
    """Whether the service would accept the filter: a key alone, for example, is not a condition."""
    try:
        return parse_filter(print_filter(tree)) == tree
    except StorageError:
        return False


@given(ANY_FILTER)
def test_every_shape_can_be_read_and_is_its_own_shape(tree: FilterNode) -> None:
    assume(is_filter(tree))
    shape = shape_of(tree)
    assert shape_of(read_shape(shape)) == shape
    assert not re.search(r"['0-9]\w*'", shape)
