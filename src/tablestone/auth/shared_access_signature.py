"""Shared access signatures: of an account (auth 2), of a table (auth 3), and of a table by a user's key (auth 3.11).

Every kind takes the same steps in the order of auth 2.5: read the parameters, find the key that signed, check the time,
the address and the protocol. Values are those of the decoded URL, never normalized (auth 2.1). Stored values (an access
policy; the secret and roles of a user's key) are arguments of `completed`.
"""

import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

from tablestone.auth.account import Account, SigningKey, decode_key
from tablestone.auth.permissions import NEEDS, is_met
from tablestone.auth.roles import Assignments, RoleHolder
from tablestone.auth.user_delegation_key import SIGNED_SERVICE, DelegationFields, delegating_holder
from tablestone.model.errors import ERRORS, StorageError
from tablestone.model.keys import KeyBounds
from tablestone.model.operations import (
    AccessPolicy,
    EntityWrite,
    GetEntity,
    Operation,
    QueryEntities,
    ReadTableChanges,
    SignedIdentifier,
    entity_key,
)
from tablestone.model.shared_access import parse_instant
from tablestone.wire.address import Parameters
from tablestone.wire.messages import RawRequest
from tablestone.wire.versions import ServedVersions

VERSION_OF_TABLE_SAS: Final = "2012-02-12"
"""The first version with table SAS (auth 3.1)."""
VERSION_OF_CONDITIONS: Final = "2015-04-05"
"""The first version that can restrict address and protocol (auth 3.1), and the first with account SAS (auth 2.1)."""
_VERSION_OF_SERVICE_PREFIX: Final = "2015-02-21"
"""From this version on the signed resource begins with `/table` (auth 3.2)."""
_VERSION_OF_SCOPE: Final = "2020-12-06"
"""From this version on the encryption scope is signed too, although tables have none (auth 2.2)."""


class _Kind(NamedTuple):
    name: str
    version_min: str
    signed: tuple[str, ...]
    """Its parameters in the order of the string to sign."""
    required: tuple[str, ...]


_BOUNDS: Final = ("spk", "srk", "epk", "erk")
_OF_KEY: Final = ("skoid", "sktid", "skt", "ske", "sks", "skv")
_ACCOUNT: Final = _Kind(
    "an account SAS",
    VERSION_OF_CONDITIONS,
    ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv", "ses"),
    ("ss", "srt", "sp"),
)
_TABLE: Final = _Kind(
    "a table SAS",
    VERSION_OF_TABLE_SAS,
    ("sp", "st", "se", "tn", "si", "sip", "spr", "sv", *_BOUNDS),
    ("tn",),
)
# The layout of queues, followed by the range of keys, as the Python SDK signs from 12.8.0b1 on (auth 3.11).
_DELEGATED: Final = _Kind(
    "a user delegation SAS",
    "2025-07-05",
    ("sp", "st", "se", "tn", *_OF_KEY, "skdutid", "sduoid", "sip", "spr", "sv", *_BOUNDS),
    ("sp", "tn", *_OF_KEY),
)
_SERVICES: Final = frozenset("bqtf")
"""The letters of `ss`: blobs, queues, tables, files (auth 2.1)."""
_NAMES: Final = frozenset((*_ACCOUNT.signed, *_TABLE.signed, *_DELEGATED.signed, "sig"))


def refused(reason: str, detail: str | None = None) -> StorageError:
    """`AuthenticationFailed`. Its `reason` and `detail` are for the log only (auth 5.3)."""
    return StorageError("AuthenticationFailed", reason=reason, detail=detail)


def require_single(repeated: frozenset[str]) -> None:
    """Raise if a parameter of the signature occurs twice: only one of the two can be signed (auth 2.1)."""
    found = repeated & _NAMES
    if found:
        raise refused(f"{', '.join(sorted(found))} came twice")


# Reading the parameters.


