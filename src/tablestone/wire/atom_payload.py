"""Reads and writes entities and tables in Atom, the form of versions before 2015-12-11 (wire 5.7).

An entry becomes the members of the equivalent JSON object, so that the rules for values exist once, in `json_payload`.
Writing starts from the stored form of `entity_json`. Layout, order and line ends are those of the service's recorded
answers. Does not know headers, methods or what an operation does with the payload.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from xml.etree.ElementTree import Element

from tablestone.clock import TICKS_PER_SECOND
from tablestone.limits import OF_SERVICE, EntityLimits
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
from tablestone.wire.json_payload import Members, entity_of_members, table_name_of, unreadable
from tablestone.wire.negotiate import AtomForm
from tablestone.wire.xml_input import parse_xml

_ATOM: Final = "http://www.w3.org/2005/Atom"
_DATA: Final = "http://schemas.microsoft.com/ado/2007/08/dataservices"
_METADATA: Final = f"{_DATA}/metadata"
_SCHEME: Final = f"{_DATA}/scheme"

_NEGATIVE_ZERO = re.compile(r"-0*+\.?0*+(?:[eE][+-]?[0-9]++)?", re.ASCII)
_NAME: Final = rb"[A-Za-z_\x80-\xff][\w.\x80-\xff-]*"
# In a document that is not well-formed: a tag whose name, after its prefix, is not an XML name (wire 5.7).
_INVALID_NAME = re.compile(
    rb"<[\w.-]+:(?!%b[\s/>])[^<>]*>|</[\w.-]+:(?!%b\s*>)[^<>]*>" % (_NAME, _NAME)
)
_XML_BOOLEANS: Final = {"1": "true", "0": "false"}


def _members(body: bytes) -> Members:
    """The properties of the entry in a body. The rest of it is ignored (wire 5.7)."""
    try:
        entry = parse_xml(body)
    except StorageError as error:
        if _INVALID_NAME.search(body):
            raise StorageError("InvalidInput") from error
        raise unreadable() from error
    if entry.tag != f"{{{_ATOM}}}entry":
        raise unreadable()
    found: Members = {}
    for element in entry.iterfind(f"{{{_ATOM}}}content/{{{_METADATA}}}properties/*"):
        namespace, _, name = element.tag.rpartition("}")
        if namespace == "{" + _DATA:
            if name in found:
                raise StorageError("DuplicatePropertiesSpecified")
            found |= _member(name, element)
    return found


def _member(name: str, element: Element) -> Members:
    """A property and its annotation. Without a type it is a string; null means the same as in JSON (wire 5.7)."""
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
    return table_name_of(_members(body))


def decode_entity(
    body: bytes, key_in_url: EntityKey | None, most: EntityLimits = OF_SERVICE
) -> Entity:
    """The entity in a body, by the rules of JSON, except that a negative zero stays negative (wire 5.7)."""
    found = _members(body)
    key, texts = entity_of_members(found, key_in_url, most, control_information=False)
    negative = {
        name: name_part(name) + "-0.0"
        for name in texts
        if found.get(name + ANNOTATION) == "Edm.Double" and _NEGATIVE_ZERO.fullmatch(found[name])
    }
    return Entity(key, {**texts, **negative})


_AUTHOR: Final = "<author><name /></author>"
_OLD_AUTHOR: Final = "  <author>\r\n    <name />\r\n  </author>\r\n"


class _Layout(NamedTuple):
    """The texts of documents, as recorded. Versions up to 2012-02-12 break lines, later ones do not (wire 5.7)."""

    declaration: str
    root: str
    """The attributes of the outermost element, `m:etag` included."""
    entry: str
    before_property: str
    feed: str
    feed_author: str
    """Only a feed without entries has an author."""
    error: str
    error_type: bytes

    def in_feed(self, entry: str) -> str:
        """An entry in a list: one level deeper if lines break. No value contains CRLF, because CR is escaped."""
        if not self.before_property:
            return entry
        return "  " + entry.replace("\r\n", "\r\n  ") + "\r\n"


_OLD_LAYOUT: Final = _Layout(
    '<?xml version="1.0" encoding="utf-8" standalone="yes"?>\r\n',
    f' xml:base="{{base}}" xmlns:d="{_DATA}" xmlns:m="{_METADATA}"{{etag}} xmlns="{_ATOM}"',
    '<entry{attributes}>\r\n  <id>{base}{path}</id>\r\n  <title type="text"></title>\r\n'
    "  <updated>{updated}</updated>\r\n"
    + _OLD_AUTHOR
    + '  <link rel="edit" title="{title}" href="{path}" />\r\n'
    f'  <category term="{{account}}.{{title}}" scheme="{_SCHEME}" />\r\n  <content type="application/xml">\r\n'
    "    <m:properties>{properties}\r\n    </m:properties>\r\n  </content>\r\n</entry>",
    "\r\n      ",
    '<feed{attributes}>\r\n  <title type="text">{title}</title>\r\n  <id>{base}{title}</id>\r\n'
    "  <updated>{updated}</updated>\r\n"
    '{author}  <link rel="self" title="{title}" href="{title}" />\r\n',
    _OLD_AUTHOR,
    f'<error xmlns="{_METADATA}">\r\n  <code>{{code}}</code>\r\n'
    '  <message xml:lang="en-US">{message}</message>\r\n</error>',
    b"application/xml",
)
_LAYOUT: Final = _Layout(
    '<?xml version="1.0" encoding="utf-8"?>',
    f' xml:base="{{base}}" xmlns="{_ATOM}" xmlns:d="{_DATA}" xmlns:m="{_METADATA}"{{points}}{{etag}}',
    f'<entry{{attributes}}><id>{{base}}{{path}}</id><category term="{{account}}.{{title}}" scheme="{_SCHEME}" />'
    '<link rel="edit" title="{title}" href="{path}" /><title /><updated>{updated}</updated>'
    + _AUTHOR
    + '<content type="application/xml"><m:properties>{properties}</m:properties></content></entry>',
    "",
    '<feed{attributes}><id>{base}{title}</id><title type="text">{title}</title><updated>{updated}</updated>'
    '{author}<link rel="self" title="{title}" href="{title}" />',
    _AUTHOR,
    f'<error xmlns="{_METADATA}"><code>{{code}}</code><message xml:lang="en-US">{{message}}</message></error>',
    b"application/xml;charset=utf-8",
)
_POINTS: Final = (
    ' xmlns:georss="http://www.georss.org/georss" xmlns:gml="http://www.opengis.net/gml"'
)
_NUMBER_TEXTS: Final = {"Infinity": "INF", "-Infinity": "-INF"}
# .NET writes characters that XML forbids as character references. A carriage return needs one to survive parsing.
_NOT_PLAIN = re.compile("[&<>\r\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def _reference(match: re.Match[str]) -> str:
    return _ENTITIES.get(match[0]) or f"&#x{ord(match[0]):X};"


def _escaped(text: str) -> str:
    return _NOT_PLAIN.sub(_reference, text)


def _attribute(text: str) -> str:
    return _escaped(text).replace('"', "&quot;")


class AtomWriter:
    """Writes bodies in Atom, for one account, as `JsonWriter` does in JSON.

    `base` is its URL with a slash at the end. `updated` is `now`, in ticks, cut to seconds, as recorded.
    """

    def __init__(self, base: str, account: str, form: AtomForm, now: int) -> None:
        self._base = _attribute(base)
        self._account = account
        self._updated = format_date_time(now - now % TICKS_PER_SECOND)
        self._layout = _OLD_LAYOUT if form is AtomForm.PLAIN else _LAYOUT
        self._points = _POINTS if form is AtomForm.ODATA_3 else ""
        entry, feed = ("", "") if form is AtomForm.PLAIN else (";type=entry", ";type=feed")
        self.entry_type = f"application/atom+xml{entry};charset=utf-8".encode()
        self.feed_type = f"application/atom+xml{feed};charset=utf-8".encode()
        self.error_type = self._layout.error_type

    def error(self, code: str, message: str) -> bytes:
        text = self._layout.error.format(code=code, message=_escaped(message))
        return f"{self._layout.declaration}{text}".encode("utf-8", "replace")

    def table(self, table: str) -> bytes:
        return self._document(self._table_entry(table, self._root("")))

    def tables(self, tables: Sequence[str]) -> bytes:
        entries = (self._layout.in_feed(self._table_entry(table, "")) for table in tables)
        return self._feed("Tables", [entry.encode() for entry in entries])

    def entity(self, table: str, stored: bytes, projection: Projection | None) -> bytes:
        """A selected property that is missing is written as null (wire 5.7)."""
        return self._document(self._entity_entry(table, stored, projection, in_feed=False))

    def lists_as_stored(self, _projection: Projection | None) -> bool:
        return False  # the stored form is JSON

    def listed(self, table: str, stored: bytes, projection: Projection | None) -> bytes:
        entry = self._entity_entry(table, stored, projection, in_feed=True)
        return self._layout.in_feed(entry).encode()

    def entities(
        self, table: str, listed: Sequence[bytes], _projection: Projection | None
    ) -> bytes:
        return self._feed(table, listed)

    def _root(self, etag: str) -> str:
        return self._layout.root.format(base=self._base, points=self._points, etag=etag)

    def _table_entry(self, table: str, attributes: str) -> str:
        name = f"<d:TableName>{table}</d:TableName>"
        return self._entry(attributes, "Tables", format_table_path(table), [name])

    def _entity_entry(
        self, table: str, stored: bytes, projection: Projection | None, *, in_feed: bool
    ) -> str:
        raw = read_raw(stored)
        names = None if projection is None else projection.names
        etag = f' m:etag="{_attribute(raw["odata.etag"])}"'
        attributes = etag if in_feed else self._root(etag)
        path = format_entity_path(table, key_of(raw))
        return self._entry(attributes, table, path, _property_elements(raw, names))

    def _entry(self, attributes: str, title: str, path: str, properties: Sequence[str]) -> str:
        before = self._layout.before_property
        return self._layout.entry.format(
            attributes=attributes,
            base=self._base,
            path=path,
            account=self._account,
            title=title,
            updated=self._updated,
            properties="".join([before + element for element in properties]),
        )

    def _feed(self, title: str, entries: Sequence[bytes]) -> bytes:
        start = self._layout.feed.format(
            attributes=self._root(""),
            base=self._base,
            title=title,
            updated=self._updated,
            author="" if entries else self._layout.feed_author,
        )
        return b"".join((f"{self._layout.declaration}{start}".encode(), *entries, b"</feed>"))

    def _document(self, entry: str) -> bytes:
        return f"{self._layout.declaration}{entry}".encode()


def _property_elements(raw: RawEntity, names: tuple[str, ...] | None) -> list[str]:
    """All properties as elements, or `names`, without those that no property can have: they are not valid XML names."""
    present = [name for name in raw if name != "odata.etag" and not name.endswith(ANNOTATION)]
    if names is None:
        return [_element(raw, name) for name in present]
    return [
        _element(raw, name) if name in raw else f'<d:{name} m:null="true" />'
        for name in names
        if name in raw or is_identifier(name)
    ]


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
    """The name of a property's element. .NET's escape stands for letters that older builds stored and XML forbids."""
    if is_identifier(name):
        return name
    return "".join([each if is_identifier(f"_{each}") else f"_x{ord(each):04X}_" for each in name])


def _typed_text(value: Any, annotation: str) -> tuple[str, str]:
    """The type and text of a stored value that is not a string. An annotated value has the text of JSON."""
    if isinstance(value, bool):
        return "Edm.Boolean", "true" if value else "false"
    if isinstance(value, int):
        return "Edm.Int32", str(value)
    if isinstance(value, float):
        return "Edm.Double", format_double(value).removesuffix(".0")
    if isinstance(value, dict):
        return annotation, geography_json(GeographyPoint(*value["coordinates"]))
    return annotation, _NUMBER_TEXTS.get(value, value)
