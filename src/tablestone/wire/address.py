"""The address of a request: the account's name in the Host header, and the OData resource and parameters in the URL.

The path is percent-decoded exactly once, as UTF-8, and then split at each slash; empty segments are ignored (wire 1.2,
1.3). Does not know HTTP methods or what operations mean.
"""

import enum
import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_plus, unquote_to_bytes

from tablestone import limits
from tablestone.model.errors import StorageError
from tablestone.model.keys import FORBIDDEN_IN_KEY, TABLE_NAME, EntityKey, table_name_error

# The host of RFC 3986 (3.2.2). The inside of an IP literal may be anything, because it never names an account.
_HOST = re.compile(
    r"(\[[0-9A-Za-z:.%_~-]+\]|(?:[\w.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::\d*)?", re.ASCII
)
_IP_V4 = re.compile(r"[\d.]+", re.ASCII)
_SERVICE_LABEL: Final = "table"


class Host(NamedTuple):
    """The host of a request. The parts of its name are empty if they cannot name an account."""

    name: str
    label: str = ""
    """The first label. Empty for an IP address, a name of one label, and a name with an empty label."""
    suffix: str = ""
    """What follows `.table.` after the first label."""


NO_HOST: Final = Host("")


@functools.lru_cache(maxsize=1024)
def parse_host(raw: bytes) -> Host:
    """The host in a Host header; raises `InvalidHeaderValue` if the header is invalid."""
    if not raw:
        return NO_HOST
    match = _HOST.fullmatch(raw.decode("latin-1")) if len(raw) <= limits.HOST_LENGTH_MAX else None
    if match is None:
        raise StorageError("InvalidHeaderValue")
    name = normalized_host(match[1])
    if name.startswith("[") or _IP_V4.fullmatch(name):
        return Host(name)
    label, _, rest = name.partition(".")
    if not rest or ".." in name:
        return Host(name)
    service, _, suffix = rest.partition(".")
    return Host(name, label, suffix if service == _SERVICE_LABEL else "")


def normalized_host(name: str) -> str:
    """A host's name for comparisons: in lower case, without the trailing dot of a fully qualified name."""
    return name.lower().removesuffix(".")


class AddressKind(enum.Enum):
    """The kinds of resource (wire 1.2)."""

    SERVICE = "service"
    TABLE_SET = "table set"
    TABLE = "table"
    ENTITY_SET = "entity set"
    BELOW_ENTITY_SET = "below an entity set"
    """One segment or more after a table: `/t/Tables` (wire 1.2)."""
    COUNT = "count"
    """`/t/$count`, which is below an entity set unless the server has extensions of queries."""
    ENTITY = "entity"
    BATCH = "batch"
    METADATA = "metadata"

    __hash__ = object.__hash__


class Address(NamedTuple):
    """A resource. `table` and `key` are empty for kinds that have none."""

    kind: AddressKind
    table: str = ""
    key: EntityKey = EntityKey("", "")


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
_SPECIAL_SETS: Final = {"$batch": AddressKind.BATCH, "$metadata": AddressKind.METADATA}
# Characters of a key that stay as they are in a URL; `{` and `}` must be percent-encoded (wire 1.3, 12.2).
_LITERAL_IN_KEY: Final = "-_.~'!*()"
_UNCHANGED = re.compile(r"[A-Za-z0-9_.~!*()-]*", re.ASCII)


def split_account(raw_path: bytes) -> tuple[str, bytes]:
    """The first segment of a path-style path, and the rest after its slash, both as on the wire."""
    account, _, rest = raw_path[1:].partition(b"/")
    return account.decode("latin-1"), rest


def parse_resource(raw: bytes, account: str) -> Address:
    """The resource of the path below the account; raises the service's error, which names the account, if invalid."""
    if b"%" in raw:
        raw = unquote_to_bytes(raw)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _syntax_error() from error
    return _parse_path(text, account)


def _parse_path(text: str, account: str) -> Address:
    if text.endswith("')"):
        match = _ENTITY.fullmatch(text)
        if match is not None:
            return _parse_entity(match, account)
    else:
        match = _SET.fullmatch(text)
        if match is not None:
            if text in _SPECIAL_SETS:
                return Address(_SPECIAL_SETS[text])
            if match[1].lower() == "tables":
                return Address(AddressKind.TABLE_SET)
            return Address(AddressKind.ENTITY_SET, match[1])
    return _parse_segments(text, account)


