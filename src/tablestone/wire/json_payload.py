"""Reads entities and tables from JSON, and writes them at every metadata level (wire 5.2-5.5).

A value in a body becomes its stored text (`entity_json`) in one step; a value that is written as the service writes it
is stored unchanged. The stored form is that of `odata=minimalmetadata`, and the other levels are cut from its text.
Does not know headers or methods.
"""

import functools
import json
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

import orjson

from tablestone.limits import OF_SERVICE, EntityLimits
from tablestone.model.edm import (
    DATE_TIME_MAX,
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    DateTimeOutOfRange,
    EdmType,
    finite,
    format_date_time,
    format_double,
    parse_guid,
    rewrite_binary,
    rewrite_date_time,
)
from tablestone.model.entity import Entity, require_property_name
from tablestone.model.entity_json import (
    ANNOTATION,
    annotated_name_part,
    boolean_of,
    boolean_text,
    double_of,
    double_text,
    geography_json,
    integer_of,
    key_of,
    name_part,
    point_of,
    quote,
    quoted,
    read_raw,
    require_entity_limits,
    select_members,
    split_etag,
    with_typed_timestamp,
    without_metadata,
)
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey, require_key_in_body
from tablestone.model.operations import Projection
from tablestone.wire.address import format_entity_path, format_table_path
from tablestone.wire.negotiate import MetadataLevel

Members = dict[str, Any]

_UNREADABLE: Final = "An error occurred while processing this request."
_CONTROL_INFORMATION: Final = "odata."
"""Control information begins with this. Clients may send it back: `odata.etag` and others (wire 5.5)."""
_SYSTEM: Final = frozenset(("PartitionKey", "RowKey", "Timestamp"))


def unreadable() -> StorageError:
    """The error for a body that cannot be read, or a value that does not fit its type (wire 5.5)."""
    return StorageError("InvalidInput", _UNREADABLE)


def _refuse_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


def _unique(pairs: list[tuple[str, Any]]) -> Members:
    """The members of one object; raises `DuplicatePropertiesSpecified` (wire 5.5)."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise StorageError("DuplicatePropertiesSpecified")
    return found


_STRICT_READER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)


def decode_object(body: bytes) -> Members:
    """The one JSON object of a body; raises `InvalidInput` for anything else.

    orjson is fast, but of two members with one name it keeps the last and reports no error. If this may have happened,
    or if orjson refuses the body, the reader of the standard library decides.
    """
    body = body.removeprefix(BOM_UTF8)
    try:
        found = orjson.loads(body)
        if not _has_all_members(body, found):
            found = _decode_strictly(body)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        found = _decode_strictly(body)
    if not isinstance(found, dict):
        raise unreadable()
    return found


def _has_all_members(body: bytes, found: Any) -> bool:
    """Whether `found` has all members of the body: then both have as many colons. False if a colon is escaped."""
    if b"\\" in body and b"\\u003a" in body.lower():
        return False
    return body.count(b":") == orjson.dumps(found).count(b":")


def _decode_strictly(body: bytes) -> Any:
    try:
        return _STRICT_READER.decode(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise unreadable() from error


def decode_table_name(body: bytes) -> str:
    """The TableName in the body of Create Table."""
    return table_name_of(decode_object(body))


def table_name_of(found: Members) -> str:
    """The TableName of an object without other properties (wire 3.3)."""
    name = found.get("TableName")
    if not isinstance(name, str):
        raise StorageError("PropertiesNeedValue" if name is None else "InvalidInput", early=False)
    for member in found:
        is_control = member.startswith(_CONTROL_INFORMATION) or "@" in member
        if member != "TableName" and not is_control:
            raise unreadable()
    return name


def decode_entity(
    body: bytes, key_in_url: EntityKey | None, most: EntityLimits = OF_SERVICE
) -> Entity:
    """The entity in a body. The key in the URL, if there is one, wins over the body's (wire 3.10, 5.5)."""
    return entity_of_members(decode_object(body), key_in_url, most)


