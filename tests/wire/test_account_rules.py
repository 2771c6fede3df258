"""Rules of an account: the shared key is off; only some addresses are admitted (docs/guides/account-rules.md)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from sas_signing import completed, query_of, signed
from signing import shared_key, shared_key_lite
from storage.engines_under_test import URL
from tablestone.auth.roles import Assignment, find_role
from tablestone.configuration import AccountKeys, TokenRules, TrustedIssuer
from tablestone.engines.change_record import Retention
from tokens import ISSUER, OBJECT_ID, TENANT, claims_at, key_set
from tokens import signed as signed_token
from wire.case_tables import error_of
from wire.service_under_test import ACCOUNT, KEY, OTHER_ACCOUNT, OTHER_KEY, ServiceUnderTest
from wire.test_user_delegation_sas import KEY as ISSUER_KEY
from wire.test_user_delegation_sas import signature as delegated

VERSION = "2025-07-05"
KEY_OFF = AccountKeys(ACCOUNT, (KEY,), shared_key=False)
WRONG_KEY = OTHER_KEY
EXPLORER_KEY = "dGhlIGtleSBvZiB0aGUgZXhwbG9yZXIgYmVzaWRlIGEgc2VydmVy"
EXPLORER = ("User-Agent", "tablestone-explorer/1")
READER, CONTRIBUTOR, MANAGER, DELEGATOR = ROLES = (
    "Storage Table Data Reader",
    "Storage Table Data Contributor",
    "Storage Account Contributor",
    "Storage Table Delegator",
)
UNSIGNED = [("Authorization", "-"), ("x-ms-date", "-"), ("x-ms-version", "-")]


@pytest.fixture
def tokens(tmp_path: Path) -> TokenRules:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(ISSUER_KEY))
    return TokenRules((TrustedIssuer(ISSUER, str(keys), TENANT),))


@pytest.fixture
def opened(tokens: TokenRules) -> Iterator[ServiceUnderTest]:
    """A service without rules, over https, with the tables `tab` and `other`, and changes that are kept."""
    service = ServiceUnderTest(tokens=tokens, scheme="https", remote_indexes=True)
    if service.engine.changes is not None:
        service._loop.run(service.engine.changes.keep(Retention(None, 1 << 24)))
    for path, body in (
        ("/Tables", b'{"TableName":"tab"}'),
        ("/Tables", b'{"TableName":"other"}'),
        ("/tab", b'{"PartitionKey":"a","RowKey":"1"}'),
    ):
        assert service.send("POST", path, (), body).status == 201
    yield service
    service.close()


def keyless(
    opened: ServiceUnderTest, tokens: TokenRules, *, acl_by_roles: bool = False
) -> ServiceUnderTest:
    """The same tables, in an account whose key is off."""
    return ServiceUnderTest(
        *(opened, tokens, "https"),
        remote_indexes=True,
        account=KEY_OFF,
        acl_by_roles=acl_by_roles,
        explorer_key=EXPLORER_KEY,
    )


def bearer(service: ServiceUnderTest, *roles: str) -> list[tuple[str, str]]:
    claims = claims_at(service.clock.now.timestamp(), roles=list(roles))
    token = signed_token(ISSUER_KEY, claims)
    return [("Authorization", f"Bearer {token}"), ("x-ms-version", VERSION), ("x-ms-date", "-")]


def by_header(service: ServiceUnderTest, kind: str) -> list[tuple[str, str]]:
    date, target = service.clock.http_date(), f"/{ACCOUNT}/tab()"
    header = {
        "SharedKey": shared_key(ACCOUNT, KEY, method="GET", target=target, date=date),
        "SharedKey, wrong": shared_key(ACCOUNT, WRONG_KEY, method="GET", target=target, date=date),
        "SharedKey, another account": shared_key(
            OTHER_ACCOUNT, OTHER_KEY, method="GET", target=target, date=date
        ),
        "SharedKey, no colon": "SharedKey nothing",
        "SharedKey, empty": "SharedKey",
        "SharedKeyLite": shared_key_lite(ACCOUNT, KEY, target=target, date=date),
        "SharedKeyLite, wrong": f"sharedkeylite {ACCOUNT}:AAAA",
        "SharedKey, old": shared_key(ACCOUNT, KEY, method="GET", target=target, date=OLD),
    }[kind]
    return [("Authorization", header), ("x-ms-date", OLD if "old" in kind else date)]


OLD: Final = "Mon, 05 Jan 2015 03:25:45 GMT"
SIGNATURES: Final = {
    "account": {"ss": "t", "srt": "sco", "sp": "rwdlacu"},
    "account, expired": {"ss": "t", "srt": "sco", "sp": "r", "se": "2015-01-01"},
    "account, an old version": {"ss": "t", "srt": "sco", "sp": "r", "sv": "2012-02-12"},
    "table": {"tn": "tab", "sp": "raud"},
    "table, another": {"tn": "other", "sp": "r"},
    "table, of a policy": {"tn": "tab", "si": "policy"},
    "table, another address": {"tn": "tab", "sp": "r", "sip": "10.0.0.1"},
}
HEADERS: Final = (
    *("SharedKey", "SharedKey, wrong", "SharedKey, another account", "SharedKey, no colon"),
    *("SharedKey, empty", "SharedKeyLite", "SharedKeyLite, wrong", "SharedKey, old"),
)


def test_what_a_key_signs_is_refused_unread(opened: ServiceUnderTest, tokens: TokenRules) -> None:
    """Whatever is right or wrong with it, the answer is the same: nobody can try keys."""
    service = keyless(opened, tokens)
    answers = set()
    for accept in ("application/json", "application/xml"):
        for kind in HEADERS:
            headers = [*by_header(service, kind), ("Accept", accept)]
            answer = service.send("GET", "/tab()", headers)
            assert error_of(answer)[0] == "KeyBasedAuthenticationNotPermitted", kind
            answers.add((accept, answer.status, _constant(answer.body)))
        for kind, sas in SIGNATURES.items():
            for key in (KEY, WRONG_KEY):
                query = query_of(signed(ACCOUNT, key, completed(sas)))
                headers = [*UNSIGNED[:2], ("x-ms-version", VERSION), ("Accept", accept)]
                answer = service.send("GET", f"/tab()?{query}", headers)
                assert error_of(answer)[0] == "KeyBasedAuthenticationNotPermitted", kind
                answers.add((accept, answer.status, _constant(answer.body)))
    assert len(answers) == 2, answers  # one for each form
    assert {status for _, status, _ in answers} == {403}


def _constant(body: bytes) -> bytes:
    return re.sub(rb"RequestId:.*?Z", b"", body, flags=re.DOTALL)


def test_the_same_in_every_version(opened: ServiceUnderTest, tokens: TokenRules) -> None:
    service = keyless(opened, tokens)
    for version in ("-", "2009-09-19", "2015-12-11", "2019-02-02", "2025-07-05"):
        answer = service.send("GET", "/tab()", [("x-ms-version", version)])
        assert answer.status == 403
        assert b"KeyBasedAuthenticationNotPermitted" in answer.body
    answer = service.send("GET", "/tab()", [("x-ms-version", "no version")])
    assert error_of(answer)[0] == "InvalidHeaderValue"  # step 2 comes first


def test_tokens_and_user_delegation_signatures_stay(
    opened: ServiceUnderTest, tokens: TokenRules
) -> None:
    service = keyless(opened, tokens)
    assert service.send("GET", "/tab()", bearer(service, READER)).status == 200
    query = delegated(service, CONTRIBUTOR)
    assert service.send("GET", f"/tab()?{query}", UNSIGNED).status == 200
    # With `skoid` it is no signature of the account's key, whatever else it has.
    both = f"{query}&ss=t&srt=sco"
    assert service.send("GET", f"/tab()?{both}", UNSIGNED).status == 200
    nobody = service.send("GET", "/tab()", [("Authorization", "-"), ("x-ms-version", VERSION)])
    assert error_of(nobody)[0] == "NoAuthenticationInformation"


OWN: Final = ("x-tablestone-indexes", "1")
EXPIRY: Final = b'{"after":3600}'
ACL: Final = b"<SignedIdentifiers></SignedIdentifiers>"
PROPERTIES: Final = (
    b"<StorageServiceProperties><Logging><Version>1.0</Version><Delete>true</Delete><Read>false</Read>"
    b"<Write>true</Write><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></Logging>"
    b"</StorageServiceProperties>"
)
KEY_INFO: Final = b"<KeyInfo><Expiry>2017-01-08T00:00:00Z</Expiry></KeyInfo>"

FORMS: Final[dict[str, tuple[str, str, bytes, list[tuple[str, str]]]]] = {
    "properties": ("GET", "/?restype=service&comp=properties", b"", []),
    "set properties": ("PUT", "/?restype=service&comp=properties", PROPERTIES, []),
    "stats": ("GET", "/?restype=service&comp=stats", b"", []),
    "userdelegationkey": ("POST", "/?restype=service&comp=userdelegationkey", KEY_INFO, []),
    "changes of the account": ("GET", "/?restype=service&comp=changes", b"", []),
    "changes of a table": ("GET", "/tab?comp=changes", b"", []),
    "acl": ("GET", "/tab?comp=acl", b"", [("Accept", "application/xml")]),
    "set acl": ("PUT", "/tab?comp=acl", ACL, [("Accept", "application/xml")]),
    "indexes": ("GET", "/tab?comp=indexes", b"", [OWN]),
    "make an index": ("PUT", "/tab?comp=indexes", b'{"property":"P"}', [OWN]),
    "drop an index": ("DELETE", "/tab?comp=indexes&property=P", b"", [OWN]),
    "expiry": ("GET", "/tab?comp=expiry", b"", [OWN]),
    "set expiry": ("PUT", "/other?comp=expiry", EXPIRY, [OWN]),
}
"""Every `comp` form: a method, a target, a body, and headers."""
ONLY_OWNER: Final = ("indexes", "make an index", "drop an index", "expiry", "set expiry")
WHO_MAY: Final[dict[str, set[str]]] = {
    "properties": {MANAGER},
    "set properties": {MANAGER},
    "stats": {MANAGER},
    "userdelegationkey": {MANAGER, DELEGATOR},
    "changes of the account": {f"{MANAGER}, {READER}", f"{MANAGER}, {CONTRIBUTOR}"},
    "changes of a table": {READER, CONTRIBUTOR},
    "acl": set(),
    "set acl": set(),
    **{form: {MANAGER} for form in ONLY_OWNER},
}
"""Roles, at the account, each of which alone or together is enough while the key is off."""
CALLERS: Final = (*ROLES, f"{MANAGER}, {READER}", f"{MANAGER}, {CONTRIBUTOR}")


def status(service: ServiceUnderTest, form: str, headers: list[tuple[str, str]]) -> int:
    method, target, body, more = FORMS[form]
    if ("Authorization", "-") in headers:  # a query string is the only credential
        target += headers[-1][1]
        headers = headers[:-1]
    kind = [("Content-Type", "application/xml")] * bool(body.startswith(b"<"))
    answer = service.send(method, target, [*headers, *kind, *more], body)
    is_done = form == "drop an index" and b"IndexNotFound" in answer.body
    return 200 if is_done else answer.status


@pytest.mark.skipif(URL is not None, reason="an engine that keeps changes and entries is needed")
@pytest.mark.parametrize("acl_by_roles", [False, True])
def test_who_may_use_each_form_while_the_key_is_off(
    opened: ServiceUnderTest, tokens: TokenRules, *, acl_by_roles: bool
) -> None:
    service = keyless(opened, tokens, acl_by_roles=acl_by_roles)
    may = WHO_MAY | dict.fromkeys(("acl", "set acl"), {MANAGER} if acl_by_roles else set())
    for form in FORMS:
        allowed = {
            caller
            for caller in CALLERS
            if status(service, form, bearer(service, *caller.split(", "))) < 300
        }
        enough = {
            caller
            for caller in CALLERS
            if any(set(each.split(", ")) <= set(caller.split(", ")) for each in may[form])
        }
        assert allowed == enough, form
        assert status(service, form, []) == 403, form


@pytest.mark.skipif(URL is not None, reason="an engine that keeps changes and entries is needed")
def test_only_while_the_key_is_off(opened: ServiceUnderTest) -> None:
    """With the key on, no role is enough for what only the owner may do."""
    for form in ("changes of the account", "acl", "set acl", *ONLY_OWNER):
        assert status(opened, form, bearer(opened, *ROLES)) >= 400, form


@pytest.mark.skipif(URL is not None, reason="an engine that keeps changes and entries is needed")
def test_neither_roles_of_a_table_nor_user_delegation_signatures_carry_them(
    opened: ServiceUnderTest, tokens: TokenRules
) -> None:
    service = keyless(opened, tokens, acl_by_roles=True)
    for role in ROLES:
        found = find_role(role)
        assert found is not None
        service.assign(Assignment(OBJECT_ID, found, "tab"))
        for form in ("changes of the account", "acl", "set acl", *ONLY_OWNER):
            assert status(service, form, bearer(service)) >= 400, (form, role)
    reader = find_role(READER)
    assert reader is not None
    service.assign(Assignment(OBJECT_ID, reader, "tab"))
    form = "changes of the account"  # both roles have to be at the account
    assert status(service, form, bearer(service, MANAGER)) == 403
    service.assign(Assignment(OBJECT_ID, reader, None))
    assert status(service, form, bearer(service, MANAGER)) == 200
    query = "&" + delegated(service, MANAGER, READER, CONTRIBUTOR)
    for form in ("changes of the account", "acl", "set acl", *ONLY_OWNER):
        assert status(service, form, [*UNSIGNED, ("", query)]) >= 400, form


# --- Addresses --------------------------------------------------------------------------------------------------------


@pytest.fixture
def behind_ranges(opened: ServiceUnderTest, tokens: TokenRules) -> ServiceUnderTest:
    rules = AccountKeys(ACCOUNT, (KEY,), allow=("10.0.0.0/8", "fd00::/8"))
    return ServiceUnderTest(opened, tokens, "https", account=rules, explorer_key=EXPLORER_KEY)


REFUSED: Final = ("127.0.0.1", "11.0.0.1", "::1", "", "unknown", "::ffff:11.0.0.1")
ADMITTED: Final = ("10.0.0.1", "::ffff:10.0.0.1", "fd00::1")


def test_other_addresses_are_refused_whatever_they_ask(behind_ranges: ServiceUnderTest) -> None:
    service = behind_ranges
    asked: tuple[tuple[str, str, list[tuple[str, str]]], ...] = (
        ("GET", "/tab()", []),
        ("GET", "/nothing()", []),
        ("GET", "/tab()", [EXPLORER]),
        ("GET", "/tab()", [("Authorization", "-")]),
        ("GET", "/tab()", [("Authorization", f"SharedKey {ACCOUNT}:AAAA")]),
        ("GET", "/tab()", [("x-ms-version", "no version")]),
        ("GET", "/tab()", bearer(service, READER)),
        ("OPTIONS", "/tab", [("Origin", "http://a"), ("Access-Control-Request-Method", "GET")]),
        ("BREW", "/tab()", []),
    )
    for address in REFUSED:
        service.client = address
        for method, path, headers in asked:
            answer = service.send(method, path, headers)
            assert answer.status == 403, (address, path)
            assert error_of(answer)[0] == "AuthorizationFailure"
    unknown = service.exchange("GET", "/nobody/tab()")
    assert error_of(unknown)[0] == "ResourceNotFound"  # step 0 comes first
    other = service.exchange(
        "GET", f"/{OTHER_ACCOUNT}/Tables", [("Authorization", "SharedKey a:b")]
    )
    assert error_of(other)[0] == "AuthenticationFailed"  # the rule is of one account


def test_the_addresses_of_a_range_are_admitted(behind_ranges: ServiceUnderTest) -> None:
    service = behind_ranges
    for address in ADMITTED:
        service.client = address
        assert service.send("GET", "/tab()").status == 200
        assert service.exchange("GET", f"/{ACCOUNT}-secondary/tab()").status == 200


def test_the_secondary_and_other_hosts_have_the_same_rules(behind_ranges: ServiceUnderTest) -> None:
    for target, host in (
        (f"/{ACCOUNT}-secondary/tab()", "127.0.0.1:10002"),
        ("/tab()", f"{ACCOUNT}.table.localhost"),
        ("/tab()", "data.example"),
        ("/tab()", "data-secondary.example"),
    ):
        answer = behind_ranges.exchange("GET", target, [("Host", host)])
        assert error_of(answer)[0] == "AuthorizationFailure", target


def test_both_the_rule_and_the_signature_must_hold(behind_ranges: ServiceUnderTest) -> None:
    service = behind_ranges
    sas = completed({"tn": "tab", "sp": "r", "sip": "10.0.0.1"})
    query = query_of(signed(ACCOUNT, KEY, sas))
    for address, code in (
        ("10.0.0.1", ""),
        ("10.0.0.2", "AuthorizationSourceIPMismatch"),
        ("11.0.0.1", "AuthorizationFailure"),
    ):
        service.client = address
        answer = service.send("GET", f"/tab()?{query}", UNSIGNED)
        assert (error_of(answer)[0] if answer.status >= 400 else "") == code


def test_a_refused_page_of_another_origin_reads_nothing(opened: ServiceUnderTest) -> None:
    """No header of CORS: the rules of the account are not even read."""
    cors = (
        b"<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET"
        b"</AllowedMethods><AllowedHeaders>*</AllowedHeaders><ExposedHeaders>*</ExposedHeaders>"
        b"<MaxAgeInSeconds>9</MaxAgeInSeconds></CorsRule></Cors></StorageServiceProperties>"
    )
    target = "/?restype=service&comp=properties"
    answer = opened.send("PUT", target, [("Content-Type", "application/xml")], cors)
    assert answer.status == 202
    rules = AccountKeys(ACCOUNT, (KEY,), allow=("10.0.0.0/8",))
    service = ServiceUnderTest(opened, account=rules)
    headers = [("Origin", "http://a"), ("Access-Control-Request-Method", "GET")]
    for method in ("OPTIONS", "GET"):
        assert service.send(method, "/tab()", headers).status == 403
        assert "access-control-allow-origin" not in service.send(method, "/tab()", headers).headers
    service.client = "10.0.0.1"
    assert service.send("OPTIONS", "/tab()", headers).status == 200


# --- The explorer beside the server -----------------------------------------------------------------------------------


def explored(service: ServiceUnderTest, key: str, *headers: tuple[str, str]) -> int:
    date, target = service.clock.http_date(), f"/{ACCOUNT}/tab()"
    signed_with = shared_key(ACCOUNT, key, method="GET", target=target, date=date)
    return service.send("GET", "/tab()", [("Authorization", signed_with), *headers]).status


def test_the_explorer_has_an_identity_inside_the_server(
    opened: ServiceUnderTest, tokens: TokenRules
) -> None:
    rules = AccountKeys(ACCOUNT, (KEY,), shared_key=False, allow=("10.0.0.0/8",))
    service = ServiceUnderTest(opened, tokens, account=rules, explorer_key=EXPLORER_KEY)
    assert explored(service, EXPLORER_KEY, EXPLORER) == 200
    assert explored(service, KEY, EXPLORER) == 403
    assert (
        explored(service, EXPLORER_KEY) == 403
    )  # the agent alone says nothing, and neither does this
    date, target = service.clock.http_date(), f"/{ACCOUNT}/tab()"
    lite = shared_key_lite(ACCOUNT, EXPLORER_KEY, target=target, date=date)
    assert service.send("GET", "/tab()", [("Authorization", lite), EXPLORER]).status == 403
    query = query_of(signed(ACCOUNT, EXPLORER_KEY, completed({"tn": "tab", "sp": "r"})))
    assert service.send("GET", f"/tab()?{query}", [*UNSIGNED, EXPLORER]).status == 403


def test_without_an_explorer_there_is_no_such_identity(
    opened: ServiceUnderTest, tokens: TokenRules
) -> None:
    service = ServiceUnderTest(opened, tokens, account=KEY_OFF)
    for key in (EXPLORER_KEY, KEY, "AAAA"):
        assert explored(service, key, EXPLORER) == 403


def test_the_key_of_the_explorer_opens_an_account_without_rules_too(
    opened: ServiceUnderTest, tokens: TokenRules
) -> None:
    """It may have had a rule a moment ago, or get one in a moment."""
    service = ServiceUnderTest(opened, tokens, explorer_key=EXPLORER_KEY)
    assert explored(service, EXPLORER_KEY, EXPLORER) == 200
    assert explored(service, KEY, EXPLORER) == 200
    assert explored(service, EXPLORER_KEY) == 403
