"""A second evaluation of filters, as short as the specification (wire 6.3, 6.4), and slow.

The code under test compiles, plans and simplifies; this walks the tree for each entity.
"""

import operator
from collections.abc import Mapping
from typing import Any

from tablestone.model.edm import EdmType, EdmValue, Scalar
from tablestone.model.filter_tree import And, BooleanProperty, Comparison, Constant, FilterNode, Or

_OPERATORS: dict[str, Any] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}


def _units(text: str) -> list[bytes]:
    data = text.encode("utf-16-be", "surrogatepass")
    return [data[at : at + 2] for at in range(0, len(data), 2)]


def _holds(function: str, stored: str, part: str) -> bool:
    """A function of text. By UTF-16 unit, as .NET's ordinal comparison does."""
    units, wanted = _units(stored), _units(part)
    last = len(units) - len(wanted)
    places = {"startswith": [0], "endswith": [last], "contains": range(last + 1)}[function]
    return any(0 <= at <= last and units[at : at + len(wanted)] == wanted for at in places)


_WIDTH = {EdmType.INT32: 1, EdmType.INT64: 2, EdmType.DOUBLE: 3}


def _fits(stored: EdmType, literal: EdmType) -> bool:
    if stored in _WIDTH and literal in _WIDTH:
        return _WIDTH[literal] <= _WIDTH[stored]
    return stored is literal


def _comparable(value: Scalar, kind: EdmType) -> Any:
    if kind is EdmType.DOUBLE:
        assert isinstance(value, int | float)
        return float(value)
    return value.encode("utf-16-be") if isinstance(value, str) else value


def matches(node: FilterNode, entity: Mapping[str, EdmValue]) -> bool:
    if isinstance(node, Comparison):
        stored = entity.get(node.name)
        if stored is None:
            return False
        if not _fits(stored.type, node.literal.type):
            return node.operator.value in ("ne", "lt", "le")
        if node.operator.value not in _OPERATORS:
            return _holds(node.operator.value, str(stored.value), str(node.literal.value))
        answer = _OPERATORS[node.operator.value](
            _comparable(stored.value, stored.type), _comparable(node.literal.value, stored.type)
        )
        return bool(answer)
    if isinstance(node, BooleanProperty):
        return entity.get(node.name) == EdmValue(EdmType.BOOLEAN, value=True)
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, And):
        return all(matches(term, entity) for term in node.terms)
    if isinstance(node, Or):
        return any(matches(term, entity) for term in node.terms)
    return not matches(node.term, entity)
