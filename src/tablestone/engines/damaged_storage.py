"""The rows of storage that is damaged, as far as they can be read: for salvage, and for telling what is damaged.

An engine that can read its files below the level at which it serves them has a class that keeps this protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple, Protocol

from tablestone.engines.contract import Key, StoredRow


class FoundRow(NamedTuple):
    """A row that was read. `place` is a number of its own, with which to ask for its key again."""

    place: int
    row: StoredRow


class DamagedStorage(Protocol):
    """Storage that is read row by row, whatever is damaged between the rows."""

    @property
    def pages(self) -> int:
        """The number of pages."""
        ...

    @property
    def damaged_pages(self) -> Collection[int]:
        """The numbers of the pages that are not as they should be; known once all rows were read."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether `lost_keys` has all rows that are lost; known once all rows were read."""
        ...

    @property
    def lost_writes(self) -> bool:
        """Whether acknowledged writes are lost of which nothing is known, not even their keys."""
        ...

    @property
    def uncertain_rows(self) -> int:
        """Rows of pages that nothing refers to, where deleted rows may be too; known once all rows were read."""
        ...

    def rows(self) -> Iterator[FoundRow]:
        """Every row that can be read, once, in no certain order. The values may be damaged."""
        ...

    def lost_keys(self) -> list[Key]:
        """The keys of rows that exist and were not read; known once all rows were read."""
        ...

    def keys_at(self, places: Collection[int]) -> dict[int, Key]:
        """The keys of rows at these places by the index, whose copies of the keys are others than those in the rows."""
        ...
