"""Stored accounts: their stored form, how an operator changes them, and how `check` finds damage.

Works on an engine, with or without a running server. A change acts on the server's very next request. Keys are stored
as base64 text (docs/storage-format.md) and never logged.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from tablestone.auth.account import KEYS_MAX, Account
from tablestone.auth.roles import Assignments
from tablestone.auth.user_delegation_key import SECRET_LENGTH
from tablestone.clock import Clock
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.contract import Engine
from tablestone.limits import PAGE_ENTITIES_MAX
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog
from tablestone.tables.expiry_counts import COUNTS_SECRET
from tablestone.tables.metadata import (
    DELEGATION,
    OWN_KEY,
    DocumentKind,
    Documents,
    Members,
    PropertiesOfAccounts,
    read_secret,
)
from tablestone.tables.sweeping import Sweeper

if TYPE_CHECKING:
    from tablestone.tables.integrity import DocumentReaders

KEY_BYTES: Final = 64
"""The length of the service's own keys."""
ACCOUNT_ID_BYTES: Final = 16
_INCARNATION: Final = "tenure"
"""The stored format keeps this older name of an incarnation."""


class StoredAccount(NamedTuple):
    name: str
    keys: tuple[str, ...]
    is_being_deleted: bool = False
    """Requests are refused, but the name is not free yet."""
    account_id: str = ""
    """New at every creation, so that rights to an earlier account of the name are not rights to this one."""
    incarnation: int | None = None
    """The name's incarnation at the creation (`tables.account_incarnation`); None: the account is older than those."""
    shared_key: bool = True
    allow: tuple[str, ...] = ()
    """Its rules, as in `auth.account.Account`. Storage that has some has a format that says so (`set_rules`)."""

    @property
    def rules(self) -> list[str]:
        """Its rules in words."""
        key = [] if self.shared_key else ["shared key: off"]
        return key + [f"allowed addresses: {', '.join(self.allow)}"] * bool(self.allow)

    @classmethod
    def from_members(cls, members: Members) -> StoredAccount:
        return cls(
            members["name"],
            tuple(members["keys"]),
            members.get("isBeingDeleted", False),
            members.get("id", ""),
            members.get(_INCARNATION),
            members.get("sharedKey", True),
            tuple(members.get("allow", ())),
        )

    def members(self) -> Members:
        members: Members = {"name": self.name, "keys": list(self.keys)}
        if self.account_id:
            members["id"] = self.account_id
        if self.incarnation is not None:
            members[_INCARNATION] = self.incarnation
        if not self.shared_key:
            members["sharedKey"] = False
        if self.allow:
            members["allow"] = list(self.allow)
        return members | {"isBeingDeleted": True} if self.is_being_deleted else members

    def decoded(self) -> Account:
        """Raises `ValueError` for an invalid name, key or range."""
        return Account(
            *(self.name, self.keys, self.account_id, self.incarnation),
            shared_key=self.shared_key,
            allow=self.allow,
        )

    def __repr__(self) -> str:
        return f"StoredAccount({self.name!r}, {len(self.keys)} keys)"


class AccountRefused(Exception):
    """An account cannot be created, changed or deleted. The text is one sentence for the operator."""


async def rules_in_words(engine: Engine) -> list[str]:
    """A line for each account with rules."""
    documents = Documents(engine)
    lines = []
    for name in await documents.names(DocumentKind.ACCOUNT):
        found = await documents.get(DocumentKind.ACCOUNT, name, StoredAccount.from_members)
        if found is not None and found.rules:
            lines.append(f"{name}: {'; '.join(found.rules)}")
    return lines


def generate_key() -> str:
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")


