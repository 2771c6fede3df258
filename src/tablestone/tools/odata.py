"""Converts entities from JSON to typed values and back, without loss.

Reads `odata=minimalmetadata` and `fullmetadata`: a value, and `name@odata.type` where JSON does not show the type. The
text of a `ValueError` tells a person why an entity cannot be stored.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from tablestone import limits
from tablestone.model import edm, entity, entity_json, keys
from tablestone.model.edm import EdmType, EdmValue, Scalar
from tablestone.model.entity import TIMESTAMP
from tablestone.model.errors import StorageError
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey

ANNOTATION: Final = "@odata.type"
ETAG: Final = "odata.etag"
_SYSTEM_NAMES: Final = frozenset((PARTITION_KEY, ROW_KEY, TIMESTAMP))
_TYPES: Final = {kind.value: kind for kind in EdmType}


class TypedEntity(NamedTuple):
    """The key and the typed properties of an entity, without ETag and Timestamp."""

    key: EntityKey
    properties: dict[str, EdmValue]


def read_entity(raw: Mapping[str, Any]) -> TypedEntity:
    """A JSON object as an entity that can be stored; `ValueError` says why it cannot."""
    key = EntityKey(_key(raw, PARTITION_KEY), _key(raw, ROW_KEY))
    properties = {}
    for name, value in raw.items():
        if value is None or not is_property(name):
            continue
        properties[name] = read_value(name, value, raw.get(name + ANNOTATION))
    require_storable(key, properties)
    return TypedEntity(key, properties)


class _Shape(NamedTuple):
    """What the member names of a JSON object say. The rows of a file have few shapes, so these are cached."""

    properties: tuple[tuple[str, str | None], ...]
    """Each property, and the name of its annotation if there is one."""
    is_given_by_service: bool
    """Whether it has members that only the service writes."""


@functools.lru_cache(maxsize=10_000)
def _shape_of(names: tuple[str, ...]) -> _Shape:
    present = frozenset(names)
    return _Shape(
        tuple(
            (name, name + ANNOTATION if name + ANNOTATION in present else None)
            for name in names
            if is_property(name)
        ),
        TIMESTAMP in present or any(name.startswith("odata.") for name in names),
    )


def require_valid(raw: Mapping[str, Any], size: int) -> tuple[EntityKey, bool]:
    """The key of a JSON object that can be stored, and whether a write can send its text, of `size` bytes, as it is.

    Refuses what `read_entity` refuses, but makes no values: most rows of a file are only passed on. A text shorter than
    the longest string cannot exceed a limit of size. The text cannot be sent if it has members that only the service
    writes, or a Double such as 5.0 without its type: a service in JavaScript takes that for the integer 5.
    """
    shape = _shape_of(tuple(raw))
    if size > limits.STRING_LENGTH_MAX:
        return read_entity(raw).key, False
    key = EntityKey(_key(raw, PARTITION_KEY), _key(raw, ROW_KEY))
    count = 0
    is_sent = not shape.is_given_by_service
    for name, of_type in shape.properties:
        value = raw[name]
        if value is None:
            continue
        count += 1
        if of_type is not None:
            if not _is_usual(value, raw[of_type]):
                read_value(name, value, raw[of_type])
        elif type(value) is float:
            is_sent = is_sent and not value.is_integer()
        elif type(value) not in _PLAIN_TYPES:
            read_value(name, value, None)
    try:
        keys.require_key_in_body(PARTITION_KEY, key.partition_key)
        keys.require_key_in_body(ROW_KEY, key.row_key)
        keys.require_key_length(key)
        if count > limits.ENTITY_PROPERTIES_MAX:
            raise StorageError("TooManyProperties")  # noqa: TRY301 - a rule beside the others
    except StorageError as error:
        raise ValueError(f"{error.code}: {error.text}") from None
    return key, is_sent


_PLAIN_TYPES: Final = frozenset((str, bool))


def _is_usual(value: Any, annotation: Any) -> bool:
    """Whether a value has a usual text of its type, which is valid without parsing it."""
    fits = _USUAL_TEXTS.get(annotation) if type(annotation) is str else None
    return fits is not None and type(value) is str and fits(value) is not None


_USUAL_TEXTS: Final = {
    "Edm.Int64": re.compile(r"-?[0-9]{1,18}").fullmatch,
    "Edm.Guid": re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}").fullmatch,
    "Edm.DateTime": re.compile(
        r"[2-9][0-9]{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
        r"|(?:0[13578]|1[02])-31)T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,7})?Z"
    ).fullmatch,
}
"""Texts of these forms are valid; the type's reader decides about others."""


@functools.lru_cache(maxsize=4096)
def is_property(name: str) -> bool:
    """Whether a member is a custom property; `ValueError` if its name is invalid."""
    if name in _SYSTEM_NAMES or "@" in name or name.startswith("odata."):
        return False
    try:
        entity.require_property_name(name)
    except StorageError as error:
        raise ValueError(f"{error.code}: {name!r}: {error.text}") from None
    return True


def read_value(name: str, value: Any, annotation: Any) -> EdmValue:
    """A property's value, typed by its annotation, else by JSON (docs/protocol/wire.md, 5.3)."""
    if annotation is None:
        if isinstance(value, str):
            return EdmValue(EdmType.STRING, value)
        if isinstance(value, bool):
            return EdmValue(EdmType.BOOLEAN, value)
        if isinstance(value, int):
            if not edm.INT32_MIN <= value <= edm.INT32_MAX:
                raise ValueError(f"{name} is {value}, which needs {name}{ANNOTATION} Edm.Int64")
            return EdmValue(EdmType.INT32, value)
        if isinstance(value, float):
            return EdmValue(EdmType.DOUBLE, value or 0.0)
        raise ValueError(f"{name} is a JSON {_kind_of(value)}, which no property can hold")
    kind = _TYPES.get(annotation) if isinstance(annotation, str) else None
    if kind is None:
        raise ValueError(f"{name} has the type {annotation!r}, which the service does not have")
    return typed_value(name, value, kind)


