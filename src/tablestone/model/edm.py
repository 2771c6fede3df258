"""The EDM types: typed values, and how their text is read and written.

Knows the eight types that the service stores and one extension, Edm.GeographyPoint. Does not know JSON, Atom, HTTP,
entities or comparison (`query.evaluate` compares). A text that does not fit its type raises `ValueError`; the modules
that decode a payload turn this into the client's error.
"""

import base64
import binascii
import enum
import functools
import math
import re
from datetime import date
from typing import Final, NamedTuple

from tablestone.clock import TICKS_PER_SECOND


class EdmType(enum.Enum):
    """A type by its EDM name (wire 5.3)."""

    STRING = "Edm.String"
    INT32 = "Edm.Int32"
    INT64 = "Edm.Int64"
    DOUBLE = "Edm.Double"
    BOOLEAN = "Edm.Boolean"
    DATE_TIME = "Edm.DateTime"
    GUID = "Edm.Guid"
    BINARY = "Edm.Binary"
    GEOGRAPHY_POINT = "Edm.GeographyPoint"

    __hash__ = object.__hash__


class GeographyPoint(NamedTuple):
    """A position in degrees (WGS 84), with an altitude in metres if it is known. Our extension."""

    longitude: float
    latitude: float
    altitude: float | None = None


Scalar = str | int | float | bool | bytes | GeographyPoint


class EdmValue(NamedTuple):
    """A value with its type. The Python type of `value` for each EDM type:

    String: str · Int32, Int64: int · Double: float · Boolean: bool · Binary: bytes · Guid: str, lower-case
    8-4-4-4-12 · DateTime: int, ticks (100 ns since 0001-01-01T00:00:00Z) · GeographyPoint: GeographyPoint.
    """

    type: EdmType
    value: Scalar


INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_DAY_TICKS: Final = 86_400 * TICKS_PER_SECOND
DATE_TIME_MIN: Final = (date(1601, 1, 1).toordinal() - 1) * _DAY_TICKS
"""1601-01-01T00:00:00Z, the earliest that can be stored (wire 5.3)."""
DATE_TIME_MAX: Final = date(9999, 12, 31).toordinal() * _DAY_TICKS - 1
"""9999-12-31T23:59:59.9999999Z (wire 5.3)."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,25}", re.ASCII)
# Possessive quantifiers prevent backtracking, which takes quadratic time for a long row of digits.
_DOUBLE = re.compile(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?", re.ASCII)
_GUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_DATE_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,40}))?)?)?"
    r"\s?(Z|z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
# A date and time in exactly the form of `format_date_time`; 29 February is not included.
_WRITTEN_DATE_TIME = re.compile(
    r"(?:160[1-9]|16[1-9]\d|1[7-9]\d\d|[2-9]\d{3})-"
    r"(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{0,6}[1-9])?Z",
    re.ASCII,
)
_NOT_NUMBERS: Final = {
    "NaN": math.nan,
    "INF": math.inf,
    "Infinity": math.inf,
    "-INF": -math.inf,
    "-Infinity": -math.inf,
}


def utf16_length(text: str) -> int:
    """Length in UTF-16 units: every limit on text counts them (wire 9)."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def parse_integer(text: str, least: int, greatest: int) -> int:
    """A decimal integer between the bounds, both inclusive; `ValueError` otherwise."""
    is_plain = len(text) <= 25 and text.isascii() and text.isdecimal()
    if not (is_plain or _INTEGER.fullmatch(text)) or not least <= (number := int(text)) <= greatest:
        raise ValueError(text)
    return number


def parse_double(text: str) -> float:
    """A finite number, or one of NaN, INF, Infinity, -INF, -Infinity; `ValueError` otherwise (wire 5.3, 6.2)."""
    special = _NOT_NUMBERS.get(text)
    if special is not None:
        return special
    if not _DOUBLE.fullmatch(text):
        raise ValueError(text)
    return finite(float(text))


def finite(number: float) -> float:
    """The number; `ValueError` if it is infinite. Negative zero becomes zero, as in JSON (wire 5.3)."""
    if math.isinf(number):
        raise ValueError("overflow")
    return number or 0.0


def format_double(number: float) -> str:
    """The text of .NET's "R" format, with `.0` added if there is neither point nor exponent (wire 5.3).

    "R" tries 15 digits, and takes 17 if reading the 15 gives another number. C's %g switches to an exponent at the same
    numbers. NaN and the infinities are NaN, Infinity and -Infinity.
    """
    # Python's shortest text is the same, and faster, if it has at most 15 digits and no letter (e, nan, inf).
    text = repr(number)
    if len(text) <= 16 and "e" not in text and "n" not in text:
        return text
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")
    text = f"{number:.15g}"
    if float(text) != number:
        text = f"{number:.17g}"
    if "e" in text:
        return text.replace("e", "E")
    return text if "." in text else text + ".0"


