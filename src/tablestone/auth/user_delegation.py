"""User delegation keys: what a principal signs shared access signatures with, instead of an account's key (auth 3.11).

Nothing is kept of a key that was handed out. It follows from a secret of the server, the account and everything the
signature repeats of the key, so that none of it can be changed; and from the data role that the principal's token
claimed, because no later request can tell. What was assigned here is looked up at each request, and can be taken away.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

import orjson

from tablestone import limits
from tablestone.auth.roles import DATA_CONTRIBUTOR, DATA_READER, Assignments, Role, RoleHolder
from tablestone.clock import TICKS_PER_SECOND
from tablestone.edm import format_date_time_fixed
from tablestone.errors import StorageError
from tablestone.operations import GetUserDelegationKey, UserDelegationKey

SIGNED_SERVICE: Final = "t"
"""The Table service, in `sks`; by analogy with b and q (auth 3.11)."""
SECRET_LENGTH: Final = 32
"""Bytes of the server's secret."""


class DelegationFields(NamedTuple):
    """What a signature says of its key, letter for letter: skoid, sktid, skt, ske, sks, skv and skdutid."""

    object_id: str
    tenant_id: str
    start: str
    expiry: str
    service: str
    version: str
    delegated_tenant_id: str = ""


_DATA_ROLES: Final[tuple[Role | None, ...]] = (None, DATA_READER, DATA_CONTRIBUTOR)
"""What a token may have claimed that a signature can pass on, the strongest last."""


def delegation_key(
    secret: bytes, identity: str, fields: DelegationFields, claimed: Role | None
) -> bytes:
    """The 32 bytes that sign for a principal whose token claimed this data role, or none.

    `identity` is the account's, not its name: a key ends with the account, whoever has the name after it.
    """
    text = orjson.dumps([identity, *fields, None if claimed is None else claimed.id])
    return hmac.digest(secret, text, hashlib.sha256)


def issue_key(
    secret: bytes,
    identity: str,
    holder: RoleHolder,
    asked: GetUserDelegationKey,
    version: str,
    now: int,
) -> UserDelegationKey:
    """The key that was asked for, its times to the second; `now` is in ticks.

    Raises `InvalidXmlDocument` for times it cannot have.
    """
    start = now if asked.start is None else asked.start
    latest = now + limits.USER_DELEGATION_KEY_SECONDS_MAX * TICKS_PER_SECOND
    if not (start < asked.expiry and now < asked.expiry and asked.expiry <= latest):
        raise StorageError(
            "InvalidXmlDocument", early=True, reason="a key that ends too soon or too late"
        )
    fields = DelegationFields(
        holder.object_id,
        holder.tenant_id,
        _to_the_second(start),
        _to_the_second(asked.expiry),
        SIGNED_SERVICE,
        version,
    )
    value = delegation_key(secret, identity, fields, claimed_data_role(holder))
    return UserDelegationKey(*fields[:6], value)


def _to_the_second(ticks: int) -> str:
    return format_date_time_fixed(ticks)[: len("2017-01-05T03:25:45")] + "Z"


def claimed_data_role(holder: RoleHolder) -> Role | None:
    """The strongest data role that came with a token."""
    return max(
        (role for role in _DATA_ROLES if role in holder.claimed),
        key=_DATA_ROLES.index,
        default=None,
    )


def delegating_holder(
    secret: bytes,
    identity: str,
    fields: DelegationFields,
    assignments: Assignments,
    has_signed: Callable[[bytes], bool],
) -> RoleHolder | None:
    """Who signed, with the rights they have now; None if `has_signed` is true of none of the keys it can have been.

    What the signature permits is never more than what this holder may do (auth 3.11).
    """
    for claimed in _DATA_ROLES:
        if has_signed(delegation_key(secret, identity, fields, claimed)):
            roles = () if claimed is None else (claimed,)
            assigned = assignments.of((fields.object_id,))
            return RoleHolder(fields.object_id, fields.tenant_id, roles, assigned)
    return None
