"""Entities and tables in Atom, the form of versions before 2015-12-11: reading and writing (wire 5.7).

An entry is converted to the members of the equivalent JSON object, so that the rules for values exist once, in
`json_payload`. Writing starts from the stored form of `entity_json`. Layout, order and line ends are those of the
service's recorded answers. Does not know headers, methods or what an operation does with the payload.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final
from xml.etree.ElementTree import Element

from tablestone.clock import TICKS_PER_SECOND
from tablestone.model.edm import GeographyPoint, format_date_time, format_double
from tablestone.model.entity import TIMESTAMP, Entity, is_identifier
from tablestone.model.entity_json import (
    ANNOTATION,
    RawEntity,
    geography_json,
    key_of,
    name_part,
    read_raw,
)
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey
from tablestone.model.operations import Projection
from tablestone.wire.address import format_entity_path, format_table_path
from tablestone.wire.json_payload import Members, entity_of_members, unreadable
from tablestone.wire.negotiate import AtomForm
from tablestone.wire.xml_input import parse_xml

_ATOM: Final = "http://www.w3.org/2005/Atom"
_DATA: Final = "http://schemas.microsoft.com/ado/2007/08/dataservices"
_METADATA: Final = f"{_DATA}/metadata"
_SCHEME: Final = f"{_DATA}/scheme"

_NEGATIVE_ZERO = re.compile(r"-0*+\.?0*+(?:[eE][+-]?[0-9]++)?", re.ASCII)
_XML_BOOLEANS: Final = {"1": "true", "0": "false"}


def _members(body: bytes) -> Members:
    """The properties of the entry in a body; everything else in it is ignored (wire 5.7)."""
    try:
        entry = parse_xml(body)
    except StorageError as error:
        raise unreadable() from error
    if entry.tag != f"{{{_ATOM}}}entry":
        raise unreadable()
    found: Members = {}
    for element in entry.iterfind(f"{{{_ATOM}}}content/{{{_METADATA}}}properties/*"):
        namespace, _, name = element.tag.rpartition("}")
        if namespace == "{" + _DATA:
            if name in found:
                raise StorageError("DuplicatePropertiesSpecified", early=True)
            found |= _member(name, element)
    return found


def _member(name: str, element: Element) -> Members:
    """A property and its annotation. Without a type it is a string; null is as in JSON (wire 5.7)."""
    if element.get(f"{{{_METADATA}}}null") in ("true", "1"):
        return {name: None}
    if len(element):
        raise unreadable()
    text = element.text or ""
    edm_type = element.get(f"{{{_METADATA}}}type", "Edm.String")
    if edm_type == "Edm.String":
        return {name: text}
    text = text.strip(" \t\r\n")
    if edm_type == "Edm.Boolean":
        text = _XML_BOOLEANS.get(text, text)
    return {name: text, name + ANNOTATION: edm_type}


def decode_table_name(body: bytes) -> str:
    """The TableName in the body of Create Table."""
    name: str | None = _members(body).get("TableName")
    if name is None:
        raise StorageError("PropertiesNeedValue")
    return name


def decode_entity(body: bytes, key_in_url: EntityKey | None) -> Entity:
    """The entity in a body, by the rules of JSON with one exception: a negative zero is kept (wire 5.7)."""
    found = _members(body)
    key, texts = entity_of_members(found, key_in_url, control_information=False)
    negative = {
        name: name_part(name) + "-0.0"
        for name in texts
        if found.get(name + ANNOTATION) == "Edm.Double" and _NEGATIVE_ZERO.fullmatch(found[name])
    }
    return Entity(key, {**texts, **negative})


_DECLARATION: Final = '<?xml version="1.0" encoding="utf-8" standalone="yes"?>\r\n'
_PREFIXES: Final = f' xmlns:d="{_DATA}" xmlns:m="{_METADATA}"'
_NEWLINE: Final = "\r\n"
_NUMBER_TEXTS: Final = {"Infinity": "INF", "-Infinity": "-INF"}
# .NET writes characters that XML does not allow as character references. A carriage return needs one to be kept.
_NOT_PLAIN = re.compile("[&<>\r\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_TYPES: Final = {
    AtomForm.PLAIN: (b"application/atom+xml;charset=utf-8", b"application/atom+xml;charset=utf-8"),
    AtomForm.TYPED: (
        b"application/atom+xml;type=entry;charset=utf-8",
        b"application/atom+xml;type=feed;charset=utf-8",
    ),
}


def _reference(match: re.Match[str]) -> str:
    return _ENTITIES.get(match[0]) or f"&#x{ord(match[0]):X};"


def _escaped(text: str) -> str:
    return _NOT_PLAIN.sub(_reference, text)


def _attribute(text: str) -> str:
    return _escaped(text).replace('"', "&quot;")


class AtomWriter:
    """Writes tables and entities of one account below one base URL, and errors.

    `base` is the URL of the account with a slash at the end. `now`, in ticks, becomes the `updated` time of entries and
    feeds, cut to seconds, as recorded.
    """

    def __init__(self, base: str, account: str, form: AtomForm, now: int) -> None:
        self._base = _attribute(base)
        self._account = account
        self._updated = format_date_time(now - now % TICKS_PER_SECOND)
        self.entry_type, self.feed_type = _TYPES[form]
        self.error_type = b"application/xml"

    def error(self, code: str, message: str) -> bytes:
        """An error; `message` is its whole text (wire 8.2)."""
        text = (
            f'{_DECLARATION}<error xmlns="{_METADATA}">\r\n  <code>{code}</code>\r\n'
            f'  <message xml:lang="en-US">{_escaped(message)}</message>\r\n</error>'
        )
        return text.encode("utf-8", "replace")

    def table(self, table: str) -> bytes:
        """One table (wire 3.2, 3.3)."""
        return self._document("entry", "", self._table_lines(table))

    def tables(self, tables: Sequence[str]) -> bytes:
        """A list of tables (wire 3.1)."""
        return self._feed("Tables", [_feed_entry("", self._table_lines(each)) for each in tables])

    def entity(self, table: str, stored: bytes, projection: Projection | None) -> bytes:
        """One entity; of a projection only the selected properties, a missing one as null (wire 5.7)."""
        return self._document("entry", *self._entity_entry(table, stored, projection))

    def lists_as_stored(self, _projection: Projection | None) -> bool:
        """False, because the stored form is JSON."""
        return False

    def listed(self, table: str, stored: bytes, projection: Projection | None) -> bytes:
        """One entity in the form that it has in a list."""
        return _feed_entry(*self._entity_entry(table, stored, projection))

    def entities(
        self, table: str, listed: Sequence[bytes], _projection: Projection | None
    ) -> bytes:
        """A list of entities, each in the form of `listed`."""
        return self._feed(table, listed)

    def _table_lines(self, table: str) -> list[str]:
        name = f"<d:TableName>{table}</d:TableName>"
        return self._entry_lines("Tables", format_table_path(table), [name])

    def _entity_entry(
        self, table: str, stored: bytes, projection: Projection | None
    ) -> tuple[str, list[str]]:
        """The attributes of an entity's entry, and its lines."""
        raw = read_raw(stored)
        names = None if projection is None else projection.names
        lines = self._entry_lines(
            table, format_entity_path(table, key_of(raw)), _property_elements(raw, names)
        )
        return f' m:etag="{_attribute(raw["odata.etag"])}"', lines

    def _entry_lines(self, title: str, path: str, properties: Sequence[str]) -> list[str]:
        return [
            f"<id>{self._base}{path}</id>",
            '<title type="text"></title>',
            f"<updated>{self._updated}</updated>",
            "<author>",
            "  <name />",
            "</author>",
            f'<link rel="edit" title="{title}" href="{path}" />',
            f'<category term="{self._account}.{title}" scheme="{_SCHEME}" />',
            '<content type="application/xml">',
            "  <m:properties>",
            *[f"    {element}" for element in properties],
            "  </m:properties>",
            "</content>",
        ]

    def _feed(self, title: str, entries: Sequence[bytes]) -> bytes:
        lines = [
            f'<title type="text">{title}</title>',
            f"<id>{self._base}{title}</id>",
            f"<updated>{self._updated}</updated>",
        ]
        if not entries:  # recorded: only a feed without entries has an author
            lines += ["<author>", "  <name />", "</author>"]
        lines.append(f'<link rel="self" title="{title}" href="{title}" />')
        return self._document("feed", "", lines, entries)

    def _document(
        self, tag: str, attributes: str, lines: Sequence[str], entries: Sequence[bytes] = ()
    ) -> bytes:
        opening = f'<{tag} xml:base="{self._base}"{_PREFIXES}{attributes} xmlns="{_ATOM}">'
        start = f"{_DECLARATION}{opening}\r\n{_indented(lines)}".encode()
        return b"".join((start, *entries, f"</{tag}>".encode()))


