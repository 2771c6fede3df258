"""Roles: what each lets its holder do, who holds which, and the caller that follows from it (auth 4.4).

A role is a set of actions, named and numbered as Azure's own. Somebody holds a role because a token says so or because
it was assigned here, for a whole account or for one table. Values only: neither tokens nor storage are known.
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
    TABLES,
)
from tablestone.errors import StorageError
from tablestone.operations import Operation


class Role(NamedTuple):
    """A role under Azure's name and id, and the actions its holder may take."""

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
"""The service's own settings, and no data: on Azure it may also read the keys, which no token can do here."""

ROLES: Final = (DATA_READER, DATA_CONTRIBUTOR, DELEGATOR, ACCOUNT_CONTRIBUTOR)
_BLANKS = re.compile(r"[\s._-]+")


def _folded(name: str) -> str:
    """Names are compared without case, blanks and the marks that stand for blanks where there can be none."""
    return _BLANKS.sub("", name).lower()


_BY_NAME: Final = {_folded(text): role for role in ROLES for text in (role.name, role.id)}


def find_role(name: str) -> Role | None:
    """The role of a name or id as people and tokens write it; None if there is none."""
    return _BY_NAME.get(_folded(name))


class Assignment(NamedTuple):
    """A principal (an object, application or group id) holds a role: in the whole account, or for one table."""

    principal: str
    role: Role
    table: str | None

    def is_same(self, other: Assignment) -> bool:
        """Whether both say the same; case matters in none of it."""
        return self._place() == other._place()

    def _place(self) -> tuple[str, str, str | None]:
        return (
            self.principal.lower(),
            self.role.id,
            None if self.table is None else self.table.lower(),
        )


class Assignments:
    """Who was given which roles in one account."""

    __slots__ = ("_by_principal",)

    def __init__(self, assignments: Iterable[Assignment] = ()) -> None:
        self._by_principal: dict[str, list[Assignment]] = {}
        for assignment in assignments:
            self._by_principal.setdefault(assignment.principal.lower(), []).append(assignment)

    def __iter__(self) -> Iterator[Assignment]:
        return (one for of_principal in self._by_principal.values() for one in of_principal)

    def of(self, principals: Iterable[str]) -> list[Assignment]:
        """Those of any of these principals: somebody's own ids and those of their groups."""
        return [
            assignment
            for principal in principals
            for assignment in self._by_principal.get(principal.lower(), ())
        ]

    @classmethod
    def read(cls, members: Mapping[str, Any]) -> Assignments:
        """As stored (`members`). A role that this version does not know gives nothing."""
        return cls(
            Assignment(stored["principal"], role, stored.get("table"))
            for stored in members["assignments"]
            if (role := find_role(stored["role"])) is not None
        )

    def members(self) -> dict[str, Any]:
        """What is stored of them."""
        return {"assignments": [_stored(assignment) for assignment in self]}


def _stored(assignment: Assignment) -> dict[str, str]:
    stored = {"principal": assignment.principal, "role": assignment.role.id}
    return stored if assignment.table is None else {**stored, "table": assignment.table}


NO_ASSIGNMENTS: Final = Assignments()


class RoleHolder:
    """A caller who may do what their roles say: those in `everywhere`, and those assigned (auth 4.4).

    `object_id` and `tenant_id` are who it is, `claimed` the roles that came with the token.
    """

    __slots__ = ("_everywhere", "_tables", "claimed", "object_id", "tenant_id")

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

    def permit(self, operation: Operation) -> Operation:
        """The operation itself; 403 without the role, and 404 for what no role gives, as recorded (auth 4.4)."""
        needed = NEEDS[type(operation)].actions
        if not needed:
            raise StorageError("ResourceNotFound")
        held = self._everywhere
        if self._tables and (table := getattr(operation, "table", None)) is not None:
            held = held.union(self._tables.get(table.lower(), ()))
        if any(alternative <= held for alternative in needed):
            return operation
        raise StorageError("AuthorizationPermissionMismatch")