def typed_value(name: str, value: Any, kind: EdmType) -> EdmValue:
    """A JSON value, or its text, as a value of the type; `ValueError` if it does not fit."""
    try:
        return EdmValue(kind, _READERS[kind](value))
    except edm.DateTimeOutOfRange:
        raise ValueError(f"{name} is {_shown(value)}, before 1601 or after 9999") from None
    except (ValueError, TypeError, KeyError, IndexError, OverflowError):
        comma = ", because of its comma" if kind is EdmType.DOUBLE and "," in str(value) else ""
        raise ValueError(
            f"{name} is {_shown(value)}, not of type {kind.value.removeprefix('Edm.')}{comma}"
        ) from None


def require_storable(key: EntityKey, properties: Mapping[str, EdmValue]) -> None:
    """Check keys, names and sizes (docs/protocol/wire.md, 1.3 and 9); `ValueError` with the service's code and text.

    The sizes are the largest that any service takes: the target refuses what is too large for it.
    """
    try:
        for name, text in zip((PARTITION_KEY, ROW_KEY), key, strict=True):
            keys.require_key_in_body(name, text)
        keys.require_key_length(key)
        for name in properties:
            is_property(name)
        if len(properties) > limits.ENTITY_PROPERTIES_MAX:
            raise StorageError("TooManyProperties")  # noqa: TRY301 - a rule beside the others
        entity.require_sizes(key, properties, limits.OF_2_MIB)
    except StorageError as error:
        raise ValueError(f"{error.code}: {error.text}") from None


def write_body(given: TypedEntity) -> bytes:
    """The JSON of a write: keys and properties, annotated where JSON does not show the type."""
    quote = entity_json.quote
    members = [
        f'"PartitionKey":{quote(given.key.partition_key)},"RowKey":{quote(given.key.row_key)}'
    ]
    members += [member_text(name, value) for name, value in given.properties.items()]
    return f"{{{','.join(members)}}}".encode("ascii")


def content_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """An entity of the service without Timestamp and metadata."""
    return {
        name: value
        for name, value in raw.items()
        if name not in _GIVEN_BY_SERVICE and not name.startswith("odata.")
    }


def body_of(raw: Mapping[str, Any]) -> bytes:
    """The JSON of a write of an entity of the service."""
    content = content_of(raw)
    for name, value in list(content.items()):
        if type(value) is float and value.is_integer():
            content.setdefault(name + ANNOTATION, EdmType.DOUBLE.value)
    return orjson.dumps(content)


_GIVEN_BY_SERVICE: Final = frozenset((TIMESTAMP, TIMESTAMP + ANNOTATION))


def key_of(raw: Mapping[str, Any]) -> EntityKey:
    return EntityKey(raw[PARTITION_KEY], raw[ROW_KEY])


def property_of(raw: Mapping[str, Any], name: str) -> EdmValue | None:
    """One property of an entity of the service, which may be a key or Timestamp; None if absent."""
    value = raw.get(name)
    if value is None or name.startswith("odata."):
        return None
    if name == TIMESTAMP:
        return EdmValue(EdmType.DATE_TIME, edm.parse_date_time(value))
    return read_value(name, value, raw.get(name + ANNOTATION))


def canonical(given: TypedEntity) -> bytes:
    """A text that is the same for equal entities, in any order of their properties."""
    return write_body(given._replace(properties=dict(sorted(given.properties.items()))))


def member_text(name: str, value: EdmValue) -> str:
    """A property as JSON with its type, even of 5.0. Equal values, NaN included, have equal texts."""
    text = entity_json.member(name, value)
    if isinstance(value.value, float) and value.value.is_integer():
        return f'{entity_json.quote(name + ANNOTATION)}:"{EdmType.DOUBLE.value}",{text}'
    return text


def _key(raw: Mapping[str, Any], name: str) -> str:
    value = raw.get(name)
    if value is None:
        raise ValueError(f"there is no {name}")
    if not isinstance(value, str):
        raise ValueError(f"{name} is a JSON {_kind_of(value)}, not a string")  # noqa: TRY004 - the reason
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _date_time(value: Any) -> int:
    ticks = edm.parse_date_time(_text(value))
    if not edm.DATE_TIME_MIN <= ticks <= edm.DATE_TIME_MAX:
        raise edm.DateTimeOutOfRange(ticks)
    return ticks


_READERS: Final[dict[EdmType, Callable[[Any], Scalar]]] = {
    EdmType.STRING: _text,
    EdmType.INT32: lambda value: entity_json.integer_of(value, edm.INT32_MIN, edm.INT32_MAX),
    EdmType.INT64: lambda value: entity_json.integer_of(value, edm.INT64_MIN, edm.INT64_MAX),
    EdmType.DOUBLE: entity_json.double_of,
    EdmType.BOOLEAN: entity_json.boolean_of,
    EdmType.DATE_TIME: _date_time,
    EdmType.GUID: lambda value: edm.parse_guid(_text(value)),
    EdmType.BINARY: lambda value: edm.parse_binary(_text(value)),
    EdmType.GEOGRAPHY_POINT: lambda value: entity_json.point_of(
        orjson.loads(value) if isinstance(value, str) else value
    ),
}


def _kind_of(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean"}
    return kinds.get(type(value), "number")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
