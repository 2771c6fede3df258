"""Which entities match a filter, row by row, and the whole matrix of stored types against literal types."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_tables import Row, load
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.filter_tree import Comparison, ComparisonOperator, FilterNode
from tablestone.query.evaluate import compile_filter
from unit.query.query_model import matches
from unit.query.query_strategies import ENTITIES, FILTERS, KEY_FILTERS, KEYS, OPERATORS
from unit.query.query_tables import literal, parameters, parsed

_TABLE = load("filter_eval.toml")
_MATRIX = _TABLE["matrix"]


@pytest.mark.parametrize("row", parameters(_TABLE["case"]))
def test_an_entity_matches(row: Row) -> None:
    entity = {name: literal(text) for name, text in row["entity"].items()}
    found = {
        text: compile_filter(parsed(text))(entity.get)
        for text in row["matches"] + row["not_matches"]
    }
    expected = dict.fromkeys(row["matches"], True) | dict.fromkeys(row["not_matches"], False)
    assert found == expected


def _cells(relation: str) -> list[Any]:
    return [
        pytest.param(stored, wanted, operator, id=f"{stored[4:]} {operator.value} {wanted[4:]}")
        for stored, relations in _MATRIX["stored"].items()
        for wanted, found in zip(_MATRIX["columns"], relations, strict=True)
        if found == relation
        for operator in OPERATORS
    ]


def _evaluated(stored: str, operator: ComparisonOperator, wanted: str) -> bool:
    node = Comparison("p", operator, literal(_MATRIX["values"][wanted]))
    value = literal(_MATRIX["values"][stored])
    assert (value.type.value, node.literal.type.value) == (stored, wanted)
    return compile_filter(node)({"p": value}.get)


@pytest.mark.parametrize(("stored", "wanted", "operator"), _cells("less"))
def test_a_value_of_another_type_is_less(
    stored: str, wanted: str, operator: ComparisonOperator
) -> None:
    assert _evaluated(stored, operator, wanted) == (operator.value in _MATRIX["true_of"]["less"])


@pytest.mark.parametrize(("stored", "wanted", "operator"), _cells("fits"))
def test_a_value_of_a_fitting_type_is_compared(
    stored: str, wanted: str, operator: ComparisonOperator
) -> None:
    """The values of the matrix are equal wherever their types are compatible."""
    if stored == EdmType.GEOGRAPHY_POINT.value and operator.value not in ("eq", "ne"):
        assert not _evaluated(
            stored, operator, wanted
        )  # no order; the parser refuses the comparison
        return
    assert _evaluated(stored, operator, wanted) == (operator.value in _MATRIX["true_of"]["equal"])


def test_the_matrix_is_whole() -> None:
    kinds = {kind.value for kind in EdmType}
    assert set(_MATRIX["columns"]) == set(_MATRIX["stored"]) == set(_MATRIX["values"]) == kinds
    assert len(_cells("less")) + len(_cells("fits")) == len(EdmType) ** 2 * 6


@given(FILTERS | KEY_FILTERS, ENTITIES)
def test_every_filter_means_what_the_model_says(
    node: FilterNode, entity: dict[str, EdmValue]
) -> None:
    assert compile_filter(node)(entity.get) is matches(node, entity)


@given(st.sampled_from(KEYS), st.sampled_from(KEYS), st.sampled_from(list(ComparisonOperator)))
def test_strings_compare_by_utf16_unit(
    stored: str, wanted: str, operator: ComparisonOperator
) -> None:
    node = Comparison("s", operator, EdmValue(EdmType.STRING, wanted))
    entity = {"s": EdmValue(EdmType.STRING, stored)}
    assert compile_filter(node)(entity.get) is matches(node, entity)
