"""Table SAS under user delegation keys: the valid ones; none permits more than its user may do (auth 3.11)."""

import base64
from typing import Final

import pytest

from sas_signing import query_of, signed_by_user
from tablestone.auth.account import Account
from tablestone.auth.authenticate import authenticate
from tablestone.auth.roles import DATA_CONTRIBUTOR, DATA_READER, Assignment, Assignments, Role
from tablestone.auth.shared_access_signature import (
    DelegatedTableSas,
    UserDelegationSas,
    string_to_sign_user_delegation_sas,
)
from tablestone.auth.user_delegation_key import DelegationFields, delegation_key
from tablestone.configuration import DEVELOPMENT_ACCOUNT_KEY, DEVELOPMENT_ACCOUNT_NAME
from tablestone.model.entity import Entity
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey
from tablestone.model.operations import (
    CreateTable,
    DeleteEntity,
    GetEntity,
    InsertEntity,
    InsertOrMergeEntity,
    Operation,
    QueryEntities,
)
from tablestone.model.shared_access import parse_instant
from tablestone.wire.address import parse_query_string
from tablestone.wire.messages import RawRequest
from tablestone.wire.versions import ServedVersions, UnknownVersions

_ACCOUNT: Final = Account(DEVELOPMENT_ACCOUNT_NAME, (DEVELOPMENT_ACCOUNT_KEY,))
_SECRET: Final = bytes(range(32))
_NOW: Final = parse_instant("2030-01-01")
_USER: Final = "11111111-2222-3333-4444-555555555555"
_KEY: Final = DelegationFields(
    _USER, "tenant", "2029-12-31T00:00:00Z", "2030-01-07T00:00:00Z", "t", "2025-07-05"
)
_STATED: Final = {"sv": "2025-07-05", "tn": "Tab", "sp": "r", "se": "2030-01-02"}
_READER: Final = Assignments([Assignment(_USER, DATA_READER, None)])
_CONTRIBUTOR: Final = Assignments([Assignment(_USER, DATA_CONTRIBUTOR, None)])


def _signed(
    key: DelegationFields = _KEY,
    claimed: Role | None = None,
    secret: bytes = _SECRET,
    account: str = _ACCOUNT.name,
    **stated: str,
) -> dict[str, str]:
    names = ("skoid", "sktid", "skt", "ske", "sks", "skv")
    parameters = _STATED | dict(zip(names, key, strict=False)) | stated
    parameters = {name: value for name, value in parameters.items() if value != "-"}
    its_key = base64.b64encode(delegation_key(secret, account, key, claimed)).decode()
    return signed_by_user(_ACCOUNT.name, its_key, parameters)


def _caller(
    parameters: dict[str, str],
    assignments: Assignments = _READER,
    secret: bytes | None = _SECRET,
    now: int = _NOW,
) -> DelegatedTableSas:
    query = query_of(parameters).encode()
    path = f"/{_ACCOUNT.name}/tab()".encode()
    request = RawRequest("GET", path, query, {}, "http", "127.0.0.1")
    given = parse_query_string(query)
    claimed = authenticate(
        request, _ACCOUNT, given, "2025-07-05", now, versions=ServedVersions(UnknownVersions.LATER)
    )
    assert isinstance(claimed, UserDelegationSas)
    return claimed.completed(secret, assignments, request, now)


def _code(parameters: dict[str, str], assignments: Assignments = _READER, now: int = _NOW) -> str:
    """The error's code; "" for an accepted signature."""
    try:
        _caller(parameters, assignments, now=now)
    except StorageError as error:
        return error.code
    return ""


_ENTITY = EntityKey("b", "1")
_READ = QueryEntities("tab", None, 1000, None, None)
_INSERT = InsertEntity("tab", Entity(_ENTITY, {}))


def _outcome(caller: DelegatedTableSas, operation: Operation) -> str:
    try:
        caller.permit(operation)
    except StorageError as error:
        return error.code
    return ""


def test_what_is_signed_is_what_the_sdk_signs() -> None:
    """Line by line as azure-data-tables 12.8.0b1 of Python builds it: the key's eight lines where a policy has one."""
    names = ("skoid", "sktid", "skt", "ske", "sks", "skv")
    parameters = _STATED | dict(zip(names, _KEY, strict=False)) | {"spk": "a", "erk": "z"}
    assert string_to_sign_user_delegation_sas("acct", parameters).split("\n") == [
        *("r", "", "2030-01-02", "/table/acct/tab"),
        *_KEY[:6],
        *("", "", "", "", "2025-07-05"),
        *("a", "", "", "z"),
    ]


def test_a_users_signature_is_accepted() -> None:
    caller = _caller(_signed())
    assert _outcome(caller, _READ) == ""
    assert _outcome(caller, GetEntity("TAB", _ENTITY, None)) == ""
    assert _outcome(caller, _INSERT) == "AuthorizationPermissionMismatch"
    assert _outcome(caller, GetEntity("other", _ENTITY, None)) == "AuthenticationFailed"
    assert _outcome(caller, CreateTable("tab")) == "AuthorizationFailure"


