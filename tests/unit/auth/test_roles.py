"""Roles: the operations that each permits, by claim and by assignment; signatures with a user delegation key."""

import hmac
from functools import partial

import pytest

from tablestone.auth.permissions import GENERATE_USER_DELEGATION_KEY, NEEDS, SERVICE
from tablestone.auth.roles import (
    ACCOUNT_CONTRIBUTOR,
    DATA_CONTRIBUTOR,
    DATA_READER,
    DELEGATOR,
    NO_ASSIGNMENTS,
    ROLES,
    Assignment,
    Assignments,
    Role,
    RoleHolder,
    find_role,
)
from tablestone.auth.user_delegation_key import (
    DelegationFields,
    claimed_data_role,
    delegating_holder,
    delegation_key,
)
from tablestone.model.entity import Entity
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey
from tablestone.model.operations import (
    IF_MATCH_ANY,
    CreateTable,
    DeleteEntity,
    DeleteTable,
    EntityGroupTransaction,
    GetEntity,
    GetTable,
    InsertEntity,
    InsertOrMergeEntity,
    InsertOrReplaceEntity,
    MergeEntity,
    Operation,
    QueryEntities,
    QueryTables,
    ReadTableChanges,
    Since,
    UpdateEntity,
)

KEY = EntityKey("p", "r")
ENTITY = Entity(KEY, {})
ONE_OF_EACH: dict[type, Operation] = {
    type(operation): operation
    for operation in (
        QueryTables(None, 1, None),
        GetTable("Weather"),
        CreateTable("Weather"),
        DeleteTable("Weather"),
        QueryEntities("Weather", None, 1, None, None),
        GetEntity("Weather", KEY, None),
        ReadTableChanges("Weather", Since.NOW),
        InsertEntity("Weather", ENTITY),
        UpdateEntity("Weather", ENTITY, IF_MATCH_ANY),
        MergeEntity("Weather", ENTITY, IF_MATCH_ANY),
        InsertOrReplaceEntity("Weather", ENTITY),
        InsertOrMergeEntity("Weather", ENTITY),
        DeleteEntity("Weather", KEY, IF_MATCH_ANY),
    )
}
"""An operation of each type that a role can permit, except those of the service itself."""
OF_THE_SERVICE = {f"{SERVICE}/read", f"{SERVICE}/write", GENERATE_USER_DELEGATION_KEY}
READING = {QueryTables, GetTable, QueryEntities, GetEntity, ReadTableChanges}
PERMITTED = {
    DATA_READER: READING,
    DATA_CONTRIBUTOR: set(ONE_OF_EACH),
    DELEGATOR: set(),
    ACCOUNT_CONTRIBUTOR: set(),
}
FIELDS = DelegationFields("oid", "tid", "2017-01-05", "2017-01-06", "t", "2025-07-05")
SECRET = bytes(range(32))


def permitted(holder: RoleHolder) -> set[type]:
    found = set()
    for kind, operation in ONE_OF_EACH.items():
        try:
            assert holder.permit(operation) is operation
        except StorageError as error:
            if error.code != "AuthorizationPermissionMismatch":
                raise
            continue
        found.add(kind)
    return found


def holder_of(*assignments: Assignment, claimed: tuple[Role, ...] = ()) -> RoleHolder:
    return RoleHolder("oid", "tid", claimed, assignments)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_permits_what_it_says_and_nothing_else(role: Role) -> None:
    assert permitted(holder_of(claimed=(role,))) == PERMITTED[role]
    assert permitted(holder_of(Assignment("oid", role, None))) == PERMITTED[role]


def test_without_a_role_nothing_is_permitted() -> None:
    assert permitted(holder_of()) == set()


def test_an_assignment_for_a_table_is_for_that_table() -> None:
    """Listing all tables needs the account (auth 4.4); the case of the table's name does not matter."""
    holder = holder_of(Assignment("oid", DATA_CONTRIBUTOR, "wEATHER"))
    assert permitted(holder) == set(ONE_OF_EACH) - {QueryTables}
    elsewhere = holder_of(Assignment("oid", DATA_CONTRIBUTOR, "Other"))
    assert permitted(elsewhere) == set()


