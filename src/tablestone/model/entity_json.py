"""An entity as JSON text: the form in which entities are stored and sent, and the JSON of each EDM type.

An entity is stored in the form of `odata=minimalmetadata` (wire 5.2), so that a page only joins stored entities. The
other metadata levels are cut from the same text. It contains the ETag and the Timestamp of the version that the engine
assigned, so they always agree with it.
"""

import functools
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

import orjson

from tablestone import limits
from tablestone.limits import EntityLimits
from tablestone.model.edm import (
    EdmType,
    EdmValue,
    GeographyPoint,
    finite,
    format_binary,
    format_date_time,
    format_double,
    geography_point,
    parse_binary,
    parse_boolean,
    parse_date_time,
    parse_double,
    parse_integer,
)
from tablestone.model.entity import require_sizes
from tablestone.model.errors import StorageError
from tablestone.model.etag import (
    ETAG_END,
    ETAG_START,
    etag_and_timestamp,
    etag_of_time,
    version_of_time,
)
from tablestone.model.keys import EntityKey, encode_key

ANNOTATION: Final = "@odata.type"
"""The name of an annotation ends with this: `NAME@odata.type` is the type of the property `NAME`."""
_SHOWN_BY_JSON: Final = (EdmType.STRING, EdmType.INT32, EdmType.BOOLEAN)
"""The types without an annotation, because their JSON values show them (wire 5.3)."""

_LONG: Final = 64
"""Characters from which on orjson is faster. It cannot write the rest: it does not escape non-ASCII and DEL."""


def quote(text: str) -> str:
    r"""A JSON string: non-ASCII as \uXXXX with lower-case hex, as the service writes it (wire 5.2)."""
    if len(text) >= _LONG and text.isascii() and "\x7f" not in text:
        return orjson.dumps(text).decode("ascii")
    return encode_basestring_ascii(text)


def value_text(kind: EdmType, value: Any) -> str:
    """The JSON text of a value (wire 5.3)."""
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
    return "true" if value else "false"


def double_text(value: float) -> str:
    """A number, or a string for NaN and the infinities."""
    text = format_double(value)
    return text if text[-1].isdecimal() else quoted(text)


def quoted(plain: object) -> str:
    """A JSON string without escapes: for an Int64, a GUID, a date and time, a Binary."""
    return f'"{plain}"'


def geography_json(point: GeographyPoint) -> str:
    """The GeoJSON of a point: longitude, latitude, and the altitude if it has one."""
    coordinates = ",".join(format_double(part) for part in point if part is not None)
    return f'{{"type":"Point","coordinates":[{coordinates}]}}'


def integer_of(value: Any, least: int, greatest: int) -> int:
    """An Int32 or Int64 in a body: a JSON integer, or its text (wire 5.3).

    This and the three functions below raise `ValueError`, `TypeError` or `OverflowError` for anything else.
    """
    if isinstance(value, str):
        return parse_integer(value, least, greatest)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= greatest:
        raise ValueError
    return value


