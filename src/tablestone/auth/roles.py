"""Roles, their assignments, and the caller that holds roles (auth 4.4).

A role is a set of actions with Azure's name and id. A principal holds a role because a token claims it, or because it
was assigned on this server, for a whole account or for one table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from tablestone.auth.permissions import (
    ENTITIES,
    GENERATE_USER_DELEGATION_KEY,
    NEEDS,
    SERVICE,
    SETTINGS,
    TABLES,
    is_met,
)
from tablestone.model.errors import StorageError
from tablestone.model.operations import Operation


class Role(NamedTuple):
    name: str
    id: str
    actions: frozenset[str]


DATA_READER: Final = Role(
    "Storage Table Data Reader",
    "76199698-9eea-4c19-bc75-cec21354c6b6",
    frozenset((f"{TABLES}/read", f"{ENTITIES}/read")),
)
DATA_CONTRIBUTOR: Final = Role(
    "Storage Table Data Contributor",
    "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3",
    frozenset(
        (
            *(f"{TABLES}/{action}" for action in ("read", "write", "delete")),
            *(f"{ENTITIES}/{action}" for action in ("read", "write", "delete")),
            *(f"{ENTITIES}/{action}/action" for action in ("add", "update")),
        )
    ),
)
DELEGATOR: Final = Role(
    "Storage Table Delegator",
    "965033a5-c8eb-4f35-b82f-fef460a3606d",
    frozenset((GENERATE_USER_DELEGATION_KEY,)),
)
ACCOUNT_CONTRIBUTOR: Final = Role(
    "Storage Account Contributor",
    "17d1049b-9a84-46fb-8f53-869881c3d3ab",
    frozenset((f"{SERVICE}/read", f"{SERVICE}/write", GENERATE_USER_DELEGATION_KEY)),
)
"""Settings of the service, but no data. On Azure it may also read the account's keys; here no token may."""

ROLES: Final = (DATA_READER, DATA_CONTRIBUTOR, DELEGATOR, ACCOUNT_CONTRIBUTOR)
_BLANKS = re.compile(r"[\s._-]+")


def _folded(name: str) -> str:
    """The name for comparisons: in lower case, without blanks and the signs that often replace them."""
    return _BLANKS.sub("", name).lower()


_BY_NAME: Final = {_folded(text): role for role in ROLES for text in (role.name, role.id)}


def find_role(name: str) -> Role | None:
    """The role with this name or id, in any usual spelling."""
    return _BY_NAME.get(_folded(name))


class Assignment(NamedTuple):
    principal: str
    """The id of an object, an application or a group."""
    role: Role
    table: str | None
    """None: the whole account."""

    def is_same(self, other: Assignment) -> bool:
        """Whether both are the same; letter case makes no difference."""
        return (
            self.role == other.role
            and self.principal.lower() == other.principal.lower()
            and (self.table or "").lower() == (other.table or "").lower()  # no table is called ""
        )


class Assignments:
    __slots__ = ("_by_principal",)

    def __init__(self, assignments: Iterable[Assignment] = ()) -> None:
        self._by_principal: dict[str, list[Assignment]] = {}
        for assignment in assignments:
            self._by_principal.setdefault(assignment.principal.lower(), []).append(assignment)

    def __iter__(self) -> Iterator[Assignment]:
        return (one for of_principal in self._by_principal.values() for one in of_principal)

    def of(self, principals: Iterable[str]) -> list[Assignment]:
        """The assignments of these principals: a caller and the caller's groups."""
        return [
            assignment
            for principal in principals
            for assignment in self._by_principal.get(principal.lower(), ())
        ]

    @classmethod
    def read(cls, members: Mapping[str, Any]) -> Assignments:
        """The assignments in a stored document, except roles that this version does not know."""
        return cls(
            Assignment(stored["principal"], role, stored.get("table"))
            for stored in members["assignments"]
            if (role := find_role(stored["role"])) is not None
        )

    def members(self) -> dict[str, Any]:
        stored = []
        for principal, role, table in self:
            one = {"principal": principal, "role": role.id}
            stored.append(one if table is None else {**one, "table": table})
        return {"assignments": stored}


NO_ASSIGNMENTS: Final = Assignments()


class RoleHolder:
    """A caller with the roles that the token claims and those assigned here (auth 4.4)."""

    __slots__ = ("_everywhere", "_tables", "claimed", "object_id", "tenant_id", "without_keys")

    def __init__(
        self,
        object_id: str,
        tenant_id: str,
        claimed: tuple[Role, ...],
        assigned: Iterable[Assignment],
    ) -> None:
        self.object_id = object_id
        self.tenant_id = tenant_id
        self.claimed = claimed
        everywhere = {action for role in claimed for action in role.actions}
        self._tables: dict[str, set[str]] = {}
        for _, role, table in assigned:
            held = everywhere if table is None else self._tables.setdefault(table.lower(), set())
            held |= role.actions
        self._everywhere = frozenset(everywhere)
        self.without_keys: Mapping[type, frozenset[str]] = {}
        """`permissions.WITHOUT_KEYS`, if the shared key is off and the caller manages the account."""

    def allow_without_keys(self, needs: Mapping[type, frozenset[str]]) -> None:
        """The shared key is off: who manages the account stands in for its owner."""
        if SETTINGS in self._everywhere:
            self.without_keys = needs

    def permit(self, operation: Operation) -> Operation:
        """The operation; 403 if none of the caller's roles permits it, 404 if no role does (recorded, auth 4.4)."""
        needed = NEEDS[type(operation)].actions
        if not needed:
            instead = self.without_keys.get(type(operation))
            if instead is None:
                raise StorageError("ResourceNotFound")
            if instead <= self._everywhere:
                return operation
            raise StorageError("AuthorizationPermissionMismatch")
        held = self._everywhere
        if self._tables and (table := getattr(operation, "table", None)) is not None:
            held = held.union(self._tables.get(table.lower(), ()))
        if is_met(needed, held):
            return operation
        raise StorageError("AuthorizationPermissionMismatch")
