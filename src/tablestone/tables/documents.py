"""What a server keeps beside tables, such as accounts and service properties: JSON documents by kind and name.

A document is one announced row, so that it is read from memory and a change acts on the very next request in every
process. Changing one is reading, editing and committing under the version that was read, again if somebody else was
first. Does not know what a document means.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from tablestone import limits
from tablestone.engines.contract import (
    ABSENT,
    DELETE,
    Change,
    Committed,
    Engine,
    EngineUnavailable,
    Key,
    Put,
    WriteSet,
)
from tablestone.tables import keys
from tablestone.tables.announced import AnnouncedRows, Found

Members = dict[str, Any]
"""The members of a document: what JSON can say."""


class DocumentKind(enum.Enum):
    """What a document is about; its value is the first part of its place in storage, so it never changes."""

    ACCOUNT = b"account"
    """An account and its keys, by the account's name."""
    SERVICE_PROPERTIES = b"properties"
    """Service properties, by the account's name."""
    ROLES = b"roles"
    """Role assignments, by the account's name."""
    SECRETS = b"secrets"
    """What the server itself signs with, by what it is for."""

    __hash__ = object.__hash__


class Documents:
    """The documents of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rows = AnnouncedRows(engine)

    async def get(
        self, kind: DocumentKind, name: str, read: Callable[[Members], Found]
    ) -> Found | None:
        """The document as `read` makes something of it (once, as long as it does not change); None if there is none.

        A kind is always to be read with the same function.
        """
        place = keys.document_place(kind.value, name)
        return await self._rows.get(place, lambda value: read(read_document(value)[1]))

    def kept(self, place: Key) -> Any:
        """What `get` made of the document at this place, if it is in memory and true; else `NOT_KEPT`."""
        return self._rows.kept(place)

    async def names(self, kind: DocumentKind) -> list[str]:
        """The names of all documents of a kind, in order."""
        names: list[str] = []
        rest = keys.documents_of(kind.value)
        while rows := await self._engine.scan(rest, rows_max=limits.PAGE_ENTITIES_MAX):
            names += [row.row.decode("utf-8") for row in rows]
            rest = keys.after(rest, rows[-1].row)
        return names

    async def change(
        self,
        kind: DocumentKind,
        name: str,
        edit: Callable[[Members | None], Members | None],
        confirm: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Replace the document by what `edit` makes of it: None where there is none, or shall be none.

        `edit` may be called more than once; what it raises is passed on and nothing is changed. So is what `confirm`
        raises, which is asked each time after the document was read and before it is committed under that version.
        Raises `EngineUnavailable` if others keep changing the same document.
        """
        place = keys.document_place(kind.value, name)
        for _ in range(limits.COMMIT_ATTEMPTS_MAX):
            value = await self._engine.get(place)
            version, members = (ABSENT, None) if value is None else read_document(value)
            edited = edit(members)
            if confirm is not None:
                await confirm()
            if edited == members:
                return
            mutation = DELETE if edited is None else Put(_renderer(edited))
            change = Change(place.row, version, mutation)
            outcome = await self._engine.commit(
                WriteSet(place.partition, (change,), announced=True)
            )
            if isinstance(outcome, Committed):
                return
        raise EngineUnavailable(f"Others keep changing the {kind.name.lower()} of {name}.")


def read_document(value: bytes) -> tuple[int, Members]:
    """A stored document: its version, which it repeats, and its members."""
    stored = orjson.loads(value)
    return stored["version"], stored["members"]


def _renderer(members: Members) -> Callable[[int], bytes]:
    def render(version: int) -> bytes:
        return orjson.dumps({"version": version, "members": members})

    return render
