"""What a $filter text means, row by row; every text has a meaning or is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_tables import Row, load
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.errors import ERRORS, StorageError
from tablestone.model.filter_tree import (
    And,
    Comparison,
    FilterNode,
    Or,
    map_comparisons,
    print_filter,
    property_names,
)
from tablestone.query.evaluate import compile_filter
from tablestone.query.filter_parser import ENTITY_PROPERTIES, TABLE_PROPERTIES, parse_filter
from tablestone.query.plan import plan_query
from unit.query.query_strategies import FILTERS, FRAGMENTS
from unit.query.query_tables import parameters, parsed

_TABLE = load("filter_parse.toml")


@pytest.mark.parametrize("row", parameters(_TABLE["case"]))
def test_a_filter_means(row: Row) -> None:
    node = parse_filter(row["filter"])
    assert (None if node is None else print_filter(node)) == row.get("prints")


@pytest.mark.parametrize("row", parameters([r for r in _TABLE["case"] if "prints" in r]))
def test_canonical_text_means_the_same(row: Row) -> None:
    assert parse_filter(row["prints"]) == parse_filter(row["filter"]) or "NaN" in row["prints"]
    assert print_filter(parsed(row["prints"])) == row["prints"]


@pytest.mark.parametrize("row", parameters(_TABLE["error"]))
def test_a_filter_is_refused(row: Row) -> None:
    declared = TABLE_PROPERTIES if row.get("declared") == "tables" else ENTITY_PROPERTIES
    with pytest.raises(StorageError) as raised:
        parse_filter(row["filter"], declared=declared)
    error = raised.value
    assert (error.status, error.code, error.text) == (
        row["status"],
        row["code"],
        row.get("text", ERRORS[row["code"]].text),
    )
    assert error.early  # raised while parsing: no Cache-Control (wire 2.2, 6.5)


@given(FILTERS)
def test_a_printed_tree_is_parsed_to_itself(node: FilterNode) -> None:
    assert parse_filter(print_filter(node), declared={}, extended=True) == node


@given(st.text(max_size=40) | st.lists(st.sampled_from(FRAGMENTS), max_size=20).map("".join))
def test_no_text_raises_anything_else(text: str) -> None:
    for extended in (False, True):
        try:
            node = parse_filter(text, extended=extended)
        except StorageError as error:
            assert (error.status, error.code) in {(400, "InvalidInput"), (501, "NotImplemented")}  # noqa: PT017
        else:
            assert node is None or parse_filter(print_filter(node), extended=extended) is not None


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "a eq 1" + ")" * 10_000,
        "not " * 10_000 + "a",
        "not (" * 10_000 + "a" + ")" * 10_000,
        "(" * 1_000_000,
    ],
    ids=["parentheses", "not", "both", "a megabyte of one character"],
)
def test_deep_nesting_is_refused(text: str) -> None:
    """`limits.FILTER_STEPS_MAX`; the parser never reaches the interpreter's own limit."""
    with pytest.raises(StorageError) as raised:
        parse_filter(text)
    assert (raised.value.status, raised.value.code) == (400, "InvalidInput")
    assert raised.value.text == "Recursion depth exceeded allowed limit."


PARENTHESES_MAX = 99
"""azure-sdk-for-net 32525, 52129: 99 are accepted, 100 are not."""


@pytest.mark.parametrize(
    ("text", "works"),
    [
        ("(" * PARENTHESES_MAX + "a eq 1" + ")" * PARENTHESES_MAX, True),
        ("(" * 100 + "a eq 1" + ")" * 100, False),
        ("not " * 792 + "a", True),
        ("not " * 793 + "a", False),
        ("not (" * 88 + "a eq 1" + ")" * 88, True),
        ("not (" * 89 + "a eq 1" + ")" * 89, False),
    ],
)
def test_the_service_s_parser_goes_800_steps_down(text: str, *, works: bool) -> None:
    if works:
        parsed(text)
    else:
        with pytest.raises(StorageError, match="InvalidInput"):
            parse_filter(text)


def _nested(depth: int) -> str:
    """`((a eq 1 or b) and b) or b ...`, nested this deep."""
    steps = (f" {'and' if level % 2 else 'or'} b)" for level in range(depth))
    return "(" * depth + "a eq 1" + "".join(steps)


@pytest.mark.parametrize("text", [_nested(PARENTHESES_MAX), "b or " + "not " * 792 + "a"])
def test_nesting_up_to_the_limit_works_in_every_step(text: str) -> None:
    node = parsed(text)
    assert print_filter(parsed(print_filter(node))) == print_filter(node)
    assert plan_query(node).residual is not None
    assert not compile_filter(node)(lambda _name: None)
    assert property_names(node) == {"a", "b"}


def test_depth_is_that_of_the_text_not_its_length() -> None:
    pairs = " and ".join("(not (a eq 1))" for _ in range(500))
    assert isinstance(parsed(pairs), And)


def test_a_chain_of_5000_terms_is_flat() -> None:
    node = parsed(" or ".join(f"RowKey eq 'k{i}'" for i in range(5000)))
    assert isinstance(node, Or)
    assert len(node.terms) == 5000


def test_sixteen_comparisons_are_no_error() -> None:
    """The service does not enforce the documented limit of 15 (wire 6.6, 14 row 10)."""
    assert isinstance(parsed(" and ".join(f"p{i} eq {i}" for i in range(100))), And)


def test_declared_types_are_part_of_what_is_remembered() -> None:
    assert parse_filter("Timestamp eq 5", declared={}) is not None
    with pytest.raises(StorageError):
        parse_filter("Timestamp eq 5")
    with pytest.raises(StorageError):
        parse_filter("n eq 5", declared={"n": EdmType.STRING})


def test_property_names_are_all_of_them() -> None:
    assert property_names(parsed("a eq 1 and not (b or c lt 'x') or true")) == {"a", "b", "c"}
    assert property_names(None) == frozenset()


def test_comparisons_can_be_changed() -> None:
    """Lists of tables ignore the case of names in a filter (wire 3.1)."""
    node = parse_filter(
        "TableName ge 'ABC' and not (TableName eq 'X' or 'Y' lt TableName)",
        declared=TABLE_PROPERTIES,
    )
    assert node is not None

    def folded(comparison: Comparison) -> Comparison:
        kind, value = comparison.literal
        return replace(comparison, literal=EdmValue(kind, str(value).lower()))

    assert (
        print_filter(map_comparisons(node, folded))
        == "TableName ge 'abc' and not (TableName eq 'x' or TableName gt 'y')"
    )
    assert map_comparisons(parsed("a or true"), folded) == parsed("a or true")