def _require_well_formed(kind: _Kind, parameters: Parameters, versions: ServedVersions) -> None:
    """Raise for a value with a line feed, a version that is not served, or a missing parameter.

    Versions compare as texts, so one later than the latest known has the form of the latest.
    """
    for name in kind.signed:
        if "\n" in parameters.get(name, ""):
            raise refused(f"{name} has a line feed")
    version = parameters.get("sv", "")
    if versions.rules_for(version) is None or version < kind.version_min:
        raise refused("sv is no version of such a signature", repr(version))
    for name in kind.required:
        if not parameters.get(name):
            raise refused(f"{kind.name} without {name}")


def _instant_or_none(parameters: Parameters, name: str) -> int | None:
    """A date in ticks; None if it is missing or empty: the string to sign does not distinguish the two."""
    text = parameters.get(name)
    if not text:
        return None
    try:
        return parse_instant(text)
    except ValueError as error:
        raise refused(f"{name} is no date", repr(text)) from error


class Validity(NamedTuple):
    """When a signature is valid, in ticks: from `start` (None: always) to `expiry`, exclusive."""

    start: int | None
    expiry: int

    def require(self, now: int) -> None:
        """Raise if the signature is not valid now. There is no tolerance for clocks (auth 2.5)."""
        if self.start is not None and now < self.start:
            raise refused("the signature does not hold yet")
        if now >= self.expiry:
            raise refused("the signature has expired")


def _parse_validity(
    kind: _Kind, parameters: Parameters, start: str = "st", expiry: str = "se"
) -> Validity:
    until = _instant_or_none(parameters, expiry)
    if until is None:
        raise refused(f"{kind.name} without {expiry}")
    return Validity(_instant_or_none(parameters, start), until)


_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class Conditions(NamedTuple):
    addresses: tuple[_IPAddress, _IPAddress] | None
    """`sip`; both ends are inclusive."""
    https_only: bool
    """`spr`."""

    def require(self, request: RawRequest) -> None:
        """Raise if the request came from another address or, checked next, over another protocol (auth 2.5)."""
        if self.addresses is not None and not _is_between(request.client, *self.addresses):
            code = "AuthorizationSourceIPMismatch"
            raise StorageError(code, ERRORS[code].text.format(SourceIP=request.client))
        if self.https_only and request.scheme != "https":
            raise StorageError("AuthorizationProtocolMismatch")


def parse_conditions(parameters: Parameters) -> Conditions:
    """The conditions in `sip` and `spr`; raises for an invalid value. An empty one is no condition."""
    protocol = parameters.get("spr", "")
    if protocol not in ("", "https", "https,http"):
        raise refused("spr is no protocol", repr(protocol))
    addresses = parameters.get("sip", "")
    return Conditions(_parse_addresses(addresses) if addresses else None, protocol == "https")


def _parse_addresses(text: str) -> tuple[_IPAddress, _IPAddress]:
    first, dash, last = text.partition("-")
    try:
        start = _parse_address(first)
        end = _parse_address(last) if dash else start
    except ValueError as error:
        raise refused("sip is no address and no range", repr(text)) from error
    if start.version != end.version:
        raise refused("sip is a range of two kinds of addresses", repr(text))
    return start, end


def _parse_address(text: str) -> _IPAddress:
    """An address. An IPv4-mapped IPv6 address becomes the IPv4 address. Raises `ValueError` for one with a zone."""
    if "%" in text:
        raise ValueError(text)
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _is_between(client: str, start: _IPAddress, end: _IPAddress) -> bool:
    try:
        address = _parse_address(client.partition("%")[0])
    except ValueError:  # a client on a Unix domain socket has no address
        return False
    return address.version == start.version and int(start) <= int(address) <= int(end)


