"""Dry counts: what an expiry policy would hide, counted beside requests, and the token with which it may then act.

A count is a document, so that every worker can begin one and tell its state; the one that leads carries it out. Where a
change of a policy has to wait for other servers, it is carried out in the same way. The token is a MAC by a secret of
the data. It covers the version of the table's row, which the change checks in its commit: any change since spends it.
"""

import base64
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import orjson

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, Clock
from tablestone.engines.contract import (
    ANY,
    DELETE,
    Change,
    Committed,
    Engine,
    EngineUnavailable,
    Key,
    OutcomeUnknown,
    Put,
    StoredRow,
    WriteSet,
)
from tablestone.model.edm import format_date_time
from tablestone.model.errors import StorageError
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.operations import ExpiryChange
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.catalog import Catalog, TableRecord
from tablestone.tables.expiry import Counted, count_ended
from tablestone.tables.metadata import (
    DocumentKind,
    Documents,
    Members,
    document_renderer,
    read_document,
    read_secret,
)

log = logging.getLogger(__name__)

COUNTS_SECRET: Final = "expiry-counts"  # noqa: S105 - its name
"""The name of the document with the secret of the tokens."""
SECRET_LENGTH: Final = 32
VALID_TICKS: Final = 600 * TICKS_PER_SECOND
"""How long a count and its token are good."""
CLAIM_TICKS: Final = 60 * TICKS_PER_SECOND
"""How long other servers leave a count to the one that makes it, which claims it again in time."""
_ID_BYTES: Final = 8
_ID: Final = re.compile(r"[0-9a-f]{16}")
_NUMBER: Final = re.compile(r"\d{1,20}", re.ASCII)
_NUMBERS: Final = ("entities", "hidden", "removed", "never", "far")
_SHOWN: Final = ("state", "policy", *_NUMBERS, "sample", "token", "until")


class _TakenOver(Exception):
    """Another server makes the count, or somebody has asked for it again."""


