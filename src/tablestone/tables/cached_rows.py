"""Cached rows: rows that almost every request reads and that seldom change, kept in memory while they are valid.

A row is valid as long as the engine's generation is the one under which it was read: compare it at every use, and again
after every wait. While the engine has no generation, no row is kept. Under a lease, no row is kept of a partition in
which a change is under way (`cache_invalidation`).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tablestone.engines import request_time
from tablestone.engines.contract import Engine, EngineUnavailable, Key
from tablestone.tables import storage_keys

Found = TypeVar("Found")

KEPT_MAX: Final = 4096
"""Rows that are kept, and places known to have none. Above it all are dropped, because any client can name places."""
RENEWED_MAX: Final = 64
"""Rows that are read again before a lease ends; others that are in use are read when a request wants them."""


class NotKept(enum.Enum):
    """Says that a row is not in the cache. This is different from a row that does not exist."""

    NOT_KEPT = enum.auto()


NOT_KEPT: Final = NotKept.NOT_KEPT


@dataclass(eq=False)
class _Reading:
    """A read of one row that is under way, for the requests that wait for it."""

    began: int
    """Its number: readings of one cache are counted in the order in which they begin."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    is_read: bool = False
    value: bytes | None = None
    failure: EngineUnavailable | None = None


@dataclass(eq=False)
class _Lease:
    """The rows that were read together for one lease, before it was the present one or when it began."""

    number: int
    in_use: dict[Key, bytes | None]
    """The rows, with the values of an earlier lease."""
    moments: dict[bytes, int]
    """The moments of partitions before any row that is known of them was read."""
    being_read: dict[Key, _Reading]
    values: dict[Key, bytes | None] = field(default_factory=dict)
    """The values for this lease, as long as they are not used."""
    were_used: set[Key] = field(default_factory=set)
    """The rows that were used in the lease before."""
    read_alone: set[bytes] = field(default_factory=set)
    """The partitions of which a request has read a row for this lease."""
    is_read: bool = False
    """Whether the rows in use were read for this lease."""
    reader: asyncio.Task[None] | None = None


