"""Shared access signatures against the specification's vectors, and every change that must invalidate one."""

from functools import partial

import pytest

from sas_signing import account_string_to_sign, completed, query_of, signed, table_string_to_sign
from signing import signature
from spec_tables import Row, load
from tablestone.auth.account import Account
from tablestone.auth.authenticate import authenticate
from tablestone.auth.shared_access_signature import (
    TableSasOfPolicy,
    string_to_sign_account_sas,
    string_to_sign_table_sas,
)
from tablestone.configuration import DEVELOPMENT_ACCOUNT_KEY, DEVELOPMENT_ACCOUNT_NAME
from tablestone.model.errors import StorageError
from tablestone.model.operations import AccessPolicy, SignedIdentifier
from tablestone.model.shared_access import parse_instant
from tablestone.wire.address import Parameters, parse_query_string
from tablestone.wire.messages import RawRequest

_TABLE: dict[str, list[Row]] = load("sas_vectors.toml")
_NAME, _KEY = DEVELOPMENT_ACCOUNT_NAME, DEVELOPMENT_ACCOUNT_KEY
_OTHER_KEY = "c2Vjb25kIGtleSBvZiB0aGUgZGV2ZWxvcG1lbnQgYWNjb3VudA=="
_NOW = parse_instant("2030-01-01")
_HELD = parse_instant("2029-01-01")
"""Every vector is valid then: two of them end with that year."""
_POLICY = AccessPolicy(None, parse_instant("2034-05-06"), "r")

VECTORS = pytest.mark.parametrize(
    "row",
    [
        pytest.param(row | {"kind": kind}, id=f"{kind}: {row['id']}")
        for kind, rows in _TABLE.items()
        for row in rows
    ],
)


def _parameters(row: Row) -> dict[str, str]:
    return dict(parse_query_string(row["query"].encode())) | {"sig": row["signature"]}


def _outcome(
    parameters: Parameters,
    *keys: str,
    name: str = _NAME,
    now: int = _NOW,
    client: str = "127.0.0.1",
) -> str | None:
    """The error's code; None for an accepted request."""
    request = RawRequest("GET", b"/" + name.encode() + b"/MyTable()", b"", {}, "https", client)
    try:
        caller = authenticate(
            request, Account(name, keys or (_KEY,)), parameters, "2019-02-02", now
        )
        if isinstance(caller, TableSasOfPolicy):
            caller.completed([SignedIdentifier("p1", _POLICY)], request, now)
    except StorageError as error:
        return error.code if error.status == 403 else f"{error.code}, {error.status}"
    return None


_outcome_then = partial(_outcome, now=_HELD)


@VECTORS
def test_the_string_to_sign_is_the_documented_one(row: Row) -> None:
    parameters = _parameters(row)
    ours, theirs = (
        (string_to_sign_account_sas, account_string_to_sign)
        if row["kind"] == "account"
        else (string_to_sign_table_sas, table_string_to_sign)
    )
    assert ours(_NAME, parameters) == theirs(_NAME, parameters) == row["to_sign"]
    assert signature(_KEY, row["to_sign"]) == row["signature"]


@VECTORS
def test_a_signed_request_is_let_in(row: Row) -> None:
    assert _outcome_then(_parameters(row)) == row.get("code")


@VECTORS
def test_either_key_may_have_signed(row: Row) -> None:
    parameters = _parameters(row)
    assert _outcome_then(parameters, _OTHER_KEY, _KEY) == row.get("code")
    assert _outcome_then(parameters, _KEY, _OTHER_KEY) == row.get("code")
    assert _outcome_then(parameters, _OTHER_KEY) == "AuthenticationFailed"


@VECTORS
def test_a_signature_of_another_account_is_refused(row: Row) -> None:
    assert _outcome_then(_parameters(row), name="acct2") == "AuthenticationFailed"


@VECTORS
def test_blanks_of_a_signature_are_pluses(row: Row) -> None:
    parameters = _parameters(row)
    parameters["sig"] = parameters["sig"].replace("+", " ")
    assert _outcome_then(parameters) == row.get("code")


