"""User delegation SAS: a table SAS that a user signed, with a key that was given to them for a while (auth 3.11).

Its layout is inferred from that of queues, followed by the range of keys. What it lends is never more than what the
user may do at this moment. The secret that users' keys follow from, and the roles, are handed in by who reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tablestone.auth.accounts import Account, SigningKey
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
from tablestone.auth.user_delegation import SIGNED_SERVICE, DelegationFields, delegating_holder
from tablestone.operations import Operation
from tablestone.wire.address import Parameters
from tablestone.wire.messages import RawRequest
from tablestone.wire.negotiate import VERSIONS

VERSION_MIN: Final = "2025-07-05"
"""The first version with user delegation SAS of tables (auth 3.11)."""
_OF_KEY: Final = ("skoid", "sktid", "skt", "ske", "sks", "skv")
_AFTER_RESOURCE: Final = (*_OF_KEY, "skdutid", "sduoid", "sip", "spr", "sv", *BOUNDS)
_SIGNED: Final = ("sp", "st", "se", "tn", *_AFTER_RESOURCE)


def string_to_sign_user_delegation_sas(account: str, parameters: Parameters) -> str:
    """Values with a line feed between them: a table SAS whose policy is replaced by eight lines about the key."""
    given = parameters.get
    values = [
        *[given(name, "") for name in ("sp", "st", "se")],
        canonicalized_table(account, given("tn", ""), given("sv", "")),
        *[given(name, "") for name in _AFTER_RESOURCE],
    ]
    return "\n".join(values)


class DelegatedTableSas:
    """Who holds a user's table SAS: may do what it permits and the user may do."""

    def __init__(self, sas: TableSas, user: RoleHolder) -> None:
        self._sas = sas
        self._user = user

    def permit(self, operation: Operation) -> Operation:
        """The operation within the range of the signature, or the error of who does not permit it."""
        return self._user.permit(self._sas.permit(operation))


@dataclass(frozen=True, slots=True)
class UserDelegationSas:
    """A signature that claims to be of a user's key; nothing of it is known to be true before `completed`."""

    _account: Account
    _parameters: Parameters
    _of_key: Validity
    _of_signature: Validity
    _conditions: Conditions
    _sas: TableSas

    def completed(
        self, secret: bytes | None, assignments: Assignments, request: RawRequest, now: int
    ) -> DelegatedTableSas:
        """Who asks, given the secret (None: no user ever had a key) and the roles of this moment; `now` is in ticks."""
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


def parse_user_delegation_sas(account: Account, parameters: Parameters) -> UserDelegationSas:
    """The signature that a URL claims to have; raises for what can be none, whoever signed it."""
    require_well_formed(parameters, _SIGNED, VERSION_MIN)
    for name in ("sp", "tn", *_OF_KEY):
        if not parameters.get(name):
            raise refused(f"a user delegation SAS without {name}")
    if parameters["sks"] != SIGNED_SERVICE or parameters["skv"] not in VERSIONS:
        raise refused("the key is of another service, or of no version")
    if parameters.get("si"):
        raise refused("a policy in a user delegation SAS")
    if parameters.get("sduoid") or parameters.get("skdutid"):
        # It would hold only together with a token of that user, and an Authorization header decides alone.
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
