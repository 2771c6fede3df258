"""Table SAS: a signature that grants permissions on one table, or on a range of its keys (auth 3).

Knows the string to sign of each version and the permissions granted. If the signature names a stored access policy, the
caller of this module reads the policy and passes it in (`TableSasOfPolicy`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from tablestone.auth.account_keys import Account
from tablestone.auth.permissions import NEEDS, is_met
from tablestone.auth.sas_parameters import (
    VERSION_OF_CONDITIONS,
    Conditions,
    Validity,
    instant_or_none,
    parse_conditions,
    refused,
    require_signature,
    require_well_formed,
)
from tablestone.model.errors import StorageError
from tablestone.model.keys import KeyBounds
from tablestone.model.operations import (
    AccessPolicy,
    EntityWrite,
    GetEntity,
    Operation,
    QueryEntities,
    SignedIdentifier,
    entity_key,
)
from tablestone.wire.address import Parameters
from tablestone.wire.messages import RawRequest
from tablestone.wire.versions import ServedVersions

VERSION_MIN: Final = "2012-02-12"
"""The first version with table SAS (auth 3.1)."""
_VERSION_OF_SERVICE_PREFIX: Final = "2015-02-21"
"""From this version on the resource begins with `/table` (auth 3.2)."""
BOUNDS: Final = ("spk", "srk", "epk", "erk")
"""The parameters of the range of keys, in the order in which they are signed (auth 3.2)."""
_SIGNED: Final = ("sp", "st", "se", "tn", "si", "sip", "spr", "sv", *BOUNDS)


def canonicalized_table(account: str, table: str, version: str) -> str:
    """The table in the string to sign: its name in lower case (auth 3.2)."""
    prefix = "/table" if version >= _VERSION_OF_SERVICE_PREFIX else ""
    return f"{prefix}/{account}/{table.lower()}"


def string_to_sign_table_sas(account: str, parameters: Parameters) -> str:
    """The values, joined with line feeds and without one at the end (auth 3.2)."""
    given = parameters.get
    version = given("sv", "")
    values = [
        *[given(name, "") for name in ("sp", "st", "se")],
        canonicalized_table(account, given("tn", ""), version),
        given("si", ""),
        *([given("sip", ""), given("spr", "")] if version >= VERSION_OF_CONDITIONS else []),
        version,
        *[given(name, "") for name in BOUNDS],
    ]
    return "\n".join(values)


class TableSas:
    """The holder of a table SAS, limited to the entities of one table, its range of keys and its permissions."""

    def __init__(self, table: str, permissions: str, bounds: KeyBounds | None) -> None:
        self._table = table.lower()
        self._permissions = frozenset(permissions)
        self._bounds = bounds

    def permit(self, operation: Operation) -> Operation:
        """The operation, a query narrowed to the range of keys; or the error that auth 3.3, 3.6 and 3.8 give."""
        need = NEEDS[type(operation)]
        if not need.table_sas:
            raise StorageError("AuthorizationFailure")
        assert isinstance(operation, GetEntity | QueryEntities | EntityWrite)
        if operation.table.lower() != self._table:
            raise refused("a signature of another table", repr(self._table))
        if not is_met(need.table_sas, self._permissions):
            raise StorageError("AuthorizationPermissionMismatch")
        if self._bounds is None:
            return operation
        if isinstance(operation, QueryEntities):
            return replace(operation, bounds=self._bounds)
        if isinstance(operation, GetEntity):
            if not self._bounds.hold(operation.key):
                raise StorageError("ResourceNotFound")  # the same answer as for a missing entity
        elif not self._bounds.hold(entity_key(operation)):
            raise StorageError("AuthorizationFailure")
        return operation


@dataclass(frozen=True, slots=True)
class TableSasOfPolicy:
    """A correctly signed table SAS that names a stored access policy: its permissions depend on that policy."""

    table: str
    identifier: str
    _stated: AccessPolicy
    _bounds: KeyBounds | None
    _conditions: Conditions

    def completed(
        self, identifiers: Iterable[SignedIdentifier], request: RawRequest, now: int
    ) -> TableSas:
        """The caller, given the policies that the table has at this moment (auth 3.9). `now` is in ticks."""
        for identifier in identifiers:
            if identifier.id == self.identifier:
                break
        else:
            raise refused("the table has no such policy", repr(self.identifier))
        policy = identifier.policy or _NO_POLICY
        stated = self._stated
        effective = AccessPolicy(
            _one_of("st", stated.start, policy.start),
            _one_of("se", stated.expiry, policy.expiry),
            _one_of("sp", stated.permission, policy.permission),
        )
        return _caller(self.table, effective, self._bounds, self._conditions, request, now)


_NO_POLICY: Final = AccessPolicy(None, None, None)


_Value = TypeVar("_Value", int, str)


def _one_of(name: str, stated: _Value | None, of_policy: _Value | None) -> _Value | None:
    """The value from the signature or from its policy. It must not be in both, even if the two are equal."""
    if stated is not None and of_policy is not None:
        raise refused(f"{name} is in the signature and in its policy")
    return of_policy if stated is None else stated


def authenticate_table_sas(
    request: RawRequest,
    account: Account,
    parameters: Parameters,
    now: int,
    versions: ServedVersions,
) -> TableSas | TableSasOfPolicy:
    """The caller, or the error of the first check that fails (auth 2.5). `now` is in ticks."""
    version = require_well_formed(parameters, _SIGNED, VERSION_MIN, versions)
    if version < VERSION_OF_CONDITIONS and (parameters.get("sip") or parameters.get("spr")):
        raise refused("sip and spr are not signed in this version", version)
    table = parameters.get("tn", "")
    if not table:
        raise refused("a table SAS without tn")
    stated = AccessPolicy(
        instant_or_none(parameters, "st"),
        instant_or_none(parameters, "se"),
        parameters.get("sp") or None,
    )
    bounds, conditions = parse_bounds(parameters), parse_conditions(parameters)
    identifier = parameters.get("si", "")
    if not identifier and (stated.expiry is None or stated.permission is None):
        raise refused("a table SAS without se or sp, and without a policy")
    require_signature(parameters, string_to_sign_table_sas(account.name, parameters), account.keys)
    if identifier:
        return TableSasOfPolicy(table, identifier, stated, bounds, conditions)
    return _caller(table, stated, bounds, conditions, request, now)


def _caller(
    table: str,
    effective: AccessPolicy,
    bounds: KeyBounds | None,
    conditions: Conditions,
    request: RawRequest,
    now: int,
) -> TableSas:
    if effective.expiry is None or effective.permission is None:
        raise refused("se or sp is neither in the signature nor in its policy")
    Validity(effective.start, effective.expiry).require(now)
    conditions.require(request)
    return TableSas(table, effective.permission, bounds)


def parse_bounds(parameters: Parameters) -> KeyBounds | None:
    """The range of keys, None for all keys; a row key without its partition key is refused (auth 3.5).

    An empty value means the same as a missing one: the string to sign does not distinguish the two.
    """
    bounds = KeyBounds(*[parameters.get(name) or None for name in BOUNDS])
    if bounds == _NO_BOUNDS:
        return None
    if bounds.start_partition_key is None and bounds.start_row_key is not None:
        raise refused("srk without spk")
    if bounds.end_partition_key is None and bounds.end_row_key is not None:
        raise refused("erk without epk")
    return bounds


_NO_BOUNDS: Final = KeyBounds(None, None, None, None)