@VECTORS
@pytest.mark.parametrize(
    "name",
    [
        "sv",
        "sp",
        "ss",
        "srt",
        "st",
        "se",
        "sip",
        "spr",
        "ses",
        "tn",
        "si",
        "spk",
        "srk",
        "epk",
        "erk",
        "sig",
    ],
)
def test_nothing_that_is_signed_may_change(row: Row, name: str) -> None:
    """Each parameter of a signature is left out, doubled, put in another case, or changed by one character."""
    parameters = _parameters(row)
    if not parameters.get(name):
        return
    value = parameters[name]
    others = {value[:-1], value + "x", value + value, value[1:], value.swapcase(), f" {value}", ""}
    if name == "tn":
        others.remove(value.swapcase())  # the name of a table is signed in lower case
    for other in others - {value}:
        assert _outcome_then(parameters | {name: other}) == "AuthenticationFailed", other
    if name != "sig":
        without = {key: text for key, text in parameters.items() if key != name}
        assert _outcome_then(without) == "AuthenticationFailed"


@VECTORS
def test_every_other_version_is_another_signature(row: Row) -> None:
    for version in (
        "2012-02-12",
        "2015-02-21",
        "2015-04-05",
        "2020-12-06",
        "2019-07-07",
        "2025-07-05",
    ):
        parameters = _parameters(row)
        if version != parameters["sv"]:
            assert _outcome_then(parameters | {"sv": version}) == "AuthenticationFailed"


def _given(kind: str, **parameters: str) -> dict[str, str]:
    base = {"tn": "t", "sp": "r"} if kind == "table" else {"ss": "t", "srt": "o", "sp": "r"}
    return signed(_NAME, _KEY, completed(base | parameters))


KINDS = pytest.mark.parametrize("kind", ["account", "table"])


@KINDS
@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({}, None),
        ({"st": "2030-01-01"}, None),
        ({"st": "2030-01-01T00:00:00.0000001Z"}, "AuthenticationFailed"),
        ({"st": "2030-01-01T01:00+01:00"}, None),
        ({"se": "2030-01-01"}, "AuthenticationFailed"),
        ({"se": "2030-01-01T00:00:00.0000001Z"}, None),
        ({"se": "2029-12-31T23:59:59Z"}, "AuthenticationFailed"),
        ({"st": "2035-01-01"}, "AuthenticationFailed"),
        ({"st": "soon"}, "AuthenticationFailed"),
        ({"se": "2034-05-06T00:00:00"}, "AuthenticationFailed"),
        ({"se": "-"}, "AuthenticationFailed"),
        ({"sp": "-"}, "AuthenticationFailed"),
        ({"sp": ""}, "AuthenticationFailed"),
        ({"spr": "https"}, None),
        ({"spr": "https,http"}, None),
        ({"spr": "http"}, "AuthenticationFailed"),
        ({"spr": "http,https"}, "AuthenticationFailed"),
        ({"spr": "HTTPS"}, "AuthenticationFailed"),
        ({"sv": "2019-02-03"}, "AuthenticationFailed"),
        ({"sv": "latest"}, "AuthenticationFailed"),
        ({"sv": "2011-08-18"}, "AuthenticationFailed"),
        ({"sv": "2009-04-14"}, "AuthenticationFailed"),
        ({"sp": "r\n"}, "AuthenticationFailed"),
    ],
)
def test_each_value_is_checked(kind: str, parameters: dict[str, str], code: str | None) -> None:
    """Each value is signed unchanged, so only the value itself can be wrong (auth 2.5)."""
    assert _outcome(_given(kind, **parameters)) == code


_FROM_ELSEWHERE = "AuthorizationSourceIPMismatch"


