"""The sizes of an engine's files, and the engines that know them.

`HasSize` is asked for at run time, which a compiled class cannot be: so it is not in `contract.py`, which is compiled.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable


class StorageSize(NamedTuple):
    """The sizes of an engine's files, in bytes."""

    database_bytes: int
    """The data with its free pages. A log that is not copied yet may make the file shorter or longer than this."""
    free_bytes: int
    """The free pages in it, which later writes use or which are given back."""
    log_bytes: int
    """The file of the write-ahead log."""
    page_bytes: int
    """A page, the unit in which space is free."""


@runtime_checkable
class HasSize(Protocol):
    """An engine that knows the sizes of its files; others keep them elsewhere."""

    def size(self) -> StorageSize:
        """The present sizes; some microseconds. Raises `EngineUnavailable`."""
        ...