def _feed_entry(attributes: str, lines: Sequence[str]) -> bytes:
    """An entry in the form that it has in a feed."""
    return f"  <entry{attributes}>\r\n{_indented(lines, '    ')}  </entry>\r\n".encode()


def _indented(lines: Sequence[str], indent: str = "  ") -> str:
    return "".join([f"{indent}{line}\r\n" for line in lines])


def _property_elements(raw: RawEntity, names: tuple[str, ...] | None) -> list[str]:
    """The elements of an entity's properties, or of the selected ones, in the entity's order.

    A selected name that no property can have is left out, because it is not a valid XML name.
    """
    present = [name for name in raw if name != "odata.etag" and not name.endswith(ANNOTATION)]
    if names is None:
        return [_element(raw, name) for name in present]
    selected = [_element(raw, name) for name in present if name in names]
    missing = [name for name in names if name not in raw and is_identifier(name)]
    return [*selected, *[f'<d:{name} m:null="true" />' for name in missing]]


def _element(raw: RawEntity, name: str) -> str:
    value = raw[name]
    annotation = raw.get(name + ANNOTATION)
    tag = _tag(name)
    if annotation is None and name != TIMESTAMP and isinstance(value, str):
        # The library that the service uses sets this attribute; without it some readers strip the blanks.
        kept = ' xml:space="preserve"' if value != value.strip() else ""
        return f"<d:{tag}{kept}>{_escaped(value)}</d:{tag}>"
    edm_type, text = _typed_text(value, annotation or "Edm.DateTime")
    return f'<d:{tag} m:type="{edm_type}">{text}</d:{tag}>'


def _tag(name: str) -> str:
    """The name of a property's element. Older stored names can have letters that are now refused: .NET's escape."""
    if is_identifier(name):
        return name
    return "".join([each if is_identifier(f"_{each}") else f"_x{ord(each):04X}_" for each in name])


def _typed_text(value: Any, annotation: str) -> tuple[str, str]:
    """The type and text of a stored value that is not a string; an annotated value has the same text as in JSON."""
    if isinstance(value, bool):
        return "Edm.Boolean", "true" if value else "false"
    if isinstance(value, int):
        return "Edm.Int32", str(value)
    if isinstance(value, float):
        return "Edm.Double", format_double(value).removesuffix(".0")
    if isinstance(value, dict):
        return annotation, geography_json(GeographyPoint(*value["coordinates"]))
    return annotation, _NUMBER_TEXTS.get(value, value)