def double_of(value: Any) -> float:
    """A Double in a body: a JSON number, or its text, which may be NaN or an infinity."""
    if isinstance(value, str):
        return parse_double(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return finite(float(value))


def boolean_of(value: Any) -> bool:
    """A Boolean in a body, or its text."""
    if isinstance(value, str):
        return parse_boolean(value.strip())
    if not isinstance(value, bool):
        raise TypeError
    return value


def point_of(value: Any) -> GeographyPoint:
    """A point in a body: an object of GeoJSON; raises `KeyError` too."""
    if set(value) - {"type", "coordinates", "crs"} or value["type"] != "Point":
        raise ValueError
    coordinates = value["coordinates"]
    if not isinstance(coordinates, list) or len(coordinates) not in (2, 3):
        raise ValueError
    if any(isinstance(part, bool) or not isinstance(part, int | float) for part in coordinates):
        raise ValueError
    return geography_point(*coordinates)


@functools.lru_cache(maxsize=4096)
def name_part(name: str) -> str:
    """`"name":`. Cached, because the entities of a table have the same properties."""
    return f"{quote(name)}:"


@functools.lru_cache(maxsize=4096)
def annotated_name_part(name: str, kind: EdmType) -> str:
    """The same, after the annotation with the type."""
    return f'{quote(name + ANNOTATION)}:"{kind.value}",{quote(name)}:'


def member(name: str, typed: EdmValue) -> str:
    """`"name":value`, after the annotation if minimalmetadata has one for the type (wire 5.2, 5.3)."""
    kind, value = typed
    text = value_text(kind, value)
    if kind in _SHOWN_BY_JSON or (kind is EdmType.DOUBLE and text[0] != '"'):
        return name_part(name) + text
    return annotated_name_part(name, kind) + text


def members(properties: Mapping[str, EdmValue]) -> dict[str, str]:
    return {name: member(name, typed) for name, typed in properties.items()}


RawEntity = Mapping[str, Any]
"""A stored entity as parsed JSON: members by name, values not yet typed."""

_ETAG_START: Final = f'{{"odata.etag":{quote(ETAG_START)[:-1]}'.encode("ascii")
_ETAG_END: Final = quote(ETAG_END)[1:].encode("ascii")
_SYSTEM_MEMBERS: Final = frozenset(("odata.etag", "PartitionKey", "RowKey", "Timestamp"))
_TIMESTAMP: Final = b',"Timestamp":"'
_TYPED_TIMESTAMP: Final = b',"Timestamp@odata.type":"Edm.DateTime","Timestamp":"'
# Only the quote at the end of a member's name can stand before `:`, and quotes inside a text are escaped. So this
# pattern matches annotations and nothing else.
_ANNOTATION_MEMBER = re.compile(rb'"(?:[^"\\]|\\u[0-9a-f]{4})*@odata\.type":"Edm\.[A-Za-z0-9]+",')

_TIMESTAMP_TEXT: Final = _TIMESTAMP.decode("ascii")
# A member with its annotation, as `member` writes it, and its name. A name has no quote, and a point no inner brace.
_MEMBER_START: Final = r',("([^"@]*)(?:@odata\.type":"[^"]*","[^"]*)?":'
_MEMBER = re.compile(_MEMBER_START + r'(?:"[^"\\]*(?:\\.[^"\\]*)*"|\{[^}]*\}|[^,}]*))')
# The same for text without escaped quotes: faster for text in other scripts, which is full of other escapes.
_MEMBER_UNQUOTED = re.compile(_MEMBER_START + r'(?:"[^"]*"|\{[^}]*\}|[^,}]*))')

_VALUE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|\{[^}]*\}|[^,}\[]+')

_TYPE_BY_NAME: Final = {kind.value: kind for kind in EdmType}


def in_ordinal_order(texts: Mapping[str, str]) -> list[str]:
    """Members in the order of every write except an insert: by name, upper case before lower case (wire 3.11)."""
    key = None if all(map(str.isascii, texts)) else encode_key  # Python has this order for ASCII
    return [texts[name] for name in sorted(texts, key=key)]


def entity_renderer(key: EntityKey, texts: Iterable[str]) -> Callable[[int], bytes]:
    """A function that returns the entity's text with the ETag and the Timestamp of a version."""
    keys = f'"PartitionKey":{quote(key.partition_key)},"RowKey":{quote(key.row_key)}'
    properties = ",".join(["", *texts])

    def render(version: int) -> bytes:
        etag, timestamp = _version_members(version)
        return f"{{{etag},{keys},{timestamp}{properties}}}".encode("ascii")

    return render


@functools.lru_cache(maxsize=256)
def _version_members(version: int) -> tuple[str, str]:
    """The ETag and the Timestamp of a version as members. Cached: the writes of a transaction share a version."""
    etag, time = etag_and_timestamp(version)
    return f'"odata.etag":{quote(etag)}', f'"Timestamp":"{time}"'


def etag_of(stored: bytes) -> str:
    """The ETag header of a stored entity, cut from its text."""
    start = len(_ETAG_START)
    return etag_of_time(stored[start : stored.index(b"'", start)].decode("ascii"))


def version_of(stored: bytes) -> int:
    """The version of a stored entity, read from its ETag."""
    start = len(_ETAG_START)
    return _version_in_etag(stored[start : stored.index(b"'", start)])


@functools.lru_cache(maxsize=256)
def _version_in_etag(text: bytes) -> int:
    """Cached, because a merge needs it twice, and the rows of a transaction share a version."""
    return version_of_time(text.decode("ascii"))


def split_etag(text: bytes) -> tuple[bytes, bytes]:
    """The `odata.etag` member of an entity, and the text after its comma: `}` if nothing was selected."""
    end = text.index(_ETAG_END) + len(_ETAG_END)
    return text[1:end], text[end:].removeprefix(b",")


def without_metadata(stored: bytes) -> bytes:
    """The entity in the form of `odata=nometadata`."""
    return b"{" + _ANNOTATION_MEMBER.sub(b"", split_etag(stored)[1])


def with_typed_timestamp(stored: bytes) -> bytes:
    """The entity with an annotated Timestamp: `odata=fullmetadata` without the members that contain URLs."""
    return stored.replace(_TIMESTAMP, _TYPED_TIMESTAMP, 1)


read_raw: Final[Callable[[bytes], RawEntity]] = orjson.loads


def key_of(raw: RawEntity) -> EntityKey:
    return EntityKey(raw["PartitionKey"], raw["RowKey"])