def _syntax_error() -> StorageError:
    return StorageError("InvalidInput", _SYNTAX)


def _parse_entity(match: re.Match[str], account: str) -> Address:
    table, first_name, first, second_name, second = match.groups()
    if first_name == second_name:
        raise _syntax_error()
    if "'" in first or "'" in second:
        first, second = first.replace("''", "'"), second.replace("''", "'")
    if FORBIDDEN_IN_KEY.search(first + second) is not None:
        if "/" in first or "\\" in first or "/" in second or "\\" in second:
            raise _syntax_error()
        raise StorageError("OutOfRangeInput")
    if table.lower() == "tables":
        text = _KEY_COUNT.format(f"{account}.Tables")
        raise StorageError("InvalidInput", text)
    if first_name == "RowKey":
        first, second = second, first
    return Address(AddressKind.ENTITY, table, EntityKey(first, second))


def _parse_segments(text: str, account: str) -> Address:
    """A path that is neither an entity nor a set: a table, the service itself, or several segments."""
    match = _ONE_KEY.fullmatch(text)
    if match is not None:
        name, key = match[1], match[2].replace("''", "'")
        if name.lower() == "tables":
            return Address(AddressKind.TABLE, key)
        raise _key_count_error(name, account)
    stripped = text.strip("/")
    if not stripped:
        return Address(AddressKind.SERVICE)
    if stripped != text:
        return _parse_path(stripped, account)
    return _parse_below_set(*text.split("/"), account=account)


def _parse_below_set(first: str, *segments: str, account: str) -> Address:
    """A table and segments after it. Keys in the last segment count as keys of the table (wire 1.2)."""
    match = _SET.fullmatch(first)
    if not segments or match is None or first.startswith("$") or match[1].lower() == "tables":
        raise _syntax_error()
    table, last = match[1], segments[-1]
    if not TABLE_NAME.fullmatch(table):
        raise table_name_error(table)
    if _ONE_KEY.fullmatch(last):
        raise _key_count_error(table, account)
    if not (_SET.fullmatch(last) or _ENTITY.fullmatch(last)):
        raise _syntax_error()
    is_count = segments == ("$count",)
    return Address(AddressKind.COUNT if is_count else AddressKind.BELOW_ENTITY_SET, table)


def _key_count_error(table: str, account: str) -> StorageError:
    """The error for one key: entities have two. It is sent only if the table exists (wire 1.2)."""
    if not TABLE_NAME.fullmatch(table):
        return table_name_error(table)
    text = _KEY_COUNT.format(f"{account}.{table}")
    return StorageError("InvalidInput", text, table=table)


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
    """Parameters, decoded as a form: `+` is a blank (wire 1.3). `InvalidInput` if one occurs twice (wire 14 row 24)."""
    if not raw:
        return NO_PARAMETERS
    return _parse_short(raw) if len(raw) <= _SHORT else _parse_parameters(raw)


def is_service_request(parameters: Parameters) -> bool:
    """Whether a request is for one of the resources that are not OData (`service_resources`)."""
    return "comp" in parameters or "restype" in parameters


def readable_parameters(raw: bytes) -> tuple[Parameters, frozenset[str]]:
    """The readable parameters of an invalid query string, and the names that occur twice, of which the first counts.

    Steps that come before the error of the query string use them, such as authentication.
    """
    found: dict[str, str] = {}
    repeated: set[str] = set()
    for pair in raw.split(b"&"):
        try:
            parameters = _parse_parameters(pair)
        except StorageError:
            continue
        for name, value in parameters.items():
            if name in found:
                repeated.add(name)
            else:
                found[name] = value
    return MappingProxyType(found), frozenset(repeated)


def select_as_sent(raw: bytes) -> str:
    """`$select` as in the URL, with only `%2C` decoded: answers repeat it in this form (wire 5.2)."""
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
            raise StorageError("InvalidInput") from error
        if name.lower() in ("comp", "restype"):
            name = name.lower()
        if name in found:
            raise StorageError("InvalidInput")
        found[name] = value
    return MappingProxyType(found)


def _decode(text: str) -> str:
    if not text.isascii():  # UTF-8 that a client did not percent-encode
        text = text.encode("latin-1").decode("utf-8")
    return unquote_plus(text, errors="strict")


_SHORT: Final = 512
_parse_short = functools.lru_cache(maxsize=1024)(_parse_parameters)
