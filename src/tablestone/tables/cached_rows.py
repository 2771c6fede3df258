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

from tablestone.engines.contract import Engine, EngineUnavailable, Key
from tablestone.tables import storage_keys

Found = TypeVar("Found")

KEPT_MAX: Final = 4096
"""Rows that are kept, and places known to have none. Above it all are dropped, because any client can name places."""
RENEWED_MAX: Final = 64
"""Rows that are read again before a lease ends; others that are in use are read when a request wants them."""
_NO_LIMIT: Final = 1 << 62


class NotKept(enum.Enum):
    """Says that a row is not in the cache. This is different from a row that does not exist."""

    NOT_KEPT = enum.auto()


NOT_KEPT: Final = NotKept.NOT_KEPT


class _Reading:
    """A read of one row that is under way, for the requests that wait for it."""

    def __init__(self, began: int) -> None:
        self.began = began
        """The moment at which it began, as the count of calls and reads until then."""
        self.ended = asyncio.Event()
        self.is_read = False
        self.value: bytes | None = None
        self.failure: EngineUnavailable | None = None


class _Ahead:
    """The rows that are read for the next lease before it is the present one."""

    def __init__(self, number: int, being_read: dict[Key, _Reading]) -> None:
        self.number = number
        self.being_read = being_read
        self.values: dict[Key, bytes | None] = {}
        self.unchanged: dict[Key, Any] = {}
        """The rows that need not be read, because their partitions have not changed."""
        self.moments: dict[bytes, int] = {}


