"""How long an account has its name: until it is deleted, when another may be made that gets nothing of its requests.

A deletion ends the tenure in the account's catalog, and so does making an account: one row there has a new version.
A request that was let in earlier holds the version that its account was made under, so that what it reads afterwards
is known to be another's, and a commit that names the version fails. Knows neither keys nor why an account is deleted.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import orjson

from tablestone.engines.contract import ABSENT, ANY, Change, Committed, Engine, Key, Put, WriteSet
from tablestone.errors import StorageError
from tablestone.tables import keys
from tablestone.tables.announced import AnnouncedRows


class Owner(Protocol):
    """Whose tables a request is about."""

    @property
    def name(self) -> str:
        """The account's name."""

    @property
    def tenure(self) -> int | None:
        """What `Tenures.current` said when the account was made; None for one that no request can outlive."""

    @property
    def known_at(self) -> int | None:
        """A generation of the engine at which that was the present tenure, so that it need not be asked again."""


class Named(NamedTuple):
    """Whoever has the name now."""

    name: str
    tenure: int | None = None
    known_at: int | None = None


class Tenures:
    """The tenures of all accounts of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rows = AnnouncedRows(engine)

    @property
    def generation(self) -> int | None:
        """The engine's: while it stays, so does every tenure."""
        return self._engine.generation

    async def current(self, account: str) -> int:
        """The present tenure of the name, for an account that is made under it."""
        place = Key(keys.catalog_partition(account), keys.TENURE_ROW)
        return await self._rows.get(place, read_tenure) or ABSENT

    async def require(self, owner: Owner) -> None:
        """Raise `ResourceNotFound`, as for any account that is not there, if the owner was deleted.

        Asked after something was read, it says that this was the owner's.
        """
        if owner.tenure is None or (
            owner.known_at is not None and owner.known_at == self._engine.generation
        ):
            return
        if await self.current(owner.name) != owner.tenure:
            raise StorageError("ResourceNotFound")

    async def end(self, account: str) -> int:
        """End the tenure: the requests that are under way change nothing from now on. Answers the next one."""
        change = Change(keys.TENURE_ROW, ANY, Put(_render))
        outcome = await self._engine.commit(
            WriteSet(keys.catalog_partition(account), (change,), announced=True)
        )
        assert isinstance(outcome, Committed)
        return outcome.versions[0]


def conditions(owner: Owner) -> tuple[Change, ...]:
    """What has to hold in the owner's catalog for a commit to be the owner's."""
    return () if owner.tenure is None else (Change(keys.TENURE_ROW, owner.tenure, None),)


def read_tenure(stored: bytes) -> int:
    """The value of a catalog's row about its tenure: its own version."""
    version: int = orjson.loads(stored)["version"]
    return version


def _render(version: int) -> bytes:
    return orjson.dumps({"version": version})
