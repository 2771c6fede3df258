"""User delegation keys, with which a principal signs shared access signatures (auth 3.11).

A key is not stored but derived: from a secret of the server, the account, the fields of the key that a signature
repeats, and the data role that the principal's token claimed, because later requests do not contain the token. Roles
assigned on this server are looked up for each request, so they can be revoked.
"""

import hashlib
import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

import orjson

from tablestone import limits
from tablestone.auth.roles import DATA_CONTRIBUTOR, DATA_READER, Assignments, Role, RoleHolder
from tablestone.clock import TICKS_PER_SECOND
from tablestone.model.edm import format_date_time_fixed
from tablestone.model.errors import StorageError
from tablestone.model.operations import GetUserDelegationKey, UserDelegationKey

SIGNED_SERVICE: Final = "t"
"""The value of `sks` for the Table service, by analogy with b and q (auth 3.11)."""
SECRET_LENGTH: Final = 32
"""Bytes of the server's secret."""


class DelegationFields(NamedTuple):
    """The fields of the key as a signature has them: skoid, sktid, skt, ske, sks, skv and skdutid."""

    object_id: str
    tenant_id: str
    start: str
    expiry: str
    service: str
    version: str
    delegated_tenant_id: str = ""


_DATA_ROLES: Final[tuple[Role | None, ...]] = (None, DATA_READER, DATA_CONTRIBUTOR)
"""The data roles that the token of a key may have claimed, the strongest last."""


def delegation_key(
    secret: bytes, identity: str, fields: DelegationFields, claimed: Role | None
) -> bytes:
    """The 32-byte key for the role that the token claimed. `identity` keeps it from a later account of the name."""
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
    """The key, with times cut to seconds; raises `InvalidXmlDocument` for impossible times. `now` is in ticks."""
    start = now if asked.start is None else asked.start
    latest = now + limits.USER_DELEGATION_KEY_SECONDS_MAX * TICKS_PER_SECOND
    if not (start < asked.expiry and now < asked.expiry and asked.expiry <= latest):
        raise StorageError("InvalidXmlDocument", reason="a key that expires too soon or too late")
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
    return next((role for role in reversed(_DATA_ROLES) if role in holder.claimed), None)


def delegating_holder(
    secret: bytes,
    identity: str,
    fields: DelegationFields,
    assignments: Assignments,
    has_signed: Callable[[bytes], bool],
) -> RoleHolder | None:
    """The user whose key signed, with the present roles; None if `has_signed` is false for every possible key."""
    for claimed in _DATA_ROLES:
        if has_signed(delegation_key(secret, identity, fields, claimed)):
            roles = () if claimed is None else (claimed,)
            assigned = assignments.of((fields.object_id,))
            return RoleHolder(fields.object_id, fields.tenant_id, roles, assigned)
    return None
