"""Reading XML that a client sent: the only place where the server parses it.

Expat (of Python's own library) reads, and no document type is ever accepted: without one there are no entities to
expand, no files or addresses to fetch, no defaults to fill in. A document may be no larger than what any request needs
(`limits`): it is looked through first, by a parser that resolves no namespaces and keeps nothing, and read only then.
Out comes a plain tree; what its elements mean is read elsewhere. Tags and attributes are `{namespace}name`.
"""

from __future__ import annotations

from typing import NoReturn
from xml.etree.ElementTree import Element, ParseError, XMLParser
from xml.parsers import expat

from tablestone import limits
from tablestone.errors import StorageError


class _RefusedError(Exception):
    """The document is well-formed so far and is not wanted all the same."""


class _Bounds:
    """Holds the elements of a document to the limits, as they come."""

    def __init__(self) -> None:
        self._nodes = 0
        self._depth = 0

    def start(self, _name: str, attributes: dict[str, str]) -> None:
        self._nodes += 1 + len(attributes)
        self._depth += 1
        if self._nodes > limits.XML_NODES_MAX or self._depth > limits.XML_DEPTH_MAX:
            raise _RefusedError
        for name, value in attributes.items():
            if name.startswith("xmlns") and len(value) > limits.XML_NAMESPACE_LENGTH_MAX:
                raise _RefusedError

    def end(self, _name: str) -> None:
        self._depth -= 1


def _refuse_doctype(*_declaration: object) -> NoReturn:
    raise _RefusedError


def _require_bounded(body: bytes) -> None:
    """Raise for a document past the limits, at a cost that grows with its length and nothing else.

    Namespaces stay prefixes here: expat would write them out before every attribute of a tag, before anybody could see
    how long they are. Piece by piece, because what a handler raises is seen when its piece has been read; a tag
    longer than a piece would be taken apart into attributes before anybody could count them.
    """
    bounds = _Bounds()
    parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = bounds.start
    parser.EndElementHandler = bounds.end
    piece = limits.XML_TAG_BYTES_MAX
    for start in range(0, len(body), piece):
        parser.Parse(body[start : start + piece], False)
        if parser.CurrentByteIndex < start:
            raise _RefusedError
    parser.Parse(b"", True)


def parse_xml(body: bytes) -> Element:
    """The root element of a document in UTF-8, with or without a byte order mark.

    An encoding that the document declares is not believed: old .NET writers declare UTF-16 and send UTF-8. Comments and
    processing instructions are left out. Raises `InvalidXmlDocument` for what is not well-formed, for a document type
    whatever it holds, and for a document past the limits (wire 3.5).
    """
    if b"\0" in body:
        raise StorageError(
            "InvalidXmlDocument", early=True, reason="UTF-16, which expat would read"
        )
    try:
        _require_bounded(body)
        parser = XMLParser(encoding="utf-8")  # noqa: S314 - what it could be harmed by is refused
        parser.feed(body)
        return parser.close()
    except (expat.ExpatError, ParseError, _RefusedError) as error:
        raise StorageError("InvalidXmlDocument", early=True) from error
