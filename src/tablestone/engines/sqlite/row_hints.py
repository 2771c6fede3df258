"""The C function for hints, `row_may_match`: the programs it reads, and connections that have it.

A wheel built with a C compiler has its library beside this module (hatch_build.py). Without the library, or if it does
not load, a connection decides hints in SQL (`hinted_read`): docs/decisions/0023-c-function-for-hints.md.
"""

import struct
from contextlib import closing
from pathlib import Path
from typing import Final, assert_never

import apsw

from tablestone.engines.contract import (
    AllOf,
    AnyOf,
    Contains,
    Hint,
    NumberAfter,
    RowBetween,
    TextAfter,
)

LIBRARY: Final = Path(__file__).with_name("librow_hints.so")

_VERSION: Final = 1
_CONTAINS, _NUMBER_AFTER, _TEXT_AFTER, _ROW_BETWEEN, _ALL_OF, _ANY_OF = range(1, 7)
_QUOTED, _INTEGERS, _OR_ABSENT, _ENDLESS = 1, 2, 4, 8


def program_of(hint: Hint, examined_max: int) -> bytes:
    """The hint as row_hints.c reads it. Values of more than `examined_max` bytes may match it."""
    return struct.pack("<BI", _VERSION, examined_max) + _node(hint)


def _node(hint: Hint) -> bytes:
    match hint:
        case Contains(text):
            return _written(_CONTAINS, 0, (text,))
        case NumberAfter(marker, least, greatest, quoted, integers, or_absent):
            flags = _QUOTED * quoted | _INTEGERS * integers | _OR_ABSENT * or_absent
            return _written(_NUMBER_AFTER, flags, (marker,), least, greatest)
        case TextAfter(marker, first, last, or_absent):
            return _written(_TEXT_AFTER, _OR_ABSENT * or_absent, (marker, first, last))
        case RowBetween(start, end):
            return _written(_ROW_BETWEEN, _ENDLESS * (end is None), (b"", start, end or b""))
        case AllOf(parts) | AnyOf(parts):
            kind = _ALL_OF if isinstance(hint, AllOf) else _ANY_OF
            return _written(kind, parts=len(parts)) + b"".join(map(_node, parts))
        case _:
            assert_never(hint)


def _written(
    kind: int, flags: int = 0, texts: tuple[bytes, ...] = (), *bounds: float, parts: int = 0
) -> bytes:
    head = struct.pack("<BBHdd", kind, flags, parts, *(bounds or (0.0, 0.0)))
    padded = (*texts, b"", b"", b"")[:3]
    return head + b"".join(struct.pack("<I", len(text)) + text for text in padded)


_TRIED: Final = AllOf(
    (
        RowBetween(b"b", b"d"),
        AnyOf((Contains(b"\0,"), NumberAfter(b',"n":', 2.5, 1e9, integers=False))),
        TextAfter(b',"t":"', b"2020", b"2021", or_absent=True),
    )
)
_TRIALS: Final = (
    (b"c", b'{,"n":-2.6e1,"t":"2020"}', 0),
    (b"c", b'{,"n":7,"t":"2020"}', 1),
    (b"c", b'{,"n":7.5,"t":"2022"}', 0),
    (b"d", b'{,"n":7.5}', 0),
    (b"b", b"\0,", 1),
    *((b"b", bytes(40), 0), (b"b", bytes(41), 1), (b"b", "no blob", 1)),
)
"""Rows, and whether they may match."""


def gives_function(connection: apsw.Connection) -> bool:
    """Give the connection `row_may_match`; returns whether it has it and answers as it should."""
    try:
        try:
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1)  # not for SQL
            connection.load_extension(str(LIBRARY))
        finally:
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0)
        ask, program = connection.cursor().execute, program_of(_TRIED, 40)
        return all(
            ask("SELECT row_may_match(?, ?, ?)", (program, value, row)).get == wanted
            for row, value, wanted in _TRIALS
        )
    # An apsw without extensions lacks the methods; SQLite takes no path that is not UTF-8.
    except (apsw.Error, AttributeError, ValueError):
        return False


def way() -> str:
    """The language in which new connections decide hints."""
    with closing(apsw.Connection(":memory:")) as connection:
        return "C" if gives_function(connection) else "SQL"