class StoredAccounts:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._documents = Documents(engine)
        self._catalog = Catalog(engine, clock, storage_keys.fresh_table_id)
        self._sweeper = Sweeper(engine, clock, storage_keys.fresh_table_id)
        self._incarnations = self._catalog.incarnations
        self._properties = PropertiesOfAccounts(self._documents, self._incarnations)

    async def all(self) -> list[StoredAccount]:
        names = await self._documents.names(DocumentKind.ACCOUNT)
        return [account for name in names if (account := await self._get(name)) is not None]

    async def get(self, name: str) -> StoredAccount:
        found = await self._get(name)
        if found is None:
            raise _not_stored(name)
        return found

    async def describe(self, name: str) -> tuple[StoredAccount, int]:
        return await self.get(name), await self._count_tables(name)

    async def exists(self, name: str) -> bool:
        return await self._get(name) is not None

    async def has_table(self, name: str, table: str) -> bool:
        return await self._catalog.find(Named(name), table) is not None

    async def create(self, name: str, keys: tuple[str, ...]) -> int:
        """Store a new account. Returns how many tables it has: tables that exist under the name belong to it."""
        try:
            Account(name, keys)
        except ValueError as error:
            raise AccountRefused(str(error)) from None

        fresh_id = secrets.token_hex(ACCOUNT_ID_BYTES)

        def edit(members: Members | None) -> Members:
            if members is None:
                return StoredAccount(name, keys, account_id=fresh_id).members()
            if StoredAccount.from_members(members).is_being_deleted:
                raise _being_deleted(name)
            raise AccountRefused(f"There is an account {name} already.")

        await self._documents.change(DocumentKind.ACCOUNT, name, edit)
        # A request under way may belong to the development account, whose public key must not reach this account.
        incarnation = await self._incarnations.end(name)

        def belong(account: StoredAccount) -> StoredAccount:
            is_ours = account.account_id == fresh_id
            return account._replace(incarnation=incarnation) if is_ours else account

        await self._change(name, belong)
        return await self._count_tables(name)

    async def replace_key(self, name: str, number: int, key: str) -> None:
        """Replace key 1 or 2. Requests that the old key signed are refused at once."""

        def edit(account: StoredAccount) -> StoredAccount:
            if account.is_being_deleted:
                raise _being_deleted(name)
            keys = list(account.keys)
            if key in keys[: number - 1] + keys[number:]:
                raise AccountRefused(
                    f"This is key {3 - number} of {name} already: it has to be another one."
                )
            if number > len(keys):
                keys.append(key)  # an account may have been created with one key
            else:
                keys[number - 1] = key
            try:
                Account(name, keys)
            except ValueError as error:
                raise AccountRefused(str(error)) from None
            return account._replace(keys=tuple(keys))

        assert 1 <= number <= KEYS_MAX
        await self._change(name, edit)

    async def has_roles(self, name: str) -> bool:
        """Whether a role is assigned in the account."""
        found = await self._documents.get(DocumentKind.ROLES, name, Assignments.read)
        return bool(list(found or ()))

    async def set_rules(
        self,
        name: str,
        *,
        shared_key: bool | None = None,
        allow: tuple[str, ...] | None = None,
        all_upgraded: bool = False,
    ) -> str | None:
        """Change the rules that are not None.

        Programs that would ignore rules refuse the format that storage gets with the first one, for good. Returns that
        format in words, if it is new. `EngineRefused` while a server may run that does not know rules, since it has
        looked at the format before, unless `all_upgraded`.
        """

        def edit(account: StoredAccount) -> StoredAccount:
            if account.is_being_deleted:
                raise _being_deleted(name)
            return account._replace(
                shared_key=account.shared_key if shared_key is None else shared_key,
                allow=account.allow if allow is None else allow,
            )

        raised: str | None = None
        is_kept = self._engine.capabilities.stored_in is not StoredIn.PROCESS
        if edit(await self.get(name)).rules and is_kept:
            keep_rules = getattr(self._engine, "keep_rules", None)
            if keep_rules is None:
                raise AccountRefused("This engine has no format for rules of accounts.")
            raised = await keep_rules(all_upgraded=all_upgraded)  # first: no program may miss them
        await self._change(name, edit)
        return raised

    async def delete(self, name: str, *, with_tables: bool) -> int:
        """Delete the account and everything that belongs to it. Returns how many tables it had.

        Requests are refused before the first table is deleted, and the name is free after the last one. An interrupted
        deletion has to be started again. A request that was authenticated before acts on this account or fails.
        """
        await self.get(name)
        if not with_tables:
            await self._require_empty(name)
        await self._change(name, lambda account: account._replace(is_being_deleted=True))
        incarnation = await self._incarnations.end(name)
        if not with_tables:
            try:
                await self._require_empty(name)  # a request may have created a table since
            except AccountRefused:
                await self._change(
                    name,
                    lambda each: each._replace(is_being_deleted=False, incarnation=incarnation),
                )
                raise
        deleted = await self._catalog.delete_all(Named(name))
        while await self._sweeper.sweep(name):
            pass
        await self._properties.reset(name, incarnation)
        for kind in (DocumentKind.ROLES, DocumentKind.ACCOUNT):
            await self._documents.change(kind, name, lambda _members: None)
        return deleted

    async def _get(self, name: str) -> StoredAccount | None:
        return await self._documents.get(DocumentKind.ACCOUNT, name, StoredAccount.from_members)

    async def _count_tables(self, name: str) -> int:
        count, first = 0, ""
        while True:
            records, following = await self._catalog.page(Named(name), first, PAGE_ENTITIES_MAX)
            count += len(records)
            if following is None:
                return count
            first = following.name

    async def _require_empty(self, name: str) -> None:
        count = await self._count_tables(name)
        if count:
            tables, them = ("1 table", "it") if count == 1 else (f"{count} tables", "them")
            raise AccountRefused(f"The account {name} has {tables}: --force deletes {them} too.")

    async def _change(self, name: str, edit: Callable[[StoredAccount], StoredAccount]) -> None:
        def edit_members(members: Members | None) -> Members:
            if members is None:
                raise _not_stored(name)
            return edit(StoredAccount.from_members(members)).members()

        await self._documents.change(DocumentKind.ACCOUNT, name, edit_members)


def _not_stored(name: str) -> AccountRefused:
    return AccountRefused(f"There is no stored account {name[:40]}.")


def _being_deleted(name: str) -> AccountRefused:
    return AccountRefused(
        f"The account {name} is being deleted: delete it again with --force to finish this."
    )


def _read_account(name: str, members: Members) -> None:
    stored = StoredAccount.from_members(members)
    if stored.name != name:
        raise ValueError("it is of an account of another name")
    stored.decoded()


def _read_roles(_name: str, members: Members) -> None:
    for assignment in Assignments.read(members):
        if not isinstance(assignment.table, str | None):
            raise TypeError("it gives a role for a table whose name is no text")


def _read_secrets(name: str, members: Members) -> None:
    if name in (DELEGATION, COUNTS_SECRET):
        if len(read_secret(members)) != SECRET_LENGTH:
            raise ValueError("its secret has another length")
    elif name == OWN_KEY:
        from tablestone.auth.bearer_tokens import require_whole  # noqa: PLC0415 - cryptography loads slowly

        require_whole(members)
    else:
        raise ValueError("it is a secret for no known use")


DOCUMENT_READERS: DocumentReaders = {
    DocumentKind.ACCOUNT: _read_account,
    DocumentKind.ROLES: _read_roles,
    DocumentKind.SECRETS: _read_secrets,
}
