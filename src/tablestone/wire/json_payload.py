"""Entities and tables in JSON: reading what clients send (wire 5.3-5.5), writing every metadata level (wire 5.2).

Reading gives typed properties and refuses what is not legal; writing starts from the stored form of `entity_json`,
which is already minimalmetadata. Does not know headers, methods or what an operation does with the payload.
"""

from __future__ import annotations

import functools
import json
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, cast

from tablestone.edm import (
    DATE_TIME_MAX,
    DATE_TIME_MIN,
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    EdmType,
    EdmValue,
    finite,
    format_date_time,
    geography_point,
    parse_binary,
    parse_boolean,
    parse_date_time,
    parse_double,
    parse_guid,
    parse_integer,
)
from tablestone.entity import (
    Entity,
    EntityKey,
    require_key_in_body,
    require_property_name,
)
from tablestone.entity_json import (
    ANNOTATION,
    key_of,
    member,
    name_part,
    quote,
    read_raw,
    require_entity_limits,
    split_etag,
    typed_property,
    with_typed_timestamp,
    without_metadata,
)
from tablestone.errors import StorageError
from tablestone.operations import Projection
from tablestone.wire.address import format_entity_path, format_table_path
from tablestone.wire.negotiate import MetadataLevel

Members = dict[str, Any]

_UNREADABLE: Final = "An error occurred while processing this request."
_SYSTEM: Final = frozenset(("PartitionKey", "RowKey", "Timestamp"))


def _unreadable() -> StorageError:
    return StorageError("InvalidInput", _UNREADABLE, early=True)


def _refuse_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


