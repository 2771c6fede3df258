"""Cached rows: rows that almost every request reads and that seldom change, kept in memory while they are valid.

A row that was read under one `Engine.generation` is used only while the generation stays the same; it is compared at
every use, and again after every wait. While it is None, no row is kept. Under a lease, no row is kept of a partition in
which a change is under way (`invalidating_change`). Knows engines, and not the meaning of the rows.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tablestone.engines.contract import Engine, Key
from tablestone.tables import storage_keys

Found = TypeVar("Found")

KEPT_MAX: Final = 4096
"""Rows that are kept, and places known to have none. Above it all are dropped, because any client can name places."""


_NO_LIMIT: Final = 1 << 62


class NotKept(enum.Enum):
    """Says that a row is not in the cache. This is different from a row that does not exist."""

    NOT_KEPT = enum.auto()


NOT_KEPT: Final = NotKept.NOT_KEPT


class CachedRows:
    """A reader of cached rows. One place must always be read as the same kind of value.

    With `absence_by_lease` False, the absence of a row is not kept under a lease, so that rows of this kind can be
    created without waiting for leases.
    """

    def __init__(self, engine: Engine, *, absence_by_lease: bool = True) -> None:
        self._engine = engine
        self._by_lease = engine.lease_seconds is not None
        self._keeps_absence = absence_by_lease or not self._by_lease
        self._generation: int | None = None
        self._kept: dict[Key, Any] = {}
        self._being_read: dict[Key, asyncio.Event] = {}
        self.hits = 0
        self.misses = 0
        self.read_at: int | None = None
        """The engine's generation after the last `get`; None if the engine had none then."""
        self.kept_at: int | None = None
        """The generation for which the result of the last `get` stays valid; None if it was not kept."""

    async def get(self, place: Key, read: Callable[[bytes], Found]) -> Found | None:
        """The row at this place, converted from the stored value by `read`; None if there is no row."""
        generation = self._present()
        if self._by_lease and place not in self._kept and place in self._being_read:
            # A row that may be kept is valid for every request of this lease, not only for the one that reads it.
            await self._being_read[place].wait()
            generation = self._present()
        kept = self._kept
        if place in kept:
            self.hits += 1
            self.read_at = self.kept_at = generation
            found: Found | None = kept[place]
            return found
        self.misses += 1
        if not self._by_lease:
            value = await self._engine.get(place)
            found = None if value is None else read(value)
            self._keep(kept, place, found, generation, may_keep=True)
            return found
        being_read, ended = self._being_read, asyncio.Event()
        being_read[place] = ended
        try:
            value, may_keep = await self._read_by_lease(place)
            found = None if value is None else read(value)
            self._keep(kept, place, found, generation, may_keep=may_keep)
        finally:
            ended.set()
            if being_read.get(place) is ended:
                del being_read[place]
        return found

    def _present(self) -> int | None:
        """The present generation; rows that were kept in an earlier one are dropped."""
        generation = self._engine.generation
        if generation != self._generation:
            self._kept = {}
            self._being_read = {}
            self._generation = generation
        return generation

    def _keep(
        self,
        kept: dict[Key, Any],
        place: Key,
        found: Any,
        generation: int | None,
        *,
        may_keep: bool,
    ) -> None:
        """Note what was read in this generation. `kept` is its dictionary, which may have been dropped in between."""
        if generation is None or not may_keep or (found is None and not self._keeps_absence):
            self.kept_at = None
        else:
            if len(kept) >= KEPT_MAX:
                kept.clear()
            kept[place] = found
            self.kept_at = generation
        self.read_at = self._engine.generation  # it may have changed during the read

    def kept(self, place: Key) -> Any:
        """The result of the last `get` of this place if it is still valid, else `NOT_KEPT`; for very frequent calls."""
        if self._generation is None or self._engine.generation != self._generation:
            return NOT_KEPT
        found = self._kept.get(place, NOT_KEPT)
        if found is not NOT_KEPT:
            self.hits += 1
        return found

    async def _read_by_lease(self, place: Key) -> tuple[bytes | None, bool]:
        """The value of a row, and whether it may be kept: no change of its partition was under way before it was read.

        In this order, any moments will do: a change that begins after the first read waits for the present lease.
        """
        marks = (storage_keys.marks(place.partition),)
        values, next_key, _ = await self._engine.read(marks, rows_max=1, bytes_max=_NO_LIMIT)
        return await self._engine.get(place), not values and next_key is None
