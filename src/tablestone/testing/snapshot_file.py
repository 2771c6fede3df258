"""A snapshot as bytes, to keep it in a file or to give it to another process: one line of JSON for each row.

The first line says the version of this form and the number of rows, so that a file of another version, or one that was
cut off, is refused. Knows rows, not their meaning.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import orjson

from tablestone.engines.contract import Key
from tablestone.engines.memory import MemoryContents

VERSION: Final = 1
_MARK: Final = "tablestone snapshot"
_ROWS: Final = "rows"


class SnapshotUnreadable(ValueError):
    """Bytes that are no snapshot of this version; the text is one sentence."""


def bytes_of(contents: MemoryContents) -> bytes:
    """The rows as lines."""
    lines = [orjson.dumps({_MARK: VERSION, _ROWS: len(contents.ordered)})]
    for key in contents.ordered:
        version, value = contents.rows[key]
        lines.append(orjson.dumps([_text(key.partition), _text(key.row), version, _text(value)]))
    return b"\n".join([*lines, b""])


def contents_of(data: bytes) -> MemoryContents:
    """The rows of a snapshot. Raises `SnapshotUnreadable`."""
    first, *lines = data.split(b"\n")
    lines = lines[:-1] if lines and not lines[-1] else lines
    head = _parsed(first)
    if not isinstance(head, dict) or _MARK not in head:
        raise SnapshotUnreadable("This is no snapshot of the test kit.")
    if head[_MARK] != VERSION:
        raise SnapshotUnreadable(
            f"This snapshot has version {head[_MARK]}, and this Tablestone reads version {VERSION}."
        )
    if head.get(_ROWS) != len(lines):
        raise SnapshotUnreadable(
            f"This snapshot is cut off: it has {len(lines)} of {head.get(_ROWS)} rows."
        )
    rows: dict[Key, tuple[int, bytes]] = {}
    for number, line in enumerate(lines, start=2):
        try:
            partition, row, version, value = _parsed(line)
            rows[Key(_bytes(partition), _bytes(row))] = (int(version), _bytes(value))
        except (TypeError, ValueError, binascii.Error):
            raise SnapshotUnreadable(f"Line {number} of this snapshot is no row.") from None
    return MemoryContents(sorted(rows), rows)


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