@KINDS
@pytest.mark.parametrize(
    ("addresses", "client", "code"),
    [
        ("10.0.0.1", "10.0.0.1", None),
        ("10.0.0.1", "10.0.0.2", _FROM_ELSEWHERE),
        ("10.0.0.1", "::ffff:10.0.0.1", None),
        ("::ffff:10.0.0.1", "10.0.0.1", None),
        ("10.0.0.1", "", _FROM_ELSEWHERE),
        ("10.0.0.1", "::1", _FROM_ELSEWHERE),
        ("10.0.0.9-10.0.0.20", "10.0.0.9", None),
        ("10.0.0.9-10.0.0.20", "10.0.0.10", None),
        ("10.0.0.9-10.0.0.20", "10.0.0.20", None),
        ("10.0.0.9-10.0.0.20", "10.0.0.8", _FROM_ELSEWHERE),
        ("10.0.0.9-10.0.0.20", "10.0.0.21", _FROM_ELSEWHERE),
        ("10.0.0.9-10.0.0.20", "10.0.1.10", _FROM_ELSEWHERE),
        ("10.0.0.20-10.0.0.9", "10.0.0.10", _FROM_ELSEWHERE),
        ("2001:db8::1", "2001:0db8:0:0::1", None),
        ("2001:db8::1", "2001:db8::2", _FROM_ELSEWHERE),
        ("2001:db8::1-2001:db8::ff", "2001:db8::a0", None),
        ("2001:db8::1-2001:db8::ff", "2001:db8::100", _FROM_ELSEWHERE),
        ("fe80::1", "fe80::1%eth0", None),
        ("fe80::1%eth0", "fe80::1", "AuthenticationFailed"),
        ("10.0.0.1-2001:db8::1", "10.0.0.1", "AuthenticationFailed"),
        ("10.0.0.1-", "10.0.0.1", "AuthenticationFailed"),
        ("-10.0.0.1", "10.0.0.1", "AuthenticationFailed"),
        ("10.0.0.1-10.0.0.2-10.0.0.3", "10.0.0.1", "AuthenticationFailed"),
        ("10.0.0.0/24", "10.0.0.1", "AuthenticationFailed"),
        ("10.0.0", "10.0.0.0", "AuthenticationFailed"),
        ("010.0.0.1", "10.0.0.1", "AuthenticationFailed"),
        ("localhost", "127.0.0.1", "AuthenticationFailed"),
    ],
)
def test_address_ranges(kind: str, addresses: str, client: str, code: str | None) -> None:
    assert _outcome(_given(kind, sip=addresses), client=client) == code


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"ss": "b"}, "AuthorizationServiceMismatch"),
        ({"ss": "bqf"}, "AuthorizationServiceMismatch"),
        ({"ss": "bqtf"}, None),
        ({"ss": "-"}, "AuthenticationFailed"),
        ({"srt": "-"}, "AuthenticationFailed"),
        ({"ss": ""}, "AuthenticationFailed"),
        ({"sv": "2015-02-21"}, "AuthenticationFailed"),
        ({"sv": "2015-04-05"}, None),
        ({"sv": "2026-06-06", "ses": "scope"}, None),
    ],
)
def test_what_only_an_account_sas_has(parameters: dict[str, str], code: str | None) -> None:
    assert _outcome(_given("account", **parameters)) == code


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"tn": ""}, "AuthenticationFailed"),
        ({"sv": "2012-02-12"}, None),
        ({"sv": "2026-06-06"}, None),
        ({"sv": "2015-04-05", "sip": "127.0.0.1", "spr": "https"}, None),
        ({"sv": "2015-02-21", "sip": "127.0.0.1"}, "AuthenticationFailed"),
        ({"sv": "2014-02-14", "spr": "https"}, "AuthenticationFailed"),
        ({"spk": "a", "srk": "b", "epk": "c", "erk": "d"}, None),
        ({"spk": "a", "epk": "c"}, None),
        ({"srk": "b"}, "AuthenticationFailed"),
        ({"erk": "b", "spk": "a"}, "AuthenticationFailed"),
        ({"spk": "", "srk": "b"}, "AuthenticationFailed"),
        ({"spk": "a\n"}, "AuthenticationFailed"),
    ],
)
def test_what_only_a_table_sas_has(parameters: dict[str, str], code: str | None) -> None:
    assert _outcome(_given("table", **parameters)) == code


