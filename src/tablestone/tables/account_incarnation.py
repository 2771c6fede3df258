"""The incarnations of an account's name: one ends when an account of the name is deleted or created.

The incarnation is the version of one row in the account's catalog; a deletion and a creation give the row a new
version. A request keeps the incarnation under which it was authenticated. So it notices that rows which it reads belong
to a later account of the name, and its commits, which require the incarnation, fail. Knows neither keys nor the reasons
for a deletion.
"""

from typing import NamedTuple, Protocol

import orjson

from tablestone.engines.contract import ABSENT, ANY, Change, Committed, Conflict, Engine, Key, Put
from tablestone.model.errors import StorageError
from tablestone.tables import storage_keys
from tablestone.tables.cache_invalidation import InvalidatingChange, invalidate
from tablestone.tables.cached_rows import CachedRows


class Owner(Protocol):
    """The account whose tables a request is about.

    `incarnation` is that of the name when the account was created; None for an account that cannot be deleted.
    It was current at the engine's generation `known_at`; while that lasts, no check is needed.
    """

    @property
    def name(self) -> str: ...
    @property
    def incarnation(self) -> int | None: ...
    @property
    def known_at(self) -> int | None: ...


class Named(NamedTuple):
    """The account that has the name now."""

    name: str
    incarnation: int | None = None
    known_at: int | None = None


class Incarnations:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.rows = CachedRows(engine)

    async def current(self, account: str) -> int:
        """The current incarnation of the name, for an account that is created under it."""
        place = Key(storage_keys.catalog_partition(account), storage_keys.INCARNATION_ROW)
        return await self.rows.get(place, read_incarnation) or ABSENT

    async def known(self, account: str) -> tuple[int, int | None]:
        """The same, and the generation for which it stays current; None if it may change at any time."""
        incarnation = await self.current(account)
        return incarnation, self.rows.kept_at

    async def require(self, owner: Owner) -> None:
        """Raise `ResourceNotFound` if the owner was deleted. If not, rows that were read before are the owner's."""
        if owner.incarnation is None or (
            owner.known_at is not None and owner.known_at == self._engine.generation
        ):
            return
        if await self.current(owner.name) != owner.incarnation:
            raise StorageError("ResourceNotFound")

    async def end(self, account: str) -> int:
        """End the incarnation, so that requests under way change nothing from now on. Returns the next one."""
        partition = storage_keys.catalog_partition(account)
        outcome = await invalidate(self._engine, partition, _end)
        assert isinstance(outcome, Committed)
        return outcome.versions[0]


async def _end(change: InvalidatingChange) -> Committed | Conflict:
    await change.waits()
    incarnation = Put(lambda version: orjson.dumps({"version": version}))
    return await change.commit((Change(storage_keys.INCARNATION_ROW, ANY, incarnation),))


def conditions(owner: Owner) -> tuple[Change, ...]:
    """The condition under which a commit is the owner's: the incarnation in the catalog is still its own."""
    if owner.incarnation is None:
        return ()
    return (Change(storage_keys.INCARNATION_ROW, owner.incarnation, None),)


def read_incarnation(stored: bytes) -> int:
    version: int = orjson.loads(stored)["version"]
    return version