def test_rights_add_up() -> None:
    holder = holder_of(Assignment("oid", DATA_CONTRIBUTOR, "Weather"), claimed=(DATA_READER,))
    assert permitted(holder) == set(ONE_OF_EACH)
    with pytest.raises(StorageError, match="AuthorizationPermissionMismatch"):
        holder.permit(InsertEntity("Other", ENTITY))
    holder.permit(GetEntity("Other", KEY, None))


def test_what_no_role_gives_is_not_there() -> None:
    with pytest.raises(StorageError, match="ResourceNotFound"):
        holder_of(claimed=ROLES).permit(EntityGroupTransaction("Weather", "p", ()))


def test_every_operation_that_a_role_can_permit_is_tried() -> None:
    of_the_service = {
        kind for kind, need in NEEDS.items() if OF_THE_SERVICE & set().union(*need.actions)
    }
    permittable = {kind for kind, need in NEEDS.items() if need.actions}
    assert permittable - of_the_service == ONE_OF_EACH.keys()


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("Storage Table Data Reader", DATA_READER),
        ("storage table data reader", DATA_READER),
        ("Storage.Table.Data.Reader", DATA_READER),
        ("StorageTableDataContributor", DATA_CONTRIBUTOR),
        ("0A9A7E1F-B9D0-4CC4-A60D-0319B160AAA3", DATA_CONTRIBUTOR),
        ("Storage Account Contributor", ACCOUNT_CONTRIBUTOR),
        ("Storage Table Delegator", DELEGATOR),
        ("Owner", None),
        ("", None),
    ],
)
def test_roles_are_found_by_name_and_id(text: str, role: Role | None) -> None:
    assert find_role(text) is role


def test_assignments_are_read_as_they_were_stored() -> None:
    given = (Assignment("A", DATA_READER, None), Assignment("b", DATA_CONTRIBUTOR, "Weather"))
    members = Assignments(given).members()
    assert tuple(Assignments.read(members)) == given
    assert Assignments.read(members).of(("a", "c")) == [given[0]]
    members["assignments"].append({"principal": "c", "role": "of another version"})
    assert tuple(Assignments.read(members)) == given


def test_a_delegated_key_signs_for_its_user() -> None:
    mine = delegation_key(SECRET, "account", FIELDS, None)
    readers = delegation_key(SECRET, "account", FIELDS, DATA_READER)
    for key, claimed in ((mine, ()), (readers, (DATA_READER,))):
        has_signed = partial(hmac.compare_digest, key)
        holder = delegating_holder(SECRET, "account", FIELDS, NO_ASSIGNMENTS, has_signed)
        assert holder is not None
        assert (holder.object_id, holder.claimed) == ("oid", claimed)


@pytest.mark.parametrize("changed", DelegationFields._fields)
def test_no_field_of_a_delegated_key_can_be_changed(changed: str) -> None:
    key = delegation_key(SECRET, "account", FIELDS, None)
    other = FIELDS._replace(**{changed: "other"})
    for secret, account, fields in (
        (SECRET, "account", other),
        (SECRET, "account2", FIELDS),
        (bytes(32), "account", FIELDS),
    ):
        found = delegating_holder(
            secret, account, fields, NO_ASSIGNMENTS, lambda one: hmac.compare_digest(one, key)
        )
        assert found is None


def test_what_is_assigned_counts_when_a_delegated_signature_is_used() -> None:
    key = delegation_key(SECRET, "account", FIELDS, None)
    now = Assignments([Assignment("OID", DATA_READER, None)])
    holder = delegating_holder(SECRET, "account", FIELDS, now, lambda one: one == key)
    assert holder is not None
    assert permitted(holder) == READING


@pytest.mark.parametrize(
    ("claimed", "strongest"),
    [
        ((), None),
        ((DELEGATOR,), None),
        ((DATA_READER, DELEGATOR), DATA_READER),
        ((DATA_CONTRIBUTOR, DATA_READER), DATA_CONTRIBUTOR),
    ],
)
def test_the_strongest_data_role_is_passed_on(
    claimed: tuple[Role, ...], strongest: Role | None
) -> None:
    assert claimed_data_role(holder_of(claimed=claimed)) is strongest
