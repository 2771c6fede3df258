"""Administering the accounts that are stored beside the tables: create, list, rotate a key, delete.

Works on an engine beside the running server or without one; what is changed acts on the server's very next request.
Keys are taken and given as base64; nothing here prints or logs one.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tablestone import limits
from tablestone.auth.accounts import KEYS_MAX, Account
from tablestone.clock import Clock
from tablestone.engines.contract import Engine
from tablestone.errors import StorageError
from tablestone.server.accounts import StoredAccount
from tablestone.tables.catalog import Catalog
from tablestone.tables.documents import DocumentKind, Documents, Members
from tablestone.tables.keys import TABLE_ID_LENGTH
from tablestone.tables.service_properties import PropertiesOfAccounts
from tablestone.tables.tenure import Named

KEY_BYTES: Final = 64
"""Bytes of a key as the service makes them."""
ACCOUNT_ID_BYTES: Final = 16
"""Random bytes that tell an account from one that had its name before."""


class AccountRefused(Exception):
    """An account that cannot be made, changed or deleted; the text is one sentence for the person who asked."""


def generate_key() -> str:
    """A fresh key."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")


class StoredAccounts:
    """The stored accounts of one engine."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._documents = Documents(engine)
        self._catalog = Catalog(engine, clock, lambda: secrets.token_bytes(TABLE_ID_LENGTH))
        self._tenures = self._catalog.tenures
        self._properties = PropertiesOfAccounts(self._documents, self._tenures)

    async def all(self) -> list[StoredAccount]:
        """Every stored account, in the order of their names."""
        names = await self._documents.names(DocumentKind.ACCOUNT)
        found = [await self._get(name) for name in names]
        return [account for account in found if account is not None]

    async def get(self, name: str) -> StoredAccount:
        """The account of this name."""
        found = await self._get(name)
        if found is None:
            raise _nobody(name)
        return found

    async def describe(self, name: str) -> tuple[StoredAccount, int]:
        """The account and how many tables it has."""
        return await self.get(name), len(await self._tables(name))

    async def exists(self, name: str) -> bool:
        """Whether an account of this name is stored."""
        return await self._get(name) is not None

    async def has_table(self, name: str, table: str) -> bool:
        """Whether an account, stored or configured, has this table."""
        return await self._catalog.find(Named(name), table) is not None

    async def create(self, name: str, keys: tuple[str, ...]) -> int:
        """Store a new account, and answer how many tables an account of this name has made before: it has them now."""
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
        # Requests under way may be those of the development account, whose known key must not reach into this one.
        tenure = await self._tenures.end(name)
        await self._change(
            name,
            lambda account: (
                account._replace(tenure=tenure) if account.account_id == fresh_id else account
            ),
        )
        return len(await self._tables(name))

    async def replace_key(self, name: str, number: int, key: str) -> None:
        """Put a key in the place of key 1 or 2: what was signed with the old one is refused from now on."""

        def edit(account: StoredAccount) -> StoredAccount:
            if account.is_being_deleted:
                raise _being_deleted(name)
            keys = list(account.keys)
            if key in keys[: number - 1] + keys[number:]:
                # Who rotates wants one key to end while the other goes on.
                raise AccountRefused(
                    f"This is key {3 - number} of {name} already: it has to be another one."
                )
            if number > len(keys):
                keys.append(key)  # an account may have been made with one key
            else:
                keys[number - 1] = key
            try:
                Account(name, keys)
            except ValueError as error:
                raise AccountRefused(str(error)) from None
            return account._replace(keys=tuple(keys))

        assert 1 <= number <= KEYS_MAX
        await self._change(name, edit)

    async def delete(self, name: str, *, with_tables: bool) -> int:
        """Delete the account and everything it has, and answer how many tables that were.

        It is refused before the first table goes, and its name is free after the last has gone: when this is
        interrupted, it has to be asked for again. A request that was let in before ends as this account's or fails.
        """
        await self.get(name)
        if not with_tables:
            await self._require_empty(name)
        await self._change(name, lambda account: account._replace(is_being_deleted=True))
        tenure = await self._tenures.end(name)
        if not with_tables:
            try:
                await self._require_empty(name)  # a request may have come between
            except AccountRefused:
                await self._change(
                    name,
                    lambda account: account._replace(is_being_deleted=False, tenure=tenure),
                )
                raise
        deleted = 0
        while tables := await self._tables(name):
            for table in tables:
                with suppress(StorageError):  # somebody else has deleted it meanwhile
                    await self._catalog.delete(Named(name), table)
            deleted += len(tables)
        while await self._catalog.sweep(name):
            pass
        await self._properties.reset(name, tenure)
        for kind in (DocumentKind.ROLES, DocumentKind.ACCOUNT):
            await self._documents.change(kind, name, lambda _members: None)
        return deleted

    async def _get(self, name: str) -> StoredAccount | None:
        return await self._documents.get(DocumentKind.ACCOUNT, name, StoredAccount.from_members)

    async def _tables(self, name: str) -> list[str]:
        tables: list[str] = []
        first: str | None = ""
        while first is not None:
            records, following = await self._catalog.page(
                Named(name), first, limits.PAGE_ENTITIES_MAX
            )
            tables += [record.name for record in records]
            first = None if following is None else following.name
        return tables

    async def _require_empty(self, name: str) -> None:
        count = len(await self._tables(name))
        if count:
            tables = "1 table" if count == 1 else f"{count} tables"
            raise AccountRefused(f"The account {name} has {tables}: --force deletes them too.")

    async def _change(self, name: str, edit: Callable[[StoredAccount], StoredAccount]) -> None:
        def edit_members(members: Members | None) -> Members:
            if members is None:
                raise _nobody(name)
            return edit(StoredAccount.from_members(members)).members()

        await self._documents.change(DocumentKind.ACCOUNT, name, edit_members)


def _nobody(name: str) -> AccountRefused:
    return AccountRefused(f"There is no stored account {name[:40]}.")


def _being_deleted(name: str) -> AccountRefused:
    return AccountRefused(
        f"The account {name} is being deleted: deleting it again with --force ends that."
    )
