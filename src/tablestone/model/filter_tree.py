"""The tree of a filter: its nodes, their canonical text, and functions of a tree that need no entity.

Nodes are frozen values. `And` and `Or` have any number of terms, so that a long chain is wide and not deep; the parser
never puts an `And` directly into an `And`, or an `Or` into an `Or`. `query.evaluate` says what a node means.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tablestone.model.edm import EdmType, EdmValue, GeographyPoint, format_date_time, format_double


class ComparisonOperator(enum.Enum):
    """The six comparisons (wire 6.1) and three functions of text, which are an extension, by their spelling."""

    EQUAL = "eq"
    NOT_EQUAL = "ne"
    GREATER_THAN = "gt"
    GREATER_THAN_OR_EQUAL = "ge"
    LESS_THAN = "lt"
    LESS_THAN_OR_EQUAL = "le"
    STARTS_WITH = "startswith"
    ENDS_WITH = "endswith"
    CONTAINS = "contains"

    __hash__ = object.__hash__


TEXT_FUNCTIONS: Final = (
    ComparisonOperator.STARTS_WITH,
    ComparisonOperator.ENDS_WITH,
    ComparisonOperator.CONTAINS,
)
"""Their literal is a String, and they are false of a value of another type."""
UNORDERED: Final = (ComparisonOperator.ENDS_WITH, ComparisonOperator.CONTAINS)
"""Those that match values anywhere in the order."""

MIRRORED: Final = {
    ComparisonOperator.EQUAL: ComparisonOperator.EQUAL,
    ComparisonOperator.NOT_EQUAL: ComparisonOperator.NOT_EQUAL,
    ComparisonOperator.GREATER_THAN: ComparisonOperator.LESS_THAN,
    ComparisonOperator.GREATER_THAN_OR_EQUAL: ComparisonOperator.LESS_THAN_OR_EQUAL,
    ComparisonOperator.LESS_THAN: ComparisonOperator.GREATER_THAN,
    ComparisonOperator.LESS_THAN_OR_EQUAL: ComparisonOperator.GREATER_THAN_OR_EQUAL,
}
"""The operator of the same comparison with its sides exchanged."""

INVERTED: Final = {
    ComparisonOperator.EQUAL: ComparisonOperator.NOT_EQUAL,
    ComparisonOperator.NOT_EQUAL: ComparisonOperator.EQUAL,
    ComparisonOperator.GREATER_THAN: ComparisonOperator.LESS_THAN_OR_EQUAL,
    ComparisonOperator.GREATER_THAN_OR_EQUAL: ComparisonOperator.LESS_THAN,
    ComparisonOperator.LESS_THAN: ComparisonOperator.GREATER_THAN_OR_EQUAL,
    ComparisonOperator.LESS_THAN_OR_EQUAL: ComparisonOperator.GREATER_THAN,
}
"""The operator of the negation. Valid only for values that exist and have the literal's type."""


@dataclass(frozen=True, slots=True)
class And:
    """Two terms or more."""

    terms: tuple[FilterNode, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Two terms or more."""

    terms: tuple[FilterNode, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Plain negation: true even if the property in the term is absent (wire 6.4)."""

    term: FilterNode


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison with a property on the left and a constant on the right."""

    name: str
    operator: ComparisonOperator
    literal: EdmValue

    def written(self, literal: str) -> str:
        """Its text with this literal, or with what stands for one."""
        if self.operator in TEXT_FUNCTIONS:
            return f"{self.operator.value}({self.name},{literal})"
        return f"{self.name} {self.operator.value} {literal}"


@dataclass(frozen=True, slots=True)
class BooleanProperty:
    """A property alone as a condition."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """`true` or `false` alone as a condition."""

    value: bool


FilterNode = And | Or | Not | Comparison | BooleanProperty | Constant


def print_literal(literal: EdmValue) -> str:
    """The text of a literal in a filter (wire 6.2)."""
    kind, value = literal
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, GeographyPoint):
        return f"geography'SRID=4326;Point({' '.join(repr(x) for x in value if x is not None)})'"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, float):
        return format_double(value).replace("Infinity", "INF")
    if isinstance(value, str):
        return f"guid'{value}'" if kind is EdmType.GUID else "'" + value.replace("'", "''") + "'"
    if kind is EdmType.DATE_TIME:
        return f"datetime'{format_date_time(value)}'"
    return f"{value}L" if kind is EdmType.INT64 else str(value)


def print_filter(node: FilterNode) -> str:
    """The canonical text of a filter; parsing it gives the same tree again."""
    if isinstance(node, Comparison):
        return node.written(print_literal(node.literal))
    if isinstance(node, BooleanProperty):
        return node.name
    if isinstance(node, Constant):
        return "true" if node.value else "false"
    if isinstance(node, Not):
        text = print_filter(node.term)
        enclosed = isinstance(node.term, And | Or | Comparison)
        return f"not ({text})" if enclosed else f"not {text}"
    parts = []
    for term in node.terms:
        text = print_filter(term)
        parts.append(f"({text})" if isinstance(term, And | Or) else text)
    return (" and " if isinstance(node, And) else " or ").join(parts)


def leaves(node: FilterNode | None) -> list[Comparison | BooleanProperty]:
    """The comparisons and Boolean properties of a filter, in order."""
    found: list[Comparison | BooleanProperty] = []
    waiting = [] if node is None else [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, And | Or):
            waiting.extend(reversed(current.terms))
        elif isinstance(current, Not):
            waiting.append(current.term)
        elif isinstance(current, Comparison | BooleanProperty):
            found.append(current)
    return found


def property_names(node: FilterNode | None) -> frozenset[str]:
    return frozenset(leaf.name for leaf in leaves(node))


def map_comparisons(node: FilterNode, change: Callable[[Comparison], Comparison]) -> FilterNode:
    if isinstance(node, Comparison):
        return change(node)
    if isinstance(node, Not):
        return Not(map_comparisons(node.term, change))
    if isinstance(node, And | Or):
        return replace(node, terms=tuple([map_comparisons(term, change) for term in node.terms]))
    return node
