"""Get User Delegation Key: which callers get one, how long it is valid, and its form (auth 3.11)."""

import base64
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sas_signing import query_of, signed_by_user
from tablestone import limits
from tablestone.auth.roles import DATA_READER, Assignment
from tablestone.configuration import TokenRules, TrustedIssuer
from tablestone.model.operations import UserDelegationKey
from tokens import ISSUER, OBJECT_ID, TENANT, RsaKey, claims_at, key_set, signed
from wire.case_tables import error_of
from wire.service_under_test import ACCOUNT, Response, ServiceUnderTest

KEY = RsaKey("one")
TARGET = "/?restype=service&comp=userdelegationkey"
VERSION = "2025-07-05"
DELEGATOR = "Storage Table Delegator"
NOW = "2017-01-05T03:25:45Z"
TOMORROW = "2017-01-06T03:25:45Z"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceUnderTest]:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(KEY))
    service = ServiceUnderTest(
        tokens=TokenRules((TrustedIssuer(ISSUER, str(keys), TENANT),)), scheme="https"
    )
    yield service
    service.close()


def key_info(start: str | None = NOW, expiry: str | None = TOMORROW, more: str = "") -> str:
    elements = [("Start", start), ("Expiry", expiry)]
    written = "".join(f"<{name}>{text}</{name}>" for name, text in elements if text is not None)
    return f'<?xml version="1.0" encoding="utf-8"?><KeyInfo>{written}{more}</KeyInfo>'


def ask(
    service: ServiceUnderTest,
    document: str | None = None,
    *roles: str,
    version: str = VERSION,
    method: str = "POST",
) -> Response:
    token = signed(KEY, claims_at(service.clock.now.timestamp(), roles=list(roles or (DELEGATOR,))))
    headers = [
        ("Authorization", f"Bearer {token}"),
        ("x-ms-version", version),
        ("x-ms-date", "-"),
        ("Content-Type", "application/xml"),
    ]
    body = key_info() if document is None else document
    return service.send(method, TARGET, headers, body.encode())


def test_the_key_in_the_form_of_blob_and_queue(service: ServiceUnderTest) -> None:
    """Recorded from the live service's tables, at 2025-07-05."""
    response = ask(service)
    assert response.status == 200
    assert response.headers["content-type"] == "application/xml"
    text = response.body.decode("utf-8-sig")
    value = ET.fromstring(text).findtext("Value")  # noqa: S314 - our own server's answer
    assert value is not None
    assert len(base64.b64decode(value)) == 32
    assert text == (
        '<?xml version="1.0" encoding="utf-8"?><UserDelegationKey>'
        f"<SignedOid>{OBJECT_ID}</SignedOid><SignedTid>{TENANT}</SignedTid>"
        f"<SignedStart>{NOW}</SignedStart><SignedExpiry>{TOMORROW}</SignedExpiry>"
        f"<SignedService>t</SignedService><SignedVersion>{VERSION}</SignedVersion>"
        f"<Value>{value}</Value></UserDelegationKey>"
    )
    assert ask(service).body == response.body, "asked the same, the key is the same"
    other = ask(service, key_info(expiry="2017-01-06T03:25:46Z"))
    assert value not in other.body.decode()


def test_without_a_start_it_begins_now(service: ServiceUnderTest) -> None:
    assert ask(service, key_info(start=None)).body == ask(service).body


def test_the_longest_validity(service: ServiceUnderTest) -> None:
    latest = service.clock.now + timedelta(seconds=limits.USER_DELEGATION_KEY_SECONDS_MAX)
    assert ask(service, key_info(expiry=f"{latest:%Y-%m-%dT%H:%M:%SZ}")).status == 200
    latest += timedelta(seconds=1)
    response = ask(service, key_info(expiry=f"{latest:%Y-%m-%dT%H:%M:%SZ}"))
    assert (response.status, error_of(response)[0]) == (400, "InvalidXmlDocument")


DOCUMENTS = {
    "none": "",
    "no XML": "<KeyInfo>",
    "another": "<SignedIdentifiers/>",
    "no expiry": key_info(expiry=None),
    "an empty expiry": key_info(expiry=""),
    "no date": key_info(expiry="tomorrow"),
    "twice": key_info(more="<Expiry>2017-01-06</Expiry>"),
    "something else": key_info(more="<Days>1</Days>"),
    "it ends before it begins": key_info(start=TOMORROW, expiry=NOW),
    "it has ended": key_info(start="2017-01-01", expiry="2017-01-02"),
    "a document type": "<!DOCTYPE KeyInfo [<!ENTITY e 'x'>]><KeyInfo>&e;</KeyInfo>",
}


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_bad_documents(service: ServiceUnderTest, document: str) -> None:
    response = ask(service, document)
    assert response.status == 400
    assert error_of(response)[0] == "InvalidXmlDocument"
    assert error_of(response)[2] == "xml"


