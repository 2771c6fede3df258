"""An entity as JSON text: the one form that storage keeps and the wire sends.

An entity is stored exactly as `odata=minimalmetadata` writes it (wire 5.2), so that a page of entities is joined and
not encoded again; the forms with no and with full metadata are cut from the same text. The ETag and Timestamp inside
are those of the version that storage assigned, so they cannot disagree with it. Knows EDM values and JSON text; does
not know requests, tables, engines or `$filter`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple, cast

import orjson

from tablestone import limits
from tablestone.edm import (
    EdmType,
    EdmValue,
    GeographyPoint,
    format_binary,
    format_date_time,
    format_double,
    parse_binary,
    parse_date_time,
)
from tablestone.entity import EntityKey, encode_key, etag_and_timestamp, require_sizes
from tablestone.errors import StorageError

RawEntity = Mapping[str, Any]
"""A stored entity after its JSON was read and before its values are typed: members by name."""

ANNOTATION: Final = "@odata.type"
_ETAG_START: Final = b'{"odata.etag":"W/\\"datetime\''
_ETAG_END: Final = b'\'\\""'
_SYSTEM_MEMBERS: Final = frozenset(("odata.etag", "PartitionKey", "RowKey", "Timestamp"))
_TIMESTAMP: Final = b',"Timestamp":"'
_TYPED_TIMESTAMP: Final = b',"Timestamp@odata.type":"Edm.DateTime","Timestamp":"'
# A quote that ends a member's name is the only one that can be followed by `:`, and quotes inside a text are escaped,
# so this matches annotations and nothing else.
_ANNOTATION_MEMBER = re.compile(rb'"(?:[^"\\]|\\u[0-9a-f]{4})*@odata\.type":"Edm\.[A-Za-z0-9]+",')

quote: Callable[[str], str] = encode_basestring_ascii
"""A JSON string: non-ASCII as \\uXXXX with lower-case hex, as the service writes it (wire 5.2)."""

_TIMESTAMP_TEXT: Final = _TIMESTAMP.decode("ascii")
# One member with its annotation, as `member` writes it, and its name, which holds no quote; a point has no inner brace.
_MEMBER_START: Final = r',("([^"@]*)(?:@odata\.type":"[^"]*","[^"]*)?":'
_MEMBER = re.compile(_MEMBER_START + r'(?:"[^"\\]*(?:\\.[^"\\]*)*"|\{[^}]*\}|[^,}]*))')
# The same where no quote is escaped: text in other scripts is full of escapes, and each would be a step.
_MEMBER_UNQUOTED = re.compile(_MEMBER_START + r'(?:"[^"]*"|\{[^}]*\}|[^,}]*))')

_VALUE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|\{[^}]*\}|[^,}\[]+')

_TYPE_BY_NAME: Final = {kind.value: kind for kind in EdmType}
_NUMBER_TEXTS: Final = frozenset(("NaN", "Infinity", "-Infinity"))


def _value_text(kind: EdmType, value: Any) -> str:
    """The JSON text of a value that is neither String, Int32 nor Boolean."""
    if kind is EdmType.DOUBLE:
        text = format_double(value)
        return f'"{text}"' if text in _NUMBER_TEXTS else text
    if kind is EdmType.INT64 or kind is EdmType.GUID:
        return f'"{value}"'
    if kind is EdmType.DATE_TIME:
        return f'"{format_date_time(value)}"'
    if kind is EdmType.BINARY:
        return f'"{format_binary(value)}"'
    return geography_json(value)


def geography_json(point: GeographyPoint) -> str:
    """The GeoJSON object of a point: longitude, latitude, and the altitude if it has one."""
    coordinates = ",".join(format_double(part) for part in point if part is not None)
    return f'{{"type":"Point","coordinates":[{coordinates}]}}'


@functools.lru_cache(maxsize=4096)
def name_part(name: str) -> str:
    """`"name":`; cached, since the entities of a table name the same properties."""
    return f"{quote(name)}:"


@functools.lru_cache(maxsize=4096)
def annotated_name_part(name: str, kind: EdmType) -> str:
    """The same after the annotation of the type."""
    return f'{quote(name + ANNOTATION)}:"{kind.value}",{quote(name)}:'


def member(name: str, typed: EdmValue) -> str:
    """`"name":value`, after its `"name@odata.type"` where minimalmetadata annotates (wire 5.2, 5.3)."""
    kind, value = typed
    if kind is EdmType.STRING:
        return name_part(name) + quote(cast("str", value))
    if kind is EdmType.INT32:
        return f"{name_part(name)}{cast('int', value)}"
    if kind is EdmType.BOOLEAN:
        return name_part(name) + ("true" if value else "false")
    text = _value_text(kind, value)
    if kind is EdmType.DOUBLE and text[0] != '"':
        return name_part(name) + text
    return annotated_name_part(name, kind) + text


def members(properties: Mapping[str, EdmValue]) -> dict[str, str]:
    """The member of each property, by name."""
    return {name: member(name, typed) for name, typed in properties.items()}


def in_ordinal_order(texts: Mapping[str, str]) -> list[str]:
    """Members as every write but an insert leaves them: by name, upper case before lower (wire 3.11)."""
    # Plain text is in that order by itself.
    key = None if all(map(str.isascii, texts)) else encode_key
    return [texts[name] for name in sorted(texts, key=key)]


def entity_renderer(key: EntityKey, texts: Iterable[str]) -> Callable[[int], bytes]:
    """A function that, given a version, writes the whole entity down with its ETag and Timestamp."""
    keys = f'"PartitionKey":{quote(key.partition_key)},"RowKey":{quote(key.row_key)}'
    properties = "".join([f",{text}" for text in texts])

    def render(version: int) -> bytes:
        etag, timestamp = _version_members(version)
        return f"{{{etag},{keys},{timestamp}{properties}}}".encode("ascii")

    return render


@functools.lru_cache(maxsize=256)
def _version_members(version: int) -> tuple[str, str]:
    """The ETag and the Timestamp of a version as members; cached, since the writes of a transaction share one."""
    etag, time = etag_and_timestamp(version)
    return f'"odata.etag":{quote(etag)}', f'"Timestamp":"{time}"'


def etag_of(stored: bytes) -> str:
    """The ETag header of a stored entity, cut from its text."""
    start = len(_ETAG_START)
    return "W/\"datetime'" + stored[start : stored.index(b"'", start)].decode("ascii") + "'\""


def version_of(stored: bytes) -> int:
    """The version of a stored entity, read from its ETag."""
    start = len(_ETAG_START)
    return _version_in_etag(stored[start : stored.index(b"'", start)])


@functools.lru_cache(maxsize=256)
def _version_in_etag(text: bytes) -> int:
    """Cached, since a merge asks twice, and the rows of one transaction share a version."""
    return parse_date_time(text.decode("ascii").replace("%3A", ":"))


def split_etag(text: bytes) -> tuple[bytes, bytes]:
    """The `odata.etag` member of an entity, and what follows the comma behind it: `}` where nothing was selected."""
    end = text.index(_ETAG_END) + len(_ETAG_END)
    return text[1:end], text[end:].removeprefix(b",")


def without_metadata(stored: bytes) -> bytes:
    """The entity as `odata=nometadata` has it: no ETag, no annotations."""
    return b"{" + _ANNOTATION_MEMBER.sub(b"", split_etag(stored)[1])


def with_typed_timestamp(stored: bytes) -> bytes:
    """The entity as `odata=fullmetadata` has it, but for the members that need the URL: Timestamp is annotated."""
    return stored.replace(_TIMESTAMP, _TYPED_TIMESTAMP, 1)


def read_raw(stored: bytes) -> RawEntity:
    """The members of a stored entity; values are still as JSON has them."""
    raw: RawEntity = orjson.loads(stored)
    return raw


def key_of(raw: RawEntity) -> EntityKey:
    """The key of a stored entity."""
    return EntityKey(raw["PartitionKey"], raw["RowKey"])


def split_members(stored: bytes) -> dict[str, str]:
    """The member of each custom property of a stored entity, by name, in the order in which they are kept."""
    text = stored.decode("ascii")
    start = text.index('"', text.index(_TIMESTAMP_TEXT) + len(_TIMESTAMP_TEXT)) + 1
    pattern = _MEMBER if text.find('\\"', start) >= 0 else _MEMBER_UNQUOTED
    return {
        orjson.loads(f'"{name}"') if "\\" in name else name: member
        for member, name in pattern.findall(text, start, len(text) - 1)
    }


_NAMES_LOOKED_FOR: Final = 8
"""Of more names than this it is asked first which are there: to look for one that is not costs the whole text."""


def select_members(stored: bytes, names: Sequence[str]) -> bytes:
    """The ETag and the named properties in the entity's order, system properties too; a missing one is null."""
    present: Container[str] = read_raw(stored) if len(names) > _NAMES_LOOKED_FOR else names
    found: list[tuple[int, int]] = []
    missing: list[bytes] = []
    for name in names:
        before = (_before_member if len(name) > _SHORT else _before_member_short)(name)
        place = _find_member(stored, *before) if name in present else None
        if place is None:
            missing.append(before.plain + b"null")
        else:
            found.append(place)
    members = [stored[start:end] for start, end in sorted(found)]
    etag, _ = split_etag(stored)
    return b"{%b%b%b}" % (etag, b"".join(members), b"".join(missing))


