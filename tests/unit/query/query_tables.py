"""The query tables of tests/spec as values."""

from typing import Any

import pytest

from spec_tables import Row
from tablestone.model.edm import EdmValue
from tablestone.model.filter_tree import Comparison, FilterNode
from tablestone.query.filter_parser import parse_filter


def parameters(rows: list[Row]) -> list[Any]:
    """The rows as parameters of a test, named by their ids; every row has a source, and no id comes twice."""
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == len(ids)
    assert all(row["source"] for row in rows)
    return [pytest.param(row, id=row["id"]) for row in rows]


def parsed(text: str) -> FilterNode:
    """The tree of a filter that is not blank."""
    node = parse_filter(text, extended=True)
    assert node is not None
    return node


def literal(text: str) -> EdmValue:
    """The value of a literal in the filter language."""
    node = parsed(f"p eq {text}")
    assert isinstance(node, Comparison)
    return node.literal
