"""The kinds of callers by the names that logs and metrics give them."""

from __future__ import annotations

from typing import Final

from tablestone.auth.permissions import OWNER, Caller
from tablestone.auth.roles import RoleHolder
from tablestone.auth.shared_access_signature import AccountSas, DelegatedTableSas, TableSas
from tablestone.wire.messages import RawRequest

CALLER_KINDS: Final[dict[type, str]] = {
    AccountSas: "account-sas",
    TableSas: "table-sas",
    DelegatedTableSas: "user-delegation-sas",
    RoleHolder: "token",
}
"""A key of the account has two schemes; its kind is told by the scheme that the request names."""


def kind_of(caller: Caller, request: RawRequest) -> str:
    """The kind of a caller that was authenticated with this request."""
    if caller is not OWNER:
        return CALLER_KINDS.get(type(caller), "other")
    is_lite = request.headers.get(b"authorization", b"")[:13].lower() == b"sharedkeylite"
    return "shared-key-lite" if is_lite else "shared-key"
