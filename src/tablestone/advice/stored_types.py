"""The types of stored properties beside those of the values in a filter.

`total gt 50` finds a Double too, so the value does not tell how the property sorts in a key. Knows filters and types;
does not know where entities come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.filter_tree import Comparison, FilterNode, map_comparisons

NUMBERS: Final = (EdmType.INT32, EdmType.INT64, EdmType.DOUBLE)
"""The types of numbers, the narrowest first."""


def with_stored_types(tree: FilterNode, types: Mapping[str, EdmType]) -> FilterNode:
    """The filter with each number in the type of the property that it is compared with, where that is known."""

    def stored(node: Comparison) -> Comparison:
        kind, literal = types.get(node.name), node.literal
        value = literal.value
        if kind not in NUMBERS or literal.type not in NUMBERS or kind is literal.type:
            return node
        assert isinstance(value, int | float)
        if kind is EdmType.DOUBLE:
            return replace(node, literal=EdmValue(kind, float(value)))
        if isinstance(value, float) and not value.is_integer():
            return node  # no value of the property is equal to it
        return replace(node, literal=EdmValue(kind, int(value)))

    return map_comparisons(tree, stored)


def number_names(tree: FilterNode | None) -> tuple[str, ...]:
    """The properties that the filter compares with a number, once each."""
    names: dict[str, None] = {}

    def noted(node: Comparison) -> Comparison:
        if node.literal.type in NUMBERS:
            names[node.name] = None
        return node

    if tree is not None:
        map_comparisons(tree, noted)
    return tuple(names)
