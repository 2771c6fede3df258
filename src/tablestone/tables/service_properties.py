"""The service properties of accounts, each a document: read from memory, and a change acts on the very next request.

Does not know what a property means.
"""

from __future__ import annotations

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

_KIND = DocumentKind.SERVICE_PROPERTIES


class PropertiesOfAccounts:
    """The service properties of all accounts of one engine."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._places: dict[str, Key] = {}

    def kept(self, account: str) -> ServiceProperties | NotKept | None:
        """What `get` would say, if that is in memory: asked of every request, so it has to cost next to nothing."""
        place = self._places.get(account)
        return NOT_KEPT if place is None else self._documents.kept(place)

    async def get(self, account: str) -> ServiceProperties | None:
        """The account's service properties; None if they were never set."""
        if account not in self._places:
            self._places[account] = keys.document_place(_KIND.value, account)
        return await self._documents.get(_KIND, account, from_members)

    async def change(self, account: str, changes: Changes) -> None:
        """Set those that are named, and keep the others."""

        def edit(members: Members | None) -> Members:
            properties = FRESH if members is None else from_members(members)
            return to_members(changed(properties, changes))

        await self._documents.change(_KIND, account, edit)
