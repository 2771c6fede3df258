"""The start of a signature: a feed of changes shows nothing from before (docs/protocol/changes.md 1)."""

from __future__ import annotations

import pytest

from sas_signing import query_of, signed
from tablestone.auth.account import Account
from tablestone.auth.authenticate import authenticate
from tablestone.auth.permissions import OWNER
from tablestone.auth.shared_access_signature import TableSasOfPolicy
from tablestone.configuration import DEVELOPMENT_ACCOUNT_KEY as KEY
from tablestone.configuration import DEVELOPMENT_ACCOUNT_NAME as NAME
from tablestone.model.errors import StorageError
from tablestone.model.operations import (
    AccessPolicy,
    Operation,
    QueryEntities,
    ReadTableChanges,
    SignedIdentifier,
    Since,
)
from tablestone.model.shared_access import parse_instant
from tablestone.wire.messages import RawRequest
from unit.auth.test_user_delegation_sas import _caller as delegated
from unit.auth.test_user_delegation_sas import _signed as signed_by_user

NOW = parse_instant("2030-01-01")
OF_ACCOUNT = {"sv": "2019-02-02", "ss": "t", "srt": "sco", "sp": "r", "se": "2031-01-01"}
OF_TABLE = {"sv": "2019-02-02", "tn": "Tab", "sp": "r", "se": "2031-01-01"}
OF_POLICY = {"sv": "2019-02-02", "tn": "Tab", "si": "p"}
FEED = ReadTableChanges("tab", Since.OLDEST)

# (the signature, the Start of the policy) -> the start, or the code of the refusal
STARTS: list[tuple[str, dict[str, str], str | None, str]] = [
    ("of an account", {**OF_ACCOUNT, "st": "2029-03-04T05:06:07Z"}, None, "2029-03-04T05:06:07Z"),
    ("of an account, without", OF_ACCOUNT, None, "AuthorizationFailure"),
    ("of a table", {**OF_TABLE, "st": "2029-03-04"}, None, "2029-03-04"),
    ("of a table, with a range", {**OF_TABLE, "st": "2029-03-04", "spk": "a"}, None, "2029-03-04"),
    ("of a table, without", OF_TABLE, None, "AuthorizationFailure"),
    (
        "of a table, without and without r",
        {**OF_TABLE, "sp": "a"},
        None,
        "AuthorizationPermissionMismatch",
    ),
    ("of a policy", OF_POLICY, "2028-01-01", "2028-01-01"),
    ("of a policy, stated", {**OF_POLICY, "st": "2029-03-04"}, None, "2029-03-04"),
    ("of a policy, without", OF_POLICY, None, "AuthorizationFailure"),
]


def permitted(parameters: dict[str, str], start: str | None, operation: Operation) -> Operation:
    given = signed(NAME, KEY, parameters)
    request = RawRequest("GET", f"/{NAME}/tab()".encode(), query_of(given).encode(), {})
    caller = authenticate(request, Account(NAME, (KEY,)), given, "2019-02-02", NOW)
    if isinstance(caller, TableSasOfPolicy):
        begins = None if start is None else parse_instant(start)
        policy = AccessPolicy(begins, parse_instant("2031-01-01"), "r")
        caller = caller.completed([SignedIdentifier("p", policy)], request, NOW)
    return caller.permit(operation)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("parameters", "start", "expected"), [row[1:] for row in STARTS], ids=[row[0] for row in STARTS]
)
def test_the_feed_of_a_signature_begins_at_its_start(
    parameters: dict[str, str], start: str | None, expected: str
) -> None:
    if not expected[0].isdigit():
        with pytest.raises(StorageError) as refused:
            permitted(parameters, start, FEED)
        assert (refused.value.code, refused.value.status) == (expected, 403)
        assert ("a start (st" in refused.value.text) is (expected == "AuthorizationFailure")
        return
    narrowed = permitted(parameters, start, FEED)
    assert isinstance(narrowed, ReadTableChanges)
    assert narrowed.not_before == parse_instant(expected)
    assert (narrowed.bounds is not None) is ("spk" in parameters)


def test_queries_need_no_start() -> None:
    for given in (OF_ACCOUNT, OF_TABLE, OF_POLICY):
        query = QueryEntities("tab", None, 1000, None, None)
        assert permitted(given, None, query) == query


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("-", "2029-12-31T00:00:00Z"),  # `skt`
        ("2029-12-31T12:00:00Z", "2029-12-31T12:00:00Z"),
        ("2029-01-01", "2029-12-31T00:00:00Z"),
    ],
)
def test_the_start_of_a_users_signature_is_the_later_of_its_own_and_the_keys(
    stated: str, expected: str
) -> None:
    narrowed = delegated(signed_by_user(st=stated)).permit(FEED)
    assert isinstance(narrowed, ReadTableChanges)
    assert narrowed.not_before == parse_instant(expected)


def test_the_owner_sees_all() -> None:
    assert OWNER.permit(FEED) == FEED