def _parse_bounds(parameters: Parameters) -> KeyBounds | None:
    """The range of keys; None for all keys. A row key without its partition key is refused (auth 3.5)."""
    # An empty value counts as missing, because the string to sign does not distinguish the two.
    given = [parameters.get(name) or None for name in _BOUNDS]
    if not any(given):
        return None
    bounds = KeyBounds(*given)
    if bounds.start_partition_key is None and bounds.start_row_key is not None:
        raise refused("srk without spk")
    if bounds.end_partition_key is None and bounds.end_row_key is not None:
        raise refused("erk without epk")
    return bounds


# Finding the key that signed.


def string_to_sign_account_sas(account: str, parameters: Parameters) -> str:
    """The account and the values, a line feed after each (auth 2.2)."""
    has_scope = parameters.get("sv", "") >= _VERSION_OF_SCOPE
    names = _ACCOUNT.signed if has_scope else _ACCOUNT.signed[:-1]
    return "".join([f"{account}\n", *[f"{parameters.get(name, '')}\n" for name in names]])


def string_to_sign_table_sas(account: str, parameters: Parameters) -> str:
    """The values, a line feed between each two (auth 3.2)."""
    names: Iterable[str] = _TABLE.signed
    if parameters.get("sv", "") < VERSION_OF_CONDITIONS:
        names = [name for name in names if name not in ("sip", "spr")]
    return _joined(account, names, parameters)


def string_to_sign_user_delegation_sas(account: str, parameters: Parameters) -> str:
    """The same, with eight values about the key in place of the policy (auth 3.11)."""
    return _joined(account, _DELEGATED.signed, parameters)


def _joined(account: str, names: Iterable[str], parameters: Parameters) -> str:
    """One value on each line. The table is in lower case, with its account (auth 3.2)."""
    prefix = "/table" if parameters.get("sv", "") >= _VERSION_OF_SERVICE_PREFIX else ""
    resource = f"{prefix}/{account}/{parameters.get('tn', '').lower()}"
    return "\n".join([resource if name == "tn" else parameters.get(name, "") for name in names])


def _has_signed(parameters: Parameters, string_to_sign: str, key: SigningKey) -> bool:
    """Whether the key made the signature in `sig`, where a blank is an unencoded plus (auth 2.1)."""
    given = parameters["sig"].replace(" ", "+").encode("utf-8")
    return hmac.compare_digest(key.signature(string_to_sign.encode("utf-8")), given)


def _require_account_key(parameters: Parameters, string_to_sign: str, account: Account) -> None:
    if not any(_has_signed(parameters, string_to_sign, key) for key in account.keys):
        raise refused("no key of the account gives the signature", repr(string_to_sign))


