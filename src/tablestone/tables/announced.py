"""Rows that almost every request reads and that seldom change, kept in memory while they are known to be right.

Whoever changes such a row says so (`WriteSet.announced`); the engine's `generation` then differs in every process, and
everything kept here is dropped. Where an engine cannot tell, nothing is kept. Knows engines, not what the rows mean.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tablestone.engines.contract import Engine, Key

Found = TypeVar("Found")

KEPT_MAX: Final = 4096
"""Rows (and places without one) that are kept; then all are dropped, for names that are asked for come from anybody."""


class NotKept(enum.Enum):
    """Says that a row is not in memory, which is another thing than that there is no row."""

    NOT_KEPT = enum.auto()


NOT_KEPT: Final = NotKept.NOT_KEPT


class AnnouncedRows:
    """A reader of announced rows. One place must always be read as the same kind of value."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._generation: int | None = None
        self._kept: dict[Key, Any] = {}
        self.read_at: int | None = None
        """The engine's generation when what `get` gave last was known to be true; None where that cannot be told."""

    async def get(self, place: Key, read: Callable[[bytes], Found]) -> Found | None:
        """The row at this place, as `read` makes it of the stored value; None if there is no row."""
        generation = self._engine.generation
        if generation != self._generation:
            self._kept = {}
            self._generation = generation
        kept = self._kept
        if place in kept:
            self.read_at = generation
            found: Found | None = kept[place]
            return found
        value = await self._engine.get(place)
        found = None if value is None else read(value)
        if generation is not None:
            # Into the dictionary of the generation that was current before the read: it may be dropped by now.
            if len(kept) >= KEPT_MAX:
                kept.clear()
            kept[place] = found
        self.read_at = self._engine.generation  # another one, perhaps, than before the row was read
        return found

    def kept(self, place: Key) -> Any:
        """What `get` said last, if it is still true; else `NOT_KEPT`. For who asks too often to wait."""
        if self._generation is None or self._engine.generation != self._generation:
            return NOT_KEPT
        return self._kept.get(place, NOT_KEPT)