class CachedRows:
    """A reader of cached rows. One place must always be read as the same kind of value.

    With `absence_by_lease` False, the absence of a row is not kept under a lease, so that rows of this kind can be
    created without waiting for leases. Under a lease, the rows in use are read again in the background before it ends,
    so that requests seldom wait. If the engine knows when a partition last changed (`moment_of`), only that is read
    while it stays the same.
    """

    def __init__(self, engine: Engine, *, absence_by_lease: bool = True) -> None:
        self._engine = engine
        self._by_lease = engine.leases is not None
        self._keeps_absence = absence_by_lease or not self._by_lease
        self._generation: int | None = None
        self._kept: dict[Key, Any] = {}
        """The rows that were used in this generation."""
        self._values: dict[Key, bytes | None] = {}
        """The values of the rows that were used in this lease."""
        self._lease = _Lease(0, {}, {}, {})
        self._next: _Lease | None = None
        self._renewed_by: set[asyncio.Task[None]] = set()
        self._readings = 0
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
        called = self._readings
        generation = self._present()
        kept = self._kept
        if place in kept:
            self.hits += 1
            self.read_at = self.kept_at = generation
            found: Found | None = kept[place]
            return found
        if self._by_lease:
            return await self._get_by_lease(place, read, called)
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
        assert self._generation is not None
        following, self._next = self._next, None
        if following is None or following.number != self._generation:
            # The last lease was not renewed in time: requests wait while the rows in use are read together.
            last = self._lease
            if last.reader is None or last.reader.done():
                following = self._begin_to_read(self._generation, None)
            else:
                # Storage needs longer than a lease to answer. Reading the same rows once more would not help it.
                rows, moments = self._rows_in_use(), dict(last.moments)
                following = _Lease(
                    self._generation, rows, moments, last.being_read, reader=last.reader
                )
        following.were_used = set(self._values) or set(following.in_use)
        self._lease, self._values = following, {}
        if self._engine.leases is not None:
            self._engine.leases.renew_with(self._generation, self._renew)

    def _rows_in_use(self) -> dict[Key, bytes | None]:
        """The rows that were used in this lease or the one before, with their values of this lease."""
        last = self._lease
        rows = {} if last.is_read else dict(last.in_use)
        rows.update({place: last.values[place] for place in last.were_used if place in last.values})
        rows.update(self._values)
        return dict(list(rows.items())[-RENEWED_MAX:])

    async def _get_by_lease(
        self, place: Key, read: Callable[[bytes], Found], called: int
    ) -> Found | None:
        """The row that was read ahead, or that another request reads; else it is read.

        `called` is the number of readings that had begun when the row was asked for.
        """
        while (reading := self._lease.being_read.get(place)) is not None:
            await request_time.wait_for(reading.ended)
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
        lease = self._lease
        if place in lease.values:
            self.hits += 1
            value = lease.values.pop(place)
            found = None if value is None else read(value)
            self._keep(self._kept, place, found, self._generation, may_keep=True)
            self._note_use(self._values, place, value)
            return found
        return await self._read_for_all(place, read)

    def _note_use(self, values: dict[Key, bytes | None], place: Key, value: bytes | None) -> None:
        """Note that a row is used that may be kept. `values` is that of the lease, which may have ended."""
        if len(values) >= KEPT_MAX:
            values.clear()
        values[place] = value

    async def _read_for_all(self, place: Key, read: Callable[[bytes], Found]) -> Found | None:
        """Read a row. Other requests that want it during the read wait for it."""
        self.misses += 1
        generation, kept, values = self._generation, self._kept, self._values
        being_read = self._lease.being_read
        self._lease.read_alone.add(place.partition)
        self._readings += 1
        reading = being_read[place] = _Reading(self._readings)
        try:
            # In this order, any moments will do: a change that begins after the first read waits for the present lease.
            may_keep = await self._is_free(place.partition)
            value = await self._engine.get(place)
            found = None if value is None else read(value)
            reading.value, reading.is_read = value, True
            self._keep(kept, place, found, generation, may_keep=may_keep)
            if self.kept_at is not None:
                self._note_use(values, place, value)
        except EngineUnavailable as error:
            reading.failure = error
            raise
        finally:
            reading.ended.set()
            if being_read.get(place) is reading:
                del being_read[place]
        return found

    async def _is_free(self, partition: bytes) -> bool:
        marks = (storage_keys.marks(partition),)
        values, next_key, _ = await self._engine.read(marks, rows_max=1, bytes_max=1)
        return not values and next_key is None

    def _renew(self, number: int, ended: Callable[[bool], None]) -> None:
        """The lease of this number has begun and is not the present one yet: begin to read the rows in use for it."""
        self._next = self._begin_to_read(number, ended)

    def _begin_to_read(self, number: int, ended: Callable[[bool], None] | None) -> _Lease:
        self._readings += 1
        in_use = self._rows_in_use()
        partitions = {place.partition for place in in_use}
        moments = {part: at for part, at in self._lease.moments.items() if part in partitions}
        readings = {place: _Reading(self._readings) for place in in_use}
        lease = _Lease(number, in_use, moments, readings)
        if in_use or ended is not None:
            lease.reader = asyncio.ensure_future(self._read_together(lease, ended))
            self._renewed_by.add(lease.reader)
            lease.reader.add_done_callback(self._renewed_by.discard)
        return lease

    async def _read_together(self, lease: _Lease, ended: Callable[[bool], None] | None) -> None:
        """Read the rows in use for a lease, unless the moments known of their partitions are still the present ones."""
        request_time.forget()  # the request that met the end of the lease does not wait for all of it
        being_read = lease.being_read
        readings = dict(being_read)
        values: dict[Key, bytes | None] = {}
        failure: EngineUnavailable | None = None
        try:
            unchanged, noted = await self._unchanged(lease)
            in_use = lease.in_use.items()
            values = {place: value for place, value in in_use if place.partition in unchanged}
            if len(values) < len(lease.in_use):
                rest = [place for place in lease.in_use if place not in values]
                values.update(await self._read_again(rest))
            # Only together: these moments are not those of the values of an earlier lease.
            lease.values.update(values)
            lease.moments.update(noted)
            lease.is_read = True
        except EngineUnavailable as error:
            failure = error
        finally:
            for place, reading in readings.items():
                if place in values:
                    reading.value, reading.is_read = values[place], True
                reading.failure = failure
                reading.ended.set()
                if being_read.get(place) is reading:
                    del being_read[place]
            if ended is not None:
                ended(lease.is_read)

    async def _unchanged(self, lease: _Lease) -> tuple[set[bytes], dict[bytes, int]]:
        """The partitions to which nothing was committed since their moments were noted, and new moments to note."""
        leases = self._engine.leases
        if leases is None or leases.moment_of is None:
            return set(), {}
        partitions = list({place.partition: None for place in lease.in_use})
        moments = await asyncio.gather(*[leases.moment_of(partition) for partition in partitions])
        present = list(zip(partitions, moments, strict=True))
        unchanged = {part for part, moment in present if lease.moments.get(part) == moment}
        # A row that a request has read for this lease before these moments may be of an earlier one.
        noted = {part: moment for part, moment in present if part not in lease.read_alone}
        return unchanged, noted

    async def _read_again(self, places: list[Key]) -> dict[Key, bytes | None]:
        """The rows that may be kept, read together: the marks of all their partitions first, and then the rows."""
        partitions = list({place.partition: None for place in places})
        free = await asyncio.gather(*[self._is_free(partition) for partition in partitions])
        may_keep = dict(zip(partitions, free, strict=True))
        places = [place for place in places if may_keep[place.partition]]
        values = await asyncio.gather(*[self._engine.get(place) for place in places])
        return {
            place: value
            for place, value in zip(places, values, strict=True)
            if value is not None or self._keeps_absence
        }
