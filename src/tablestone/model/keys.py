"""The names of tables and the keys of entities: their rules, and the order of keys (wire 1.3, 1.4)."""

import re
from typing import Final, NamedTuple

from tablestone import limits
from tablestone.model.edm import utf16_length
from tablestone.model.errors import StorageError

_NAME_LENGTH: Final = "The specified resource name length is not within the permissible limits."
TABLE_NAME: Final = re.compile(
    rf"[A-Za-z][A-Za-z0-9]{{{limits.TABLE_NAME_LENGTH_MIN - 1},{limits.TABLE_NAME_LENGTH_MAX - 1}}}",
    re.ASCII,
)
"""The name of a table (wire 1.4). `table_name_error` is the error for any other text."""


def table_name_error(name: str, *, early: bool | None = None) -> StorageError:
    """The error for a text that is not a table's name: of its length first, then of its characters (wire 1.4)."""
    if not limits.TABLE_NAME_LENGTH_MIN <= len(name) <= limits.TABLE_NAME_LENGTH_MAX:
        return StorageError("OutOfRangeInput", _NAME_LENGTH, early=early)
    return StorageError("InvalidResourceName", early=early)


def require_new_table_name(name: str) -> None:
    """Raise if a new table cannot have this name (wire 1.4)."""
    if name.lower() == "tables":
        raise StorageError("InvalidInput", early=False)
    if not TABLE_NAME.fullmatch(name):
        raise table_name_error(name, early=False)


PARTITION_KEY: Final = "PartitionKey"
ROW_KEY: Final = "RowKey"
# No key may have U+0000-U+001F, U+007F-U+009F or / \ # ? (wire 1.3). A lone surrogate is not valid text.
FORBIDDEN_IN_KEY = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class EntityKey(NamedTuple):
    """The two key properties that identify an entity in its table; both may be empty."""

    partition_key: str
    row_key: str


class ContinuationToken(NamedTuple):
    """The key at which the next page of a query begins, inclusive (wire 6.9)."""

    next_partition_key: str
    next_row_key: str


class KeyBounds(NamedTuple):
    """The keys that a signature permits, from the first to the last, both inclusive (auth 3.5).

    None means no limit. A row key limits only the partition at its end of the range, and is None if that is None.
    """

    start_partition_key: str | None
    start_row_key: str | None
    end_partition_key: str | None
    end_row_key: str | None

    def hold(self, key: EntityKey) -> bool:
        """Whether this key is within the bounds."""
        place = encode_key(key.partition_key), encode_key(key.row_key)
        if self.start_partition_key is not None:
            start = encode_key(self.start_partition_key), encode_key(self.start_row_key or "")
            if place < start:
                return False
        if self.end_row_key is None or self.end_partition_key is None:
            return self.hold_partition(key.partition_key)
        return place <= (encode_key(self.end_partition_key), encode_key(self.end_row_key))

    def hold_partition(self, partition_key: str) -> bool:
        """Whether any key of this partition is within the bounds."""
        partition = encode_key(partition_key)
        first, last = self.start_partition_key, self.end_partition_key
        return (first is None or partition >= encode_key(first)) and (
            last is None or partition <= encode_key(last)
        )


def encode_key(text: str) -> bytes:
    """Bytes in the service's order, by UTF-16 unit (wire 6.10): UTF-8, but two surrogates for any above U+FFFF."""
    if text.isascii():
        return text.encode("ascii")
    if max(text) <= "\uffff":
        return text.encode("utf-8", "surrogatepass")
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = (units[i : i + 2].decode("utf-16-be", "surrogatepass") for i in range(0, len(units), 2))
    return "".join(pairs).encode("utf-8", "surrogatepass")


def decode_key(data: bytes) -> str:
    """The inverse of `encode_key`."""
    text = data.decode("utf-8", "surrogatepass")
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def require_key_in_body(name: str, value: str) -> None:
    """Raise `OutOfRangeInput` for a forbidden character in a key in a body (wire 1.3)."""
    if FORBIDDEN_IN_KEY.search(value) is not None:
        text = f"The '{name}' parameter of value '{value}' is out of range."
        raise StorageError("OutOfRangeInput", text)


def require_key_length(key: EntityKey) -> None:
    """Raise `PropertyValueTooLarge` for a key that is too long for a write (wire 9, 14 row 3)."""
    for text in key:
        if len(text) > limits.KEY_LENGTH_MAX // 2 and utf16_length(text) > limits.KEY_LENGTH_MAX:
            raise StorageError("PropertyValueTooLarge")