def parse_boolean(text: str) -> bool:
    """`true` or `false`, in upper or lower case (wire 5.3)."""
    folded = text.lower()
    if folded not in ("true", "false"):
        raise ValueError(text)
    return folded == "true"


def parse_guid(text: str) -> str:
    """A GUID of 8-4-4-4-12 hex digits, in lower case."""
    if not _GUID.fullmatch(text):
        raise ValueError(text)
    return text.lower()


def parse_binary(text: str) -> bytes:
    """The bytes of standard base64 with padding; `ValueError` if the text is not that."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(text) from error


def format_binary(value: bytes) -> str:
    """The bytes in standard base64 with padding."""
    return base64.b64encode(value).decode("ascii")


def rewrite_binary(text: str) -> str:
    """Base64 in the service's form; `ValueError` if the text is not base64. Text in that form stays the same object."""
    try:
        rewritten = binascii.b2a_base64(binascii.a2b_base64(text), newline=False).decode("ascii")
    except binascii.Error as error:
        raise ValueError(text) from error
    # `a2b_base64` skips characters that are not base64. If the text differs, the strict reader decides.
    return text if rewritten == text else format_binary(parse_binary(text))


def parse_date_time(text: str) -> int:
    """Ticks of an ISO 8601 date and time; no zone means UTC, an offset is converted to UTC (wire 5.3).

    Digits of the fraction after the seventh are dropped: clients with nanoseconds send nine. Callers check the range
    (`DATE_TIME_MIN`, `DATE_TIME_MAX`), because its error differs from that of a malformed text.
    """
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(text)
    days = date(int(year), int(month), int(day)).toordinal() - 1
    ticks = (days * 86_400 + hours * 3600 + minutes * 60 + seconds) * TICKS_PER_SECOND
    if fraction:
        ticks += int(fraction[:7].ljust(7, "0"))
    if zone and zone not in "Zz":
        offset_hours, offset_minutes = int(zone[1:3]), int(zone[-2:])
        if offset_hours > 14 or offset_minutes > 59:
            raise ValueError(text)
        offset = (offset_hours * 60 + offset_minutes) * 60 * TICKS_PER_SECOND
        ticks += offset if zone[0] == "-" else -offset
    return ticks


class DateTimeOutOfRange(ValueError):
    """A moment that the service cannot store: `ticks` is before `DATE_TIME_MIN` or after `DATE_TIME_MAX`."""

    def __init__(self, ticks: int) -> None:
        super().__init__(ticks)
        self.ticks = ticks


def rewrite_date_time(text: str) -> str:
    """A date and time in the service's form, not parsed if it has it. Raises `ValueError`, or `DateTimeOutOfRange`."""
    if _WRITTEN_DATE_TIME.fullmatch(text):
        return text
    ticks = parse_date_time(text)
    if not DATE_TIME_MIN <= ticks <= DATE_TIME_MAX:
        raise DateTimeOutOfRange(ticks)
    return format_date_time(ticks)


@functools.lru_cache(maxsize=256)
def _format_second(seconds: int) -> str:
    """`2017-01-05T03:25:45` from seconds since 0001-01-01. Cached, because most times are the present."""
    days, rest = divmod(seconds, 86_400)
    return f"{date.fromordinal(days + 1).isoformat()}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def format_date_time(ticks: int) -> str:
    """`2017-01-05T03:25:45.588957Z`, without trailing zeros of the fraction, or without one if it is zero (wire 4)."""
    seconds, fraction = divmod(ticks, TICKS_PER_SECOND)
    if not fraction:
        return _format_second(seconds) + "Z"
    return f"{_format_second(seconds)}.{fraction:07}".rstrip("0") + "Z"


def format_date_time_fixed(ticks: int) -> str:
    """The same, but always with seven digits, as in error texts and access policies (wire 0.2-2, 8.1)."""
    seconds, fraction = divmod(ticks, TICKS_PER_SECOND)
    return f"{_format_second(seconds)}.{fraction:07}Z"


def geography_point(
    longitude: float, latitude: float, altitude: float | None = None
) -> GeographyPoint:
    """A point; `ValueError` unless longitude is in -180..180, latitude in -90..90, and altitude is finite."""
    if not (-180 <= longitude <= 180 and -90 <= latitude <= 90):
        raise ValueError("longitude or latitude")
    if altitude is not None and not math.isfinite(altitude):
        raise ValueError("altitude")
    return GeographyPoint(
        finite(float(longitude)),
        finite(float(latitude)),
        None if altitude is None else finite(float(altitude)),
    )
