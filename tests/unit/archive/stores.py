"""Stores for tests of the archive: in memory, and one that lies."""

from __future__ import annotations

import asyncio
import builtins
from typing import TYPE_CHECKING

from tablestone.archive.objects import Name, parse_name
from tablestone.archive.store import Found, ObjectExists, ObjectMissing, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

BEGAN = 1_700_000_000.0
"""The store's clock at first, in seconds since 1970."""


class MemoryStore:
    """Objects in memory. `now` is the store's clock."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.now = BEGAN
        self.before: Callable[[str, str], None] = lambda _what, _name: None
        """Called before each request; it may raise."""
        self.may_delete = True
        self.creating = asyncio.Event()
        """A create waits while it is not set."""
        self.creating.set()
        self.waits = asyncio.Event()

    def shared(self) -> MemoryStore:
        """The same objects, as another server sees them."""
        other = MemoryStore()
        other.objects = self.objects
        return other

    async def create(self, name: str, data: bytes) -> None:
        self.before("create", name)
        if not self.creating.is_set():
            self.waits.set()
        await self.creating.wait()
        if name in self.objects:
            raise ObjectExists
        self.objects[name] = data, self.now

    async def read(self, name: str, length: int | None = None) -> bytes:
        self.before("read", name)
        if name not in self.objects:
            raise ObjectMissing
        return self.objects[name][0][:length]

    async def read_starts(self, names: Sequence[str], length: int) -> builtins.list[bytes | None]:
        return [await self.read(name, length) if name in self.objects else None for name in names]

    async def list(self, prefix: str = "") -> builtins.list[Found]:
        self.before("list", prefix)
        return [
            Found(name, len(data), modified)
            for name, (data, modified) in self.objects.items()
            if name.startswith(prefix)
        ]

    async def delete(self, name: str) -> None:
        self.before("delete", name)
        if not self.may_delete:
            raise StoreUnavailable("Access denied.")
        self.objects.pop(name, None)

    def names(self, kind: str) -> Sequence[Name]:
        """The objects of a kind, in order."""
        found = [parse_name(name) for name in sorted(self.objects) if f"/{kind}/" in name]
        return [name for name in found if name is not None]

    def damage(self, name: Name, how: Callable[[bytes], bytes] | None = None) -> None:
        """Change the bytes of an object; None: it goes."""
        if how is None:
            del self.objects[str(name)]
        else:
            data, modified = self.objects[str(name)]
            self.objects[str(name)] = how(data), modified


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


class LyingStore(MemoryStore):
    """Fails before or after what it was asked for, and its listings lack the newest objects."""

    def __init__(self, random: Random, *, errors: float = 0.3, lag: int = 2) -> None:
        super().__init__()
        self.random = random
        self.errors = errors
        self.lag = lag
        self.lied = 0

    def _fail(self) -> None:
        if self.random.random() < self.errors:
            self.lied += 1
            raise StoreUnavailable("503: Slow Down.")

    async def create(self, name: str, data: bytes) -> None:
        self._fail()
        await super().create(name, data)
        self._fail()

    async def read(self, name: str, length: int | None = None) -> bytes:
        self._fail()
        return await super().read(name, length)

    async def list(self, prefix: str = "") -> builtins.list[Found]:
        self._fail()
        found = await super().list("")
        hidden = self.random.randint(0, self.lag) if self.errors else 0
        self._fail()
        return [each for each in found[: len(found) - hidden] if each.name.startswith(prefix)]
