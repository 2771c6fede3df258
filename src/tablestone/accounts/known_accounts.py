"""The accounts of a server: configured accounts, stored accounts, and the development account.

If several have one name, the configured account wins over the stored one, and that over the development account. Stored
accounts come from the cache only while it is valid, so every process refuses a rotated key on the very next request.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tablestone.accounts.stored_accounts import StoredAccount
from tablestone.auth.account import Account, is_account_name
from tablestone.configuration import AccountKeys
from tablestone.engines.contract import Key
from tablestone.tables.account_incarnation import Incarnations
from tablestone.tables.cached_rows import NOT_KEPT, NotKept
from tablestone.tables.metadata import DocumentKind, Documents, Members
from tablestone.tables.storage_keys import document_place


class _Held(NamedTuple):
    """A stored account with its keys decoded; None if it is being deleted."""

    account: Account | None


def _hold(members: Members) -> _Held:
    stored = StoredAccount.from_members(members)
    return _Held(None if stored.is_being_deleted else stored.decoded())


def _account(given: AccountKeys) -> Account:
    return Account(given.name, given.keys, shared_key=given.shared_key, allow=given.allow)


class KnownAccounts:
    """Every account of a server, by name. One of `fallback` exists unless its name is configured or stored.

    Somebody may store an account with the name of a fallback while requests of the fallback are under way.
    `incarnations` (of `documents`) tell the requests of the two apart.
    """

    def __init__(
        self,
        configured: Iterable[AccountKeys],
        documents: Documents,
        incarnations: Incarnations,
        fallback: Iterable[AccountKeys] = (),
    ) -> None:
        self._configured = {each.name: _account(each) for each in configured}
        self._fallback = {each.name: _account(each) for each in fallback}
        self._documents = documents
        self._incarnations = incarnations
        self._fallback_now: dict[str, Account] = {}
        self._row_keys: dict[str, Key] = {}
        """The rows of accounts that exist. With other names, clients could fill the memory."""

    def kept(self, name: str) -> Account | NotKept | None:
        """The result of `find` if it is cached. Every request calls this, so it must be fast."""
        account = self._configured.get(name)
        if account is not None:
            return account
        row_key = self._row_keys.get(name)
        if row_key is None:
            return NOT_KEPT
        held: _Held | NotKept | None = self._documents.rows.kept(row_key)
        if held is NOT_KEPT:
            return NOT_KEPT
        return self._fallback_now.get(name) if held is None else held.account

    async def find(self, name: str) -> Account | None:
        account = self._configured.get(name)
        if account is not None:
            return account
        if not is_account_name(name):
            return None
        if name in self._fallback:
            return await self._find_fallback(name, self._fallback[name])
        held = await self._held(name)
        return None if held is None else held.account

    async def _find_fallback(self, name: str, account: Account) -> Account | None:
        """The account that is stored under the name of a fallback, else the fallback with its incarnation."""
        while True:
            # Read this first: an account that is stored later has another incarnation than the fallback.
            incarnation, known_at = await self._incarnations.known(name)
            held = await self._held(name)
            if held is not None:
                return held.account
            if incarnation == await self._incarnations.current(name):
                break
        account = account.with_incarnation(incarnation, known_at)
        self._fallback_now[name] = account
        self._row_keys[name] = document_place(DocumentKind.ACCOUNT.value, name)
        return account

    async def _held(self, name: str) -> _Held | None:
        held = await self._documents.get(DocumentKind.ACCOUNT, name, _hold)
        if held is not None:
            self._row_keys[name] = document_place(DocumentKind.ACCOUNT.value, name)
        return held
