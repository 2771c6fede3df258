"""The service properties of accounts, each a document: read from memory, and a change acts on the very next request.

Does not know what a property means.
"""

from __future__ import annotations

from functools import partial

from tablestone.engines.contract import Key
from tablestone.service_properties import (
    FRESH,
    Changes,
    ServiceProperties,
    changed,
    from_members,
    to_members,
)
from tablestone.tables import keys
from tablestone.tables.announced import NOT_KEPT, NotKept
from tablestone.tables.documents import DocumentKind, Documents, Members
from tablestone.tables.tenure import Owner, Tenures

_KIND = DocumentKind.SERVICE_PROPERTIES


_FORMER = "formerOwner"
"""The only member of a document that a deleted account left, so that the version of its own is no longer there."""


def read_properties(members: Members) -> ServiceProperties | None:
    """What a document says; None for what a deleted account left."""
    return None if _FORMER in members else from_members(members)


class PropertiesOfAccounts:
    """The service properties of all accounts of one engine."""

    def __init__(self, documents: Documents, tenures: Tenures) -> None:
        self._documents = documents
        self._tenures = tenures
        self._places: dict[str, Key] = {}

    def kept(self, account: str) -> ServiceProperties | NotKept | None:
        """What `get` would say, if that is in memory: asked of every request, so it has to cost next to nothing."""
        place = self._places.get(account)
        return NOT_KEPT if place is None else self._documents.kept(place)

    async def get(self, account: str) -> ServiceProperties | None:
        """The account's service properties; None if they were never set."""
        if account not in self._places:
            self._places[account] = keys.document_place(_KIND.value, account)
        return await self._documents.get(_KIND, account, read_properties)

    async def change(self, owner: Owner, changes: Changes) -> None:
        """Set those that are named, and keep the others; `ResourceNotFound` if the owner was deleted."""

        def edit(members: Members | None) -> Members:
            properties = FRESH if members is None else read_properties(members) or FRESH
            return to_members(changed(properties, changes))

        await self._documents.change(
            _KIND, owner.name, edit, confirm=partial(self._tenures.require, owner)
        )

    async def reset(self, account: str, tenure: int) -> None:
        """Forget all of them: the account was deleted, and this is the tenure that follows.

        Something is left, other than anything before, so that no change that is under way can be committed.
        """
        await self._documents.change(_KIND, account, lambda _members: {_FORMER: tenure})
