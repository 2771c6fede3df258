"""Keys that sort as their values do, made of parts.

The service orders keys by their UTF-16 code units. Keys made here are ASCII, without the characters that it forbids or
that clients escape in different ways, and can be read back. A part costs its characters; each that is not ASCII costs
five. A key has at most 512 units, half of what the service allows, so that it fits into an index entry too.
"""

import math
import re
import struct
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

KEY_UNITS_MAX: Final = 512
TICKS_PER_MICROSECOND: Final = 10
MAX_TICKS: Final = 3_155_378_975_999_999_999
"""`DateTime.MaxValue.Ticks` of .NET, which the log tail pattern subtracts from."""
DIGITS_MAX: Final = 500

_SEPARATOR: Final = "!"
_ABOVE_SEPARATOR: Final = '"'
_FIRST: Final = datetime(1, 1, 1, tzinfo=UTC)


class KeyPartError(ValueError):
    """A value that cannot be a part of a key, or a text that is no such key."""


class KeyPart(Protocol):
    """How values of one kind become text: the order of texts is the order of values, and no text begins another one."""

    def encode(self, value: Any) -> str:
        """The text. Raises `KeyPartError` for a value of another type or out of range."""
        ...

    def decode(self, text: str) -> Any:
        """The value. Raises `KeyPartError` for a text that `encode` does not make."""
        ...


def _code_of(unit: int) -> str:
    """The text of a UTF-16 code unit. Texts sort as the units do, after the separator, and none begins another."""
    if unit <= ord("#"):
        return f'"{unit:02x}'
    if unit >= ord("~"):
        return f"~{unit:04x}"
    character = chr(unit)
    for pair in ("$%", "&'", "./", ">?", "[\\"):
        if character in pair:
            return pair[0] + str(pair.index(character))
    return character


_CODES: Final = tuple(_code_of(unit) for unit in range(128))
_UNITS: Final = {code: unit for unit, code in enumerate(_CODES)}
_CODE: Final = re.compile(r'"..|~.{4}|[$&.>\[].|.', re.ASCII)


class _Text:
    def encode(self, value: Any) -> str:
        if not isinstance(value, str):
            raise KeyPartError(f"{value!r} is no text.")
        data = value.encode("utf-16-le", "surrogatepass")
        units = struct.unpack(f"<{len(data) // 2}H", data)
        return "".join(_CODES[unit] if unit < len(_CODES) else _code_of(unit) for unit in units)

    def decode(self, text: str) -> str:
        units = [
            int(code[1:], 16) if code[0] == "~" else _UNITS[code] for code in _CODE.findall(text)
        ]
        return struct.pack(f"<{len(units)}H", *units).decode("utf-16-le", "surrogatepass")


class _Integer:
    """A letter for the number of digits, then the digits: a5, b42. Of a negative one the complement of both: Y57."""

    def encode(self, value: Any) -> str:
        if not isinstance(value, int) or isinstance(value, bool):
            raise KeyPartError(f"{value!r} is no int.")
        if abs(value) >= 10**DIGITS_MAX:
            raise KeyPartError(f"An int of a key has at most {DIGITS_MAX} digits.")
        text = _with_length(str(abs(value)))
        return text if value >= 0 else text.translate(_COMPLEMENT)

    def decode(self, text: str) -> int:
        negative = text[:1].isupper()
        text = text.translate(_COMPLEMENT) if negative else text
        value = int(text[4:] if text.startswith("z") else text[1:])
        return -value if negative else value


def _with_length(digits: str) -> str:
    length = len(digits)
    return f"{chr(ord('a') + length - 1)}{digits}" if length < 26 else f"z{length:03}{digits}"


_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_COMPLEMENT: Final = str.maketrans(
    _LETTERS + _LETTERS.upper() + "0123456789",
    _LETTERS[::-1].upper() + _LETTERS[::-1] + "9876543210",
)