def signed_sas(account: str, key: str, parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters with `sig`: of a table SAS if they name a table (`tn`), else of an account SAS.

    Raises `ValueError` if the key is not base64.
    """
    given = dict(parameters)
    text = string_to_sign_table_sas if "tn" in given else string_to_sign_account_sas
    signature = SigningKey(decode_key(key)).signature(text(account, given).encode("utf-8"))
    return {**given, "sig": signature.decode("ascii")}


# The kinds, and what their holders may do.


class AccountSas:
    """The holder of an account SAS, limited to its resource types and permissions (auth 2.4)."""

    def __init__(self, resource_types: str, permissions: str, start: int | None) -> None:
        self._resource_types = resource_types
        self._permissions = frozenset(permissions)
        self._start = start

    def permit(self, operation: Operation) -> Operation:
        """The operation, or the error for a missing resource type or, checked next, a missing permission."""
        need = NEEDS[type(operation)]
        if need.resource_type is None:
            raise StorageError("AuthorizationFailure")
        if need.resource_type not in self._resource_types:
            raise StorageError("AuthorizationResourceTypeMismatch")
        if not is_met(need.account_sas, self._permissions):
            raise StorageError("AuthorizationPermissionMismatch")
        if isinstance(operation, ReadTableChanges):
            return _from_start(operation, self._start)
        return operation


def _from_start(operation: ReadTableChanges, start: int | None) -> ReadTableChanges:
    """The operation, limited to changes since the signature's start: its holder may not see the past (changes 1)."""
    if start is None:
        raise StorageError(
            "AuthorizationFailure",
            "A feed of changes needs a signature with a start (st, or the Start of its stored access policy).",
        )
    return replace(operation, not_before=start)


def authenticate_account_sas(
    request: RawRequest,
    account: Account,
    parameters: Parameters,
    now: int,
    versions: ServedVersions,
) -> AccountSas:
    """The caller, or the error of the first check that fails (auth 2.5). `now` is in ticks."""
    _require_well_formed(_ACCOUNT, parameters, versions)
    if not _SERVICES.issuperset(parameters["ss"]):
        raise refused("ss has a letter of no service", repr(parameters["ss"]))
    validity, conditions = _parse_validity(_ACCOUNT, parameters), parse_conditions(parameters)
    _require_account_key(parameters, string_to_sign_account_sas(account.name, parameters), account)
    validity.require(now)
    conditions.require(request)
    if "t" not in parameters["ss"]:
        raise StorageError("AuthorizationServiceMismatch")
    return AccountSas(parameters["srt"], parameters["sp"], validity.start)


class TableSas:
    """The holder of a table SAS, limited to one table, a range of keys and the permissions."""

    def __init__(
        self,
        table: str,
        permissions: str,
        bounds: KeyBounds | None,
        version: str,
        start: int | None,
    ) -> None:
        self._table = table.lower()
        self._permissions = frozenset(permissions)
        self._bounds = bounds
        self._version = version
        self._start = start

    def permit(self, operation: Operation) -> Operation:
        """The operation, with queries narrowed to the range of keys; or the error of auth 3.3, 3.6 and 3.8."""
        need = NEEDS[type(operation)]
        if not need.table_sas:
            raise self._denied("AuthorizationFailure")
        assert isinstance(operation, GetEntity | QueryEntities | ReadTableChanges | EntityWrite)
        if operation.table.lower() != self._table:
            raise self._denied("AuthenticationFailed", reason="a signature of another table")
        if not is_met(need.table_sas, self._permissions):
            raise self._denied("AuthorizationPermissionMismatch")
        if isinstance(operation, ReadTableChanges):
            operation = _from_start(operation, self._start)
        if self._bounds is None:
            return operation
        if isinstance(operation, QueryEntities | ReadTableChanges):
            return replace(operation, bounds=self._bounds)
        if isinstance(operation, GetEntity):
            if not self._bounds.hold(operation.key):
                raise StorageError("ResourceNotFound")  # the same answer as for a missing entity
        elif not self._bounds.hold(entity_key(operation)):
            raise self._denied("AuthorizationFailure")
        return operation

    def _denied(self, code: str, reason: str | None = None) -> StorageError:
        """The error for what the signature does not permit. Before 2015-04-05, it is always the same (auth 2.5)."""
        known = code if self._version >= VERSION_OF_CONDITIONS else "ResourceNotFound"
        return StorageError(known, reason=reason)


@dataclass(frozen=True, slots=True)
class TableSasOfPolicy:
    """A correctly signed table SAS that depends on a stored access policy."""

    table: str
    identifier: str
    _version: str
    _stated: AccessPolicy
    _bounds: KeyBounds | None
    _conditions: Conditions

    def completed(
        self, identifiers: Iterable[SignedIdentifier], request: RawRequest, now: int
    ) -> TableSas:
        """The caller, by the policies that the table has now (auth 3.9). `now` is in ticks."""
        for identifier in identifiers:
            if identifier.id == self.identifier:
                break
        else:
            raise refused("the table has no such policy", repr(self.identifier))
        policy = identifier.policy or AccessPolicy(None, None, None)
        effective = AccessPolicy(
            _one_of("st", self._stated.start, policy.start),
            _one_of("se", self._stated.expiry, policy.expiry),
            _one_of("sp", self._stated.permission, policy.permission),
        )
        return self.holder(effective, request, now)

    def holder(self, effective: AccessPolicy, request: RawRequest, now: int) -> TableSas:
        if effective.expiry is None or effective.permission is None:
            raise refused("se or sp is neither in the signature nor in its policy")
        Validity(effective.start, effective.expiry).require(now)
        self._conditions.require(request)
        return TableSas(
            self.table, effective.permission, self._bounds, self._version, effective.start
        )


_Value = TypeVar("_Value", int, str)


def _one_of(name: str, stated: _Value | None, of_policy: _Value | None) -> _Value | None:
    """The value from the signature or from its policy. It must not be in both, even if equal."""
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
    _require_well_formed(_TABLE, parameters, versions)
    version = parameters["sv"]
    if version < VERSION_OF_CONDITIONS and (parameters.get("sip") or parameters.get("spr")):
        raise refused("sip and spr are not signed in this version", version)
    stated = AccessPolicy(
        _instant_or_none(parameters, "st"),
        _instant_or_none(parameters, "se"),
        parameters.get("sp") or None,
    )
    bounds, conditions = _parse_bounds(parameters), parse_conditions(parameters)
    identifier = parameters.get("si", "")
    _require_account_key(parameters, string_to_sign_table_sas(account.name, parameters), account)
    signature = TableSasOfPolicy(parameters["tn"], identifier, version, stated, bounds, conditions)
    return signature if identifier else signature.holder(stated, request, now)


class DelegatedTableSas:
    """The holder of a user delegation SAS. Both the signature and the user's roles must permit an operation."""

    def __init__(self, sas: TableSas, user: RoleHolder) -> None:
        self._sas = sas
        self._user = user

    def permit(self, operation: Operation) -> Operation:
        return self._user.permit(self._sas.permit(operation))


@dataclass(frozen=True, slots=True)
class UserDelegationSas:
    """A user delegation SAS that is not verified yet."""

    _account: Account
    _parameters: Parameters
    _of_key: Validity
    _of_signature: Validity
    _conditions: Conditions
    _sas: TableSas

    def completed(
        self, secret: bytes | None, assignments: Assignments, request: RawRequest, now: int
    ) -> DelegatedTableSas:
        """The caller, if a key from this secret signed (None: no user ever had a key). `now` is in ticks."""
        user: RoleHolder | None = None
        if secret is not None:
            text = string_to_sign_user_delegation_sas(self._account.name, self._parameters)
            user = delegating_holder(
                secret,
                self._account.identity,
                DelegationFields(*[self._parameters[name] for name in _OF_KEY]),
                assignments,
                lambda key: _has_signed(self._parameters, text, SigningKey(key)),
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
    """The signature in a URL, which `completed` verifies; raises if its parameters are invalid."""
    _require_well_formed(_DELEGATED, parameters, versions)
    if parameters["sks"] != SIGNED_SERVICE or versions.rules_for(parameters["skv"]) is None:
        raise refused("the key is of another service, or of no version")
    if parameters.get("si"):
        raise refused("a policy in a user delegation SAS")
    if parameters.get("sduoid") or parameters.get("skdutid"):
        # It would need that user's token too, but with an Authorization header the signature is ignored.
        raise refused("a user delegation SAS that is bound to another user")
    of_key = _parse_validity(_DELEGATED, parameters, "skt", "ske")
    of_signature = _parse_validity(_DELEGATED, parameters)
    starts = [each.start for each in (of_key, of_signature) if each.start is not None]
    bounds = _parse_bounds(parameters)
    return UserDelegationSas(
        account,
        parameters,
        of_key,
        of_signature,
        parse_conditions(parameters),
        TableSas(
            parameters["tn"], parameters["sp"], bounds, parameters["sv"], max(starts, default=None)
        ),
    )
