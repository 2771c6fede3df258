"""The names that a table can have, and the error for any other text. Knows no URL and no stored table."""

from __future__ import annotations

import re
from typing import Final

from tablestone import limits
from tablestone.model.errors import StorageError

_NAME_LENGTH: Final = "The specified resource name length is not within the permissible limits."
TABLE_NAME: Final = re.compile(
    rf"[A-Za-z][A-Za-z0-9]{{{limits.TABLE_NAME_LENGTH_MIN - 1},{limits.TABLE_NAME_LENGTH_MAX - 1}}}",
    re.ASCII,
)
"""The name of a table (wire 1.4); `table_name_error` gives the error for any other text."""


def table_name_error(name: str, *, early: bool) -> StorageError:
    """The error for a text that is not a table's name: for its length first, then for its characters (wire 1.4)."""
    if not limits.TABLE_NAME_LENGTH_MIN <= len(name) <= limits.TABLE_NAME_LENGTH_MAX:
        return StorageError("OutOfRangeInput", _NAME_LENGTH, early=early)
    return StorageError("InvalidResourceName", early=early)


def require_new_table_name(name: str) -> None:
    """Raise if a new table cannot have this name (wire 1.4)."""
    if name.lower() == "tables":
        raise StorageError("InvalidInput")
    if not TABLE_NAME.fullmatch(name):
        raise table_name_error(name, early=False)
