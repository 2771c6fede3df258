"""Table SAS: a signature that lends rights to one table, perhaps only to a range of its keys (auth 3).

Knows what is signed in every version and what is lent. A stored access policy that the signature names is not read
here: whoever reads it hands it in (`TableSasOfPolicy`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from tablestone.auth.accounts import Account
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
from tablestone.entity import KeyBounds
from tablestone.errors import StorageError
from tablestone.operations import (
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

VERSION_MIN: Final = "2012-02-12"
"""The first version with table SAS (auth 3.1)."""
_VERSION_OF_SERVICE_PREFIX: Final = "2015-02-21"
"""From here on the resource begins with `/table` (auth 3.2)."""
BOUNDS: Final = ("spk", "srk", "epk", "erk")
"""The range of keys, as it is signed (auth 3.2)."""
_SIGNED: Final = ("sp", "st", "se", "tn", "si", "sip", "spr", "sv", *BOUNDS)


def canonicalized_table(account: str, table: str, version: str) -> str:
    """The table as it is signed: its name in lower case (auth 3.2)."""
    prefix = "/table" if version >= _VERSION_OF_SERVICE_PREFIX else ""
    return f"{prefix}/{account}/{table.lower()}"


def string_to_sign_table_sas(account: str, parameters: Parameters) -> str:
    """The values with a line feed between them, and none at the end (auth 3.2)."""
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
    """Who holds a table SAS: may do to entities of one table, within its bounds, what its permissions allow."""

    def __init__(self, table: str, permissions: str, bounds: KeyBounds | None) -> None:
        self._table = table.lower()
        self._permissions = frozenset(permissions)
        self._bounds = bounds

    def permit(self, operation: Operation) -> Operation:
        """The operation, a query within the bounds; or what auth 3.3, 3.6 and 3.8 say of every other."""
        need = NEEDS[type(operation)]
        if not need.table_sas:
            raise StorageError("AuthorizationFailure")
        assert isinstance(operation, GetEntity | QueryEntities | EntityWrite)
        if operation.table.lower() != self._table:
            raise refused(f"a signature of table {self._table!r} used on {operation.table!r}")
        if not is_met(need.table_sas, self._permissions):
            raise StorageError("AuthorizationPermissionMismatch")
        if self._bounds is None:
            return operation
        if isinstance(operation, QueryEntities):
            return replace(operation, bounds=self._bounds)
        if isinstance(operation, GetEntity):
            if not self._bounds.hold(operation.key):
                raise StorageError("ResourceNotFound")  # as if it were not there
        elif not self._bounds.hold(entity_key(operation)):
            raise StorageError("AuthorizationFailure")
        return operation


@dataclass(frozen=True, slots=True)
class TableSasOfPolicy:
    """A table SAS that is signed and names a stored access policy: what it lends is not known without that."""

    table: str
    identifier: str
    _stated: AccessPolicy
    _bounds: KeyBounds | None
    _conditions: Conditions

    def completed(
        self, identifiers: Iterable[SignedIdentifier], request: RawRequest, now: int
    ) -> TableSas:
        """Who asks, given the policies that the table has at this moment (auth 3.9). `now` is in ticks."""
        for identifier in identifiers:
            if identifier.id == self.identifier:
                break
        else:
            raise refused(f"the table has no policy {self.identifier!r}")
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
    """What the signature or its policy says; both must not, even if they say the same."""
    if stated is not None and of_policy is not None:
        raise refused(f"{name} is in the signature and in its policy")
    return of_policy if stated is None else stated


def authenticate_table_sas(
    request: RawRequest, account: Account, parameters: Parameters, now: int
) -> TableSas | TableSasOfPolicy:
    """Who asks, or the error of the first check that fails (auth 2.5). `now` is in ticks."""
    version = require_well_formed(parameters, _SIGNED, VERSION_MIN)
    if version < VERSION_OF_CONDITIONS and (parameters.get("sip") or parameters.get("spr")):
        raise refused(f"sip and spr are not signed in version {version}")
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
        raise refused("neither the signature nor its policy says se, or sp")
    Validity(effective.start, effective.expiry).require(now)
    conditions.require(request)
    return TableSas(table, effective.permission, bounds)


def parse_bounds(parameters: Parameters) -> KeyBounds | None:
    """The range of keys, None for all; a row key without its partition key is refused (auth 3.5).

    An empty value is none: what is signed does not tell the two apart.
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
