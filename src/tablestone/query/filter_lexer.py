"""Cuts the text of a filter into tokens and reads every form of literal (wire 6.2).

Knows the spelling of literals and the texts of lexical errors (wire 6.5); does not know the grammar. Text that is not a
token becomes a token of kind INVALID. The parser raises its error when it gets there, so an earlier error wins.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tablestone.model import edm
from tablestone.model.edm import EdmType, EdmValue, utf16_length
from tablestone.model.entity import is_identifier
from tablestone.model.errors import StorageError

NAME: Final = "name"
LITERAL: Final = "literal"
NULL: Final = "null"
OPEN: Final = "open"
CLOSE: Final = "close"
UNTERMINATED: Final = "unterminated"
INVALID: Final = "invalid"
END: Final = "end"


class Token(NamedTuple):
    kind: str
    value: str | EdmValue
    """The text, or the value of a literal."""
    start: int
    end: int


# Possessive quantifiers prevent backtracking. The case of a prefix does not matter, as in ODataLib.
_TOKEN = re.compile(
    r"""\s*+(?:
      (?P<typed>(?i:datetimeoffset|datetime|guid|binary|x|time|geography|geometry|duration)'(?:[^']++|'')*+')
    | (?P<name>[^\W\d](?:\w|[^\x00-\x7f\s])*+)
    | (?P<string>'(?:[^']++|'')*+')
    | (?P<unterminated>')
    | (?P<open>\()
    | (?P<close>\))
    | (?P<number>-?(?:(?:INF|inf)\b|[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?[LlDdMmFf]?))
    | (?P<end>\Z)
    | (?P<invalid>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_GEOGRAPHY = re.compile(
    r"(?:SRID=4326;)?\s*POINT\s*\(\s*(\S+)\s+([^\s)]+)(?:\s+([^\s)]+))?\s*\)\s*", re.IGNORECASE
)
# Constants that are spelled like names. `True` and `TRUE` are accepted too (wire 14 row 16).
_WORDS: Final = {
    "true": EdmValue(EdmType.BOOLEAN, True),
    "false": EdmValue(EdmType.BOOLEAN, False),
    "NaN": EdmValue(EdmType.DOUBLE, edm.parse_double("NaN")),
    "INF": EdmValue(EdmType.DOUBLE, edm.parse_double("INF")),
}
_BEGINS_A_TOKEN: Final = frozenset(",-=/?.*:")
"""Characters that begin a token of ODataLib but not of the service's grammar."""
PYTHON_DOUBLES: Final = {"nan": _WORDS["NaN"], "inf": _WORDS["INF"]}
"""NaN and infinity as Python's SDK writes them (wire 12.3): names, except in a comparison of two names."""


def not_implemented() -> StorageError:
    """For a feature of OData that the service does not have (wire 6.1, 6.8)."""
    return StorageError("NotImplemented")


def invalid_input(message: str | None = None) -> StorageError:
    return StorageError("InvalidInput", message)


def syntax_error(text: str, end: int) -> StorageError:
    """`end` is just after the wrong token. The error counts positions in UTF-16 units, as .NET does (wire 6.5)."""
    return invalid_input(f"Syntax error at position {utf16_length(text[:end])} in '{text}'.")


def unexpected(text: str, token: Token) -> StorageError:
    """For a token in the wrong place. A character that begins no token has a text of its own."""
    if token.kind == INVALID and token.value not in _BEGINS_A_TOKEN:
        position = utf16_length(text[: token.start])
        return invalid_input(
            f"Syntax error: character '{token.value}' is not valid at position {position} in '{text}'."
        )
    return syntax_error(text, token.end)


def unterminated_string(text: str) -> StorageError:
    """For a quote that is never closed; the position is the end of the text (wire 6.5)."""
    position = utf16_length(text)
    return invalid_input(
        f"There is an unterminated string literal at position {position} in '{text}'."
    )


def _unrecognized(kind: EdmType, literal: str, text: str, start: int) -> StorageError:
    position = utf16_length(text[:start])
    return invalid_input(
        f"Unrecognized '{kind.value}' literal '{literal}' at '{position}' in '{text}'."
    )


def _read_number(written: str) -> EdmValue:
    """42, 42L, 4.2, 1e3, 3D, -INF; a whole number without `L` is an Int32 (wire 6.2)."""
    suffix = written[-1]
    if suffix in "Ll":
        return EdmValue(
            EdmType.INT64, edm.parse_integer(written[:-1], edm.INT64_MIN, edm.INT64_MAX)
        )
    if suffix in "FfDd" and written[-3:].lower() != "inf":
        if suffix in "Ff":
            raise not_implemented()  # Edm.Single, which the service lacks (wire 6.2)
        return EdmValue(EdmType.DOUBLE, edm.parse_double(written[:-1]))
    if suffix in "Mm":
        raise not_implemented()  # Edm.Decimal, which the service lacks (wire 6.2)
    if _is_whole(written):
        return EdmValue(EdmType.INT32, edm.parse_integer(written, edm.INT32_MIN, edm.INT32_MAX))
    return EdmValue(EdmType.DOUBLE, edm.parse_double(written.replace("inf", "INF")))


def _is_whole(written: str) -> bool:
    return written.removeprefix("-").isdecimal()


def _read_date_time(content: str) -> int:
    ticks = edm.parse_date_time(content)
    if not 0 <= ticks <= edm.DATE_TIME_MAX:
        raise ValueError(content)
    return ticks


def _read_binary(content: str) -> bytes:
    if content and not content.isalnum():  # bytes.fromhex would skip blanks
        raise ValueError(content)
    return bytes.fromhex(content)


def _read_geography(content: str) -> edm.GeographyPoint:
    match = _GEOGRAPHY.fullmatch(content)
    if match is None:
        raise ValueError(content)
    longitude, latitude, altitude = match.groups()
    return edm.geography_point(
        edm.parse_double(longitude),
        edm.parse_double(latitude),
        None if altitude is None else edm.parse_double(altitude),
    )


# datetimeoffset and geography are our extensions: the same time as datetime, and the stored point.
_Reader = Callable[[str], int | str | bytes | edm.GeographyPoint]
_PREFIXES: Final[dict[str, tuple[EdmType, _Reader]]] = {
    "datetime": (EdmType.DATE_TIME, _read_date_time),
    "datetimeoffset": (EdmType.DATE_TIME, _read_date_time),
    "guid": (EdmType.GUID, edm.parse_guid),
    "x": (EdmType.BINARY, _read_binary),
    "binary": (EdmType.BINARY, _read_binary),
    "geography": (EdmType.GEOGRAPHY_POINT, _read_geography),
}


def _read_typed(written: str, text: str, start: int) -> EdmValue:
    prefix, _, content = written.partition("'")
    known = _PREFIXES.get(prefix.lower())
    if known is None:
        raise not_implemented()  # time'..' and other types the service lacks (wire 6.2)
    kind, read = known
    try:
        return EdmValue(kind, read(content[:-1]))
    except ValueError:
        raise _unrecognized(kind, written, text, start) from None


def tokens(text: str) -> Iterator[Token]:
    """The tokens of the filter; the last one is END or UNTERMINATED. Literals are read, and fail, one by one."""
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        assert match is not None  # `.` and `\Z` match everything else
        kind = match.lastgroup or INVALID
        start, position = match.span(kind)
        written = match[kind]
        if kind == NAME:
            # The pattern also matches characters that are neither letters nor combining marks.
            if not is_identifier(written):
                raise syntax_error(text, position)
            value = _WORDS.get(written) or _WORDS.get(written.lower())
            if value is not None:
                yield Token(LITERAL, value, start, position)
            else:
                yield Token(NULL if written == NULL else NAME, written, start, position)
        elif kind == "string":
            content = written[1:-1]
            if "'" in content:
                content = content.replace("''", "'")
            yield Token(LITERAL, EdmValue(EdmType.STRING, content), start, position)
        elif kind == "number":
            try:
                number = _read_number(written)
            except ValueError:
                named = EdmType.INT64 if written[-1] in "Ll" else EdmType.DOUBLE
                named = EdmType.INT32 if _is_whole(written) else named
                raise _unrecognized(named, written, text, start) from None
            yield Token(LITERAL, number, start, position)
        elif kind == "typed":
            yield Token(LITERAL, _read_typed(written, text, start), start, position)
        else:
            yield Token(kind, written, start, position)
            if kind in (END, UNTERMINATED):
                return
