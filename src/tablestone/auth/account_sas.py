"""Account SAS: a signature that grants some permissions in an account (auth 2).

Knows the string to sign and the permissions granted. The permissions that each operation needs are in `permissions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tablestone.auth.account_keys import Account, SigningKey, decode_key
from tablestone.auth.permissions import NEEDS, is_met
from tablestone.auth.sas_parameters import (
    VERSION_OF_CONDITIONS,
    Validity,
    instant_or_none,
    parse_conditions,
    refused,
    require_signature,
    require_well_formed,
)
from tablestone.auth.table_sas import string_to_sign_table_sas
from tablestone.model.errors import StorageError
from tablestone.model.operations import Operation
from tablestone.wire.address import Parameters
from tablestone.wire.messages import RawRequest
from tablestone.wire.versions import ServedVersions

_SIGNED: Final = ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv", "ses")
_VERSION_OF_SCOPE: Final = "2020-12-06"
"""From this version on the encryption scope is signed too; it has no meaning for tables (auth 2.2)."""


def string_to_sign_account_sas(account: str, parameters: Parameters) -> str:
    """The account and the values, each followed by a line feed (auth 2.2)."""
    names = _SIGNED if parameters.get("sv", "") >= _VERSION_OF_SCOPE else _SIGNED[:-1]
    return "".join([f"{account}\n", *[f"{parameters.get(name, '')}\n" for name in names]])


class AccountSas:
    """The holder of an account SAS, limited to its resource types and permissions (auth 2.4)."""

    def __init__(self, resource_types: str, permissions: str) -> None:
        self._resource_types = resource_types
        self._permissions = frozenset(permissions)

    def permit(self, operation: Operation) -> Operation:
        """The operation itself, or the error for a missing resource type or permission, in this order."""
        need = NEEDS[type(operation)]
        if need.resource_type is None:
            raise StorageError("AuthorizationFailure")
        if need.resource_type not in self._resource_types:
            raise StorageError("AuthorizationResourceTypeMismatch")
        if not is_met(need.account_sas, self._permissions):
            raise StorageError("AuthorizationPermissionMismatch")
        return operation


def authenticate_account_sas(
    request: RawRequest,
    account: Account,
    parameters: Parameters,
    now: int,
    versions: ServedVersions,
) -> AccountSas:
    """The caller, or the error of the first check that fails (auth 2.5). `now` is in ticks."""
    require_well_formed(parameters, _SIGNED, VERSION_OF_CONDITIONS, versions)
    for name in ("ss", "srt", "sp"):
        if not parameters.get(name):
            raise refused(f"an account SAS without {name}")
    start, expiry = instant_or_none(parameters, "st"), instant_or_none(parameters, "se")
    if expiry is None:
        raise refused("an account SAS without se")
    conditions = parse_conditions(parameters)
    require_signature(
        parameters, string_to_sign_account_sas(account.name, parameters), account.keys
    )
    Validity(start, expiry).require(now)
    conditions.require(request)
    if "t" not in parameters["ss"]:
        raise StorageError("AuthorizationServiceMismatch")
    return AccountSas(parameters["srt"], parameters["sp"])


def signed_sas(account: str, key: str, parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters and `sig`, with a key in base64: of a table SAS if they name a table (`tn`), else of an account.

    Raises `ValueError` for a key that is not base64.
    """
    given = dict(parameters)
    text = string_to_sign_table_sas if "tn" in given else string_to_sign_account_sas
    signature = SigningKey(decode_key(key)).signature(text(account, given).encode("utf-8"))
    return {**given, "sig": signature.decode("ascii")}