_PAST, _FUTURE = parse_instant("2029-01-01"), parse_instant("2031-01-01")


@pytest.mark.parametrize(
    ("stated", "policy", "code"),
    [
        # given: st, se, sp of the signature
        ({"sp": "r", "se": "2031-01-01"}, None, None),
        ({"sp": "r", "se": "2031-01-01"}, AccessPolicy(None, None, None), None),
        ({}, AccessPolicy(None, _FUTURE, "r"), None),
        ({}, AccessPolicy(_PAST, _FUTURE, "r"), None),
        ({"sp": "r"}, AccessPolicy(_PAST, _FUTURE, None), None),
        ({"se": "2031-01-01"}, AccessPolicy(None, None, "r"), None),
        ({"st": "2029-01-01"}, AccessPolicy(None, _FUTURE, "r"), None),
        ({}, None, "AuthenticationFailed"),
        ({}, AccessPolicy(None, _FUTURE, None), "AuthenticationFailed"),
        ({}, AccessPolicy(None, None, "r"), "AuthenticationFailed"),
        ({"sp": "r"}, None, "AuthenticationFailed"),
        ({"sp": "r"}, AccessPolicy(None, _FUTURE, "r"), "AuthenticationFailed"),
        ({"sp": "r"}, AccessPolicy(None, _FUTURE, "raud"), "AuthenticationFailed"),
        ({"se": "2031-01-01"}, AccessPolicy(None, _FUTURE, "r"), "AuthenticationFailed"),
        ({"st": "2029-01-01"}, AccessPolicy(_PAST, _FUTURE, "r"), "AuthenticationFailed"),
        ({}, AccessPolicy(_FUTURE, _FUTURE + 1, "r"), "AuthenticationFailed"),
        ({}, AccessPolicy(None, _PAST, "r"), "AuthenticationFailed"),
        ({"st": "2030-06-01"}, AccessPolicy(None, _FUTURE, "r"), "AuthenticationFailed"),
    ],
)
def test_a_policy_and_its_signature_complete_each_other(
    stated: dict[str, str], policy: AccessPolicy | None, code: str | None
) -> None:
    """The URL and the policy must not set the same field; together they set all of them (auth 3.9)."""
    assert _outcome_by_policy(stated, SignedIdentifier("p", policy)) == code


@pytest.mark.parametrize("given", ["P", "p ", "", "q"])
def test_a_policy_is_found_by_its_exact_id(given: str) -> None:
    policy = AccessPolicy(None, _FUTURE, "r")
    others = [SignedIdentifier(given, policy)] if given else []
    assert _outcome_by_policy({}, *others) == "AuthenticationFailed"
    assert _outcome_by_policy({}, *others, SignedIdentifier("p", policy)) is None


def _outcome_by_policy(stated: dict[str, str], *identifiers: SignedIdentifier) -> str | None:
    parameters = signed(_NAME, _KEY, {"sv": "2019-02-02", "tn": "T", "si": "p", **stated})
    request = RawRequest("GET", f"/{_NAME}/t()".encode(), query_of(parameters).encode(), {})
    caller = authenticate(request, Account(_NAME, (_KEY,)), parameters, "2019-02-02", _NOW)
    assert isinstance(caller, TableSasOfPolicy)
    assert (caller.table, caller.identifier) == ("T", "p")
    try:
        caller.completed(identifiers, request, _NOW)
    except StorageError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    "query",
    [
        "sig=x",
        "sv=2019-02-02&sig=x",
        "sv=2019-02-02&tn=t&sp=r&se=2034-05-06&sig=",
        "sv=2019-02-02&tn=t&sp=r&se=2034-05-06&sig=%C3%BC",
        "sv=2019-02-02&tn=t&skoid=x&sig=x",
        "sv=2025-07-05&tn=t&sp=r&se=2034-05-06&skoid=&sig=x",
        "ss=t&sig=x",
    ],
)
def test_what_is_no_signature_at_all(query: str) -> None:
    assert _outcome(parse_query_string(query.encode())) == "AuthenticationFailed"
