"""User delegation SAS: a table SAS that a user signed with a user delegation key (auth 3.11).

The string to sign is that of queues, followed by the range of keys, as the Python SDK signs from 12.8.0b1 on. The
signature never permits more than the user may do at this moment. The caller of this module reads the secret for user
delegation keys and the roles, and passes them in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tablestone.auth.account_keys import Account, SigningKey
from tablestone.auth.roles import Assignments, RoleHolder
from tablestone.auth.sas_parameters import (
    Conditions,
    Validity,
    has_signed,
    instant_or_none,
    parse_conditions,
    refused,
    require_well_formed,
)
from tablestone.auth.table_sas import BOUNDS, TableSas, canonicalized_table, parse_bounds
from tablestone.auth.user_delegation_key import (
    SIGNED_SERVICE,
    DelegationFields,
    delegating_holder,
)
from tablestone.model.operations import Operation
from tablestone.wire.address import Parameters
from tablestone.wire.messages import RawRequest
from tablestone.wire.versions import ServedVersions

VERSION_MIN: Final = "2025-07-05"
"""The first version with user delegation SAS of tables (auth 3.11)."""
_OF_KEY: Final = ("skoid", "sktid", "skt", "ske", "sks", "skv")
_AFTER_RESOURCE: Final = (*_OF_KEY, "skdutid", "sduoid", "sip", "spr", "sv", *BOUNDS)
_SIGNED: Final = ("sp", "st", "se", "tn", *_AFTER_RESOURCE)


def string_to_sign_user_delegation_sas(account: str, parameters: Parameters) -> str:
    """The values joined with line feeds: those of a table SAS, with eight lines about the key instead of the policy."""
    given = parameters.get
    values = [
        *[given(name, "") for name in ("sp", "st", "se")],
        canonicalized_table(account, given("tn", ""), given("sv", "")),
        *[given(name, "") for name in _AFTER_RESOURCE],
    ]
    return "\n".join(values)


class DelegatedTableSas:
    """The holder of a user delegation SAS, limited to operations that the signature and the user's roles permit."""

    def __init__(self, sas: TableSas, user: RoleHolder) -> None:
        self._sas = sas
        self._user = user

    def permit(self, operation: Operation) -> Operation:
        """The operation within the range of the signature, or the error of the signature or of the roles."""
        return self._user.permit(self._sas.permit(operation))


@dataclass(frozen=True, slots=True)
class UserDelegationSas:
    """A signature that claims to be made with a user's key. It is not verified before `completed`."""

    _account: Account
    _parameters: Parameters
    _of_key: Validity
    _of_signature: Validity
    _conditions: Conditions
    _sas: TableSas

    def completed(
        self, secret: bytes | None, assignments: Assignments, request: RawRequest, now: int
    ) -> DelegatedTableSas:
        """The caller, given the secret (None: no user ever had a key) and the current roles; `now` is in ticks."""
        given = self._parameters.get
        user: RoleHolder | None = None
        if secret is not None:
            fields = DelegationFields(*[given(name, "") for name in _OF_KEY])
            text = string_to_sign_user_delegation_sas(self._account.name, self._parameters)
            user = delegating_holder(
                secret,
                self._account.identity,
                fields,
                assignments,
                lambda key: has_signed(self._parameters, text, SigningKey(key)),
            )
        if user is None:
            raise refused("no key of this user gives the signature")
        self._of_key.require(now)
        self._of_signature.require(now)
        self._conditions.require(request)
        return DelegatedTableSas(self._sas, user)


def parse_user_delegation_sas(
    account: Account, parameters: Parameters, versions: ServedVersions
) -> UserDelegationSas:
    """The signature in a URL, not verified yet; raises if its parameters are invalid."""
    require_well_formed(parameters, _SIGNED, VERSION_MIN, versions)
    for name in ("sp", "tn", *_OF_KEY):
        if not parameters.get(name):
            raise refused(f"a user delegation SAS without {name}")
    if parameters["sks"] != SIGNED_SERVICE or versions.rules_for(parameters["skv"]) is None:
        raise refused("the key is of another service, or of no version")
    if parameters.get("si"):
        raise refused("a policy in a user delegation SAS")
    if parameters.get("sduoid") or parameters.get("skdutid"):
        # It would need a token of that user too, but a request with an Authorization header ignores the signature.
        raise refused("a user delegation SAS that is bound to another user")
    return UserDelegationSas(
        account,
        parameters,
        _validity(parameters, "skt", "ske"),
        _validity(parameters, "st", "se"),
        parse_conditions(parameters),
        TableSas(parameters["tn"], parameters["sp"], parse_bounds(parameters)),
    )


def _validity(parameters: Parameters, start: str, expiry: str) -> Validity:
    until = instant_or_none(parameters, expiry)
    if until is None:
        raise refused(f"a user delegation SAS without {expiry}")
    return Validity(instant_or_none(parameters, start), until)
