"""Access paths: the index keys under which every entity that matches a filter has an entry.

An index key is the type of a property and its value, as bytes in the order of the comparisons (`evaluate`). An index
has one entry for each entity that has the property. An entity that is found need not match: each one that is read is
evaluated with the whole filter.
"""

import struct
from collections.abc import Collection, Mapping
from typing import Any, Final

from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.filter_tree import (
    UNORDERED,
    And,
    BooleanProperty,
    Comparison,
    ComparisonOperator,
    FilterNode,
    Or,
)
from tablestone.model.keys import encode_key
from tablestone.query.evaluate import TRUE_OF_MISMATCH, WIDENS_TO
from tablestone.query.plan import Plan, Rows, after, after_prefix, intersect_rows, union_rows

# Entries are stored with these numbers, so they never change.
_TYPES: Final = {
    EdmType.STRING: 1,
    EdmType.INT32: 2,
    EdmType.INT64: 3,
    EdmType.DOUBLE: 4,
    EdmType.BOOLEAN: 5,
    EdmType.DATE_TIME: 6,
    EdmType.GUID: 7,
    EdmType.BINARY: 8,
    EdmType.GEOGRAPHY_POINT: 9,
}
VALUE_BYTES_MAX: Final = 1024
"""Bytes of a value in its index key. A longer value is cut, so it shares its index key with others."""
_SIGN: Final = 1 << 63
_INT64: Final = struct.Struct(">Q")
_DOUBLE: Final = struct.Struct(">d")


def index_key_of(value: EdmValue) -> bytes:
    """The index key of an entity with this value of the property. A point has no order: its key is the type alone."""
    return bytes((_TYPES[value.type],)) + _value_bytes(value)[:VALUE_BYTES_MAX]


def _value_bytes(value: EdmValue) -> bytes:
    kind, given = value
    found: Any = given
    if kind is EdmType.STRING or kind is EdmType.GUID:
        return encode_key(found)
    if kind is EdmType.DOUBLE:
        (bits,) = _INT64.unpack(_DOUBLE.pack(found + 0.0))  # negative zero is zero
        return _INT64.pack(bits ^ (_SIGN if bits < _SIGN else 2 * _SIGN - 1))
    if kind is EdmType.BOOLEAN:
        return b"\1" if found else b"\0"
    if kind is EdmType.BINARY:
        return bytes(found)
    if kind is EdmType.GEOGRAPHY_POINT:
        return b""
    return _INT64.pack(found + _SIGN)


_UNUSABLE: Final = (ComparisonOperator.NOT_EQUAL, *UNORDERED)

AccessPath = Mapping[str, Rows]
"""Intervals of index keys by property. Each entity that matches has an entry in the intervals of some property."""

INTERVALS_MAX: Final = 100
"""Intervals of an access path. With more, a scan is better."""


def is_in_key_order(path: AccessPath) -> bool:
    """Whether every interval is one index key: its entries are in the order of the entities' keys."""
    return all(end == after(start) for intervals in path.values() for start, end in intervals)


def properties_by_index(plan: Plan, indexes: Mapping[str, bool]) -> tuple[str, ...]:
    """The properties whose indexes find the plan's entities. `indexes` says whether each is within partitions."""
    if plan.residual is None or not plan.ranges:
        return ()
    next_partition = plan.ranges[0].start[0] + b"\0"
    is_one = all(end is not None and end <= (next_partition, b"") for _, end in plan.ranges)
    usable = [name for name, within_partition in indexes.items() if is_one or not within_partition]
    paths = access_paths_of(plan.residual, usable)
    in_order = [path for path in paths if is_in_key_order(path)]
    return tuple((in_order or paths)[0]) if paths else ()


def access_paths_of(node: FilterNode, properties: Collection[str]) -> list[AccessPath]:
    """The access paths to the entities that match, by indexes of these properties. Each path is enough alone."""
    if isinstance(node, BooleanProperty):
        literal = EdmValue(EdmType.BOOLEAN, True)
        node = Comparison(node.name, ComparisonOperator.EQUAL, literal)
    if isinstance(node, Comparison):
        if node.name not in properties or node.operator in _UNUSABLE:
            return []
        return [{node.name: _intervals(node)}]
    if isinstance(node, And):
        return _paths_of_all(node, properties)
    if isinstance(node, Or):
        return _paths_of_any(node, properties)
    return []


def _paths_of_all(node: And, properties: Collection[str]) -> list[AccessPath]:
    """The paths of each term. Paths by one property alone are intersected, because an entity has one index key."""
    by_property: dict[str, Rows] = {}
    others: list[AccessPath] = []
    for term in node.terms:
        for path in access_paths_of(term, properties):
            if len(path) > 1:
                others.append(path)
                continue
            for name, found in path.items():
                known = by_property.get(name)
                by_property[name] = found if known is None else intersect_rows(known, found)
    return [*({name: intervals} for name, intervals in by_property.items()), *others]


def _paths_of_any(node: Or, properties: Collection[str]) -> list[AccessPath]:
    """One path, if each term has one."""
    whole: dict[str, Rows] = {}
    for term in node.terms:
        paths = access_paths_of(term, properties)
        if not paths:
            return []
        for name, intervals in min(paths, key=lambda path: not is_in_key_order(path)).items():
            whole[name] = union_rows(whole.get(name, ()), intervals)
    return [whole] if sum(map(len, whole.values())) <= INTERVALS_MAX else []


def _intervals(node: Comparison) -> Rows:
    """The index keys of all values for which the comparison may be true (wire 6.4)."""
    kind, value = node.literal
    compared = WIDENS_TO.get(kind, (kind,))
    found: Rows = ()
    for each, number in _TYPES.items():
        if each in compared:
            widened: Any = float(value) if each is EdmType.DOUBLE else value  # type: ignore[arg-type]
            interval = _interval(number, node.operator, _value_bytes(EdmValue(each, widened)))
            found = union_rows(found, (interval,))
        elif node.operator in TRUE_OF_MISMATCH:
            found = union_rows(found, ((bytes((number,)), bytes((number + 1,))),))
    return found


def _interval(number: int, operator: ComparisonOperator, value: bytes) -> tuple[bytes, bytes]:
    """The index keys of values of one type. Under a key that is cut, there may be any longer value."""
    first, end = bytes((number,)), bytes((number + 1,))
    key = first + value[:VALUE_BYTES_MAX]
    is_cut = len(value) >= VALUE_BYTES_MAX
    match operator:
        case ComparisonOperator.GREATER_THAN:
            return (key if is_cut else after(key), end)
        case ComparisonOperator.GREATER_THAN_OR_EQUAL:
            return (key, end)
        case ComparisonOperator.LESS_THAN:
            return (first, after(key) if is_cut else max(key, first + b"\0"))
        case ComparisonOperator.LESS_THAN_OR_EQUAL:
            return (first, after(key))
        case ComparisonOperator.STARTS_WITH:
            return (key, after(key) if is_cut else after_prefix(key))
        case _:
            return (key, after(key))
