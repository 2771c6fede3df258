"""Atom carries every entity that XML can: it is sent as Atom and read as JSON and as Atom; others are refused.

The standard library's own writer and reader make and parse the documents (wire 5.7).
"""

import base64
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stress.property.door import Door
from stress.property.model import Key, Model, Properties, Value, Write
from stress.property.payloads import Request, entity_path, expected_members, parse_members, trimmed
from stress.property.test_roundtrips import key_texts, names, values
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey
from tablestone.wire.atom_payload import decode_entity

ATOM = "{http://www.w3.org/2005/Atom}"
DATA = "{http://schemas.microsoft.com/ado/2007/08/dataservices}"
METADATA = "{http://schemas.microsoft.com/ado/2007/08/dataservices/metadata}"
OLD = {"x-ms-version": "2012-02-12", "Accept": "application/atom+xml,application/xml"}


def is_xml(text: str) -> bool:
    """Whether XML 1.0 can contain a text: no control characters, and neither of the two noncharacters."""
    return all(each in "\t\n\r" or each >= " " for each in text) and not {"\ufffe", "\uffff"} & {
        *text
    }


def is_xml_name(name: str) -> bool:
    """Whether a property's name can be an element's, by the older edition of XML that readers follow."""
    with suppress(ET.ParseError):
        ET.fromstring(f"<{name}/>")  # noqa: S314 - a test's own text
        return True
    return False


def can_travel(value: Value) -> bool:
    return value[0] != "Edm.String" or is_xml(value[1])


atom_values = values.filter(can_travel)
atom_names = names.filter(is_xml_name)
atom_keys = st.tuples(key_texts.filter(is_xml), key_texts.filter(is_xml))
atom_properties = st.dictionaries(atom_names, atom_values, max_size=6)


def text_of(value: Value) -> str:
    """A value as .NET writes it in XML."""
    kind, content = value
    if kind == "Edm.Binary":
        return base64.b64encode(content).decode()
    if kind == "Edm.Double" and content - content != 0:
        return {"inf": "INF", "-inf": "-INF", "nan": "NaN"}[str(content)]
    return str(content).lower() if kind == "Edm.Boolean" else str(content)


def entry(key: Key, properties: Properties) -> bytes:
    root = ET.Element(f"{ATOM}entry")
    content = ET.SubElement(root, f"{ATOM}content", {"type": "application/xml"})
    holder = ET.SubElement(content, f"{METADATA}properties")
    keys: list[tuple[str, Value]] = [
        ("PartitionKey", ("Edm.String", key[0])),
        ("RowKey", ("Edm.String", key[1])),
    ]
    for name, value in [*keys, *properties.items()]:
        kind = {} if value[0] == "Edm.String" else {f"{METADATA}type": value[0]}
        element = ET.SubElement(holder, DATA + name, kind)
        element.text = text_of(value)
    # A carriage return must be a reference, or it is read as a line feed.
    return ET.tostring(root, "unicode").replace("\r", "&#13;").encode()


def read_properties(body: bytes) -> list[dict[str, tuple[str, str]]]:
    """Type and text of each property of each entry in an answer."""
    root = ET.fromstring(body)  # noqa: S314 - our own server's answer
    return [
        {
            element.tag.removeprefix(DATA): (
                element.get(f"{METADATA}type", "Edm.String"),
                element.text or "",
            )
            for element in holder
        }
        for holder in root.iter(f"{METADATA}properties")
    ]


def as_read(value: Value) -> Any:
    """A value in a form that makes equal ones equal, however they are written."""
    kind, content = value
    if kind == "Edm.Double":
        return kind, text_of(value) if content - content != 0 else content
    return kind, trimmed(content) if kind == "Edm.DateTime" else text_of(value)


def comparable(kind: str, text: str) -> Any:
    return (kind, float(text)) if kind == "Edm.Double" and text not in "NaN -INF" else (kind, text)


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    door = Door("memory")
    door.send(Request("POST", "/Tables", {}, b'{"TableName":"Water"}')).require(201)
    yield door
    assert door.close() == []


@given(key=atom_keys, properties=atom_properties)
def test_every_entity_that_xml_can_hold_survives(
    door: Door, key: Key, properties: Properties
) -> None:
    headers = {**OLD, "Content-Type": "application/atom+xml"}
    answer = door.send(Request("POST", "/Water", headers, entry(key, properties))).require(201)
    try:
        model = Model()
        model.create_table("Water")
        insert = Write("insert", key, properties)
        model.apply("Water", [insert], [answer.headers["etag"]])
        stored = model.get("Water", key)

        path = f"/{entity_path('Water', key)}"
        in_json = door.send(Request("GET", path, {"Accept": "application/json;odata=nometadata"}))
        expected = expected_members("Water", key, stored, "nometadata")
        assert parse_members(in_json.require(200).body) == expected

        shown = {name: as_read(value) for name, value in properties.items()}
        shown["PartitionKey"], shown["RowKey"] = (("Edm.String", text) for text in key)
        shown["Timestamp"] = ("Edm.DateTime", trimmed(stored.timestamp))
        for path_read in (path, "/Water()"):
            (read,) = read_properties(door.send(Request("GET", path_read, OLD)).require(200).body)
            assert {name: comparable(*each) for name, each in read.items()} == shown
    finally:
        door.send(Request("DELETE", f"/{entity_path('Water', key)}", {"If-Match": "*"})).require(
            204
        )


KEY = EntityKey("p", "r")
WHOLE = entry(
    ("p", "r"), {"a": ("Edm.Int64", 7), "b": ("Edm.String", "x"), "c": ("Edm.Binary", b"y")}
)
pieces = st.sampled_from(
    [
        *(b"<", b">", b"&", b'"', b"/>", b"</d:a>", b"<d:a>", b"&#1;", b"<![CDATA[", b"<!--"),
        *(b"<!DOCTYPE a [", b'xmlns="u"', b' m:null="true"', b"Edm.Guid"),
        *(b"\xef\xbb\xbf", b"\xff", b"\0"),
    ]
)


@given(body=st.binary(max_size=200))
def test_no_bytes_are_anything_but_an_entity_or_an_error(body: bytes) -> None:
    with suppress(StorageError):
        decode_entity(body, KEY)


@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(WHOLE)), st.integers(0, 30), pieces | st.binary(max_size=5)),
        min_size=1,
        max_size=4,
    )
)
def test_no_damage_to_a_document_is_anything_but_an_entity_or_an_error(
    edits: list[tuple[int, int, bytes]],
) -> None:
    body = WHOLE
    for start, length, piece in edits:
        body = body[:start] + piece + body[start + length :]
    with suppress(StorageError):
        decode_entity(body, KEY)


def test_the_document_that_is_damaged_is_whole() -> None:
    assert sorted(decode_entity(WHOLE, None).members) == ["a", "b", "c"]
