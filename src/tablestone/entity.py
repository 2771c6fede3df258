"""What an entity is made of: its key, its ETag, and the rules for names, keys and sizes.

Pure values and rules (wire 1.3, 4, 9). Does not know JSON or Atom (see `entity_json`), HTTP, tables or engines.
The order of keys is defined here once: `encode_key` gives bytes that sort as the service sorts text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from tablestone import limits
from tablestone.edm import EdmType, EdmValue, format_date_time, parse_date_time
from tablestone.errors import StorageError


class EntityKey(NamedTuple):
    """The two key properties that name an entity inside its table; both may be empty."""

    partition_key: str
    row_key: str


class Entity(NamedTuple):
    """An entity as a client writes it, without the server's Timestamp.

    `members` has each property by its name, as the JSON text in which it is kept and sent (`entity_json.member`): a
    property is written down once, where it is read, and then only moved.
    """

    key: EntityKey
    members: Mapping[str, str]


class ContinuationToken(NamedTuple):
    """Where the next page of a query begins: at this key, inclusive (wire 6.9)."""

    next_partition_key: str
    next_row_key: str


class KeyBounds(NamedTuple):
    """The entities a caller is limited to: keys from the first to the last, both inclusive (auth 3.5).

    None is no limit. A row key limits the rows of the partition at its end only, and never stands without one.
    """

    start_partition_key: str | None
    start_row_key: str | None
    end_partition_key: str | None
    end_row_key: str | None

    def hold(self, key: EntityKey) -> bool:
        """Whether an entity of this key is within the bounds, in the order of keys."""
        if not self.hold_partition(key.partition_key):
            return False
        row = encode_key(key.row_key)
        return not (
            (
                self.start_row_key is not None
                and key.partition_key == self.start_partition_key
                and row < encode_key(self.start_row_key)
            )
            or (
                self.end_row_key is not None
                and key.partition_key == self.end_partition_key
                and row > encode_key(self.end_row_key)
            )
        )

    def hold_partition(self, partition_key: str) -> bool:
        """Whether any entity of this partition is within the bounds."""
        partition = encode_key(partition_key)
        first, last = self.start_partition_key, self.end_partition_key
        return (first is None or partition >= encode_key(first)) and (
            last is None or partition <= encode_key(last)
        )


PARTITION_KEY: Final = "PartitionKey"
ROW_KEY: Final = "RowKey"
TIMESTAMP: Final = "Timestamp"

VERSION_OF_NOTHING: Final = 1
"""A version no entity ever has: what a well-formed ETag that is not one of ours stands for."""

# U+0000-U+001F, U+007F-U+009F and / \ # ? may never be in a key (wire 1.3); a lone surrogate is no text at all.
_FORBIDDEN_IN_KEY = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_WEAK_TAG = re.compile(r'W/"([^"]*)"')
_DATE_TIME_TAG = re.compile(r"datetime'([^']*)'", re.IGNORECASE)


def encode_key(text: str) -> bytes:
    """Bytes that compare as the service compares text: by UTF-16 code unit (wire 6.10).

    UTF-8 sorts the same except for characters beyond U+FFFF, which are therefore written as their two surrogates.
    """
    if text.isascii():
        return text.encode("ascii")
    if max(text) <= "\uffff":
        return text.encode("utf-8", "surrogatepass")
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = (units[i : i + 2].decode("utf-16-be", "surrogatepass") for i in range(0, len(units), 2))
    return "".join(pairs).encode("utf-8", "surrogatepass")


def decode_key(data: bytes) -> str:
    """The text that `encode_key` was given."""
    text = data.decode("utf-8", "surrogatepass")
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def utf16_length(text: str) -> int:
    """Length in UTF-16 units, in which every limit on text is counted (wire 9)."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def has_forbidden_key_character(text: str) -> bool:
    """True when the text holds a character that no PartitionKey or RowKey may have (wire 1.3)."""
    return _FORBIDDEN_IN_KEY.search(text) is not None


def require_key_in_body(name: str, value: str) -> None:
    """Raise `OutOfRangeInput` for a forbidden character in a key that a body names (wire 1.3)."""
    if has_forbidden_key_character(value):
        raise StorageError(
            "OutOfRangeInput",
            f"The '{name}' parameter of value '{value}' is out of range.",
            early=True,
        )


def require_key_length(key: EntityKey) -> None:
    """Raise `PropertyValueTooLarge` for a key that is too long to be written (wire 9, 14 row 3)."""
    for text in key:
        if len(text) > limits.KEY_LENGTH_MAX // 2 and utf16_length(text) > limits.KEY_LENGTH_MAX:
            raise StorageError("PropertyValueTooLarge")