def split_members(stored: bytes) -> dict[str, str]:
    """The member of each custom property of a stored entity, by name, in the stored order."""
    text = stored.decode("ascii")
    start = text.index('"', text.index(_TIMESTAMP_TEXT) + len(_TIMESTAMP_TEXT)) + 1
    pattern = _MEMBER if text.find('\\"', start) >= 0 else _MEMBER_UNQUOTED
    return {
        orjson.loads(f'"{name}"') if "\\" in name else name: member
        for member, name in pattern.findall(text, start, len(text) - 1)
    }


_NAMES_LOOKED_FOR: Final = 8
"""Beyond this, the entity's names are read first, because searching for a missing name is slow."""


def select_members(stored: bytes, names: Sequence[str]) -> bytes:
    """The ETag and the named properties, system properties too, in the order of `names`. A missing one is null."""
    present: Container[str] = read_raw(stored) if len(names) > _NAMES_LOOKED_FOR else names
    members: list[bytes] = []
    for name in names:
        before = (_before_member if len(name) > _SHORT else _before_member_short)(name)
        span = _find_member(stored, *before) if name in present else None
        members.append(before.plain + b"null" if span is None else stored[span[0] : span[1]])
    etag, _ = split_etag(stored)
    return b"{%b%b}" % (etag, b"".join(members))


class _BeforeMember(NamedTuple):
    """The text before a member's value, from the comma on, and the text before its annotation's value."""

    plain: bytes
    annotation: bytes


def _before_member(name: str) -> _BeforeMember:
    return _BeforeMember(
        f",{quote(name)}:".encode("ascii"), f",{quote(name + ANNOTATION)}:".encode("ascii")
    )


_SHORT: Final = 255
"""Characters of the longest name that is cached: no property has a longer one."""
_before_member_short = functools.lru_cache(maxsize=1024)(_before_member)


def _find_member(stored: bytes, plain: bytes, annotation: bytes) -> tuple[int, int] | None:
    """The start of a member with its comma and annotation, and its end; None if it is missing.

    Quotes inside a text are escaped, so a comma and a quote begin a member: of the entity, or of a point, whose list
    does not match.
    """
    start = stored.find(plain)
    while start >= 0:
        value = _VALUE.match(stored, start + len(plain))
        if value is not None:
            before = stored.rfind(b",", 0, start)
            return before if stored.startswith(annotation, before) else start, value.end()
        start = stored.find(plain, start + 1)
    return None


def require_entity_limits(
    key: EntityKey, texts: Mapping[str, str], most: EntityLimits = limits.OF_SERVICE
) -> None:
    """Raise the error of the first limit that the entity breaks: number of properties, its size, single values.

    Short members cannot break a limit of size, so nothing is measured then: a text has at least one character for each
    UTF-16 unit, a binary more than one for each byte, and 252 names and fixed parts are far below a mebibyte.
    """
    if len(texts) > limits.ENTITY_PROPERTIES_MAX:
        raise StorageError("TooManyProperties")
    if sum(map(len, texts.values())) > limits.STRING_LENGTH_MAX:
        properties = typed_properties(orjson.loads(f"{{{','.join(texts.values())}}}"))
        require_sizes(key, properties, most)


def typed_property(raw: RawEntity, name: str) -> EdmValue | None:
    """A property of a stored entity, or a system property, with its type; None if it is missing."""
    value = raw.get(name)
    if value is None:
        return None
    annotation = raw.get(name + ANNOTATION)
    if annotation is not None:
        return _typed(_TYPE_BY_NAME[annotation], value)
    if isinstance(value, str):
        if name == "Timestamp":
            return EdmValue(EdmType.DATE_TIME, parse_date_time(value))
        return EdmValue(EdmType.STRING, value) if name != "odata.etag" else None
    if value is True or value is False:
        return EdmValue(EdmType.BOOLEAN, value)
    return EdmValue(EdmType.INT32 if isinstance(value, int) else EdmType.DOUBLE, value)


def _typed(kind: EdmType, value: Any) -> EdmValue:
    if kind is EdmType.INT64:
        return EdmValue(kind, int(value))
    if kind is EdmType.DATE_TIME:
        return EdmValue(kind, parse_date_time(value))
    if kind is EdmType.BINARY:
        return EdmValue(kind, parse_binary(value))
    if kind is EdmType.DOUBLE:
        return EdmValue(kind, float(value))
    if kind is EdmType.GEOGRAPHY_POINT:
        return EdmValue(kind, GeographyPoint(*value["coordinates"]))
    return EdmValue(kind, value)


def typed_properties(raw: RawEntity) -> dict[str, EdmValue]:
    """The custom properties of a stored entity, in the stored order."""
    found: dict[str, EdmValue] = {}
    for name in raw:
        if name not in _SYSTEM_MEMBERS and not name.endswith(ANNOTATION):
            value = typed_property(raw, name)
            assert value is not None
            found[name] = value
    return found