class ExpiryCounts:
    def __init__(self, engine: Engine, documents: Documents, catalog: Catalog) -> None:
        self._engine = engine
        self._documents = documents
        self._catalog = catalog
        self._clock: Clock = catalog.clock
        self._process = secrets.token_hex(8)

    # What requests ask.

    async def begin(self, owner: Owner, table: str, asked: ExpiryPolicy | ExpiryChange) -> str:
        """Begin to count what a policy would hide. Returns the id of the count."""
        record = await self._catalog.require(owner, table)
        policy = changed_policy(record, asked)
        return await self._ask(owner, record, policy, "counting", record.version)

    async def change_later(
        self, owner: Owner, record: TableRecord, policy: ExpiryPolicy | None, version: int | None
    ) -> str:
        """Change the policy beside requests, if the table's row has this version then. Without one, `quieted` does."""
        return await self._ask(owner, record, policy, "changing", version)

    async def _ask(
        self,
        owner: Owner,
        record: TableRecord,
        policy: ExpiryPolicy | None,
        state: str,
        version: int | None,
    ) -> str:
        given = None if policy is None else policy.members()
        # A count is no reason to forget a change of the same policy that was accepted.
        asked = orjson.dumps([state, version is None, given])
        count = hashlib.blake2b(asked, digest_size=_ID_BYTES).hexdigest()
        members = {
            "account": owner.name,
            "table": record.name,
            "version": version,
            "policy": given,
            "state": state,
            "at": self._clock(),
        }
        place = _place(record, count)
        if state == "counting" and (value := await self._engine.get(place)) is not None:
            found = read_document(value)[1]
            if found["state"] == state and found["version"] == version:
                return count  # if it began again for each who asks, it might never end
        # Not an invalidating commit: no process keeps these rows in memory.
        change = Change(place.row, ANY, Put(document_renderer(members)))
        await self._engine.commit(WriteSet(place.partition, (change,), is_small=True))
        return count

    async def found(self, owner: Owner, table: str, count: str) -> Members:
        """What a client is told of a count; raises `CountNotFound` if it is unknown or too old."""
        record = await self._catalog.require(owner, table)
        value = await self._engine.get(_place(record, count)) if _ID.fullmatch(count) else None
        members = None if value is None else read_document(value)[1]
        if members is None or self._is_old(members):
            raise StorageError("CountNotFound")
        return {name: members[name] for name in _SHOWN if name in members}

    async def require_token(
        self, owner: Owner, record: TableRecord, policy: ExpiryPolicy | None, token: str
    ) -> None:
        """Raise `CountSpent` unless the token is good for this policy, and the table is as it was counted."""
        *texts, given = token.split("-")
        if len(texts) != 2 + len(_NUMBERS) or not all(map(_NUMBER.fullmatch, texts)):
            raise StorageError("CountSpent")
        at, version, *_ = numbers = list(map(int, texts))
        mac = await self._mac(owner, record, policy, numbers)
        is_right = mac is not None and hmac.compare_digest(mac.encode(), given.encode())
        if not is_right or abs(self._clock() - at) > VALID_TICKS or version != record.version:
            raise StorageError("CountSpent")

    # What the worker that leads does.

    async def work(
        self,
        find_owner: Callable[[str], Awaitable[Owner | None]],
        rest: Callable[[], Awaitable[None]],
    ) -> None:
        """Carry out what is asked for, and remove what is too old. `rest` lets requests run between two steps.

        One that cannot be reached now does not stop the others: the error is raised after them.
        """
        unreached: Exception | None = None
        kind = storage_keys.documents_of(DocumentKind.COUNTS.value)
        for row in await self._engine.scan(kind, rows_max=limits.PAGE_ENTITIES_MAX):
            try:
                members = read_document(row.value)[1]
                if members["state"] in ("counting", "changing"):
                    await self._carry_out(row, members, find_owner, rest)
                elif self._is_old(members):
                    await self._commit(row, None)
            except (EngineUnavailable, OutcomeUnknown) as error:
                unreached = error
        if unreached is not None:
            raise unreached

    async def _carry_out(
        self,
        row: StoredRow,
        members: Members,
        find_owner: Callable[[str], Awaitable[Owner | None]],
        rest: Callable[[], Awaitable[None]],
    ) -> None:
        is_shared = self._engine.capabilities.shares_over_network
        if is_shared:  # another server may do the same
            process, until = members.get("claim", ("", 0))
            if process != self._process and until > self._clock():
                return
        claimed_at = 0

        async def claim() -> None:
            nonlocal row, claimed_at
            if not is_shared or self._clock() < claimed_at + CLAIM_TICKS // 2:
                return
            claimed_at = self._clock()
            claimed = {**members, "claim": [self._process, claimed_at + CLAIM_TICKS]}
            version = await self._commit(row, claimed)
            if version is None:
                raise _TakenOver
            row = row._replace(version=version)

        async def rest_and_claim() -> None:
            await rest()
            await claim()

        try:
            await claim()
            more = await self._result(row, members, find_owner, rest_and_claim)
        except (EngineUnavailable, OutcomeUnknown):
            raise
        except _TakenOver:
            return
        except Exception:
            log.exception(
                "A count of expiry for %s/%s failed.", members["account"], members["table"]
            )
            more = {"state": "failed"}
        done = None if more is None else {**members, **more, "at": self._clock()}
        await self._commit(row, done)

    async def _result(
        self,
        row: StoredRow,
        members: Members,
        find_owner: Callable[[str], Awaitable[Owner | None]],
        rest: Callable[[], Awaitable[None]],
    ) -> Members | None:
        """Count or change; returns what to store of that, None if the table is gone."""
        owner = await find_owner(members["account"])
        record = None
        if owner is not None:
            with suppress(StorageError):  # the account was deleted
                record = await self._catalog.find(owner, members["table"])
        if owner is None or record is None or not row.row.startswith(_head(record)):
            return None
        policy = None if members["policy"] is None else ExpiryPolicy.from_members(members["policy"])
        if members["state"] == "counting":
            assert policy is not None
            counted = await count_ended(self._engine, record.table_id, policy, self._clock(), rest)
            return await self._counted(owner, record, policy, counted)
        version = members["version"]
        edit = partial(quieted, policy=policy) if version is None else lambda _old: policy
        try:
            await self._catalog.change_expiry(owner, record.name, edit, record.table_id, version)
        except StorageError:
            if record.expiry != policy:  # else a server that was killed had changed it
                return {"state": "spent"}
        return {"state": "changed"}

    async def _counted(
        self, owner: Owner, record: TableRecord, policy: ExpiryPolicy, counted: Counted
    ) -> Members:
        if await self._secret() is None:
            text = base64.b64encode(secrets.token_bytes(SECRET_LENGTH)).decode("ascii")
            await self._documents.change(
                DocumentKind.SECRETS, COUNTS_SECRET, lambda members: members or {"secret": text}
            )
        now = self._clock()
        numbers = [getattr(counted, name) for name in _NUMBERS]
        signed = [now, record.version, *numbers]
        mac = await self._mac(owner, record, policy, signed)
        return {
            "state": "counted",
            **dict(zip(_NUMBERS, numbers, strict=True)),
            "sample": counted.sample,
            "token": "-".join(map(str, [*signed, mac])),
            "until": format_date_time(now + VALID_TICKS),
        }

    async def _secret(self) -> bytes | None:
        return await self._documents.get(DocumentKind.SECRETS, COUNTS_SECRET, read_secret)

    async def _mac(
        self, owner: Owner, record: TableRecord, policy: ExpiryPolicy | None, numbers: list[int]
    ) -> str | None:
        secret = await self._secret()
        if secret is None or policy is None:
            return None
        text = orjson.dumps([owner.name, record.table_id.hex(), policy.members(), numbers])
        return hmac.new(secret, text, hashlib.sha256).hexdigest()

    def _is_old(self, members: Members) -> bool:
        is_done = members["state"] not in ("counting", "changing")
        return is_done and self._clock() - int(members["at"]) > VALID_TICKS

    async def _commit(self, row: StoredRow, members: Members | None) -> int | None:
        """Replace or remove a document; its new version, None if another process has changed it since."""
        mutation: Any = DELETE if members is None else Put(document_renderer(members))
        change = Change(row.row, row.version, mutation)
        outcome = await self._engine.commit(WriteSet(row.partition, (change,), is_small=True))
        return outcome.versions[0] if isinstance(outcome, Committed) else None


def changed_policy(record: TableRecord, change: ExpiryPolicy | ExpiryChange) -> ExpiryPolicy | None:
    """The policy of a table after a change; raises `NoExpiryPolicy` if it needs one to be there."""
    if isinstance(change, ExpiryPolicy):
        return change
    if record.expiry is None:
        raise StorageError("NoExpiryPolicy")
    if change is ExpiryChange.REMOVE:
        return None
    return replace(record.expiry, suspended=change is ExpiryChange.SUSPEND)


def quieted(old: ExpiryPolicy | None, policy: ExpiryPolicy | None) -> ExpiryPolicy | None:
    """The present policy suspended, or none if `policy` is none."""
    return old and policy and replace(old, suspended=True)


def _head(record: TableRecord) -> bytes:
    return f"{record.table_id.hex()}-".encode("ascii")


def _place(record: TableRecord, count: str) -> Key:
    name = _head(record).decode("ascii") + count
    return storage_keys.document_place(DocumentKind.COUNTS.value, name)