def _unique(pairs: list[tuple[str, Any]]) -> Members:
    """The members of one object; a name that comes twice is refused (wire 5.5)."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise StorageError("DuplicatePropertiesSpecified", early=True)
    return found


_READER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)


def decode_object(body: bytes) -> Members:
    """The one JSON object that a body holds; raises `InvalidInput` for anything else."""
    try:
        found = _READER.decode(body.removeprefix(BOM_UTF8).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _unreadable() from error
    if not isinstance(found, dict):
        raise _unreadable()
    return found


def decode_table_name(body: bytes) -> str:
    """The TableName that a Create Table request names."""
    name = decode_object(body).get("TableName")
    if not isinstance(name, str):
        raise StorageError("PropertiesNeedValue" if name is None else "InvalidInput")
    return name


def decode_entity(body: bytes, key_in_url: EntityKey | None) -> Entity:
    """The entity that a body holds: all of it legal, its key from the URL if that names one (wire 3.10, 5.5).

    Raises `PropertiesNeedValue` when an insert lacks a key, and the error of the first limit that is broken (wire 9).
    A value that cannot be read wins over a name that is not legal, whichever comes first.
    """
    found = decode_object(body)
    key = key_in_url or _key_in_body(found)
    texts: dict[str, str] = {}
    bad_name: StorageError | None = None
    for name, value in found.items():
        if value is None or name in _SYSTEM or ("." in name and _is_control_information(name)):
            continue
        annotation = found.get(name + ANNOTATION)
        try:
            if annotation is None and type(value) is str:
                texts[name] = _legal_name_part(name) + quote(
                    value if value.isascii() else _text(value)
                )
            else:
                typed = _decode_value(name, value, annotation)
                _legal_name_part(name)
                texts[name] = member(name, typed)
        except StorageError as error:
            if error.early:
                raise
            bad_name = bad_name or error
    if bad_name is not None:
        raise bad_name
    require_entity_limits(key, texts)
    return Entity(key, texts)


def _is_control_information(name: str) -> bool:
    """Annotations, and what clients send back of `odata.metadata`, `odata.etag` and the like (wire 5.5)."""
    return name.endswith(ANNOTATION) or name.startswith("odata.")


@functools.lru_cache(maxsize=4096)
def _legal_name_part(name: str) -> str:
    """`"name":` of a name that a property may have."""
    require_property_name(name)
    return name_part(name)


def _key_in_body(found: Members) -> EntityKey:
    parts = []
    for name in ("PartitionKey", "RowKey"):
        value = found.get(name)
        if value is None:
            raise StorageError("PropertiesNeedValue")
        if not isinstance(value, str) or found.get(name + ANNOTATION, "Edm.String") != "Edm.String":
            raise _unreadable()
        require_key_in_body(name, _text(value))
        parts.append(value)
    return EntityKey(*parts)


def _text(value: str) -> str:
    """Text as it is, if it is text: a lone surrogate has no UTF-8 and could never be given back."""
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise _unreadable() from error
    return value


def _decode_value(name: str, value: Any, annotation: Any) -> EdmValue:
    """A value with its type: the annotated one, else what the JSON shows (wire 5.4)."""
    if annotation is None:
        return _infer(value)
    decode = _DECODERS.get(annotation) if isinstance(annotation, str) else None
    if decode is None:
        raise _unreadable()
    try:
        typed = decode(value)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise _unreadable() from error
    if typed.type is EdmType.DATE_TIME:
        _require_storable_date(name, cast("int", typed.value))
    return typed


def _infer(value: Any) -> EdmValue:
    if isinstance(value, str):
        return EdmValue(EdmType.STRING, _text(value))
    if value is True or value is False:
        return EdmValue(EdmType.BOOLEAN, value)
    if isinstance(value, int) and INT32_MIN <= value <= INT32_MAX:
        return EdmValue(EdmType.INT32, value)
    if isinstance(value, int | float):
        try:
            return EdmValue(EdmType.DOUBLE, finite(float(value)))
        except (ValueError, OverflowError) as error:
            raise _unreadable() from error
    raise _unreadable()


def _require_storable_date(name: str, ticks: int) -> None:
    if not DATE_TIME_MIN <= ticks <= DATE_TIME_MAX:
        shown = "01/01/0001 00:00:00" if ticks < 0 else _american(ticks)
        raise StorageError(
            "OutOfRangeInput",
            f"The '{name}' parameter of value '{shown}' is out of range.",
            early=True,
        )


def _american(ticks: int) -> str:
    """MM/dd/yyyy HH:mm:ss, as the error text has it (wire 9)."""
    text = format_date_time(min(ticks, DATE_TIME_MAX))
    return f"{text[5:7]}/{text[8:10]}/{text[:4]} {text[11:19]}"


def _string(value: Any) -> EdmValue:
    if not isinstance(value, str):
        raise TypeError
    return EdmValue(EdmType.STRING, _text(value))


def _integer(kind: EdmType, least: int, greatest: int) -> Callable[[Any], EdmValue]:
    def decode(value: Any) -> EdmValue:
        if isinstance(value, str):
            return EdmValue(kind, parse_integer(value, least, greatest))
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= greatest:
            raise ValueError
        return EdmValue(kind, value)

    return decode


def _double(value: Any) -> EdmValue:
    if isinstance(value, str):
        return EdmValue(EdmType.DOUBLE, parse_double(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return EdmValue(EdmType.DOUBLE, finite(float(value)))


def _boolean(value: Any) -> EdmValue:
    if isinstance(value, str):
        return EdmValue(EdmType.BOOLEAN, parse_boolean(value.strip()))
    if not isinstance(value, bool):
        raise TypeError
    return EdmValue(EdmType.BOOLEAN, value)


def _parsed(kind: EdmType, parse: Callable[[str], Any]) -> Callable[[Any], EdmValue]:
    def decode(value: Any) -> EdmValue:
        if not isinstance(value, str):
            raise TypeError
        return EdmValue(kind, parse(value))

    return decode


def _geography(value: Any) -> EdmValue:
    """GeoJSON as an object, or as text that holds one: some SDKs can send no object (docs/compatibility.md)."""
    if isinstance(value, str):
        value = _READER.decode(value)
    if set(value) - {"type", "coordinates", "crs"} or value["type"] != "Point":
        raise ValueError
    coordinates = value["coordinates"]
    if not isinstance(coordinates, list) or len(coordinates) not in (2, 3):
        raise ValueError
    if any(isinstance(part, bool) or not isinstance(part, int | float) for part in coordinates):
        raise ValueError
    return EdmValue(EdmType.GEOGRAPHY_POINT, geography_point(*coordinates))


_DECODERS: Final[Mapping[str, Callable[[Any], EdmValue]]] = {
    "Edm.String": _string,
    "Edm.Int32": _integer(EdmType.INT32, INT32_MIN, INT32_MAX),
    "Edm.Int64": _integer(EdmType.INT64, INT64_MIN, INT64_MAX),
    "Edm.Double": _double,
    "Edm.Boolean": _boolean,
    "Edm.DateTime": _parsed(EdmType.DATE_TIME, parse_date_time),
    "Edm.DateTimeOffset": _parsed(EdmType.DATE_TIME, parse_date_time),
    "Edm.Guid": _parsed(EdmType.GUID, parse_guid),
    "Edm.Binary": _parsed(EdmType.BINARY, parse_binary),
    "Edm.GeographyPoint": _geography,
}


@functools.lru_cache(maxsize=512)
def _context(base: str, fragment: str) -> bytes:
    """The `odata.metadata` member; cached, since the same tables are asked for again and again."""
    return f'"odata.metadata":{quote(f"{base}$metadata#{fragment}")}'.encode("ascii")


class JsonWriter:
    """Writes tables and entities of one account below one base URL.

    `base` is the URL of the account with a slash at the end.
    """

    def __init__(self, base: str, account: str, level: MetadataLevel) -> None:
        self._base = base
        self._account = account
        self._level = level

    def _context(self, fragment: str) -> bytes:
        return _context(self._base, fragment)

    def table(self, table: str) -> bytes:
        """One table (wire 3.2, 3.3)."""
        members = self._table_members(table).encode("ascii")
        if self._level is MetadataLevel.NONE:
            return b"{" + members + b"}"
        return b"{" + self._context("Tables/@Element") + b"," + members + b"}"

    def tables(self, tables: Sequence[str]) -> bytes:
        """A list of tables (wire 3.1)."""
        values = ",".join([f"{{{self._table_members(table)}}}" for table in tables]).encode("ascii")
        context = b"" if self._level is MetadataLevel.NONE else self._context("Tables") + b","
        return b"{" + context + b'"value":[' + values + b"]}"

    def _table_members(self, table: str) -> str:
        name = f'"TableName":{quote(table)}'
        if self._level is not MetadataLevel.FULL:
            return name
        path = format_table_path(table)
        return (
            f'"odata.type":{quote(self._account + ".Tables")},"odata.id":{quote(self._base + path)},'
            f'"odata.editLink":{quote(path)},{name}'
        )

    def entity(self, table: str, stored: bytes, projection: Projection | None) -> bytes:
        """One entity (wire 5.2)."""
        text = self._members(table, stored, projection)
        if self._level is MetadataLevel.NONE:
            return text
        return b"{" + self._context(f"{table}/@Element{_selected(projection)}") + b"," + text[1:]

    def entities(self, table: str, stored: Sequence[bytes], projection: Projection | None) -> bytes:
        """A list of entities: joined, not encoded again, where the level is minimal and everything is selected."""
        if self._level is MetadataLevel.MINIMAL and projection is None:
            values = b",".join(stored)
        else:
            values = b",".join([self._members(table, entity, projection) for entity in stored])
        if self._level is MetadataLevel.NONE:
            return b'{"value":[' + values + b"]}"
        context = self._context(table + _selected(projection))
        return b"{" + context + b',"value":[' + values + b"]}"

    def _members(self, table: str, stored: bytes, projection: Projection | None) -> bytes:
        """One entity as it stands in a list."""
        full = self._level is MetadataLevel.FULL
        text = stored
        if projection is not None and projection.names is not None:
            text = _project(stored, projection.names, typed_timestamp=full)
        elif full:
            text = with_typed_timestamp(stored)
        if full:
            return self._with_links(table, key_of(read_raw(stored)), text)
        return text if self._level is MetadataLevel.MINIMAL else without_metadata(text)

    def _with_links(self, table: str, key: EntityKey, text: bytes) -> bytes:
        """`odata.type`, `odata.id`, then the ETag, then `odata.editLink`, as recorded (wire 5.2)."""
        path = format_entity_path(table, key)
        etag, rest = split_etag(text)
        links = f'"odata.type":{quote(f"{self._account}.{table}")},"odata.id":{quote(self._base + path)},'
        edit_link = f'"odata.editLink":{quote(path)},'
        return b"{" + links.encode("ascii") + etag + edit_link.encode("ascii") + rest


def _selected(projection: Projection | None) -> str:
    """What `odata.metadata` says of a projection: the list as sent, only `%2C` decoded (wire 5.2)."""
    return "" if projection is None else f"&$select={projection.as_sent}"


def _project(stored: bytes, select: tuple[str, ...], *, typed_timestamp: bool) -> bytes:
    """The ETag and the selected properties in the entity's order; a missing one is null (wire 5.6)."""
    raw = read_raw(stored)
    texts = [f'"odata.etag":{quote(raw["odata.etag"])}']
    texts.extend(
        [
            _projected_member(raw, name, typed_timestamp=typed_timestamp)
            for name in raw
            if name in select
        ]
    )
    texts.extend([f"{quote(name)}:null" for name in select if name not in raw])
    return f"{{{','.join(texts)}}}".encode("ascii")


def _projected_member(raw: Mapping[str, Any], name: str, *, typed_timestamp: bool) -> str:
    if name == "Timestamp" and not typed_timestamp:
        return f'"Timestamp":{quote(raw[name])}'
    typed = typed_property(raw, name)
    return f"{quote(name)}:null" if typed is None else member(name, typed)
