"""An in-memory engine that lets another client act before its n-th call, or be ahead of every commit."""

from collections.abc import Awaitable, Callable, Sequence

from tablestone.engines.contract import ABSENT, Committed, Conflict, Key, KeyRange, Rows, WriteSet
from tablestone.engines.memory import MemoryEngine


class OvertakenEngine(MemoryEngine):
    """`overtake` sets the other client's action, and the call before which it happens (0: the next)."""

    conflicts: int | None = None
    """If a test sets it, another commit is ahead of every commit; it counts them."""
    _meanwhile: Callable[[], Awaitable[object]] | None = None
    _calls = 0

    def overtake(self, meanwhile: Callable[[], Awaitable[object]], calls: int = 0) -> None:
        self._meanwhile, self._calls = meanwhile, calls

    @property
    def is_overtaken(self) -> bool:
        """Whether the other client has acted."""
        return self._meanwhile is None

    async def _let_others(self) -> None:
        meanwhile = self._meanwhile
        if meanwhile is None:
            return
        if self._calls:
            self._calls -= 1
            return
        self._meanwhile = None
        await meanwhile()

    async def get(self, key: Key) -> bytes | None:
        await self._let_others()
        return await super().get(key)

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        await self._let_others()
        return await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max)

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        if self.conflicts is not None:
            self.conflicts += 1
            return Conflict(len(write_set.changes) - 1, ABSENT)
        await self._let_others()
        return await super().commit(write_set)
