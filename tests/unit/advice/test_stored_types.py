"""A filter's numbers in the types of the stored properties: the advised key sorts as the property does."""

import pytest

from tablestone.advice.filter_shape import number_names, with_stored_types
from tablestone.model.edm import EdmType
from tablestone.model.filter_tree import print_filter
from tablestone.model.operations import IndexFound
from tablestone.query.filter_parser import parse_filter
from tablestone.tools.client import Query
from tablestone.tools.queries import Cost, explain

DOUBLE, INT32, INT64 = EdmType.DOUBLE, EdmType.INT32, EdmType.INT64


@pytest.mark.parametrize(
    ("given", "kind", "stored"),
    [
        ("a gt 50", DOUBLE, "a gt 50.0"),
        ("a gt 50", INT64, "a gt 50L"),
        ("a gt 50.0", INT32, "a gt 50"),
        ("a gt 50.5", INT32, "a gt 50.5"),
        ("a gt '50'", DOUBLE, "a gt '50'"),
        ("a gt 50", EdmType.STRING, "a gt 50"),
        ("not (a gt 50 or b gt 50)", DOUBLE, "not (a gt 50.0 or b gt 50)"),
    ],
)
def test_a_filter_with_the_types_of_what_is_stored(given: str, kind: EdmType, stored: str) -> None:
    tree, expected = parse_filter(given), parse_filter(stored)
    assert tree is not None
    assert expected is not None
    assert print_filter(with_stored_types(tree, {"a": kind})) == print_filter(expected)


def test_the_properties_that_are_compared_with_numbers() -> None:
    tree = parse_filter("a gt 1 and (b eq 'x' or c le 1.5) and a lt 9L and flag")
    assert number_names(tree) == ("a", "c")
    assert number_names(None) == ()


@pytest.mark.parametrize(
    ("types", "row_key"),
    [({"total": DOUBLE}, "{total:020.6f}"), ({"total": INT64}, "{total:019}"), ({}, "{total:010}")],
)
def test_the_advice_of_explain(types: dict[str, EdmType], row_key: str) -> None:
    query = Query("Orders", "city eq 'Oslo' and total gt 95")
    lines = explain(query, Cost(), shown=0, seconds=0.0, newest=False, types=types)
    assert f"RowKey `{row_key}_{{PartitionKey}}_{{RowKey}}`" in "".join(lines)


def test_explain_names_the_state_of_an_index_that_would_serve() -> None:
    query = Query("Orders", "city eq 'Oslo'")
    indexes = [IndexFound("city", False, "building"), IndexFound("total", False, "broken")]
    lines = explain(query, Cost(), shown=0, seconds=0.0, newest=False, indexes=indexes)
    assert lines[0] == "plan: table scan"
    assert "  the index on city is building" in lines
    assert "total" not in "".join(lines)
