"""Which permissions an operation needs if the caller is not the account's owner.

One table has a row for each operation and a column for each kind of caller: account SAS (auth 2.4), table SAS (auth
3.6, 3.8), roles (auth 4.4). docs/security.md shows it.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from tablestone.model import operations

SERVICE: Final = "Microsoft.Storage/storageAccounts/tableServices"
TABLES: Final = f"{SERVICE}/tables"
ENTITIES: Final = f"{TABLES}/entities"
GENERATE_USER_DELEGATION_KEY: Final = f"{SERVICE}/generateUserDelegationKey/action"
"""For Get User Delegation Key (auth 3.11)."""

AnyOf = tuple[frozenset[str], ...]
"""Alternatives: the caller needs everything in one of them. Empty: the operation is never allowed."""


def is_met(alternatives: AnyOf, held: frozenset[str]) -> bool:
    return any(alternative <= held for alternative in alternatives)


class Need(NamedTuple):
    """The permissions that an operation needs. Of a transaction, only its operations are checked."""

    resource_type: str | None
    """A letter of `srt`; None: no account SAS permits the operation."""
    account_sas: AnyOf
    """Letters of `sp`."""
    table_sas: AnyOf
    """Letters of `sp`."""
    actions: AnyOf
    """Actions of roles."""


def _any_of(*alternatives: Iterable[str]) -> AnyOf:
    """Alternatives, each of them a string of letters or several actions."""
    return tuple([frozenset(alternative) for alternative in alternatives])


_WRITE: Final = f"{ENTITIES}/write"
_ADD: Final = f"{ENTITIES}/add/action"
_UPDATE: Final = f"{ENTITIES}/update/action"

_UPSERT: Final = Need("o", _any_of("au"), _any_of("au"), _any_of((_WRITE,), (_ADD, _UPDATE)))
_CHANGE: Final = Need("o", _any_of("u"), _any_of("u"), _any_of((_WRITE,), (_UPDATE,)))
_READ: Final = Need("o", _any_of("r"), _any_of("r"), _any_of((f"{ENTITIES}/read",)))
_LIST: Final = Need("c", _any_of("l"), (), _any_of((f"{TABLES}/read",)))
_READ_SERVICE: Final = Need("s", _any_of("r"), (), _any_of((f"{SERVICE}/read",)))
_NEVER: Final = Need(None, (), (), ())

NEEDS: Final[dict[type, Need]] = {
    operations.QueryTables: _LIST,
    operations.GetTable: _LIST,
    operations.CreateTable: Need("c", _any_of("c", "w"), (), _any_of((f"{TABLES}/write",))),
    operations.DeleteTable: Need("c", _any_of("d"), (), _any_of((f"{TABLES}/delete",))),
    operations.QueryEntities: _READ,
    operations.ReadTableChanges: _READ,
    # Only the owner: the feed names tables that other callers may not know.
    operations.ReadAccountChanges: _NEVER,
    operations.GetEntity: _READ,
    operations.InsertEntity: Need("o", _any_of("a"), _any_of("a"), _any_of((_WRITE,), (_ADD,))),
    operations.UpdateEntity: _CHANGE,
    operations.MergeEntity: _CHANGE,
    operations.InsertOrReplaceEntity: _UPSERT,
    operations.InsertOrMergeEntity: _UPSERT,
    operations.DeleteEntity: Need(
        "o", _any_of("d"), _any_of("d"), _any_of((f"{ENTITIES}/delete",))
    ),
    operations.EntityGroupTransaction: _NEVER,
    operations.ListIndexes: _NEVER,
    operations.MakeIndex: _NEVER,
    operations.DropIndex: _NEVER,
    # Only the owner may read or change stored access policies (auth 2.4, 4.4).
    operations.GetTableAcl: _NEVER,
    operations.SetTableAcl: _NEVER,
    operations.GetTableExpiry: _NEVER,
    operations.SetTableExpiry: _NEVER,
    operations.CountTableExpiry: _NEVER,
    operations.GetServiceProperties: _READ_SERVICE,
    operations.SetServiceProperties: Need("s", _any_of("w"), (), _any_of((f"{SERVICE}/write",))),
    operations.GetServiceStats: _READ_SERVICE,
    operations.GetUserDelegationKey: Need(None, (), (), _any_of((GENERATE_USER_DELEGATION_KEY,))),
}


SETTINGS: Final = f"{SERVICE}/write"
"""Only Storage Account Contributor has this action."""
_SETTINGS_AND_DATA: Final = frozenset((SETTINGS, f"{TABLES}/read", f"{ENTITIES}/read"))
WITHOUT_KEYS: Final[dict[type, frozenset[str]]] = {
    operations.ReadAccountChanges: _SETTINGS_AND_DATA,
    **dict.fromkeys(
        (
            *(operations.ListIndexes, operations.MakeIndex, operations.DropIndex),
            *(operations.GetTableExpiry, operations.SetTableExpiry, operations.CountTableExpiry),
        ),
        frozenset((SETTINGS,)),
    ),
}
"""While the shared key of an account is off, nobody is its owner: the actions that a token needs, at the account, for
what only the owner may do otherwise."""
ACL_WITHOUT_KEYS: Final[dict[type, frozenset[str]]] = dict.fromkeys(
    (operations.GetTableAcl, operations.SetTableAcl), frozenset((SETTINGS,))
)
"""The same with `--acl-by-roles`: Azure gives these to no token."""


class Caller(Protocol):
    def permit(self, operation: operations.Operation) -> operations.Operation:
        """The operation, perhaps narrowed; raises the service's error if the caller may not execute it."""


class _Owner:
    """The holder of a key of the account, who may do everything (auth 1)."""

    def permit(self, operation: operations.Operation) -> operations.Operation:
        return operation


OWNER: Final[Caller] = _Owner()
