"""Parses XML from clients. No other module parses XML, so one file keeps the server safe from hostile documents.

The parser is expat, from Python's library. A document type is always refused, so there are no entities to expand, no
files or URLs to fetch and no default values. A first pass, without namespaces and without a tree, checks the limits
(`limits`) before the document is read. The result is a plain tree whose tags and attributes are `{namespace}name`.
Does not know the meaning of any element.
"""

from typing import NoReturn
from xml.etree.ElementTree import Element, ParseError, XMLParser
from xml.parsers import expat

from tablestone import limits
from tablestone.model.errors import StorageError


class _RefusedError(Exception):
    """The document is well-formed up to this point, but it breaks a limit or has a document type."""


class _Bounds:
    """Checks the limits of a document, element by element."""

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
    """Raise for a document that breaks a limit. The cost depends only on the document's length.

    This parser does not resolve namespaces, because expat would copy a namespace into every attribute of a tag before
    its length can be checked. It gets the document in pieces, because expat raises the error of a callback only at the
    end of a piece. A tag longer than a piece is refused: expat parses its attributes before they are counted.
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

    The declared encoding is ignored, because old .NET writers declare UTF-16 and send UTF-8. Comments and processing
    instructions are skipped. Raises `InvalidXmlDocument` for a document that is not well-formed, has a document type,
    or breaks a limit (wire 3.5).
    """
    if b"\0" in body:
        raise StorageError(
            "InvalidXmlDocument", reason="a zero byte, which UTF-16 has and UTF-8 never"
        )
    try:
        _require_bounded(body)
        parser = XMLParser(encoding="utf-8")  # noqa: S314 - dangerous documents are already refused
        parser.feed(body)
        return parser.close()
    except (expat.ExpatError, ParseError, _RefusedError) as error:
        raise StorageError("InvalidXmlDocument") from error
