"""The accounts of a server: those it is configured with, those kept beside the tables, and the one for development.

For a name that several know, the configured account stands before the stored one, and that before the development
account. A stored account is read from memory for as long as it is true, with its keys made ready, so that a rotated key
is refused on the very next request of every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tablestone.auth.accounts import Account, accounts_by_name, is_account_name
from tablestone.engines.contract import Key
from tablestone.server.configuration import AccountKeys
from tablestone.tables.announced import NOT_KEPT, NotKept
from tablestone.tables.documents import DocumentKind, Documents, Members
from tablestone.tables.keys import document_place
from tablestone.tables.tenure import Tenures


class StoredAccount(NamedTuple):
    """What is stored of an account. One that `is_being_deleted` is refused already, and its name is not free yet.

    `account_id` is fresh at every creation: who was given something of the account before gets nothing of this one.
    `tenure` is that of its name when it was made (`tables.tenure`): it has none if it is older than these.
    """

    name: str
    keys: tuple[str, ...]
    is_being_deleted: bool = False
    account_id: str = ""
    tenure: int | None = None

    @classmethod
    def from_members(cls, members: Members) -> StoredAccount:
        """An account as its document has it."""
        return cls(
            members["name"],
            tuple(members["keys"]),
            members.get("isBeingDeleted", False),
            members.get("id", ""),
            members.get("tenure"),
        )

    def members(self) -> Members:
        """The account's document."""
        members: Members = {"name": self.name, "keys": list(self.keys)}
        if self.account_id:
            members["id"] = self.account_id
        if self.tenure is not None:
            members["tenure"] = self.tenure
        return members | {"isBeingDeleted": True} if self.is_being_deleted else members

    def __repr__(self) -> str:
        return f"StoredAccount({self.name!r}, {len(self.keys)} keys)"


class _Held(NamedTuple):
    """A stored account made ready; None if it is being deleted."""

    account: Account | None


def _hold(members: Members) -> _Held:
    stored = StoredAccount.from_members(members)
    if stored.is_being_deleted:
        return _Held(None)
    return _Held(Account(stored.name, stored.keys, stored.account_id, stored.tenure))


class KnownAccounts:
    """Every account of a server, by name. `fallback` are known unless they are configured or stored.

    One of these may become a stored one, with other keys, while requests are under way: with `tenures`, which belong to
    the `documents`, these are then known to be those of somebody else.
    """

    def __init__(
        self,
        configured: Iterable[AccountKeys],
        documents: Documents | None = None,
        fallback: Iterable[AccountKeys] = (),
        tenures: Tenures | None = None,
    ) -> None:
        self._configured = accounts_by_name(Account(given.name, given.keys) for given in configured)
        self._fallback = accounts_by_name(Account(given.name, given.keys) for given in fallback)
        self._documents = documents
        self._tenures = tenures
        self._fallback_now: dict[str, Account] = {}
        self._places: dict[str, Key] = {}

    def kept(self, name: str) -> Account | NotKept | None:
        """What `find` would say, if that is in memory: asked of every request, so it has to cost next to nothing."""
        account = self._configured.get(name)
        if account is not None:
            return account
        place = self._places.get(name)
        if place is None or self._documents is None:
            return NOT_KEPT
        held: _Held | NotKept | None = self._documents.kept(place)
        if held is NOT_KEPT:
            return NOT_KEPT
        return self._fallback_now.get(name) if held is None else held.account

    async def find(self, name: str) -> Account | None:
        """The account of this name, None if there is none."""
        account = self._configured.get(name)
        if account is not None:
            return account
        if not is_account_name(name):
            return None
        generation = None if self._tenures is None else self._tenures.generation
        if self._documents is not None:
            held = await self._documents.get(DocumentKind.ACCOUNT, name, _hold)
            if held is not None:
                self._remember(name)
                return held.account
        account = self._fallback.get(name)
        if account is not None:
            if self._tenures is not None:
                account = account.with_tenure(await self._tenures.current(name), generation)
            self._fallback_now[name] = account
            self._remember(name)
        return account

    def _remember(self, name: str) -> None:
        """Only names of accounts, so that nobody makes this grow by asking for others."""
        if name not in self._places:
            self._places[name] = document_place(DocumentKind.ACCOUNT.value, name)
