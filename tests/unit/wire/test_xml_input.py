"""The one reader of XML: accepted and refused documents; hostile documents cost neither time nor memory."""

import time
import tracemalloc

import pytest

from hostile_xml import HOSTILE, nested
from tablestone import limits
from tablestone.model.errors import StorageError
from tablestone.wire.xml_input import parse_xml

_MEBIBYTE = 1024 * 1024


def _refused(body: bytes) -> StorageError:
    with pytest.raises(StorageError) as raised:
        parse_xml(body)
    return raised.value


@pytest.mark.parametrize(
    "body",
    [
        b"<a>\xc3\xa9</a>",
        b"\xef\xbb\xbf<a>\xc3\xa9</a>",
        b'<?xml version="1.0" encoding="utf-8" standalone="yes"?>\r\n<a>&#xE9;</a>\n',
        pytest.param(
            b'<?xml version="1.0" encoding="utf-16"?><a>\xc3\xa9</a>', id="wrongly declared"
        ),
        b"<a><!-- x --><?y z?><![CDATA[\xc3\xa9]]></a>",
    ],
)
def test_a_document_is_read(body: bytes) -> None:
    root = parse_xml(body)
    assert (root.tag, root.text) == ("a", "é")


def test_namespaces_are_resolved() -> None:
    root = parse_xml(b'<x:a xmlns:x="one" xmlns="two" x:c="1" d="2"><b/></x:a>')
    assert (root.tag, root.attrib, root[0].tag) == ("{one}a", {"{one}c": "1", "d": "2"}, "{two}b")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"<a>",
        b"<a></b>",
        b"<a/><b/>",
        b"<a b='1' b='2'/>",
        b"<x:a/>",
        b"<x:a:b xmlns:x='c'/>",
        b"<x:1 xmlns:x='c'/>",
        b"<a xmlns:x='c' xmlns:y='c' x:b='' y:b=''/>",
        b"<a xmlns:x=''/>",
        b"<a>\xff</a>",
        b"<a>\0</a>",
        b"<a>&#1;</a>",
        b"<a>&nbsp;</a>",
        b" <?xml version='1.0'?><a/>",
        pytest.param(b"<!DOCTYPE a><a/>", id="an empty document type"),
        pytest.param(b'<!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd"><a/>', id="one elsewhere"),
        pytest.param(
            b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', id="a file"
        ),
        pytest.param(
            b'<!DOCTYPE a [<!ENTITY % x SYSTEM "http://127.0.0.1:9/"> %x;]><a/>', id="a parameter"
        ),
        pytest.param(b'<!DOCTYPE a [<!ATTLIST a b CDATA "c">]><a/>', id="defaults"),
    ],
)
def test_what_is_no_document_is_refused(body: bytes) -> None:
    error = _refused(body)
    assert (error.code, error.status) == ("InvalidXmlDocument", 400)


def _flat(nodes: int) -> bytes:
    return b"<a>" + b"<b c=''/>" * ((nodes - 1) // 2) + b"<d/>" * ((nodes - 1) % 2) + b"</a>"


def _namespace(characters: int, prefix: str = ":q") -> bytes:
    return f"<a xmlns{prefix}='{'é' * characters}'/>".encode()


def test_a_document_at_the_limits_is_read() -> None:
    parse_xml(_namespace(limits.XML_NAMESPACE_LENGTH_MAX))
    parse_xml(nested(limits.XML_DEPTH_MAX))
    assert len(parse_xml(_flat(limits.XML_NODES_MAX))) == limits.XML_NODES_MAX // 2
    parse_xml(
        b"<a b='" + b"x" * (limits.XML_TAG_BYTES_MAX - 20) + b"'>" + b"y" * _MEBIBYTE + b"</a>"
    )


@pytest.mark.parametrize(
    "body",
    [
        nested(limits.XML_DEPTH_MAX + 1),
        _flat(limits.XML_NODES_MAX + 1),
        b"<a b='" + b"x" * 2 * limits.XML_TAG_BYTES_MAX + b"'></a>",
        _namespace(limits.XML_NAMESPACE_LENGTH_MAX + 1),
        _namespace(limits.XML_NAMESPACE_LENGTH_MAX + 1, prefix=""),
    ],
    ids=["deep", "many", "a long tag", "a long namespace", "a long namespace without prefix"],
)
def test_a_document_past_the_limits_is_refused(body: bytes) -> None:
    assert _refused(body).code == "InvalidXmlDocument"


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_hostile_is_refused_at_once_and_keeps_no_memory(body: bytes) -> None:
    tracemalloc.start()
    started = time.process_time()
    assert _refused(body).code == "InvalidXmlDocument"
    seconds = time.process_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 10  # a fiftieth of that on most machines; a vulnerable reader takes minutes
    assert peak < 2 * _MEBIBYTE


def test_a_long_text_is_read_whole() -> None:
    """A string of a MiB is refused as a value, not as XML (wire 9)."""
    assert parse_xml(b"<a>" + b"&lt;" * _MEBIBYTE + b"</a>").text == "<" * _MEBIBYTE


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_only_utf_8_is_read(encoding: str) -> None:
    assert _refused("<a>x</a>".encode(encoding)).code == "InvalidXmlDocument"
