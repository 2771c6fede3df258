"""The engine that keeps rows in memory: the shortest form of the contract, for tests and for throw-away servers.

It is a sorted list of keys and a dict of rows, without files, threads or flushes. Nothing in it awaits, so every call
runs alone on the loop and sees one moment. Its rows are lost at the end of the process.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

from tablestone.engines.capabilities import Capabilities, StoredIn
from tablestone.engines.contract import (
    ABSENT,
    Committed,
    Conflict,
    EngineUnavailable,
    Key,
    Put,
    Rows,
    StoredRow,
    effect_of,
)
from tablestone.engines.figures import Figure, FigureKind
from tablestone.engines.kind import EngineKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestone.clock import Clock
    from tablestone.engines.contract import Hint, KeyRange, WriteSet
    from tablestone.engines.figures import Values
    from tablestone.engines.leases import Leases


class MemoryEngine:
    """An `Engine` over a sorted list."""

    capabilities = Capabilities(
        stored_in=StoredIn.PROCESS,
        processes=False,
        hints=False,
        waits=False,
    )
    leases: Leases | None = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows = MemoryRows([], {})
        self._generation = 0
        self._is_open = True

    @property
    def generation(self) -> int | None:
        return self._generation

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
        keys, stored = self._rows.within(key_range), self._rows.stored
        return [StoredRow(*key, *stored[key]) for key in keys[:rows_max]]

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        self._require_open()
        keys, stored = self._rows.keys, self._rows.stored
        now = self._clock()
        versions = [0] * len(write_set.changes)
        puts: list[tuple[Key, int, bytes]] = []
        deletes: list[Key] = []
        for index, change in enumerate(write_set.changes):
            key = Key(write_set.partition, change.row)
            version_found, value = stored.get(key, (ABSENT, None))
            mutation = effect_of(change, index, version_found, value)
            if isinstance(mutation, Conflict):
                return mutation
            if isinstance(mutation, Put):
                versions[index] = version = max(now, version_found + 1)
                puts.append((key, version, mutation.render(version)))
            elif mutation is not None and version_found != ABSENT:
                deletes.append(key)
        self._generation += write_set.invalidates_caches
        for key, version, value in puts:
            if key not in stored:
                insort(keys, key)
            stored[key] = (version, value)
        for key in deletes:
            del stored[key]
            del keys[bisect_left(keys, key)]
        return Committed(versions)

    def contents(self) -> MemoryRows:
        """A copy of all rows."""
        self._require_open()
        return self._rows.copy()

    def replace(self, contents: MemoryRows) -> None:
        """Have these rows, and no others, with the versions that they have."""
        self._require_open()
        self._rows = contents.copy()
        self._generation += 1  # whatever was announced may be another row now

    async def watch(self, *, logs_warnings: bool) -> None:
        """There is nothing to watch."""

    async def check(self) -> list[str]:
        return []  # nothing is stored that could be damaged

    def measure(self) -> Values:
        return {"memory_rows": len(self._rows.stored)}

    async def close(self) -> None:
        self._is_open = False
        self._rows = MemoryRows([], {})

    def _require_open(self) -> None:
        if not self._is_open:
            raise EngineUnavailable("The engine is closed.")


class MemoryRows(NamedTuple):
    """Keys in order, and the versions and values of their rows. A copy is a snapshot, because rows are values."""

    keys: list[Key]
    stored: dict[Key, tuple[int, bytes]]

    def copy(self) -> MemoryRows:
        return MemoryRows(self.keys.copy(), self.stored.copy())

    def within(self, key_range: KeyRange) -> list[Key]:
        start, end = key_range
        return self.keys[bisect_left(self.keys, start) : bisect_left(self.keys, end)]

    async def read(
        self,
        ranges: Sequence[KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: Hint | None = None,  # noqa: ARG002 - leaves nothing out
    ) -> Rows:
        values: list[bytes] = []
        bytes_read = 0
        for key_range in ranges:
            for key in self.within(key_range):
                if len(values) == rows_max or (values and bytes_read >= bytes_max):
                    return Rows(values, key)
                value = self.stored[key][1]
                values.append(value)
                bytes_read += len(value)
        return Rows(values, None)

    async def close(self) -> None:
        """The copy goes with its last reference."""


KIND = EngineKind(
    MemoryEngine.capabilities,
    ("memory",),
    lambda _place, clock, *_: MemoryEngine(clock),
    figures=(Figure("memory_rows", FigureKind.GAUGE, "Rows in memory."),),
)
