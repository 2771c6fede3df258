"""Parses bodies without the losses of JSON libraries, and batch answers into parts with their header lines.

The order of members, repeated members and the spelling of numbers are kept.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TypeAlias
from xml.etree import ElementTree as ET


class Number(str):
    """A JSON number as it was spelled: `5.0` is not `5`."""

    __slots__ = ()


@dataclass(frozen=True)
class Members:
    """A JSON object's members in the order of the text."""

    pairs: tuple[tuple[str, Json], ...]

    def get(self, name: str) -> Json:
        return next((value for known, value in self.pairs if known == name), None)


Json: TypeAlias = "Members | list[Json] | Number | str | bool | None"


def parse_json(text: str) -> Json:
    parsed: Json = json.loads(
        text,
        object_pairs_hook=lambda pairs: Members(tuple(pairs)),
        parse_int=Number,
        parse_float=Number,
    )
    return parsed


@dataclass(frozen=True)
class BatchPart:
    """The answer to one operation: MIME headers, status line, header lines in order, and body ("" for none)."""

    mime_lines: tuple[str, ...]
    status_line: str
    header_lines: tuple[str, ...]
    body: str
    # The bytes from the end of the body to the next boundary, which SDK parsers need (wire 12.2).
    ending: str


@dataclass(frozen=True)
class BatchAnswer:
    opening: str
    parts: tuple[BatchPart, ...]
    closing: str


# Boundaries are {BATCH} and {CHANGESET} by now; a lone query's part is directly under the batch boundary.
PART = re.compile(
    r"(?P<mime>(?:[^\r\n]+\r\n)+)\r\n(?P<status>HTTP/1\.1 [^\r\n]*)\r\n"
    r"(?P<headers>(?:[^\r\n]+\r\n)*)\r\n(?P<body>\{.*?\}|<\?xml .*?>)?(?P<ending>[\r\n]*)",
    re.DOTALL,
)


def parse_batch(text: str) -> BatchAnswer | None:
    """The parts of a batch answer; None if the text does not have that form."""
    boundary = "--{CHANGESET}" if "--{CHANGESET}" in text else "--{BATCH}"
    opening, *between, closing = text.split(boundary)
    parts = []
    for piece in between:
        parsed = PART.fullmatch(piece.removeprefix("\r\n"))
        if parsed is None or not piece.startswith("\r\n"):
            return None
        parts.append(
            BatchPart(
                mime_lines=tuple(parsed["mime"].splitlines()),
                status_line=parsed["status"],
                header_lines=tuple(parsed["headers"].splitlines()),
                body=parsed["body"] or "",
                ending=parsed["ending"],
            )
        )
    return BatchAnswer(opening, tuple(parts), closing)


@dataclass(frozen=True)
class XmlNode:
    tag: str
    attributes: tuple[tuple[str, str], ...]
    text: str
    children: tuple[XmlNode, ...]


def parse_xml(text: str) -> XmlNode:
    return xml_node(ET.fromstring(text))  # noqa: S314 - the server under test is our own


def xml_node(element: ET.Element) -> XmlNode:
    return XmlNode(
        tag=element.tag,
        attributes=tuple(sorted(element.attrib.items())),
        text=element.text or "",
        children=tuple(xml_node(child) for child in element),
    )