@pytest.mark.parametrize(
    ("letters", "assignments", "claimed", "expected"),
    [
        # expected: whether a query, an insert, an upsert and a deletion are permitted
        ("raud", _CONTRIBUTOR, None, (True, True, True, True)),
        ("raud", Assignments(), DATA_CONTRIBUTOR, (True, True, True, True)),
        ("raud", _READER, None, (True, False, False, False)),
        ("raud", Assignments(), DATA_READER, (True, False, False, False)),
        ("raud", Assignments(), None, (False, False, False, False)),
        ("a", _CONTRIBUTOR, None, (False, True, False, False)),
        ("ra", _CONTRIBUTOR, DATA_READER, (True, True, False, False)),
        (
            "raud",
            Assignments([Assignment(_USER, DATA_CONTRIBUTOR, "other")]),
            None,
            (False, False, False, False),
        ),
        (
            "rd",
            Assignments([Assignment(_USER, DATA_CONTRIBUTOR, "TAB")]),
            None,
            (True, False, False, True),
        ),
    ],
)
def test_it_permits_what_signature_and_roles_permit(
    letters: str, assignments: Assignments, claimed: Role | None, expected: tuple[bool, ...]
) -> None:
    """By the present roles: when one is taken away, the signature loses it too."""
    caller = _caller(_signed(claimed=claimed, sp=letters), assignments)
    upsert = InsertOrMergeEntity("tab", Entity(_ENTITY, {}))
    operations = (_READ, _INSERT, upsert, DeleteEntity("tab", _ENTITY, -1))
    outcomes = [_outcome(caller, operation) for operation in operations]
    assert outcomes == ["" if may else "AuthorizationPermissionMismatch" for may in expected]


def test_its_range_is_enforced() -> None:
    caller = _caller(_signed(sp="raud", spk="a", epk="b", erk="0"), _CONTRIBUTOR)
    narrowed = caller.permit(_READ)
    assert isinstance(narrowed, QueryEntities)
    assert narrowed.bounds == ("a", None, "b", "0")
    assert _outcome(caller, GetEntity("tab", _ENTITY, None)) == "ResourceNotFound"
    assert _outcome(caller, _INSERT) == "AuthorizationFailure"


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        (_signed(st="2029-12-31", sip="127.0.0.1", spr="https,http"), ""),
        (_signed(st="2030-01-01T00:00:01Z"), "AuthenticationFailed"),
        (_signed(se="2030-01-01"), "AuthenticationFailed"),
        (_signed(sip="10.0.0.1"), "AuthorizationSourceIPMismatch"),
        (_signed(spr="https"), "AuthorizationProtocolMismatch"),
        (_signed(secret=bytes(32)), "AuthenticationFailed"),
        (_signed(account="other"), "AuthenticationFailed"),
        (_signed(skoid="99999999-2222-3333-4444-555555555555"), "AuthenticationFailed"),
        (_signed(sktid="other"), "AuthenticationFailed"),
        (_signed(ske="2031-01-07T00:00:00Z"), "AuthenticationFailed"),
        (_signed(skt="2028-12-31T00:00:00Z"), "AuthenticationFailed"),
        (_signed(skv="2026-02-06"), "AuthenticationFailed"),
        (_signed(_KEY._replace(expiry="2030-01-01")), "AuthenticationFailed"),
        (_signed(_KEY._replace(start="2030-01-01T00:00:01Z")), "AuthenticationFailed"),
        (_signed(_KEY._replace(expiry="tomorrow")), "AuthenticationFailed"),
        (_signed(_KEY._replace(service="q")), "AuthenticationFailed"),
        (_signed(_KEY._replace(version="latest")), "AuthenticationFailed"),
        (_signed(sv="2025-05-05"), "AuthenticationFailed"),
        (_signed(sv="2026-06-06"), ""),
        (_signed(sv="2099-01-01"), ""),
        (_signed(sv="2099-02-29"), "AuthenticationFailed"),
        (_signed(sv="2025-07-06"), "AuthenticationFailed"),
        (_signed(_KEY._replace(version="2099-01-01")), ""),
        (_signed(si="p1"), "AuthenticationFailed"),
        (_signed(sduoid="99999999-2222-3333-4444-555555555555"), "AuthenticationFailed"),
        (_signed(skdutid="tenant"), "AuthenticationFailed"),
        (_signed(srk="1"), "AuthenticationFailed"),
        (_signed(sp="-"), "AuthenticationFailed"),
        (_signed(se="-"), "AuthenticationFailed"),
        (_signed(ske="-"), "AuthenticationFailed"),
        (_signed(sktid="-"), "AuthenticationFailed"),
        (_signed(tn=""), "AuthenticationFailed"),
        (_signed(sp="r\n"), "AuthenticationFailed"),
    ],
)
def test_what_it_says_is_checked(parameters: dict[str, str], code: str) -> None:
    assert _code(parameters) == code


@pytest.mark.parametrize("name", [*_signed(st="2029-12-31", spk="a", srk="b", epk="c", erk="d")])
def test_nothing_that_is_signed_may_change(name: str) -> None:
    parameters = _signed(st="2029-12-31", spk="a", srk="b", epk="c", erk="d")
    assert _code(parameters) == ""
    for value in (parameters[name][:-1], parameters[name] + "x", ""):
        assert _code(parameters | {name: value}) == "AuthenticationFailed", value
    without = {key: value for key, value in parameters.items() if key != name}
    if name != "sig":
        assert _code(without) == "AuthenticationFailed"


def test_a_key_of_the_account_signs_none() -> None:
    parameters = {key: value for key, value in _signed().items() if key != "sig"}
    forged = signed_by_user(_ACCOUNT.name, DEVELOPMENT_ACCOUNT_KEY, parameters)
    assert _code(forged, _CONTRIBUTOR) == "AuthenticationFailed"


def test_without_a_secret_no_signature_is_accepted() -> None:
    with pytest.raises(StorageError, match="AuthenticationFailed"):
        _caller(_signed(), secret=None)


@pytest.mark.parametrize("given", ["", "account"])
def test_a_role_that_a_key_never_had_is_refused(given: str) -> None:
    """The claims of the token are in the key, so a client cannot add claims to a signature."""
    parameters = _signed(claimed=None, sp="raud") | ({"claimed": given} if given else {})
    assert _outcome(_caller(parameters, Assignments()), _READ) == "AuthorizationPermissionMismatch"
