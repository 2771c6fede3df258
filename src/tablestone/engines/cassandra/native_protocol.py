"""The bytes of prepared statements in version 5 of Cassandra's native protocol, and of the rows that answer them.

Knows bytes, and neither the driver nor a connection. The source of every layout is `native_protocol_v5.spec` of Apache
Cassandra: sections 2.4.1 (envelopes), 3 (notations), 4.1.6 (EXECUTE), 4.1.7 (BATCH) and 4.2.5.2 (rows).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

VERSION: Final = 5
EXECUTE: Final = 0x0A
BATCH: Final = 0x0D

RESULT: Final = 0x08
PLAIN_ROWS_MAX: Final = 8
"""How many rows are read here at most; the driver has C for more."""

HEADER: Final = Struct(">BBhBi")
"""Of an envelope: version, flags, stream, opcode, and the length of its body."""
_ROWS_HEADER: Final = Struct(">iiii")
_ROWS: Final = 2
_NO_METADATA: Final = {4, 5}
"""The flags of an answer without metadata: whether all columns are of one table changes nothing then."""
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">H")
_INT_VALUE: Final = Struct(">ii")
_LONG_VALUE: Final = Struct(">iq")
_NULL: Final = _INT.pack(-1)

_WITH_VALUES: Final = 0x01
_WITHOUT_METADATA: Final = 0x02
_WITH_SERIAL_CONSISTENCY: Final = 0x10
_UNLOGGED: Final = b"\x01"
_PREPARED: Final = b"\x01"

Serializer = Callable[[Any], bytes]
"""Gives a value of one column as [value]: its length, and its bytes."""
Deserializer = Callable[[bytes], Any]
"""Gives the value of these bytes of one column."""


def blob(value: bytes) -> bytes:
    """A blob as [value]."""
    return _INT.pack(len(value)) + value


def integer(value: int) -> bytes:
    """An int as [value]."""
    return _INT_VALUE.pack(4, value)


def long_integer(value: int) -> bytes:
    """A bigint as [value]."""
    return _LONG_VALUE.pack(8, value)


def of_integer(data: bytes) -> int:
    """The int of these bytes."""
    return int.from_bytes(data, "big", signed=True)


def short_bytes(value: bytes) -> bytes:
    """[short bytes]: the length in two bytes, and the bytes."""
    return _SHORT.pack(len(value)) + value


class PreparedBytes:
    """A prepared statement as bytes: all but the values that are bound to it."""

    def __init__(
        self,
        query_id: bytes,
        metadata_id: bytes,
        serializers: Sequence[Serializer],
        consistency: int,
        serial_consistency: int,
        *,
        knows_metadata: bool,
    ) -> None:
        self._serializers = tuple(serializers)
        count = _SHORT.pack(len(self._serializers))
        flags = _WITH_VALUES | _WITH_SERIAL_CONSISTENCY
        if knows_metadata:
            flags |= _WITHOUT_METADATA
        self._before = (
            short_bytes(query_id)
            + short_bytes(metadata_id)
            + _SHORT.pack(consistency)
            + _INT.pack(flags)
            + count
        )
        self._after = _SHORT.pack(serial_consistency)
        self._before_in_batch = _PREPARED + short_bytes(query_id) + count
        self._after_batch = (
            _SHORT.pack(consistency) + _INT.pack(_WITH_SERIAL_CONSISTENCY) + self._after
        )

    def execute(self, values: Sequence[Any]) -> bytes:
        """The body of EXECUTE with these values."""
        parts = [self._before]
        self._bind(parts, values)
        parts.append(self._after)
        return b"".join(parts)

    def _bind(self, parts: list[bytes], values: Sequence[Any]) -> None:
        for serialize, value in zip(self._serializers, values, strict=True):
            parts.append(_NULL if value is None else serialize(value))

    def batch(self, calls: Sequence[tuple[PreparedBytes, Sequence[Any]]]) -> bytes:
        """The body of an unlogged BATCH of these calls, with the consistency levels of this statement."""
        parts = [_UNLOGGED, _SHORT.pack(len(calls))]
        for statement, values in calls:
            parts.append(statement._before_in_batch)  # noqa: SLF001 - of this class
            statement._bind(parts, values)  # noqa: SLF001
        parts.append(self._after_batch)
        return b"".join(parts)


def envelope(stream: int, opcode: int, body: bytes) -> bytes:
    """A request with its header."""
    return HEADER.pack(VERSION, 0, stream, opcode, len(body)) + body


def plain_rows(body: bytes, deserializers: Sequence[Deserializer]) -> list[tuple[Any, ...]] | None:
    """The rows of an answer that comes without metadata, if there are few; None for any other answer."""
    if len(body) < _ROWS_HEADER.size:
        return None
    kind, flags, columns, count = _ROWS_HEADER.unpack_from(body)
    if kind != _ROWS or flags not in _NO_METADATA or count > PLAIN_ROWS_MAX:
        return None
    if columns != len(deserializers):
        return None
    place = _ROWS_HEADER.size
    rows = []
    for _ in range(count):
        row: list[Any] = []
        for deserialize in deserializers:
            (length,) = _INT.unpack_from(body, place)
            place += 4
            if length < 0:
                row.append(None)
                continue
            end = place + length
            row.append(deserialize(body[place:end]))
            place = end
        rows.append(tuple(row))
    return rows
