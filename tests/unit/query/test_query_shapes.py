"""The shape of a filter: what filters share that differ only in values."""

import pytest
from hypothesis import given

from tablestone.advice.filter_shape import (
    TERMS_MAX,
    TEXT_LENGTH_MAX,
    NoShape,
    partition_of,
    read_shape,
    shape_key,
    shape_of,
    shape_terms,
    shape_text,
)
from tablestone.model.filter_tree import FilterNode
from tablestone.query.filter_parser import parse_filter
from unit.query.query_strategies import FILTERS

STRING, DOUBLE = "Edm.String", "Edm.Double"
SHAPES: list[tuple[str, str, list[list[str]], str]] = [
    ("a eq 1", "a eq ?", [["a", "eq", "Edm.Int32"]], ""),
    ("a eq 'x'", "a eq ?", [["a", "eq", STRING]], ""),
    ("5 lt a", "a gt ?", [["a", "gt", "Edm.Int32"]], ""),
    ("active", "active", [["active", "eq", "Edm.Boolean"]], ""),
    ("true", "true", [], ""),
    (
        "PartitionKey eq 'p' and t gt 1.5",
        "PartitionKey eq ? and t gt ?",
        [["PartitionKey", "eq", STRING], ["t", "gt", DOUBLE]],
        "and",
    ),
    (
        "RowKey eq '1' or RowKey eq '2' or RowKey eq '3'",
        "RowKey eq ? or RowKey eq ?",
        [["RowKey", "eq", STRING]],
        "or",
    ),
    (
        "a eq 1 and (b eq 2 or b eq 3)",
        "a eq ? and (b eq ? or b eq ?)",
        [["a", "eq", "Edm.Int32"], ["b", "eq", "Edm.Int32"]],
        "mixed",
    ),
    ("not (a eq 1)", "not (a eq ?)", [["a", "eq", "Edm.Int32"]], "mixed"),
    (
        "constant eq 1 and boolean",
        "constant eq ? and boolean",
        [["constant", "eq", "Edm.Int32"], ["boolean", "eq", "Edm.Boolean"]],
        "and",
    ),
]


@pytest.mark.parametrize(("text", "shape", "terms", "joined"), SHAPES, ids=[s[0] for s in SHAPES])
def test_the_shape(text: str, shape: str, terms: list[list[str]], joined: str) -> None:
    node = parse_filter(text)
    assert (shape_text(node), *shape_terms(node)) == (shape, terms, joined)
    assert shape == shape_of(node)


SAME = [
    ("a eq 1", "a eq 2"),
    ("RowKey eq '1' or RowKey eq '2'", "RowKey eq '5' or RowKey eq '2' or RowKey eq '9'"),
    ("not (a gt 1) and b", "not (a gt 7) and b"),
]
OTHER = [
    ("a eq 1", "a eq 1L"),
    ("a eq 1", "a ne 1"),
    ("a eq 1", "b eq 1"),
    ("a eq 1 and b eq 1", "a eq 1 or b eq 1"),
    ("a", "a eq 1"),
    ("true", "false"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_one_shape(one: str, other: str) -> None:
    assert shape_key(parse_filter(one)) == shape_key(parse_filter(other))


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_two_shapes(one: str, other: str) -> None:
    assert shape_key(parse_filter(one)) != shape_key(parse_filter(other))


def test_no_filter_has_a_shape_too() -> None:
    assert (shape_text(None), shape_terms(None)) == ("", ([], ""))


def test_a_long_filter_has_a_short_shape() -> None:
    text = " or ".join(f"property{number} eq {number}" for number in range(200))
    node = parse_filter(text)
    assert len(shape_key(node)) == TERMS_MAX + 2
    assert len(shape_terms(node)[0]) == TERMS_MAX
    assert shape_text(node).endswith("...")
    assert len(shape_text(node)) <= TEXT_LENGTH_MAX + len("...")


@given(FILTERS)
def test_the_advice_reads_the_shape(node: FilterNode) -> None:
    """It knows no types, so a comparison with values of three types becomes a repeated one."""
    text = shape_text(node)
    try:
        read = read_shape(text)
    except NoShape:  # such as a key that stands alone as a condition
        return
    assert text.endswith("...") or shape_of(read) == shape_of(node)


PARTITIONS = [
    ("PartitionKey eq 'p'", "p"),
    ("a eq 1 and PartitionKey eq 'p'", "p"),
    ("PartitionKey eq 'p' and RowKey ge '1' and RowKey lt '2'", "p"),
    ("PartitionKey eq 'p' or PartitionKey eq 'q'", None),
    ("PartitionKey ge 'p'", None),
    ("not (PartitionKey eq 'p')", None),
    ("a eq 'p'", None),
]


@pytest.mark.parametrize(("text", "partition"), PARTITIONS)
def test_the_partition_that_a_filter_demands(text: str, partition: str | None) -> None:
    assert partition_of(parse_filter(text)) == partition