class CachedRows:
    """A reader of cached rows. One place must always be read as the same kind of value.

    With `absence_by_lease` False, the absence of a row is not kept under a lease, so that rows of this kind can be
    created without waiting for leases.

    Under a lease, the rows in use are read again in the background before the lease ends, so that requests seldom wait.
    If the engine tells moments, only the moments of partitions are read, as long as they stay the same.
    """

    def __init__(self, engine: Engine, *, absence_by_lease: bool = True) -> None:
        self._engine = engine
        self._by_lease = engine.leases is not None
        self._keeps_absence = absence_by_lease or not self._by_lease
        self._generation: int | None = None
        self._kept: dict[Key, Any] = {}
        """The rows that were used in this generation."""
        self._ahead = _Ahead(0, {})
        """The rows that were read for this lease, as long as they are not used."""
        self._moments_known: dict[bytes, int] = {}
        """The moments of partitions before any of their rows was read for this lease."""
        self._being_read: dict[Key, _Reading] = {}
        self._next: _Ahead | None = None
        self._renewed_by: set[asyncio.Task[None]] = set()
        self._events = 0
        self.hits = 0
        self.misses = 0
        self.read_at: int | None = None
        """The engine's generation after the last `get`; None if the engine had none then."""
        self.kept_at: int | None = None
        """The generation for which the result of the last `get` stays valid; None if it was not kept."""

    async def get(self, place: Key, read: Callable[[bytes], Found]) -> Found | None:
        """The row at this place, converted from the stored value by `read`; None if there is no row.

        The result was the row at some moment after the call.
        """
        generation = self._present()
        kept = self._kept
        if place in kept:
            self.hits += 1
            self.read_at = self.kept_at = generation
            found: Found | None = kept[place]
            return found
        if self._by_lease:
            return await self._get_by_lease(place, read)
        self.misses += 1
        value = await self._engine.get(place)
        found = None if value is None else read(value)
        self._keep(kept, place, found, generation, may_keep=True)
        return found

    def _present(self) -> int | None:
        """The present generation; rows that were kept in an earlier one are dropped."""
        generation = self._engine.generation
        if generation != self._generation:
            self._kept = {}
            self._generation = generation
            if self._by_lease:
                self._begin_lease()
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

    def _begin_lease(self) -> None:
        """The present lease is another one: use what was read ahead for it, and ask for its renewal in time."""
        following, self._next = self._next, None
        if following is None or following.number != self._generation:
            following = _Ahead(0, {})
        self._ahead, self._being_read = following, following.being_read
        self._moments_known = following.moments
        leases = self._engine.leases
        if leases is not None and self._generation is not None:
            leases.renew_with(self._generation, self._renew)

    async def _get_by_lease(self, place: Key, read: Callable[[bytes], Found]) -> Found | None:
        """The row that was read ahead, or that another request reads; else it is read."""
        self._events = called = self._events + 1
        while (reading := self._being_read.get(place)) is not None:
            await reading.ended.wait()
            generation = self._present()
            found: Found | None
            if place in self._kept:
                # A row that may be kept is valid for every request of this lease, not only for the one that reads it.
                self.hits += 1
                self.read_at = self.kept_at = generation
                found = self._kept[place]
                return found
            if reading.failure is not None:
                # Storage was asked for long enough: another attempt for each request would only add to its load.
                raise reading.failure
            if reading.began > called and reading.is_read:
                # It began after the call, so its row is as good as one that is read now, kept or not.
                self.hits += 1
                self.read_at, self.kept_at = generation, None
                return None if reading.value is None else read(reading.value)
        ahead = self._ahead
        if place in ahead.unchanged:
            self.hits += 1
            found = ahead.unchanged.pop(place)
            self._keep(self._kept, place, found, self._generation, may_keep=True)
            return found
        if place in ahead.values:
            self.hits += 1
            value = ahead.values.pop(place)
            found = None if value is None else read(value)
            self._keep(self._kept, place, found, self._generation, may_keep=True)
            return found
        return await self._read_for_all(place, read)

    async def _read_for_all(self, place: Key, read: Callable[[bytes], Found]) -> Found | None:
        """Read a row. Other requests that want it during the read wait for it."""
        self.misses += 1
        generation, kept, being_read = self._generation, self._kept, self._being_read
        self._events += 1
        reading = being_read[place] = _Reading(self._events)
        try:
            value, may_keep = await self._read_by_lease(place)
            found = None if value is None else read(value)
            reading.value, reading.is_read = value, True
            self._keep(kept, place, found, generation, may_keep=may_keep)
        except EngineUnavailable as error:
            reading.failure = error
            raise
        finally:
            reading.ended.set()
            if being_read.get(place) is reading:
                del being_read[place]
        return found

    async def _read_by_lease(self, place: Key) -> tuple[bytes | None, bool]:
        """The value of a row, and whether it may be kept: no change of its partition was under way before it was read.

        In this order, any moments will do: a change that begins after the first read waits for the present lease.
        """
        is_free = await self._is_free(place.partition)
        return await self._engine.get(place), is_free

    async def _is_free(self, partition: bytes) -> bool:
        """Whether no change of this partition is under way."""
        marks = (storage_keys.marks(partition),)
        values, next_key, _ = await self._engine.read(marks, rows_max=1, bytes_max=_NO_LIMIT)
        return not values and next_key is None

    def _renew(self, number: int, ended: Callable[[bool], None]) -> None:
        """Begin to read the rows in use for the lease of this number, which has begun and is not the present one."""
        self._events += 1
        began = self._events
        in_use = {place: self._kept[place] for place in list(self._kept)[:RENEWED_MAX]}
        following = _Ahead(number, {place: _Reading(began) for place in in_use})
        self._next = following
        known = self._moments_known
        task = asyncio.ensure_future(self._read_ahead(following, in_use, known, ended))
        self._renewed_by.add(task)
        task.add_done_callback(self._renewed_by.discard)

    async def _read_ahead(
        self,
        following: _Ahead,
        in_use: dict[Key, Any],
        known: dict[bytes, int],
        ended: Callable[[bool], None],
    ) -> None:
        """Read rows for the next lease, unless the moments known of their partitions are still the present ones."""
        is_read = False
        being_read = following.being_read
        readings = dict(being_read)
        try:
            unchanged = await self._unchanged(following, in_use, known)
            following.unchanged.update(
                {place: found for place, found in in_use.items() if place.partition in unchanged}
            )
            changed = [place for place in in_use if place.partition not in unchanged]
            if changed:
                await self._read_again(following, changed)
            is_read = True
        except EngineUnavailable:
            pass  # requests read the rows, and are told
        finally:
            for place, reading in readings.items():
                reading.ended.set()
                if being_read.get(place) is reading:
                    del being_read[place]
            ended(is_read)

    async def _unchanged(
        self, following: _Ahead, in_use: dict[Key, Any], known: dict[bytes, int]
    ) -> set[bytes]:
        """The partitions to which nothing was committed since the present lease began. Notes the present moments."""
        leases = self._engine.leases
        if leases is None or leases.moment_of is None:
            return set()
        partitions = list({place.partition: None for place in in_use})
        moments = await asyncio.gather(*[leases.moment_of(partition) for partition in partitions])
        present = dict(zip(partitions, moments, strict=True))
        if self._next is following:
            # Else the lease is the present one already: requests may have read rows for it before these moments.
            following.moments.update(present)
        return {partition for partition in partitions if known.get(partition) == present[partition]}

    async def _read_again(self, following: _Ahead, places: list[Key]) -> None:
        """Read rows for the next lease together: the marks of all their partitions first, and then the rows."""
        partitions = list({place.partition: None for place in places})
        free = await asyncio.gather(*[self._is_free(partition) for partition in partitions])
        may_keep = dict(zip(partitions, free, strict=True))
        places = [place for place in places if may_keep[place.partition]]
        values = await asyncio.gather(*[self._engine.get(place) for place in places])
        for place, value in zip(places, values, strict=True):
            if value is not None or self._keeps_absence:
                following.values[place] = value
