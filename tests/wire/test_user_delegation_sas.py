"""A user delegation SAS from end to end: a key for a token, a signature, a client with neither (auth 3.11)."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sas_signing import query_of, signed_by_user
from tablestone.auth.roles import DATA_CONTRIBUTOR, Assignment
from tablestone.configuration import TokenRules, TrustedIssuer
from tokens import ISSUER, OBJECT_ID, TENANT, RsaKey, claims_at, key_set, signed
from wire.case_tables import error_of, prepare
from wire.service_under_test import ACCOUNT, ServiceUnderTest

KEY = RsaKey("one")
VERSION = "2025-07-05"
KEY_INFO = b"<KeyInfo><Expiry>2017-01-08T00:00:00Z</Expiry></KeyInfo>"
OF_KEY = ("SignedOid", "SignedTid", "SignedStart", "SignedExpiry", "SignedService", "SignedVersion")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceUnderTest]:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(KEY))
    service = ServiceUnderTest(
        tokens=TokenRules((TrustedIssuer(ISSUER, str(keys), TENANT),)), scheme="https"
    )
    tables = ['POST /Tables {"TableName":"tab"}', 'POST /Tables {"TableName":"other"}']
    entity = 'POST /tab {"PartitionKey":"a","RowKey":"1"}'
    prepare(service, {"given": [*tables, entity]})
    yield service
    service.close()


def signature(service: ServiceUnderTest, *roles: str, account: str = ACCOUNT, **stated: str) -> str:
    """A query string signed with the key of a user whose token claims these roles."""
    claims = claims_at(service.clock.now.timestamp(), roles=["Storage Table Delegator", *roles])
    headers = [
        ("Authorization", f"Bearer {signed(KEY, claims)}"),
        ("x-ms-version", VERSION),
        ("Content-Type", "application/xml"),
    ]
    target = f"/{account}/?restype=service&comp=userdelegationkey"
    response = service.exchange("POST", target, headers, KEY_INFO)
    assert response.status == 200
    given = ET.fromstring(response.body.decode("utf-8-sig"))  # noqa: S314 - our own server's answer
    fields = [str(given.findtext(name)) for name in OF_KEY]
    parameters = {"sv": VERSION, "tn": "tab", "sp": "raud", "se": "2017-01-07", **stated}
    parameters |= dict(zip(("skoid", "sktid", "skt", "ske", "sks", "skv"), fields, strict=True))
    return query_of(signed_by_user(account, str(given.findtext("Value")), parameters))


def code(
    service: ServiceUnderTest,
    method: str,
    path: str,
    query: str,
    body: bytes = b"",
    account: str = ACCOUNT,
) -> str:
    """The error's code, "" for a success; the signature is the only credential of the request."""
    headers = [("Authorization", "-"), ("x-ms-date", "-"), ("x-ms-version", "-")]
    response = service.exchange(method, f"/{account}{path}?{query}", headers, body)
    return error_of(response)[0] if response.status >= 400 else ""


INSERTED = b'{"PartitionKey":"a","RowKey":"new"}'


def test_it_permits_what_the_roles_of_the_token_permit(service: ServiceUnderTest) -> None:
    query = signature(service, "Storage Table Data Reader")
    assert code(service, "GET", "/tab()", query) == ""
    assert code(service, "POST", "/tab", query, INSERTED) == "AuthorizationPermissionMismatch"
    assert code(service, "GET", "/other()", query) == "AuthenticationFailed"
    assert code(service, "GET", "/Tables", query) == "AuthorizationFailure"
    assert code(service, "GET", "/tab()", query.replace("sp=raud", "sp=r")) == (
        "AuthenticationFailed"
    )
    assert code(service, "GET", "/tab()", signature(service)) == "AuthorizationPermissionMismatch"


def test_it_permits_what_an_assigned_role_permits_until_it_is_removed(
    service: ServiceUnderTest,
) -> None:
    query = signature(service)
    assert code(service, "POST", "/tab", query, INSERTED) == "AuthorizationPermissionMismatch"
    service.assign(Assignment(OBJECT_ID, DATA_CONTRIBUTOR, "tab"))
    assert code(service, "POST", "/tab", query, INSERTED) == ""
    service.assign()
    assert code(service, "GET", "/tab()", query) == "AuthorizationPermissionMismatch"


def test_its_range_and_its_conditions(service: ServiceUnderTest) -> None:
    role = "Storage Table Data Contributor"
    query = signature(service, role, spk="b", sip="127.0.0.1", spr="https")
    assert code(service, "GET", "/tab(PartitionKey='a',RowKey='1')", query) == "ResourceNotFound"
    assert code(service, "POST", "/tab", query, INSERTED) == "AuthorizationFailure"
    service.client = "10.0.0.1"
    assert code(service, "GET", "/tab()", query) == "AuthorizationSourceIPMismatch"
    service.client, service.scheme = "127.0.0.1", "http"
    assert code(service, "GET", "/tab()", query) == "AuthorizationProtocolMismatch"


def test_it_ends_with_its_account_though_another_gets_the_name(service: ServiceUnderTest) -> None:
    service.store_account("stored")
    ours = signature(service, "Storage Table Data Contributor", account="stored")
    assert code(service, "GET", "/tab()", ours, account="stored") == "TableNotFound"
    service.store_account("stored")
    assert code(service, "GET", "/tab()", ours, account="stored") == "AuthenticationFailed"
    theirs = signature(service, "Storage Table Data Contributor", account="stored")
    assert code(service, "GET", "/tab()", theirs, account="stored") == "TableNotFound"


def test_no_key_was_ever_given(service: ServiceUnderTest) -> None:
    """A server without a secret accepts no user delegation SAS."""
    parameters = {"sv": VERSION, "tn": "tab", "sp": "r", "se": "2017-01-07", "skoid": OBJECT_ID}
    parameters |= {"sktid": TENANT, "skt": "2017-01-01", "ske": "2017-01-08", "sks": "t"}
    query = query_of(signed_by_user(ACCOUNT, "", {**parameters, "skv": VERSION}))
    assert code(service, "GET", "/tab()", query) == "AuthenticationFailed"
