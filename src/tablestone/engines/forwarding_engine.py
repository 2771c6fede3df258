"""An engine that passes every call on to another one: the base of engines that watch calls or add to them."""

from collections.abc import Sequence

from tablestone.engines.capabilities import Capabilities
from tablestone.engines.change_record import ChangeLog
from tablestone.engines.contract import (
    Committed,
    Conflict,
    Engine,
    Entry,
    Hint,
    Key,
    KeyRange,
    Rows,
    Snapshot,
    StoredRow,
    WriteSet,
)
from tablestone.engines.leases import Leases


class ForwardingEngine:
    """A subclass overrides the calls that it changes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def capabilities(self) -> Capabilities:
        return self._engine.capabilities

    @property
    def generation(self) -> int | None:
        return self._engine.generation

    @property
    def leases(self) -> Leases | None:
        return self._engine.leases

    @property
    def changes(self) -> ChangeLog | None:
        return self._engine.changes

    @property
    def is_indexed(self) -> bool:
        """As `SqliteEngine`; an engine that does not say so has no format that an index changes."""
        return getattr(self._engine, "is_indexed", True)

    @property
    def is_nearly_full(self) -> bool:
        """As `SqliteEngine`."""
        return getattr(self._engine, "is_nearly_full", False)

    async def get(self, key: Key) -> bytes | None:
        return await self._engine.get(key)

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        return await self._engine.read(ranges, rows_max=rows_max, bytes_max=bytes_max)

    async def snapshot(self) -> Snapshot:
        return await self._engine.snapshot()

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        return await self._engine.scan(key_range, rows_max=rows_max)

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        return await self._engine.commit(write_set)

    async def watch(self, *, leads: bool) -> None:
        await self._engine.watch(leads=leads)

    async def check(self) -> list[str]:
        return await self._engine.check()

    async def close(self) -> None:
        await self._engine.close()


class ForwardingSnapshot:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    async def read(
        self,
        ranges: Sequence[KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: Hint | None = None,
        reverse: bool = False,
    ) -> Rows:
        return await self._snapshot.read(
            ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint, reverse=reverse
        )

    async def entries(
        self, start: Entry, end: Entry, *, entries_max: int, reverse: bool = False
    ) -> list[Entry]:
        return await self._snapshot.entries(start, end, entries_max=entries_max, reverse=reverse)

    async def count_entries(self, start: Entry, end: Entry, *, entries_max: int) -> int:
        return await self._snapshot.count_entries(start, end, entries_max=entries_max)

    async def close(self) -> None:
        await self._snapshot.close()