def test_a_key_for_the_users_of_another_tenant_is_refused_by_name(
    service: ServiceUnderTest,
) -> None:
    more = f"<DelegatedUserTid>{TENANT}</DelegatedUserTid>"
    response = ask(service, key_info(more=more))
    assert (response.status, error_of(response)[0]) == (501, "NotImplemented")


@pytest.mark.parametrize("role", ["Storage Table Delegator", "Storage Account Contributor"])
def test_callers_who_get_a_key(service: ServiceUnderTest, role: str) -> None:
    assert ask(service, None, role).status == 200


@pytest.mark.parametrize("role", ["Storage Table Data Reader", "Storage Table Data Contributor"])
def test_callers_who_get_no_key(service: ServiceUnderTest, role: str) -> None:
    response = ask(service, None, role)
    assert (response.status, error_of(response)[0]) == (403, "AuthorizationPermissionMismatch")


def test_the_account_s_key_gets_none(service: ServiceUnderTest) -> None:
    """An account key has no user to sign for."""
    response = service.send("POST", TARGET, [("x-ms-version", VERSION)], key_info().encode())
    assert (response.status, error_of(response)[0]) == (403, "AuthenticationFailed")


def test_not_before_its_version_and_not_by_another_method(service: ServiceUnderTest) -> None:
    response = ask(service, version="2025-05-05")
    assert (response.status, error_of(response)[0]) == (400, "InvalidQueryParameterValue")
    response = ask(service, method="PUT")
    assert (response.status, error_of(response)[0]) == (405, "MethodNotAllowed")


TABLE_SAS = {"tn": "Weather", "sp": "raud", "se": TOMORROW, "sv": VERSION}


def signed_with(response: Response, **changed: str) -> str:
    """The query of a table SAS that a user signed with the key they were given."""
    key = ET.fromstring(response.body.decode("utf-8-sig"))  # noqa: S314 - our own server's answer
    names = {"skoid": "SignedOid", "sktid": "SignedTid", "skt": "SignedStart"}
    names |= {"ske": "SignedExpiry", "sks": "SignedService", "skv": "SignedVersion"}
    of_key = {name: str(key.findtext(tag)) for name, tag in names.items()}
    parameters = {**TABLE_SAS, **of_key, **changed}
    return query_of(signed_by_user(ACCOUNT, str(key.findtext("Value")), parameters))


def statuses(service: ServiceUnderTest, query: str) -> tuple[int, int]:
    """The statuses of a read and of an insert with this signature."""
    headers = [("Authorization", "-"), ("x-ms-date", "-"), ("x-ms-version", VERSION)]
    read = service.send("GET", f"/Weather()?{query}", headers)
    body = b'{"PartitionKey":"p","RowKey":"r"}'
    return read.status, service.send("POST", f"/Weather?{query}", headers, body).status


def with_table(service: ServiceUnderTest) -> None:
    assert service.send("POST", "/Tables", (), b'{"TableName":"Weather"}').status == 201


def test_an_issued_key_signs_as_far_as_roles_go(service: ServiceUnderTest) -> None:
    """A signature permits what its user may do now, by the token's roles and by assigned roles."""
    with_table(service)
    without_data = signed_with(ask(service))
    reader = signed_with(ask(service, None, DELEGATOR, "Storage Table Data Reader"))
    contributor = signed_with(ask(service, None, DELEGATOR, "Storage Table Data Contributor"))
    assert statuses(service, without_data) == (403, 403)
    assert statuses(service, reader) == (200, 403)
    assert statuses(service, contributor) == (200, 201)
    service.assign(Assignment(OBJECT_ID, DATA_READER, "Weather"))
    assert statuses(service, without_data) == (200, 403)
    service.assign()
    assert statuses(service, without_data) == (403, 403)


def test_a_key_signs_no_longer_than_it_was_given_for(service: ServiceUnderTest) -> None:
    with_table(service)
    query = signed_with(
        ask(service, None, DELEGATOR, "Storage Table Data Reader"), se="2017-01-07T00:00:00Z"
    )
    assert statuses(service, query)[0] == 200
    service.clock.now += timedelta(days=1)
    assert statuses(service, query)[0] == 403


def test_nobody_signs_as_somebody_else(service: ServiceUnderTest) -> None:
    with_table(service)
    response = ask(service, None, DELEGATOR, "Storage Table Data Contributor")
    for changed in ({"skoid": "somebody"}, {"ske": "2017-01-12T00:00:00Z"}, {"skv": "2025-11-05"}):
        assert statuses(service, signed_with(response, **changed)) == (403, 403)


def test_nothing_shows_the_key() -> None:
    assert "secret" not in repr(UserDelegationKey("o", "t", "s", "e", "t", "v", b"secret"))