class _Float:
    """The 64 bits, so turned that they sort as the numbers do, as 16 hexadecimal digits. -0.0 is 0.0."""

    def encode(self, value: Any) -> str:
        if not isinstance(value, float) or math.isnan(value):
            raise KeyPartError(f"{value!r} is no float that has an order.")
        (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
        return f"{bits ^ (_ALL_BITS if bits & _SIGN else _SIGN):016x}"

    def decode(self, text: str) -> float:
        bits = int(text, 16)
        bits ^= _SIGN if bits & _SIGN else _ALL_BITS
        (value,) = struct.unpack(">d", struct.pack(">Q", bits))
        return float(value)


_SIGN: Final = 1 << 63
_ALL_BITS: Final = (1 << 64) - 1


def _in_utc(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise KeyPartError(f"{value!r} is no time with a zone.")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise KeyPartError(f"{value!r} is outside the years 1 to 9999 in UTC.") from None


class _Time:
    """ISO 8601 in UTC with microseconds, as in 2026-11-29T08:00:00.000000Z."""

    def encode(self, value: Any) -> str:
        return _in_utc(value).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"

    def decode(self, text: str) -> datetime:
        return datetime.fromisoformat(text).astimezone(UTC)


class Padded(NamedTuple):
    """Ints from 0 with a fixed number of digits, as other languages write them: Padded(6) makes 000042 of 42."""

    digits: int

    def encode(self, value: Any) -> str:
        """The digits. Raises `KeyPartError` for an int that has more, or is negative."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise KeyPartError(f"{value!r} is no int.")
        if not 0 <= value < 10**self.digits:
            raise KeyPartError(f"{value} is not within 0 and {self.digits} digits.")
        return f"{value:0{self.digits}}"

    def decode(self, text: str) -> int:
        """The int."""
        return int(text)


class ReverseTicks:
    """Times, newest first: 19 digits, the ticks of 100 ns from the time to the end of the year 9999.

    The log tail pattern, as .NET writes it: `(DateTime.MaxValue.Ticks - time.Ticks).ToString("D19")`. Python's times
    have microseconds, so digits of other languages below them are cut off when such a key is read.
    """

    def encode(self, value: Any) -> str:
        """The digits. Raises `KeyPartError` for a time without a zone."""
        microseconds = (_in_utc(value) - _FIRST) // timedelta(microseconds=1)
        return f"{MAX_TICKS - microseconds * TICKS_PER_MICROSECOND:019}"

    def decode(self, text: str) -> datetime:
        """The time in UTC."""
        if len(text) != len(str(MAX_TICKS)) or not (text.isascii() and text.isdigit()):
            raise KeyPartError(f"{text!r} is no reversed time.")
        return _FIRST + timedelta(microseconds=(MAX_TICKS - int(text)) // TICKS_PER_MICROSECOND)


_PARTS: Final[dict[type, KeyPart]] = {
    str: _Text(),
    int: _Integer(),
    float: _Float(),
    datetime: _Time(),
}


class CompositeKey:
    """Keys of several parts, each of a kind: `str`, `int`, `float`, `datetime`, `Padded(n)` or `ReverseTicks()`.

    Keys sort by the first part, then by the second, and so on.

        by_customer = CompositeKey(str, datetime)
        key = by_customer.encode("Smith", when)
        customer, when = by_customer.decode(key)
        orders = table.query_entities(by_customer.filter("RowKey", "Smith"))
    """

    def __init__(self, *kinds: type | KeyPart, prefix: str = "") -> None:
        """`prefix` begins each key, so that entities of several kinds share a partition: "order!", say.

        Raises `TypeError` without a kind, or for one that has no order; `ValueError` for a prefix that is not ASCII, or
        that has characters which parts do not have.
        """
        if not kinds:
            raise TypeError("A key has at least one part.")
        if any(_code_of(ord(each)) != each for each in prefix if each not in "!~"):
            raise ValueError(f"{prefix!r} has characters that clients escape in different ways.")
        self._prefix = prefix
        self._parts: list[KeyPart] = []
        for kind in kinds:
            part = _PARTS.get(kind) if isinstance(kind, type) else kind
            if part is None or not (hasattr(part, "encode") and hasattr(part, "decode")):
                raise TypeError(
                    f"{kind!r} is no kind of a part; use str, int, float, datetime, Padded or ReverseTicks."
                )
            self._parts.append(part)

    def encode(self, *values: Any) -> str:
        """The key of these values. Raises `KeyPartError` for a wrong value, or a key over 512 units."""
        if len(values) != len(self._parts):
            raise KeyPartError(f"The key has {len(self._parts)} parts, not {len(values)}.")
        return self._text(values)

    def decode(self, key: str) -> tuple[Any, ...]:
        """The values of a key. Raises `KeyPartError` for one that `encode` does not make."""
        try:
            texts = key.removeprefix(self._prefix).split(_SEPARATOR)
            values = tuple(part.decode(text) for part, text in zip(self._parts, texts, strict=True))
            again = zip(self._parts, values, texts, strict=True)
            fits = key.startswith(self._prefix) and len(key) <= KEY_UNITS_MAX
            if fits and all(
                isinstance(part, ReverseTicks) or part.encode(value) == text
                for part, value, text in again
            ):
                return values
        except (ValueError, KeyError, OverflowError, AttributeError, struct.error):
            pass
        raise KeyPartError(f"{key!r} is no key of these parts.")

    def between(self, *first: Any) -> tuple[str, str]:
        """The lowest key with these first values, and a text above all of them, which is none of them.

        Without a value: those of all keys with the prefix. Raises `KeyPartError` as `encode` does.
        """
        if len(first) > len(self._parts) or not (first or self._prefix):
            raise KeyPartError(f"Give 1 to {len(self._parts)} first values, not {len(first)}.")
        text = self._text(first)
        if not first:
            return text, text[:-1] + chr(ord(text[-1]) + 1)
        if len(first) == len(self._parts):
            return text, text + _SEPARATOR
        return text + _SEPARATOR, text + _ABOVE_SEPARATOR

    def filter(self, key: str, *first: Any) -> str:
        """A filter for the entities whose PartitionKey or RowKey (`key`) begins with these values."""
        low, above = self.between(*first)
        return f"{key} ge '{low}' and {key} lt '{above}'"

    def _text(self, values: tuple[Any, ...]) -> str:
        parts = zip(self._parts, values, strict=False)
        text = self._prefix + _SEPARATOR.join(part.encode(value) for part, value in parts)
        if len(text) > KEY_UNITS_MAX:
            raise KeyPartError(f"The key has {len(text)} units, more than {KEY_UNITS_MAX}.")
        return text
