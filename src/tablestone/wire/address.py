"""What a URL names: the OData resource grammar of the service, and the query string.

The path is percent-decoded exactly once, as UTF-8, and the decoded text is parsed (wire 1.2, 1.3). Knows no HTTP
method and no meaning. Names of tables are not judged here: what is wrong with one depends on the operation.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_plus, unquote_to_bytes

from tablestone.entity import EntityKey, has_forbidden_key_character
from tablestone.errors import StorageError


class AddressKind(enum.Enum):
    """The kinds of resource (wire 1.2)."""

    SERVICE = "service"
    TABLE_SET = "table set"
    TABLE = "table"
    ENTITY_SET = "entity set"
    ENTITY = "entity"
    BATCH = "batch"
    METADATA = "metadata"

    __hash__ = object.__hash__


class Address(NamedTuple):
    """A resource. `table` is empty and `key` is None where the kind has none."""

    kind: AddressKind
    table: str = ""
    key: EntityKey | None = None


_SYNTAX: Final = "Bad Request - Error in query syntax."
_KEY_COUNT: Final = (
    "The number of keys specified in the URI does not match number of key properties for the "
    "resource '{}'."
)
_QUOTED: Final = r"'([^']*(?:''[^']*)*)'"
_ENTITY = re.compile(
    rf"([^/\\()']+)\(\s*(PartitionKey|RowKey)\s*=\s*{_QUOTED}\s*,\s*(PartitionKey|RowKey)\s*=\s*{_QUOTED}\s*\)"
)
_ONE_KEY = re.compile(rf"([^/\\()']+)\(\s*(?:\w+\s*=\s*)?{_QUOTED}\s*\)")
_SET = re.compile(r"([^/\\()']+)(?:\(\))?")
# What stays literal when a key is written into a URL; `{` and `}` must not (wire 1.3, 12.2).
_LITERAL_IN_KEY: Final = "-_.~'!*()"
_UNCHANGED = re.compile(r"[A-Za-z0-9_.~!*()-]*", re.ASCII)


def split_account(raw_path: bytes) -> tuple[str, bytes]:
    """The first segment of a path-style path, and what follows its slash, both still as on the wire."""
    account, _, rest = raw_path[1:].partition(b"/")
    return account.decode("latin-1"), rest


def parse_resource(raw: bytes) -> Address:
    """The resource that the path below the account names; raises the service's error for what is none."""
    if b"%" in raw:
        raw = unquote_to_bytes(raw)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StorageError("InvalidInput", _SYNTAX, early=True) from error
    if text.endswith("')"):
        return _parse_keyed(text)
    if not text:
        return Address(AddressKind.SERVICE)
    match = _SET.fullmatch(text)
    if match is None:
        raise StorageError("InvalidInput", _SYNTAX, early=True)
    name = match[1]
    if name.startswith("$"):
        if text == "$batch":
            return Address(AddressKind.BATCH)
        if text == "$metadata":
            return Address(AddressKind.METADATA)
    if name.lower() == "tables":
        return Address(AddressKind.TABLE_SET)
    return Address(AddressKind.ENTITY_SET, name)


def _parse_keyed(text: str) -> Address:
    match = _ENTITY.fullmatch(text)
    if match is None:
        return _parse_one_key(text)
    table, first_name, first, second_name, second = match.groups()
    if first_name == second_name:
        raise StorageError("InvalidInput", _SYNTAX, early=True)
    if "'" in first or "'" in second:
        first, second = first.replace("''", "'"), second.replace("''", "'")
    if has_forbidden_key_character(first + second):
        if "/" in first or "\\" in first or "/" in second or "\\" in second:
            raise StorageError("InvalidInput", _SYNTAX, early=True)
        raise StorageError("OutOfRangeInput", early=True)
    if table.lower() == "tables":
        raise StorageError("InvalidInput", _KEY_COUNT.format("Tables"), early=True)
    if first_name == "RowKey":
        first, second = second, first
    return Address(AddressKind.ENTITY, table, EntityKey(first, second))


def _parse_one_key(text: str) -> Address:
    match = _ONE_KEY.fullmatch(text)
    if match is None:
        raise StorageError("InvalidInput", _SYNTAX, early=True)
    name, key = match[1], match[2].replace("''", "'")
    if name.lower() == "tables":
        return Address(AddressKind.TABLE, key)
    raise StorageError("InvalidInput", _KEY_COUNT.format(name), early=True)


def format_table_path(table: str) -> str:
    """`Tables('t')`, as in Location and `odata.id`."""
    return f"Tables('{quote(table, safe=_LITERAL_IN_KEY)}')"


def format_entity_path(table: str, key: EntityKey) -> str:
    """`t(PartitionKey='p',RowKey='r')`: quotes doubled, then percent-encoded (wire 1.3)."""
    return f"{table}(PartitionKey='{_encode(key.partition_key)}',RowKey='{_encode(key.row_key)}')"


def _encode(text: str) -> str:
    if _UNCHANGED.fullmatch(text):
        return text
    return quote(text.replace("'", "''"), safe=_LITERAL_IN_KEY)


Parameters = Mapping[str, str]
NO_PARAMETERS: Final[Parameters] = MappingProxyType({})


def parse_query_string(raw: bytes) -> Parameters:
    """Parameters by name, decoded with form rules: `+` is a blank, names may be encoded (wire 1.3).

    A parameter that comes twice is refused (wire 14 row 24).
    """
    if not raw:
        return NO_PARAMETERS
    return _parse_short(raw) if len(raw) <= _SHORT else _parse_parameters(raw)


def readable_parameters(raw: bytes) -> Parameters:
    """What can be read of a query string that is refused, for the steps before it is: of two the first stands."""
    found: dict[str, str] = {}
    for pair in raw.split(b"&"):
        try:
            parameters = _parse_parameters(pair)
        except StorageError:
            continue
        for name, value in parameters.items():
            found.setdefault(name, value)
    return MappingProxyType(found)


def select_as_sent(raw: bytes) -> str:
    """The text of `$select` as it stands in the URL with only `%2C` decoded, as answers repeat it (wire 5.2)."""
    for pair in raw.decode("latin-1").split("&"):
        name, _, value = pair.partition("=")
        if unquote_plus(name) == "$select":
            return value.replace("%2C", ",").replace("%2c", ",")
    return ""


def _parse_parameters(raw: bytes) -> Parameters:
    found: dict[str, str] = {}
    for pair in raw.decode("latin-1").split("&"):
        if not pair:
            continue
        name, _, value = pair.partition("=")
        try:
            if not pair.isascii() or "%" in pair or "+" in pair:
                name, value = _decode(name), _decode(value)
        except UnicodeDecodeError as error:
            raise StorageError("InvalidInput", early=True) from error
        if name.lower() in ("comp", "restype"):
            name = name.lower()
        if name in found:
            raise StorageError("InvalidInput", early=True)
        found[name] = value
    return MappingProxyType(found)


def _decode(text: str) -> str:
    if not text.isascii():  # raw UTF-8 that a client did not encode
        text = text.encode("latin-1").decode("utf-8")
    return unquote_plus(text, errors="strict")


_SHORT: Final = 512
_parse_short = functools.lru_cache(maxsize=1024)(_parse_parameters)
