"""Metadata beside the tables: accounts, service properties, roles and secrets, as JSON documents by kind and name.

A document is one cached row, so a change acts on the very next request in every process.
"""

import base64
import dataclasses
import enum
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import orjson

from tablestone import limits
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    Change,
    Committed,
    Engine,
    EngineDamaged,
    EngineUnavailable,
    Key,
    OutcomeUnknown,
    Put,
    WriteSet,
)
from tablestone.model import service_properties
from tablestone.model.service_properties import FRESH, Changes, ServiceProperties
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Incarnations, Owner
from tablestone.tables.cache_invalidation import InvalidatingChange, invalidate, one_more_conflict
from tablestone.tables.cached_rows import NOT_KEPT, CachedRows, Found, NotKept

Members = dict[str, Any]
"""The members of a document, as JSON values."""


class DocumentKind(enum.Enum):
    """The kind of a document. The value is the first part of the document's place in storage, so it never changes.

    Accounts (with their keys), service properties and roles are named by the account, secrets and leases by their use,
    counts (`expiry_counts`) by a table's id and a hash of the policy and what is done with it.
    """

    ACCOUNT = b"account"
    SERVICE_PROPERTIES = b"properties"
    ROLES = b"roles"
    SECRETS = b"secrets"
    PROBE = b"probe"
    LEASES = b"leases"
    COUNTS = b"counts"

    __hash__ = object.__hash__


class Documents:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.rows = CachedRows(engine)

    async def get(
        self, kind: DocumentKind, name: str, read: Callable[[Members], Found]
    ) -> Found | None:
        """The document, converted by `read` once until it changes; None if it does not exist. A kind has one `read`."""
        key = storage_keys.document_place(kind.value, name)
        return await self.rows.get(key, lambda value: read(read_document(value)[1]))

    async def names(self, kind: DocumentKind) -> list[str]:
        names: list[str] = []
        rest = storage_keys.documents_of(kind.value)
        while rows := await self._engine.scan(rest, rows_max=limits.PAGE_ENTITIES_MAX):
            names += [row.row.decode("utf-8") for row in rows]
            rest = storage_keys.after(rest, rows[-1])
        return names

    async def change(
        self,
        kind: DocumentKind,
        name: str,
        edit: Callable[[Members | None], Members | None],
        confirm: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Replace the document by the result of `edit`. None stands for no document, before and after.

        `edit` may be called again. `confirm` is called after each read of the document and before the commit under its
        version. If either raises, nothing is changed. Raises `EngineBusy` if other requests keep changing the document.
        """
        key = storage_keys.document_place(kind.value, name)

        async def replace(change: InvalidatingChange) -> None:
            conflicts = 0
            while True:
                value = await self._engine.get(key)
                version, members = (ABSENT, None) if value is None else read_document(value)
                edited = edit(members)
                if confirm is not None:
                    await confirm()
                if edited == members:
                    return
                if await change.waits():
                    continue
                mutation = DELETE if edited is None else Put(document_renderer(edited))
                outcome = await change.commit((Change(key.row, version, mutation),))
                if isinstance(outcome, Committed):
                    return
                conflicts = one_more_conflict(conflicts, f"the {kind.name.lower()} of {name}")

        await invalidate(self._engine, key.partition, replace)


def read_document(value: bytes) -> tuple[int, Members]:
    stored = orjson.loads(value)
    return stored["version"], stored["members"]


def document_renderer(members: Members) -> Callable[[int], bytes]:
    def render(version: int) -> bytes:
        return orjson.dumps({"version": version, "members": members})

    return render


DELEGATION: Final = "user-delegation"
"""The name of the document with the secret from which user delegation keys are derived."""
OWN_KEY: Final = "token-key"
"""The name of the document with the server's own key pair, which signs tokens."""


def read_secret(members: Members) -> bytes:
    return base64.b64decode(members["secret"])


_KIND = DocumentKind.SERVICE_PROPERTIES
_FORMER = "formerOwner"
"""The only member of the document that a deleted account leaves, so that commits under its last version fail."""


def read_properties(members: Members) -> ServiceProperties | None:
    """The properties that a document contains; None for the document that a deleted account left."""
    return None if _FORMER in members else service_properties.from_members(members)


class PropertiesOfAccounts:
    def __init__(self, documents: Documents, incarnations: Incarnations) -> None:
        self._documents = documents
        self._incarnations = incarnations
        self._keys: dict[str, Key] = {}

    def kept(self, account: str) -> ServiceProperties | NotKept | None:
        """The result of `get` if it is in the cache; for every request, so it is fast."""
        key = self._keys.get(account)
        return NOT_KEPT if key is None else self._documents.rows.kept(key)

    async def get(self, account: str) -> ServiceProperties | None:
        """The account's service properties; None if they were never set."""
        if account not in self._keys:
            self._keys[account] = storage_keys.document_place(_KIND.value, account)
        return await self._documents.get(_KIND, account, read_properties)

    async def change(self, owner: Owner, changes: Changes) -> None:
        """Set the named properties and keep the others; `ResourceNotFound` if the owner was deleted."""

        def edit(members: Members | None) -> Members:
            properties = FRESH if members is None else read_properties(members) or FRESH
            return service_properties.to_members(dataclasses.replace(properties, **changes))

        await self._documents.change(
            _KIND, owner.name, edit, confirm=partial(self._incarnations.require, owner)
        )

    async def reset(self, account: str, incarnation: int) -> None:
        """Forget the properties of a deleted account. The next `incarnation` in the document ends changes under way."""
        await self._documents.change(_KIND, account, lambda _members: {_FORMER: incarnation})


async def probe_storage(engine: Engine) -> str | None:
    """Read a row and write it again; None if both succeed, else a sentence that says why not."""
    key = storage_keys.document_place(DocumentKind.PROBE.value, "ready")
    try:
        await engine.get(key)
        # Not an invalidating commit: no process keeps this row in memory.
        change = Change(key.row, ANY, Put(document_renderer({})))
        await engine.commit(WriteSet(key.partition, (change,)))
    except EngineDamaged as damaged:
        return str(damaged)
    except EngineUnavailable as refused:
        return refused.sentence
    except OutcomeUnknown as unknown:
        return f"Storage does not say whether it has written: {unknown}"
    return None