def entity_of_members(
    found: Members,
    key_in_url: EntityKey | None,
    most: EntityLimits,
    *,
    control_information: bool = True,
) -> Entity:
    """The entity with these members and annotations, checked.

    Without `control_information`, a name like `odata.etag` is an invalid name of a property. Raises
    `PropertiesNeedValue` if an insert lacks a key, and the error of the first limit that is broken (wire 9). The error
    of an unreadable value wins over that of an invalid name, whichever comes first.
    """
    key = key_in_url or EntityKey(_key_part(found, "PartitionKey"), _key_part(found, "RowKey"))
    shape = _shape_of(found, control_information)
    texts: dict[str, str] = {}
    name = ""
    try:
        for name, before, text_of in shape.members:
            value = found[name]
            if value is not None:
                texts[name] = before + text_of(value)
    except DateTimeOutOfRange as date:
        raise _unstorable_date(name, date.ticks) from date
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise unreadable() from error
    for name in shape.illegal_names:
        if found[name] is not None:
            require_property_name(name)
    require_entity_limits(key, texts, most)
    return Entity(key, texts)


class _Member(NamedTuple):
    """One property of a shape. Its stored text is `before` and then the text of the value."""

    name: str
    before: str
    text_of: Callable[[Any], str]
    """Raises a Python error, or the service's, if the value does not fit the type."""


class _Shape(NamedTuple):
    """What follows from the names and annotations of a body alone. Cached: most entities of a table have the same."""

    members: tuple[_Member, ...]
    illegal_names: tuple[str, ...]


def _shape_of(found: Members, control_information: bool) -> _Shape:  # noqa: FBT001 - for the cache
    names = tuple(found)
    if len("".join(names)) <= _SHORT_NAMES:
        types = tuple([found[annotation] for annotation in _annotations_kept(names)])
        try:
            if len("".join(types)) <= _SHORT_NAMES:
                return _shape_kept(names, types, control_information)
        except TypeError:  # an annotation that is not a text
            pass
    types = tuple([found[annotation] for annotation in _annotations(names)])
    return _shape(names, types, control_information)