def require_property_name(name: str) -> None:
    """Raise `PropertyNameTooLong` or `PropertyNameInvalid` (wire 9: an identifier as C# has it)."""
    if utf16_length(name) > limits.PROPERTY_NAME_LENGTH_MAX:
        raise StorageError("PropertyNameTooLong")
    if not is_identifier(name):
        raise StorageError("PropertyNameInvalid")


def is_identifier(text: str) -> bool:
    """A name as C# and XML both have it: letters, `_`, and after the first also digits and combining marks (wire 9).

    Atom writes it as the name of an element (XML 1.0, fifth edition).
    """
    return text.isidentifier() and (text.isascii() or _NO_XML_NAME.isdisjoint(text))


_NO_XML_NAME: Final = frozenset("\u00aa\u00b5\u00ba\u2054")
"""What may stand in an identifier and not in the name of an element."""


def _value_size(value: EdmValue) -> int:
    kind = value.type
    if kind is EdmType.STRING:
        assert isinstance(value.value, str)
        return 4 + 2 * utf16_length(value.value)
    if kind is EdmType.BINARY:
        assert isinstance(value.value, bytes)
        return 4 + len(value.value)
    return _FIXED_SIZES[kind]


_FIXED_SIZES: Final = {
    EdmType.DATE_TIME: 8,
    EdmType.GUID: 16,
    EdmType.DOUBLE: 8,
    EdmType.INT64: 8,
    EdmType.INT32: 4,
    EdmType.BOOLEAN: 1,
    EdmType.GEOGRAPHY_POINT: limits.GEOGRAPHY_POINT_SIZE_BYTES,
}


def entity_size(key: EntityKey, properties: Mapping[str, EdmValue]) -> int:
    """Bytes by the documented formula: 4 + 2 a key unit + 8 + 2 a name unit + the value, per property (wire 9)."""
    size = 4 + 2 * (utf16_length(key.partition_key) + utf16_length(key.row_key))
    for name, value in properties.items():
        size += 8 + 2 * utf16_length(name) + _value_size(value)
    return size


def require_sizes(key: EntityKey, properties: Mapping[str, EdmValue]) -> None:
    """Raise `EntityTooLarge` or `PropertyValueTooLarge`; the entity's size is looked at first (wire 9)."""
    if entity_size(key, properties) > limits.ENTITY_SIZE_BYTES_MAX:
        raise StorageError("EntityTooLarge")
    for _, content in properties.values():
        if isinstance(content, str):
            too_large = utf16_length(content) > limits.STRING_LENGTH_MAX
        else:
            too_large = isinstance(content, bytes) and len(content) > limits.BINARY_LENGTH_MAX
        if too_large:
            raise StorageError("PropertyValueTooLarge")


def format_etag(version: int) -> str:
    """The ETag of a version: its Timestamp's text with `:` as `%3A` in a weak tag (wire 4)."""
    return etag_and_timestamp(version)[0]


@functools.lru_cache(maxsize=256)
def etag_and_timestamp(version: int) -> tuple[str, str]:
    """The ETag and the text of the Timestamp of a version.

    Cached, since a write is asked for both twice, and the writes of a transaction share one version.
    """
    time = format_date_time(version)
    return "W/\"datetime'" + time.replace(":", "%3A") + "'\"", time


def parse_etag(text: str) -> int:
    """The version an ETag names; `VERSION_OF_NOTHING` for a well-formed tag of somebody else (wire 4).

    Colons may be written plainly or as `%3A`. Raises `InvalidInput` for what is no weak tag and `ConditionNotMet`
    for a datetime tag whose quotes are doubled, as recorded of the service.
    """
    weak = _WEAK_TAG.fullmatch(text)
    if weak is None:
        raise StorageError(
            "InvalidInput",
            f"The etag value '{text}' specified in one of the request headers is not valid. Please make sure only "
            "one etag value is specified and is valid.",
            early=True,
        )
    if weak[1].startswith("datetime''"):
        raise StorageError("ConditionNotMet", early=True)
    tag = _DATE_TIME_TAG.fullmatch(weak[1])
    if tag is None:
        return VERSION_OF_NOTHING
    try:
        version = parse_date_time(tag[1].replace("%3A", ":").replace("%3a", ":"))
    except ValueError:
        return VERSION_OF_NOTHING
    return max(version, VERSION_OF_NOTHING)
