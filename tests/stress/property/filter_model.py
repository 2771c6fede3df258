"""Filters as the specification describes them: nodes, their text, and their meaning (wire 6.1 to 6.4, and functions).

It is independent of the server's own parser, tree, planner and evaluator, and checks all of them. It neither simplifies
nor plans: it walks the tree for each entity.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stress.property.model import Value, ordinal

OPERATORS: dict[str, Any] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
FUNCTIONS = ("startswith", "endswith", "contains")
"""Functions of text, an extension."""
MIRRORED = {"eq": "eq", "ne": "ne", "gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}
NUMBERS = ("Edm.Int32", "Edm.Int64", "Edm.Double")


@dataclass(frozen=True)
class Comparison:
    """`name operator literal`, or with the literal on the left, meaning the same; or `function(name,literal)`.

    With the literal first, `contains` is written `substringof`.
    """

    name: str
    operator: str
    literal: Value
    literal_first: bool = False


@dataclass(frozen=True)
class Bare:
    """A property alone as a condition."""

    name: str


@dataclass(frozen=True)
class Not:
    term: Filter


@dataclass(frozen=True)
class Both:
    """`and` or `or`."""

    word: str
    left: Filter
    right: Filter


Filter = Comparison | Bare | Not | Both


def matches(node: Filter, entity: Mapping[str, Value]) -> bool:
    """Whether an entity, its system properties among its properties, matches."""
    if isinstance(node, Both):
        left, right = matches(node.left, entity), matches(node.right, entity)
        return (left and right) if node.word == "and" else (left or right)
    if isinstance(node, Not):
        return not matches(node.term, entity)
    stored = entity.get(node.name)
    if isinstance(node, Bare):
        return stored == ("Edm.Boolean", True)
    if stored is None:
        return False
    if node.operator in FUNCTIONS:
        return stored[0] == "Edm.String" and _holds(node.operator, stored[1], node.literal[1])
    if not _is_comparable(stored[0], node.literal[0]):
        return node.operator in ("ne", "lt", "le")
    left, right = _comparable(stored), _comparable(node.literal)
    return bool(OPERATORS[node.operator](left, right))


def _holds(function: str, stored: str, part: str) -> bool:
    """Every place where the UTF-16 units of the part are those of the text."""
    text, wanted = ordinal(stored), ordinal(part)
    places = [
        at
        for at in range(0, len(text) - len(wanted) + 1, 2)
        if text[at : at + len(wanted)] == wanted
    ]
    if function == "startswith":
        return 0 in places
    return len(text) - len(wanted) in places if function == "endswith" else bool(places)


def _is_comparable(stored: str, literal: str) -> bool:
    """The literal is widened to the property's type, never the reverse (wire 6.4)."""
    if stored in NUMBERS and literal in NUMBERS:
        return NUMBERS.index(literal) <= NUMBERS.index(stored)
    return stored == literal


def _comparable(value: Value) -> Any:
    return ordinal(value[1]) if value[0] == "Edm.String" else value[1]


def text_of(node: Filter) -> str:
    """The filter as a client writes it."""
    if isinstance(node, Comparison):
        literal = literal_text(node.literal)
        if node.operator in FUNCTIONS:
            if node.literal_first and node.operator == "contains":
                return f"substringof({literal}, {node.name})"
            return f"{node.operator}({node.name},{literal})"
        if node.literal_first:
            return f"{literal} {MIRRORED[node.operator]} {node.name}"
        return f"{node.name} {node.operator} {literal}"
    if isinstance(node, Bare):
        return node.name
    if isinstance(node, Not):
        inner = text_of(node.term)
        return f"not {inner}" if isinstance(node.term, Bare | Not) else f"not ({inner})"
    sides = []
    for side in (node.left, node.right):
        needs_parentheses = isinstance(side, Both) and node.word == "and" and side.word == "or"
        sides.append(f"({text_of(side)})" if needs_parentheses else text_of(side))
    return f" {node.word} ".join(sides)


def literal_text(value: Value) -> str:
    """A literal as in wire 6.2."""
    kind, content = value
    if isinstance(content, str) and kind == "Edm.String":
        return "'" + content.replace("'", "''") + "'"
    if kind == "Edm.Boolean":
        return "true" if content else "false"
    if kind == "Edm.Binary":
        return f"X'{content.hex()}'"
    if kind == "Edm.Guid":
        return f"guid'{content}'"
    if kind == "Edm.DateTime":
        return f"datetime'{content}'"
    return f"{content}L" if kind == "Edm.Int64" else repr(content)
