"""Documents: the data of a server beside its tables, such as accounts and service properties. JSON, by kind and name.

A document is one cached row: it is read from memory, and a change acts on the very next request in every process. A
change reads, edits, and commits under the version that was read; after a conflict it starts again. Does not know the
meaning of a document.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from tablestone import limits
from tablestone.engines.contract import ABSENT, DELETE, Change, Committed, Engine, Key, Put
from tablestone.tables import storage_keys
from tablestone.tables.cached_rows import CachedRows, Found
from tablestone.tables.commit_retries import one_more_conflict
from tablestone.tables.invalidating_change import InvalidatingChange, invalidate

Members = dict[str, Any]
"""The members of a document, as JSON values."""


class DocumentKind(enum.Enum):
    """The kind of a document. The value is the first part of the document's place in storage, so it never changes."""

    ACCOUNT = b"account"
    """An account and its keys, by the account's name."""
    SERVICE_PROPERTIES = b"properties"
    """Service properties, by the account's name."""
    ROLES = b"roles"
    """Role assignments, by the account's name."""
    SECRETS = b"secrets"
    """The secrets with which the server signs, by their use."""
    PROBE = b"probe"
    """The document that a probe of storage writes (`storage_probe`)."""

    __hash__ = object.__hash__


class Documents:
    """The documents of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rows = CachedRows(engine)

    @property
    def caches(self) -> tuple[CachedRows, ...]:
        """Its cached rows, for their counts."""
        return (self._rows,)

    async def get(
        self, kind: DocumentKind, name: str, read: Callable[[Members], Found]
    ) -> Found | None:
        """The result of `read` for the document (called once until it changes); None if there is no document.

        A kind must always be read with the same function.
        """
        place = storage_keys.document_place(kind.value, name)
        return await self._rows.get(place, lambda value: read(read_document(value)[1]))

    def kept(self, place: Key) -> Any:
        """The result of `get` for the document at this place if it is cached and valid; else `NOT_KEPT`."""
        return self._rows.kept(place)

    async def names(self, kind: DocumentKind) -> list[str]:
        """The names of all documents of a kind, in order."""
        names: list[str] = []
        rest = storage_keys.documents_of(kind.value)
        while rows := await self._engine.scan(rest, rows_max=limits.PAGE_ENTITIES_MAX):
            names += [row.row.decode("utf-8") for row in rows]
            rest = storage_keys.after(rest, rows[-1].row)
        return names

    async def change(
        self,
        kind: DocumentKind,
        name: str,
        edit: Callable[[Members | None], Members | None],
        confirm: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Replace the document by the result of `edit`. None stands for no document, before and after.

        `edit` may be called more than once. `confirm` is called each time after the document was read, and before the
        commit under its version. Errors of either are passed on, and nothing is changed. Raises `Overtaken` if other
        requests keep changing the same document.
        """
        place = storage_keys.document_place(kind.value, name)

        async def replace(change: InvalidatingChange) -> None:
            conflicts = 0
            while True:
                value = await self._engine.get(place)
                version, members = (ABSENT, None) if value is None else read_document(value)
                edited = edit(members)
                if confirm is not None:
                    await confirm()
                if edited == members:
                    return
                if await change.waits():
                    continue
                mutation = DELETE if edited is None else Put(_renderer(edited))
                outcome = await change.commit((Change(place.row, version, mutation),))
                if isinstance(outcome, Committed):
                    return
                conflicts = one_more_conflict(conflicts, f"the {kind.name.lower()} of {name}")

        await invalidate(self._engine, place.partition, replace)


def read_document(value: bytes) -> tuple[int, Members]:
    """The version and the members that a stored document contains."""
    stored = orjson.loads(value)
    return stored["version"], stored["members"]


def _renderer(members: Members) -> Callable[[int], bytes]:
    def render(version: int) -> bytes:
        return orjson.dumps({"version": version, "members": members})

    return render


DELEGATION: Final = "user-delegation"
"""The name of the document with the secret from which user delegation keys are derived."""
OWN_KEY: Final = "token-key"
"""The name of the document with the server's own key pair, which signs tokens."""


def read_secret(members: Members) -> bytes:
    """The secret that a document contains."""
    return base64.b64decode(members["secret"])
