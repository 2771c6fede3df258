"""Reading XML that a client sent: the only place where the server parses it.

Expat (of Python's own library) reads, and no document type is ever accepted: without one there are no entities to
expand, no files or addresses to fetch, no defaults to fill in. A document may be no larger than what any request needs
(`limits`): depth and number of elements are checked while it is read. Out comes a plain tree; what its elements mean is
read elsewhere. Namespaces are resolved: tags and attributes are `{namespace}name`.
"""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from tablestone import limits
from tablestone.errors import StorageError

_SEPARATOR: Final = "}"


class _RefusedError(Exception):
    """The document is well-formed so far and is not wanted all the same."""


class _BoundedBuilder:
    """Builds the tree, and counts."""

    def __init__(self) -> None:
        self._tree = TreeBuilder()
        self._nodes = 0
        self._depth = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._nodes += 1 + len(attributes)
        self._depth += 1
        if self._nodes > limits.XML_NODES_MAX or self._depth > limits.XML_DEPTH_MAX:
            raise _RefusedError
        qualified = {_qualified(key): value for key, value in attributes.items()}
        self._tree.start(_qualified(name), qualified)

    def end(self, name: str) -> None:
        self._depth -= 1
        self._tree.end(_qualified(name))

    def data(self, text: str) -> None:
        self._tree.data(text)

    def close(self) -> Element:
        return self._tree.close()


def _qualified(name: str) -> str:
    """`{namespace}name`, of expat's `namespace}name`."""
    return "{" + name if _SEPARATOR in name else name


def _refuse_doctype(*_declaration: object) -> None:
    raise _RefusedError


def _feed(parser: expat.XMLParserType, body: bytes) -> None:
    """Piece by piece: what a handler raises is seen when its piece has been read.

    A tag longer than a piece would be taken apart into attributes before anybody could count them.
    """
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
    builder = _BoundedBuilder()
    parser = expat.ParserCreate("utf-8", _SEPARATOR)
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        _feed(parser, body)
    except (expat.ExpatError, _RefusedError) as error:
        raise StorageError("InvalidXmlDocument", early=True) from error
    return builder.close()
