"""Typed values as JSON text: the value of each EDM type, and a property's member with the annotation of its type.

The form is that of `odata=minimalmetadata` (wire 5.2, 5.3), which is stored and sent. Does not know entities.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from tablestone.model.edm import (
    EdmType,
    EdmValue,
    GeographyPoint,
    format_binary,
    format_date_time,
    format_double,
)

ANNOTATION: Final = "@odata.type"
"""The end of the name of an annotation: the name of a property and this is the member with the property's type."""
_SHOWN_BY_JSON: Final = (EdmType.STRING, EdmType.INT32, EdmType.BOOLEAN)
"""The types without an annotation, because their JSON values show the type (wire 5.3)."""

quote: Callable[[str], str] = encode_basestring_ascii
"""A JSON string: non-ASCII as \\uXXXX with lower-case hex, as the service writes it (wire 5.2)."""


def value_text(kind: EdmType, value: Any) -> str:
    """The JSON text of a value of any type (wire 5.3)."""
    if kind is EdmType.STRING:
        return quote(value)
    if kind is EdmType.INT32:
        return str(value)
    if kind is EdmType.BOOLEAN:
        return boolean_text(value)
    if kind is EdmType.DOUBLE:
        return double_text(value)
    if kind is EdmType.INT64 or kind is EdmType.GUID:
        return quoted(value)
    if kind is EdmType.DATE_TIME:
        return quoted(format_date_time(value))
    if kind is EdmType.BINARY:
        return quoted(format_binary(value))
    return geography_json(value)


def boolean_text(value: object) -> str:
    """The JSON text of a Boolean."""
    return "true" if value else "false"


def double_text(value: float) -> str:
    """The JSON text of a Double: a number, or a string for NaN and the infinities."""
    text = format_double(value)
    return text if text[-1].isdecimal() else quoted(text)


def quoted(plain: object) -> str:
    """The JSON string of a value that needs no escapes: an Int64, a GUID, a date and time, a Binary."""
    return f'"{plain}"'


def geography_json(point: GeographyPoint) -> str:
    """The GeoJSON object of a point: longitude, latitude, and the altitude if it has one."""
    coordinates = ",".join(format_double(part) for part in point if part is not None)
    return f'{{"type":"Point","coordinates":[{coordinates}]}}'


@functools.lru_cache(maxsize=4096)
def name_part(name: str) -> str:
    """`"name":`; cached, since the entities of a table have the same properties."""
    return f"{quote(name)}:"


@functools.lru_cache(maxsize=4096)
def annotated_name_part(name: str, kind: EdmType) -> str:
    """The same after the annotation of the type."""
    return f'{quote(name + ANNOTATION)}:"{kind.value}",{quote(name)}:'


def member(name: str, typed: EdmValue) -> str:
    """`"name":value`, after `"name@odata.type"` for the types that minimalmetadata annotates (wire 5.2, 5.3)."""
    kind, value = typed
    text = value_text(kind, value)
    if kind in _SHOWN_BY_JSON or (kind is EdmType.DOUBLE and text[0] != '"'):
        return name_part(name) + text
    return annotated_name_part(name, kind) + text


def members(properties: Mapping[str, EdmValue]) -> dict[str, str]:
    """The member of each property, by name."""
    return {name: member(name, typed) for name, typed in properties.items()}
