"""The engine that keeps rows in memory: the shortest form of the contract, for tests and throw-away servers.

It is a sorted list of keys and a dict of rows; SQLite decides hints over the values where they are. No read or commit
suspends, so each call runs alone on the event loop and sees one moment. The rows are lost at the end of the process.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from threading import get_ident
from typing import NamedTuple, TypeVar

import apsw

from tablestone.clock import Clock
from tablestone.engines.capabilities import Capabilities, StoredIn
from tablestone.engines.change_record import (
    ID_BYTES,
    MEMORY_BYTES,
    NEWS_MAX,
    After,
    At,
    ChangedRow,
    ChangeRecord,
    ChangesRead,
    KeptChanges,
    Note,
    Retention,
    size_of,
    with_size,
)
from tablestone.engines.contract import (
    ABSENT,
    OUTDATED,
    Committed,
    Conflict,
    EngineUnavailable,
    Entry,
    Hint,
    Key,
    KeyRange,
    Put,
    Reindex,
    Rows,
    StoredRow,
    WriteSet,
    effect_of,
)
from tablestone.engines.figures import CHANGE_FIGURES, Figure, FigureKind, Values, measure_changes
from tablestone.engines.kind import CONTRACT, EngineKind
from tablestone.engines.leases import Leases
from tablestone.engines.record_age import RecordAge
from tablestone.engines.sqlite.hinted_read import Conditions, Execute, HintedReader, conditions_of


class MemoryEngine:
    capabilities = Capabilities(
        stored_in=StoredIn.PROCESS,
        processes=False,
        hints=True,
        waits=False,
        keeps_changes=True,
        checks_relied_rows=True,
        keeps_entries=True,
        reads_backwards=True,
    )
    leases: Leases | None = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows = MemoryRows([], {}, [])
        self._is_shared = False
        """A snapshot may use the rows too: copy them before a change."""
        self.generation = 0
        self._is_open = True
        self.changes = MemoryChangeLog(clock, self._is_empty)

    async def get(self, key: Key) -> bytes | None:
        self._require_open()
        stored = self._rows.stored.get(key)
        return None if stored is None else stored[1]

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        self._require_open()
        return await self._rows.read(ranges, rows_max=rows_max, bytes_max=bytes_max)

    async def snapshot(self) -> MemoryRows:
        return self.contents()

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        self._require_open()
        keys, stored = self._rows.within(key_range, rows_max), self._rows.stored
        return [StoredRow(*key, *stored[key]) for key in keys]

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        self._require_open()
        rows = self._rows
        keys, stored = rows.keys, rows.stored
        relies_on = write_set.relies_on
        if relies_on is not None and relies_on.generation != self.generation:
            for relied, version in relies_on.rows:
                if stored.get(relied, (ABSENT, None))[0] != version:
                    return OUTDATED
        now = self._clock()
        versions = [0] * len(write_set.changes)
        changed: list[ChangedRow] = []
        reindexed: list[tuple[Key, Sequence[bytes], bytes | None]] = []
        entries_of = write_set.entries_of
        for index, change in enumerate(write_set.changes):
            key = Key(write_set.partition, change.row)
            version_found, value = stored.get(key, (ABSENT, None))
            mutation = effect_of(change, index, version_found, value)
            if isinstance(mutation, Conflict):
                return mutation
            if isinstance(mutation, Put):
                versions[index] = version = max(now, version_found + 1)
                before = None if mutation.before is None else mutation.before()
                changed.append(ChangedRow(change.row, version, mutation.render(version), before))
            elif isinstance(mutation, Reindex):
                reindexed.append((key, mutation.stale, value))
            elif mutation is not None and version_found != ABSENT:
                changed.append(ChangedRow(change.row, version_found, None))
        self.generation += write_set.invalidates_caches
        if self._is_shared and (changed or reindexed):
            rows = self._rows = rows.copy()
            keys, stored = rows.keys, rows.stored
            self._is_shared = False
        for row, version, value, _before in changed:
            key = Key(write_set.partition, row)
            if entries_of is not None:
                had = set(entries_of(stored[key][1])) if key in stored else set()
                new = set() if value is None else set(entries_of(value))
                rows.change_entries(key, had - new, new - had)
            if value is None:
                del stored[key]
                del keys[bisect_left(keys, key)]
                continue
            if key not in stored:
                insort(keys, key)
            stored[key] = (version, value)
        if entries_of is not None:
            for key, stale, value in reindexed:
                new = set() if value is None else set(entries_of(value))
                rows.change_entries(key, set(stale) - new, new)
        if changed and write_set.note is not None:
            self.changes.append(write_set.note, write_set.partition, changed, now)
        return Committed(versions)

    def contents(self) -> MemoryRows:
        """All rows as they are now. The next commit changes a copy."""
        self._require_open()
        self._is_shared = True
        return self._rows

    def replace(self, contents: MemoryRows) -> None:
        self._require_open()
        self._rows = contents
        self._is_shared = True
        self.generation += 1  # any row may have changed

    async def watch(self, *, leads: bool) -> None:
        """There is nothing to watch."""

    async def check(self) -> list[str]:
        return []  # nothing is stored that could be damaged

    def measure(self) -> Values:
        kept = measure_changes(self.changes, self._clock())
        return {"memory_rows": len(self._rows.stored), **kept}

    async def close(self) -> None:
        self._is_open = False
        self._rows = MemoryRows([], {}, [])

    def _is_empty(self) -> bool:
        return not self._rows.keys

    def _require_open(self) -> None:
        if not self._is_open:
            raise EngineUnavailable("The engine is closed.")


class MemoryChangeLog:
    """The `ChangeLog` of a memory engine. Old records go when a new one comes, or at a read."""

    def __init__(self, clock: Clock, is_empty: Callable[[], bool]) -> None:
        self.age = RecordAge(clock)
        self._clock = clock
        self._is_empty = is_empty
        self._storage = secrets.token_bytes(ID_BYTES)
        self._epoch: bytes | None = None
        self._retention = Retention(None, MEMORY_BYTES)
        self._records: OrderedDict[int, ChangeRecord] = OrderedDict()
        """By number."""
        self._bytes = 0
        self._last = 0
        self._last_time = 0
        self._is_complete = False
        self._whole_since = 0
        self._has_grown = asyncio.Event()

    async def keep(self, retention: Retention | None, accepted: Retention | None = None) -> None:  # noqa: ARG002 - a server begins with no records
        if retention is None:
            self._epoch = None
            self._records.clear()
            self._bytes = 0
            return
        if self._epoch is None:
            self._epoch = secrets.token_bytes(ID_BYTES)
            self._is_complete = self._is_empty()
            self._whole_since = self._clock()
        self._retention = with_size(retention, MEMORY_BYTES)

    def append(self, note: Note, partition: bytes, rows: Sequence[ChangedRow], now: int) -> None:
        """Record a commit if changes are kept. `now` is the time of its versions."""
        if self._epoch is None:
            return
        self._last += 1
        self._last_time = max(now, self._last_time)
        record = ChangeRecord(self._last, self._last_time, note, partition, rows)
        self._records[self._last] = record
        self._bytes += size_of(record)
        self._trim()
        self._has_grown.set()

    def kept(self) -> KeptChanges | None:
        if self._epoch is None:
            return None
        self._trim()
        oldest = next(iter(self._records.values()), None)
        return KeptChanges(
            storage=self._storage,
            epoch=self._epoch,
            first=self._last + 1 if oldest is None else oldest.number,
            last=self._last,
            oldest_time=self._last_time if oldest is None else oldest.time,
            newest_time=self._last_time,
            whole_since=self._whole_since,
            bytes=self._bytes,
            is_complete=self._is_complete,
            retention=self._retention,
        )

    async def read(
        self, position: After | At, *, subject: bytes | None, rows_max: int, bytes_max: int
    ) -> ChangesRead | None:
        kept = self.kept()
        if kept is None:
            return None
        if isinstance(position, At):
            begun = None
            later = (n for n, record in self._records.items() if record.time >= position.time)
            start = next(later, kept.last + 1)
        else:
            begun = self._records.get(position.number)
            start = min(max(position.number + 1, kept.first), kept.last + 1)
        found: list[ChangeRecord] = []
        rows_read = bytes_read = 0
        reached, has_more = kept.last, False
        for number in range(start, kept.last + 1):
            record = self._records[number]
            if subject is not None and record.note.subject != subject:
                continue
            if rows_read >= rows_max or bytes_read >= bytes_max:
                reached, has_more = found[-1].number, True
                break
            found.append(record)
            rows_read += len(record.rows)
            bytes_read += size_of(record)
        return ChangesRead(
            kept,
            begun and begun.time,
            found,
            reached,
            self._records[reached].time if reached in self._records else 0,
            has_more,
        )

    async def news(self, after: int, seconds: float) -> Sequence[tuple[int, Note]]:
        self._has_grown.clear()
        if self._last <= after:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._has_grown.wait()
        first = max(after + 1, next(iter(self._records), self._last + 1))
        numbers = range(first, min(self._last, first + NEWS_MAX - 1) + 1)
        return [(number, self._records[number].note) for number in numbers]

    def _trim(self) -> None:
        ticks, bytes_max = self._retention
        assert bytes_max is not None
        oldest_time = self.age.oldest_time(ticks)
        while self._records:
            record = self._records[next(iter(self._records))]
            if record.time >= oldest_time and self._bytes <= bytes_max:
                break
            del self._records[record.number]
            self._bytes -= size_of(record)
            self._is_complete = False
            self._whole_since = record.time + 1


@lru_cache(maxsize=8)
def _hints_of(_thread: int) -> HintedReader:
    """A database without rows, which decides the hints of rows in memory. SQLite wants one for each thread."""
    return HintedReader(apsw.Connection(":memory:"))


Item = TypeVar("Item")


def _first(
    ordered: list[Item], first: int, last: int, items_max: int, *, reverse: bool
) -> list[Item]:
    """The items between two places, up to a number: the first ones, or in reverse the last."""
    if reverse:
        return ordered[max(first, last - items_max) : last][::-1]
    return ordered[first : min(last, first + items_max)]


class MemoryRows(NamedTuple):
    """The rows of an engine, shared with snapshots until the next change copies them."""

    keys: list[Key]
    """In order."""
    stored: dict[Key, tuple[int, bytes]]
    """Versions and values."""
    index_entries: list[Entry]
    """In order."""

    def copy(self) -> MemoryRows:
        return MemoryRows(self.keys.copy(), self.stored.copy(), self.index_entries.copy())

    def change_entries(self, key: Key, old: Iterable[bytes], new: Iterable[bytes]) -> None:
        for entry, is_new in [(e, True) for e in new] + [(e, False) for e in old]:
            found = Entry(entry, *key)
            at = bisect_left(self.index_entries, found)
            is_there = self.index_entries[at : at + 1] == [found]
            if is_new and not is_there:
                self.index_entries.insert(at, found)
            elif not is_new and is_there:
                del self.index_entries[at]

    async def entries(
        self, start: Entry, end: Entry, *, entries_max: int, reverse: bool = False
    ) -> list[Entry]:
        first = bisect_left(self.index_entries, start)
        last = bisect_left(self.index_entries, end)
        return _first(self.index_entries, first, last, entries_max, reverse=reverse)

    async def count_entries(self, start: Entry, end: Entry, *, entries_max: int) -> int:
        first = bisect_left(self.index_entries, start)
        return min(entries_max, bisect_left(self.index_entries, end) - first)

    def within(
        self, key_range: KeyRange, keys_max: int = sys.maxsize, *, reverse: bool = False
    ) -> list[Key]:
        first, last = (bisect_left(self.keys, key) for key in key_range)
        return _first(self.keys, first, last, keys_max, reverse=reverse)

    async def read(
        self,
        ranges: Sequence[KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: Hint | None = None,
        reverse: bool = False,
    ) -> Rows:
        values: list[bytes] = []
        bytes_read = left_out = 0
        next_key: Key | None = None
        for key_range in reversed(ranges) if reverse else ranges:
            keys = self.within(key_range, rows_max + 1, reverse=reverse)
            if hint is not None and len(ranges) == 1:
                hinted = _hints_of(get_ident())
                conditions = conditions_of(hint, in_c=hinted.in_c)
                examined = min(len(keys), rows_max, conditions.everywhere.rows_max)
                next_key = keys[examined] if examined < len(keys) else None
                keys = self._that_may_match(keys[:examined], conditions, hinted.execute)
                left_out = examined - len(keys)
            for key in keys:
                if len(values) == rows_max or (values and bytes_read >= bytes_max):
                    return Rows(values, key, left_out)
                value = self.stored[key][1]
                values.append(value)
                bytes_read += len(value)
        return Rows(values, next_key, left_out)

    def _that_may_match(
        self, keys: list[Key], conditions: Conditions, execute: Execute
    ) -> list[Key]:
        rows, condition = conditions.rows, conditions.among_rows
        if rows is not None:
            least, end = rows.start, rows.end
            keys = [key for key in keys if least <= key.row and (end is None or key.row < end)]
        if not keys or not condition.looks or "v.row" in condition.text:
            return keys
        values = tuple(self.stored[key][1] for key in keys)
        array = apsw.carray(values, flags=apsw.SQLITE_CARRAY_BLOB)
        asked = f"SELECT v.rowid FROM carray(?) AS v WHERE {condition.text}"  # noqa: S608 - values are bound
        return [keys[number - 1] for (number,) in execute(asked, (array, *condition.bindings))]

    async def close(self) -> None:
        """The rows go with their last reference."""


KIND = EngineKind(
    MemoryEngine.capabilities,
    ("memory",),
    lambda _place, clock, *_: MemoryEngine(clock),
    contract=CONTRACT,
    figures=(Figure("memory_rows", FigureKind.GAUGE, "Rows in memory."), *CHANGE_FIGURES),
)