def _annotations(names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the names that are annotations."""
    return tuple([name for name in names if name.endswith(ANNOTATION)])


def _shape(names: tuple[str, ...], types: tuple[Any, ...], control_information: bool) -> _Shape:  # noqa: FBT001
    """The shape of a body with these names. `types` are the values of its annotations, in their order."""
    type_of = dict(zip(_annotations(names), types, strict=True))
    members: list[_Member] = []
    illegal_names: list[str] = []
    for name in names:
        if name in _SYSTEM or name.endswith(ANNOTATION):
            continue
        if control_information and name.startswith(_CONTROL_INFORMATION):
            continue
        annotation = type_of.get(name + ANNOTATION)
        try:
            require_property_name(name)
            members.append(_member(name, annotation))
        except StorageError:
            illegal_names.append(name)
            members.append(_Member(name, "", _member("", annotation).text_of))
    return _Shape(tuple(members), tuple(illegal_names))


def _member(name: str, annotation: Any) -> _Member:
    """One property. Without an annotation, its type is that of the JSON value (wire 5.4)."""
    if annotation is None:
        return _Member(name, name_part(name), _inferred)
    reader = _READERS.get(annotation) if isinstance(annotation, str) else None
    if reader is None:
        return _Member(name, "", _unreadable_value)
    if reader.shown is None:
        return _Member(name, name_part(name), reader.text)
    before = annotated_name_part(name, reader.shown)
    if reader.shown is EdmType.DOUBLE:
        return _Member(name, "", partial(_double_member, name_part(name), before))
    return _Member(name, before, reader.text)


_SHORT_NAMES: Final = 2048
"""A shape whose names together have more characters is not cached, so that the cache stays small."""
_annotations_kept = functools.lru_cache(maxsize=256)(_annotations)
_shape_kept = functools.lru_cache(maxsize=256)(_shape)


def _key_part(found: Members, name: str) -> str:
    """A key property of an insert: a string, with or without the annotation Edm.String (wire 5.5)."""
    value = found.get(name)
    if value is None:
        raise StorageError("PropertiesNeedValue")
    if not isinstance(value, str) or found.get(name + ANNOTATION, "Edm.String") != "Edm.String":
        raise StorageError("InvalidInput")
    require_key_in_body(name, value if value.isascii() else _text(value))
    return value


def _text(value: str) -> str:
    """The text itself; raises for a lone surrogate, which cannot be encoded in UTF-8."""
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise unreadable() from error
    return value


def _inferred(value: Any) -> str:
    """The stored text of a value without an annotation (wire 5.4)."""
    if isinstance(value, str):
        return quote(value if value.isascii() else _text(value))
    if value is True or value is False:
        return boolean_text(value)
    if isinstance(value, int) and INT32_MIN <= value <= INT32_MAX:
        return str(value)
    if isinstance(value, int | float):
        try:
            return format_double(finite(float(value)))
        except (ValueError, OverflowError) as error:
            raise unreadable() from error
    raise unreadable()


def _unreadable_value(_value: Any) -> str:
    """For an annotation that is not a text, or names an unknown type."""
    raise unreadable()


def _unstorable_date(name: str, ticks: int) -> StorageError:
    shown = "01/01/0001 00:00:00" if ticks < 0 else _american(ticks)
    text = f"The '{name}' parameter of value '{shown}' is out of range."
    return StorageError("OutOfRangeInput", text)


def _american(ticks: int) -> str:
    """A date as the error quotes it: MM/dd/yyyy HH:mm:ss (wire 9)."""
    text = format_date_time(min(ticks, DATE_TIME_MAX))
    return f"{text[5:7]}/{text[8:10]}/{text[:4]} {text[11:19]}"


class _Reader(NamedTuple):
    """Reads values with one annotated type."""

    text: Callable[[Any], str]
    """The stored JSON text of a value; raises a Python error if the value does not fit the type."""
    shown: EdmType | None
    """The type in the stored annotation; None for types that are stored without one (wire 5.3)."""


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return quote(_text(value))


def _double(value: Any) -> str:
    return double_text(double_of(value))


def _double_member(plain: str, annotated: str, value: Any) -> str:
    """The member of a Double; only NaN and the infinities need an annotation (wire 5.3)."""
    text = _double(value)
    return (annotated if text[0] == '"' else plain) + text


def _geography(value: Any) -> str:
    """GeoJSON as an object, or as text, because some SDKs cannot send an object (docs/compatibility.md)."""
    found = _STRICT_READER.decode(value) if isinstance(value, str) else value
    return geography_json(point_of(found))


def _date_time(value: Any) -> str:
    return quoted(rewrite_date_time(value))


_READERS: Final[Mapping[str, _Reader]] = {
    "Edm.String": _Reader(_string, None),
    "Edm.Int32": _Reader(lambda value: str(integer_of(value, INT32_MIN, INT32_MAX)), None),
    "Edm.Int64": _Reader(
        lambda value: quoted(integer_of(value, INT64_MIN, INT64_MAX)), EdmType.INT64
    ),
    "Edm.Double": _Reader(_double, EdmType.DOUBLE),
    "Edm.Boolean": _Reader(lambda value: boolean_text(boolean_of(value)), None),
    "Edm.DateTime": _Reader(_date_time, EdmType.DATE_TIME),
    "Edm.DateTimeOffset": _Reader(_date_time, EdmType.DATE_TIME),
    "Edm.Guid": _Reader(lambda value: quoted(parse_guid(value)), EdmType.GUID),
    "Edm.Binary": _Reader(lambda value: quoted(rewrite_binary(value)), EdmType.BINARY),
    "Edm.GeographyPoint": _Reader(_geography, EdmType.GEOGRAPHY_POINT),
}


JSON_TYPES: Final = {
    level: f"application/json;odata={level.value.partition(' ')[0]};streaming=true;charset=utf-8".encode()
    for level in MetadataLevel
}
"""The Content-Type of all answers at a level, errors included (wire 2.3)."""


def json_error(code: str, message: str) -> bytes:
    """The body of an error, the same at every metadata level (wire 8.1)."""
    text = f'{{"odata.error":{{"code":"{code}","message":{{"lang":"en-US","value":{quote(message)}}}}}}}'
    return text.encode("ascii")


def _context(base: str, fragment: str) -> bytes:
    """The member `odata.metadata`."""
    return f'"odata.metadata":{quote(f"{base}$metadata#{fragment}")}'.encode("ascii")


_SHORT_FRAGMENT: Final = 512
"""Characters of the longest fragment that is cached: it repeats `$select`, which may be long."""
# Most requests name the same few tables.
_short_context = functools.lru_cache(maxsize=512)(_context)


class JsonWriter:
    """Writes bodies in JSON, for one account. `base` is the URL of the account with a slash at the end.

    `AtomWriter` has the same methods. `entry_type`, `feed_type` and `error_type` are the Content-Types of one table or
    entity, of a list, and of an error. `stored` is an entity in the form of `entity_json`.
    """

    def __init__(self, base: str, account: str, level: MetadataLevel) -> None:
        self._base = base
        self._account = account
        self._level = level
        self.entry_type = self.feed_type = self.error_type = JSON_TYPES[level]

    def error(self, code: str, message: str) -> bytes:
        return json_error(code, message)

    def _context(self, fragment: str, projection: Projection | None = None) -> bytes:
        if projection is not None:  # as `odata.metadata` repeats it (wire 5.2)
            fragment += f"&$select={projection.as_sent}"
        context = _short_context if len(fragment) <= _SHORT_FRAGMENT else _context
        return context(self._base, fragment)

    def table(self, table: str) -> bytes:
        members = self._table_members(table).encode("ascii")
        if self._level is MetadataLevel.NONE:
            return b"{" + members + b"}"
        return b"{" + self._context("Tables/@Element") + b"," + members + b"}"

    def tables(self, tables: Sequence[str]) -> bytes:
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
        text = self.listed(table, stored, projection)
        if self._level is MetadataLevel.NONE:
            return text
        members = b"}" if text == b"{}" else b"," + text[1:]
        return b"{" + self._context(f"{table}/@Element", projection) + members

    def lists_as_stored(self, projection: Projection | None) -> bool:
        """Whether `listed` returns `stored`: then a list is joined from stored entities without encoding them."""
        return self._level is MetadataLevel.MINIMAL and (
            projection is None or projection.names is None
        )

    def listed(self, table: str, stored: bytes, projection: Projection | None) -> bytes:
        """One entity in the form that it has in a list."""
        text = stored
        if projection is not None and projection.names is not None:
            text = select_members(stored, projection.names)
        if self._level is MetadataLevel.FULL:
            return self._with_links(table, key_of(read_raw(stored)), with_typed_timestamp(text))
        if self._level is MetadataLevel.MINIMAL_WITHOUT_ETAG:
            return b"{" + split_etag(text)[1]
        return text if self._level is MetadataLevel.MINIMAL else without_metadata(text)

    def entities(self, table: str, listed: Sequence[bytes], projection: Projection | None) -> bytes:
        values = b",".join(listed)
        if self._level is MetadataLevel.NONE:
            return b'{"value":[' + values + b"]}"
        context = self._context(table, projection)
        return b"{" + context + b',"value":[' + values + b"]}"

    def _with_links(self, table: str, key: EntityKey, text: bytes) -> bytes:
        """`odata.type`, `odata.id`, then the ETag, then `odata.editLink`, as recorded (wire 5.2)."""
        path = format_entity_path(table, key)
        etag, rest = split_etag(text)
        links = f'"odata.type":{quote(f"{self._account}.{table}")},"odata.id":{quote(self._base + path)},'
        edit_link = f',"odata.editLink":{quote(path)}'
        comma = b"" if rest == b"}" else b","
        return b"{" + links.encode("ascii") + etag + edit_link.encode("ascii") + comma + rest
