"""The service properties of accounts. Each account's are one document: it is read from memory, and a change acts on the
very next request.

Does not know the meaning of a property.
"""

from __future__ import annotations

from functools import partial

from tablestone.engines.contract import Key
from tablestone.model.service_properties import (
    FRESH,
    Changes,
    ServiceProperties,
    changed,
    from_members,
    to_members,
)
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Incarnations, Owner
from tablestone.tables.cached_rows import NOT_KEPT, NotKept
from tablestone.tables.documents import DocumentKind, Documents, Members

_KIND = DocumentKind.SERVICE_PROPERTIES


_FORMER = "formerOwner"
"""The only member of the document that a deleted account leaves, so that the account's own version is gone."""


def read_properties(members: Members) -> ServiceProperties | None:
    """The properties that a document contains; None for the document that a deleted account left."""
    return None if _FORMER in members else from_members(members)


class PropertiesOfAccounts:
    """The service properties of all accounts of one engine."""

    def __init__(self, documents: Documents, incarnations: Incarnations) -> None:
        self._documents = documents
        self._incarnations = incarnations
        self._places: dict[str, Key] = {}
        self.caches = documents.caches

    def kept(self, account: str) -> ServiceProperties | NotKept | None:
        """The result of `get` if it is in the cache. Every request calls this, so it has to be very fast."""
        place = self._places.get(account)
        return NOT_KEPT if place is None else self._documents.kept(place)

    async def get(self, account: str) -> ServiceProperties | None:
        """The account's service properties; None if they were never set."""
        if account not in self._places:
            self._places[account] = storage_keys.document_place(_KIND.value, account)
        return await self._documents.get(_KIND, account, read_properties)

    async def change(self, owner: Owner, changes: Changes) -> None:
        """Set the named properties and keep the others; `ResourceNotFound` if the owner was deleted."""

        def edit(members: Members | None) -> Members:
            properties = FRESH if members is None else read_properties(members) or FRESH
            return to_members(changed(properties, changes))

        await self._documents.change(
            _KIND, owner.name, edit, confirm=partial(self._incarnations.require, owner)
        )

    async def reset(self, account: str, incarnation: int) -> None:
        """Forget all properties: the account was deleted, and `incarnation` is the next one of its name.

        A document with new content stays, so that no change that is under way can be committed.
        """
        await self._documents.change(_KIND, account, lambda _members: {_FORMER: incarnation})
