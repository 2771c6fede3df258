"""The permissions that each operation needs if the caller is not the account's owner.

The one table of permissions, with a row for each operation and a column for each kind of caller: account SAS
(auth 2.4), table SAS (auth 3.6, 3.8), roles (auth 4.4). docs/security.md shows it. An operation without a row fails a
test.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from tablestone.model.operations import (
    CreateTable,
    DeleteEntity,
    DeleteTable,
    EntityGroupTransaction,
    GetEntity,
    GetServiceProperties,
    GetServiceStats,
    GetTable,
    GetTableAcl,
    GetUserDelegationKey,
    InsertEntity,
    InsertOrMergeEntity,
    InsertOrReplaceEntity,
    MergeEntity,
    Operation,
    QueryEntities,
    QueryTables,
    SetServiceProperties,
    SetTableAcl,
    UpdateEntity,
)

SERVICE: Final = "Microsoft.Storage/storageAccounts/tableServices"
TABLES: Final = f"{SERVICE}/tables"
ENTITIES: Final = f"{TABLES}/entities"
GENERATE_USER_DELEGATION_KEY: Final = f"{SERVICE}/generateUserDelegationKey/action"
"""The action of Get User Delegation Key (auth 3.11)."""

AnyOf = tuple[frozenset[str], ...]
"""Alternatives: the caller needs everything in one of them. Without an alternative the operation is never allowed."""


def is_met(alternatives: AnyOf, held: frozenset[str]) -> bool:
    """Whether the caller's permissions include all of at least one alternative."""
    return any(alternative <= held for alternative in alternatives)


class Need(NamedTuple):
    """The permissions that an operation needs. None or no alternative: not available to this kind of caller.

    `resource_type` is a letter of `srt`, `account_sas` are letters of `sp` of an account SAS, `table_sas` letters of
    `sp` of a table SAS, and `actions` are the actions of a role. A transaction needs nothing; its operations do.
    """

    resource_type: str | None
    account_sas: AnyOf
    table_sas: AnyOf
    actions: AnyOf


def _any_of(*alternatives: str) -> AnyOf:
    """Alternatives, each given as a string of letters."""
    return tuple(frozenset(letters) for letters in alternatives)


def _actions(*alternatives: tuple[str, ...]) -> AnyOf:
    return tuple(map(frozenset, alternatives))


_WRITE: Final = f"{ENTITIES}/write"
_ADD: Final = f"{ENTITIES}/add/action"
_UPDATE: Final = f"{ENTITIES}/update/action"

_UPSERT: Final = Need("o", _any_of("au"), _any_of("au"), _actions((_WRITE,), (_ADD, _UPDATE)))
_CHANGE: Final = Need("o", _any_of("u"), _any_of("u"), _actions((_WRITE,), (_UPDATE,)))
_READ: Final = Need("o", _any_of("r"), _any_of("r"), _actions((f"{ENTITIES}/read",)))
_LIST: Final = Need("c", _any_of("l"), (), _actions((f"{TABLES}/read",)))
_READ_SERVICE: Final = Need("s", _any_of("r"), (), _actions((f"{SERVICE}/read",)))
_NEVER: Final = Need(None, (), (), ())

NEEDS: Final[dict[type, Need]] = {
    QueryTables: _LIST,
    GetTable: _LIST,
    CreateTable: Need("c", _any_of("c", "w"), (), _actions((f"{TABLES}/write",))),
    DeleteTable: Need("c", _any_of("d"), (), _actions((f"{TABLES}/delete",))),
    QueryEntities: _READ,
    GetEntity: _READ,
    InsertEntity: Need("o", _any_of("a"), _any_of("a"), _actions((_WRITE,), (_ADD,))),
    UpdateEntity: _CHANGE,
    MergeEntity: _CHANGE,
    InsertOrReplaceEntity: _UPSERT,
    InsertOrMergeEntity: _UPSERT,
    DeleteEntity: Need("o", _any_of("d"), _any_of("d"), _actions((f"{ENTITIES}/delete",))),
    EntityGroupTransaction: Need(None, (), (), ()),
    # Only the owner may read or change stored access policies (auth 2.4, 4.4).
    GetTableAcl: _NEVER,
    SetTableAcl: _NEVER,
    GetServiceProperties: _READ_SERVICE,
    SetServiceProperties: Need("s", _any_of("w"), (), _actions((f"{SERVICE}/write",))),
    GetServiceStats: _READ_SERVICE,
    GetUserDelegationKey: Need(None, (), (), _actions((GENERATE_USER_DELEGATION_KEY,))),
}
"""The needed permissions by the type of the operation."""


class Caller(Protocol):
    """An authenticated sender of requests, with known permissions."""

    def permit(self, operation: Operation) -> Operation:
        """The operation that this caller may execute, possibly narrower than the one requested.

        Raises the service's error if the caller may not execute it.
        """
        ...


class _Owner:
    """The holder of a key of the account, who may do everything (auth 1)."""

    def permit(self, operation: Operation) -> Operation:
        return operation


OWNER: Final[Caller] = _Owner()
