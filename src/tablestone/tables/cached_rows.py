"""Cached rows: rows that almost every request reads and that seldom change, kept in memory while they are valid.

A row is valid as long as the engine's generation is the one under which it was read: compare it at every use, and again
after every wait. While the engine has no generation, no row is kept. Under a lease, no row is kept of a partition in
which a change is under way (`cache_invalidation`).
"""

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
"""Rows that are kept, and keys known to have none. Beyond it, all are dropped: any client can name keys."""
RENEWED_MAX: Final = 64
"""Rows that are read again before a lease ends; others that are in use are read when a request wants them."""


class NotKept(enum.Enum):
    """A row is not in the cache. This is different from a row that does not exist."""

    NOT_KEPT = enum.auto()


NOT_KEPT: Final = NotKept.NOT_KEPT


@dataclass(eq=False)
class _Reading:
    """A read of one row that is under way, for the requests that wait for it."""

    began: int
    """Its number, in the order in which the readings of a cache begin."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    is_read: bool = False
    value: bytes | None = None
    failure: EngineUnavailable | None = None


@dataclass(eq=False)
class _Rows:
    """The rows of one generation. For a lease, some are read together, before it begins or when it begins."""

    number: int | None
    kept: dict[Key, Any] = field(default_factory=dict)
    """The rows that were used in it, as they were converted."""
    values: dict[Key, bytes | None] = field(default_factory=dict)
    """The values of these rows, if it is a lease."""
    ahead: dict[Key, bytes | None] = field(default_factory=dict)
    """The rows that are read together, until they are used. Before `is_read`, their values are of an earlier lease."""
    were_used: set[Key] = field(default_factory=set)
    """The rows that were used in the lease before."""
    last_changes: dict[bytes, int] = field(default_factory=dict)
    """The numbers of partitions (`last_change_of`), asked before any of their rows here was read."""
    being_read: dict[Key, _Reading] = field(default_factory=dict)
    read_alone: set[bytes] = field(default_factory=set)
    """The partitions from which a request has read a row for this lease."""
    is_read: bool = False
    """Whether the rows ahead were read for this lease."""
    reader: asyncio.Task[None] | None = None


class CachedRows:
    """A reader of cached rows. One key must always be read as the same kind of value.

    With `absence_by_lease` False, the absence of a row is not kept under a lease, so that rows of this kind can be
    created without waiting for leases. Under a lease, the rows in use are read again in the background before it ends,
    so that requests seldom wait. If the engine knows when a partition last changed (`last_change_of`), only that is
    read while it stays the same.
    """

    def __init__(self, engine: Engine, *, absence_by_lease: bool = True) -> None:
        self._engine = engine
        self._by_lease = engine.leases is not None
        self._keeps_absence = absence_by_lease or not self._by_lease
        self._rows = _Rows(None)
        """The rows of the present generation."""
        self._next: _Rows | None = None
        self._renewed_by: set[asyncio.Task[None]] = set()
        self._readings = 0
        self.hits = 0
        self.misses = 0
        self.read_at: int | None = None
        """The engine's generation after the last `get`; None if the engine had none then."""
        self.kept_at: int | None = None
        """The generation for which the result of the last `get` stays valid; None if it was not kept."""

    async def get(self, key: Key, read: Callable[[bytes], Found]) -> Found | None:
        """The row, converted by `read`, as it was at some moment after the call; None if there was no row."""
        called = self._readings
        rows = self._present()
        if key in rows.kept:
            self.hits += 1
            self.read_at = self.kept_at = rows.number
            found: Found | None = rows.kept[key]
            return found
        if self._by_lease:
            return await self._get_by_lease(key, read, called)
        self.misses += 1
        return self._use(rows, key, await self._engine.get(key), read)

    def kept(self, key: Key) -> Any:
        """The result of the last `get` of this key if it is still valid, else `NOT_KEPT`; for very frequent calls."""
        rows = self._rows
        if rows.number is None or self._engine.generation != rows.number:
            return NOT_KEPT
        found = rows.kept.get(key, NOT_KEPT)
        if found is not NOT_KEPT:
            self.hits += 1
        return found

    def _present(self) -> _Rows:
        """The rows of the present generation; those that were kept in an earlier one are dropped."""
        generation = self._engine.generation
        if generation != self._rows.number:
            if generation is None or not self._by_lease:
                self._rows = _Rows(generation)
            else:
                self._begin_lease(generation)
        return self._rows

    def _use(
        self,
        rows: _Rows,
        key: Key,
        value: bytes | None,
        read: Callable[[bytes], Found],
        *,
        may_keep: bool = True,
    ) -> Found | None:
        """Convert a value, and keep it for the generation in which its read began; that may have ended."""
        found = None if value is None else read(value)
        self.kept_at = None
        if rows.number is not None and may_keep and (found is not None or self._keeps_absence):
            if len(rows.kept) >= KEPT_MAX:
                rows.kept.clear()
                rows.values.clear()
            rows.kept[key] = found
            if self._by_lease:
                rows.values[key] = value
            self.kept_at = rows.number
        self.read_at = self._engine.generation  # it may have changed during the read
        return found

    def _begin_lease(self, number: int) -> None:
        """Begin the lease of this number: use what was read ahead for it, and ask for its renewal in time."""
        following, self._next = self._next, None
        last = self._rows
        if following is None or following.number != number:
            # The last lease was not renewed in time: requests wait while the rows in use are read together.
            if last.reader is None or last.reader.done():
                following = self._begin_to_read(number, None)
            else:
                # Storage needs longer than a lease to answer. Reading the same rows once more would not help it.
                following = _Rows(number, ahead=self._rows_in_use())
                following.last_changes.update(last.last_changes)
                following.being_read, following.reader = last.being_read, last.reader
        following.were_used = set(last.values) or set(following.ahead)
        self._rows = following
        if self._engine.leases is not None:
            self._engine.leases.renew_with(number, self._renew)

    def _rows_in_use(self) -> dict[Key, bytes | None]:
        """The rows that were used in this lease or the one before, with their values of this lease."""
        last = self._rows
        rows = dict(last.ahead)
        if last.is_read:
            rows = {key: rows[key] for key in last.were_used if key in rows}
        rows.update(last.values)
        return dict(list(rows.items())[-RENEWED_MAX:])

    async def _get_by_lease(
        self, key: Key, read: Callable[[bytes], Found], called: int
    ) -> Found | None:
        """Use the row read ahead or another request's reading, or read it. `called` counts readings before the call."""
        while (reading := self._rows.being_read.get(key)) is not None:
            await request_time.wait_for(reading.ended)
            rows = self._present()
            if key in rows.kept:
                # A row that may be kept is valid for every request of this lease, not only for the one that reads it.
                return await self.get(key, read)
            if reading.failure is not None:
                # Storage was asked for long enough: another attempt for each request would only add to its load.
                raise reading.failure
            if reading.began > called and reading.is_read:
                # It began after the call, so its row is as good as one that is read now, kept or not.
                self.hits += 1
                return self._use(rows, key, reading.value, read, may_keep=False)
        rows = self._rows
        if rows.is_read and key in rows.ahead:
            self.hits += 1
            return self._use(rows, key, rows.ahead.pop(key), read)
        return await self._read_for_all(rows, key, read)

    async def _read_for_all(
        self, rows: _Rows, key: Key, read: Callable[[bytes], Found]
    ) -> Found | None:
        """Read a row. Other requests that want it during the read wait for it."""
        self.misses += 1
        rows.read_alone.add(key.partition)
        self._readings += 1
        reading = rows.being_read[key] = _Reading(self._readings)
        try:
            # In this order, any moments will do: a change that begins after the first read waits for the present lease.
            may_keep = await self._is_free(key.partition)
            reading.value = await self._engine.get(key)
            found = self._use(rows, key, reading.value, read, may_keep=may_keep)
            reading.is_read = True
        except EngineUnavailable as error:
            reading.failure = error
            raise
        finally:
            reading.ended.set()
            if rows.being_read.get(key) is reading:
                del rows.being_read[key]
        return found

    async def _is_free(self, partition: bytes) -> bool:
        marks = (storage_keys.marks(partition),)
        values, next_key, _ = await self._engine.read(marks, rows_max=1, bytes_max=1)
        return not values and next_key is None

    def _renew(self, number: int, ended: Callable[[bool], None]) -> None:
        """Begin to read the rows in use for the next lease, which has this number."""
        self._next = self._begin_to_read(number, ended)

    def _begin_to_read(self, number: int, ended: Callable[[bool], None] | None) -> _Rows:
        self._readings += 1
        in_use = self._rows_in_use()
        partitions = {key.partition for key in in_use}
        known = self._rows.last_changes.items()
        last = {part: number for part, number in known if part in partitions}
        readings = {key: _Reading(self._readings) for key in in_use}
        lease = _Rows(number, ahead=in_use, last_changes=last, being_read=readings)
        if in_use or ended is not None:
            lease.reader = asyncio.ensure_future(self._read_together(lease, ended))
            self._renewed_by.add(lease.reader)
            lease.reader.add_done_callback(self._renewed_by.discard)
        return lease

    async def _read_together(self, lease: _Rows, ended: Callable[[bool], None] | None) -> None:
        """Read the rows in use for a lease, but those of a partition whose last change is still the noted one."""
        request_time.forget()  # the request that met the end of the lease does not wait for all of it
        being_read = lease.being_read
        readings = dict(being_read)
        values: dict[Key, bytes | None] = {}
        failure: EngineUnavailable | None = None
        try:
            unchanged, noted = await self._unchanged(lease)
            ahead = lease.ahead.items()
            values = {key: value for key, value in ahead if key.partition in unchanged}
            if len(values) < len(lease.ahead):
                rest = [key for key in lease.ahead if key not in values]
                values.update(await self._read_again(rest))
            # Only together: these numbers are not those of the values of an earlier lease.
            lease.ahead = dict(values)
            lease.last_changes.update(noted)
            lease.is_read = True
        except EngineUnavailable as error:
            failure = error
        finally:
            for key, reading in readings.items():
                if key in values:
                    reading.value, reading.is_read = values[key], True
                reading.failure = failure
                reading.ended.set()
                if being_read.get(key) is reading:
                    del being_read[key]
            if ended is not None:
                ended(lease.is_read)

    async def _unchanged(self, lease: _Rows) -> tuple[set[bytes], dict[bytes, int]]:
        """The partitions to which nothing was committed since their number was noted, and new numbers to note."""
        leases = self._engine.leases
        if leases is None or leases.last_change_of is None:
            return set(), {}
        partitions = list({key.partition: None for key in lease.ahead})
        numbers = await asyncio.gather(*[leases.last_change_of(part) for part in partitions])
        present = list(zip(partitions, numbers, strict=True))
        unchanged = {part for part, number in present if lease.last_changes.get(part) == number}
        # A row that a request has read for this lease before these numbers may be of an earlier one.
        noted = {part: number for part, number in present if part not in lease.read_alone}
        return unchanged, noted

    async def _read_again(self, keys: list[Key]) -> dict[Key, bytes | None]:
        """The rows that may be kept, read together: the marks of all their partitions first, and then the rows."""
        partitions = list({key.partition: None for key in keys})
        free = await asyncio.gather(*[self._is_free(partition) for partition in partitions])
        may_keep = dict(zip(partitions, free, strict=True))
        keys = [key for key in keys if may_keep[key.partition]]
        values = await asyncio.gather(*[self._engine.get(key) for key in keys])
        return {
            key: value
            for key, value in zip(keys, values, strict=True)
            if value is not None or self._keeps_absence
        }