class _BeforeMember(NamedTuple):
    """What stands before the value of a member: a comma and the name, and that of its annotation."""

    plain: bytes
    annotation: bytes


def _before_member(name: str) -> _BeforeMember:
    return _BeforeMember(
        f",{quote(name)}:".encode("ascii"), f",{quote(name + ANNOTATION)}:".encode("ascii")
    )


_SHORT: Final = 255
"""Characters of a name up to which this is kept: as long as the name of a property may be."""
_before_member_short = functools.lru_cache(maxsize=1024)(_before_member)


def _find_member(stored: bytes, plain: bytes, annotation: bytes) -> tuple[int, int] | None:
    """Where a member begins, with the comma before it and its annotation, and where it ends.

    Quotes inside a text are escaped, so that a comma and a quote begin a member of the entity, or one of a point,
    whose value is a list.
    """
    start = stored.find(plain)
    while start >= 0:
        value = _VALUE.match(stored, start + len(plain))
        if value is not None:
            before = stored.rfind(b",", 0, start)
            return before if stored.startswith(annotation, before) else start, value.end()
        start = stored.find(plain, start + 1)
    return None


def require_entity_limits(key: EntityKey, texts: Mapping[str, str]) -> None:
    """Raise the error of the first limit the whole entity breaks: number of properties, its size, single values.

    Members that are short together cannot break a limit of size: a text takes at least a character a UTF-16 unit, a
    binary more than one a byte, and 252 names and fixed parts are far below a mebibyte. So nothing is measured then.
    """
    if len(texts) > limits.ENTITY_PROPERTIES_MAX:
        raise StorageError("TooManyProperties")
    if sum(map(len, texts.values())) > limits.STRING_LENGTH_MAX:
        require_sizes(key, typed_properties(orjson.loads(f"{{{','.join(texts.values())}}}")))


def typed_property(raw: RawEntity, name: str) -> EdmValue | None:
    """One property of a stored entity with its type, system properties included; None if it is not there."""
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
    """The custom properties of a stored entity, in the order in which they are kept."""
    found: dict[str, EdmValue] = {}
    for name in raw:
        if name not in _SYSTEM_MEMBERS and not name.endswith(ANNOTATION):
            value = typed_property(raw, name)
            assert value is not None
            found[name] = value
    return found
