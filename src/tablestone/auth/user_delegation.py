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

from tablestone.auth.roles import DATA_CONTRIBUTOR, DATA_READER, Assignments, Role, RoleHolder

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
    secret: bytes, account: str, fields: DelegationFields, claimed: Role | None
) -> bytes:
    """The 32 bytes that sign for a principal whose token claimed this data role, or none."""
    text = orjson.dumps([account, *fields, None if claimed is None else claimed.id])
    return hmac.digest(secret, text, hashlib.sha256)


def claimed_data_role(holder: RoleHolder) -> Role | None:
    """The strongest data role that came with a token."""
    return max(
        (role for role in _DATA_ROLES if role in holder.claimed),
        key=_DATA_ROLES.index,
        default=None,
    )


def delegating_holder(
    secret: bytes,
    account: str,
    fields: DelegationFields,
    assignments: Assignments,
    has_signed: Callable[[bytes], bool],
) -> RoleHolder | None:
    """Who signed, with the rights they have now; None if `has_signed` is true of none of the keys it can have been.

    What the signature permits is never more than what this holder may do (auth 3.11).
    """
    for claimed in _DATA_ROLES:
        if has_signed(delegation_key(secret, account, fields, claimed)):
            roles = () if claimed is None else (claimed,)
            assigned = assignments.of((fields.object_id,))
            return RoleHolder(fields.object_id, fields.tenant_id, roles, assigned)
    return None
