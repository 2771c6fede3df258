"""The pages of SQLite's trees, taken apart: cells, payloads and records.

Formats: https://www.sqlite.org/fileformat2.html, sections 1.6 and 2.1. Everything that cannot be as it is raises
`BadPage`, and so every byte may be damaged. Knows one page at a time, and the pages that a long payload continues on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

INDEX_INTERIOR: Final = 2
TABLE_INTERIOR: Final = 5
INDEX_LEAF: Final = 10
TABLE_LEAF: Final = 13
KINDS: Final = frozenset({INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF})
FILE_HEADER_BYTES: Final = 100
PAYLOAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""More than any row has: a damaged length must not take memory."""
INTEGER_BYTES: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""The lengths of integers, by the type of a column in a record."""

Value = bytes | int | None
ReadPage = Callable[[int], bytes | None]


class BadPage(Exception):
    """This page, or this cell, is damaged."""


class TreePage(NamedTuple):
    """A page of a tree: its kind, the offsets of its cells, and its last child if it is an interior page."""

    kind: int
    content: bytes
    cells: list[int]
    last_child: int


class Payload(NamedTuple):
    """A payload as it is in a cell: its first bytes, its whole length, and the page on which it continues, or 0."""

    local: bytes
    length: int
    continues_on: int


def take_apart(number: int, content: bytes | None, usable: int) -> TreePage:
    """A page of a tree; `BadPage` if it is none."""
    if content is None:
        raise BadPage
    start = FILE_HEADER_BYTES if number == 1 else 0
    kind = content[start]
    if kind not in KINDS:
        raise BadPage
    is_interior = kind in {INDEX_INTERIOR, TABLE_INTERIOR}
    (count,) = struct.unpack_from(">H", content, start + 3)
    cells_at = start + (12 if is_interior else 8)
    end = cells_at + 2 * count
    if end > usable:
        raise BadPage
    cells = list(struct.unpack_from(f">{count}H", content, cells_at))
    last_child = struct.unpack_from(">I", content, start + 8)[0] if is_interior else 0
    return TreePage(
        kind, content, [each if end <= each < usable else 0 for each in cells], last_child
    )


def child_of(page: TreePage, cell: int) -> int:
    """The page before a cell of an interior page."""
    require(cell > 0)
    return int.from_bytes(page.content[cell : cell + 4], "big")


def table_interior_key(page: TreePage, cell: int) -> int:
    """The greatest rowid below a cell's child."""
    require(cell > 0)
    return varint(page.content, cell + 4)[0]


def table_leaf_cell(page: TreePage, cell: int, usable: int) -> tuple[int, Payload]:
    """The rowid and the payload of a cell."""
    require(cell > 0)
    length, at = varint(page.content, cell)
    rowid, at = varint(page.content, at)
    return rowid, _payload(page.content, at, length, usable, local_max=usable - 35)


def index_cell(page: TreePage, cell: int, usable: int) -> Payload:
    """The payload of a cell of an index, on a leaf or an interior page."""
    require(cell > 0)
    length, at = varint(page.content, cell + (4 if page.kind == INDEX_INTERIOR else 0))
    return _payload(page.content, at, length, usable, local_max=(usable - 12) * 64 // 255 - 23)


def _payload(content: bytes, at: int, length: int, usable: int, *, local_max: int) -> Payload:
    require(length <= PAYLOAD_BYTES_MAX)
    local, continues_on = length, 0
    if length > local_max:
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= local_max else least
        require(at + local + 4 <= usable)
        continues_on = int.from_bytes(content[at + local : at + local + 4], "big")
        require(continues_on > 0)
    require(at + local <= usable)
    return Payload(content[at : at + local], length, continues_on)


def whole(payload: Payload, read: ReadPage, usable: int, note: Callable[[int], None]) -> bytes:
    """All bytes of a payload. `note` is called with each page on which it continues."""
    parts, left, number = [payload.local], payload.length - len(payload.local), payload.continues_on
    while left > 0:
        content = read(number) if number else None
        require(content is not None)
        assert content is not None
        note(number)
        part = content[4 : min(usable, 4 + left)]
        parts.append(part)
        left -= len(part)
        number = int.from_bytes(content[:4], "big")
    require(number == 0 or not payload.continues_on)
    return b"".join(parts)


def record(payload: bytes) -> list[Value]:
    """The columns of a record; text and floating point, which no row has, are a `BadPage`."""
    end, at = varint(payload, 0)
    body = end
    require(end <= len(payload))
    values: list[Value] = []
    while at < end:
        kind, at = varint(payload, at)
        if kind in INTEGER_BYTES:
            length = INTEGER_BYTES[kind]
            values.append(int.from_bytes(payload[body : body + length], "big", signed=True))
        elif kind in {8, 9}:
            length = 0
            values.append(kind - 8)
        elif kind >= 12 and kind % 2 == 0:
            length = (kind - 12) // 2
            values.append(payload[body : body + length])
        else:
            raise BadPage
        body += length
        require(body <= len(payload))
    require(at == end and body == len(payload))
    return values


def varint(content: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and the place after it."""
    value = 0
    for offset in range(at, at + 8):
        require(offset < len(content))
        byte = content[offset]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, offset + 1
    require(at + 8 < len(content))
    value = value << 8 | content[at + 8]
    return value - (1 << 64) if value >= 1 << 63 else value, at + 9


def require(holds: bool) -> None:  # noqa: FBT001 - as `assert`
    """Raise `BadPage` unless this holds."""
    if not holds:
        raise BadPage
