"""Requests with bearer tokens, as tables and step by step: authentication, permissions, and changes of keys."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spec_tables import Row
from tablestone.auth.roles import DATA_CONTRIBUTOR, DATA_READER, Assignment, find_role
from tablestone.configuration import DEVELOPMENT_TENANT, TokenRules, TrustedIssuer
from tablestone.model.errors import CHALLENGE_TEXT
from tokens import ISSUER, OBJECT_ID, TENANT, RsaKey, claims_at, key_set, signed
from wire.case_tables import check, error_of, expanded, rows
from wire.service_under_test import ServiceUnderTest

CHALLENGE = (
    f"Bearer authorization_uri=https://login.microsoftonline.com/{DEVELOPMENT_TENANT}/oauth2/authorize "
    "resource_id=https://storage.azure.com"
)
KEY = RsaKey("one")
OTHER_KEY = RsaKey("two")
VERSION = "2020-12-06"
AT_THE_DOOR = {
    *("NoAuthenticationInformation", "InvalidAuthenticationInfo"),
    *("AuthenticationFailed", "ResourceNotFound"),
}
ROWS: list[Row] = rows("bearer.toml")
ROW_KEYS = {
    *("id", "source", "claims", "assigned", "header", "scheme", "version", "send", "body"),
    *("headers", "status", "code", "challenge", "limit"),
}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(KEY))
    return file


@pytest.fixture
def tls_service(key_file: Path) -> Iterator[ServiceUnderTest]:
    """A service over https that accepts the tests' issuer, with the table Weather and an entity."""
    rules = TokenRules((TrustedIssuer(ISSUER, str(key_file), TENANT),))
    service = ServiceUnderTest(tokens=rules, scheme="https")
    for path, body in (
        ("/Tables", b'{"TableName":"Weather"}'),
        ("/Weather", b'{"PartitionKey":"p","RowKey":"r"}'),
    ):
        assert service.send("POST", path, (), body).status == 201
    yield service
    service.close()


def token_at(service: ServiceUnderTest, key: RsaKey = KEY, **changed: Any) -> str:
    claims = claims_at(service.clock.now.timestamp(), **{"roles": None, **changed})
    return signed(key, claims)


def bearer(token: str, version: str = VERSION) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {token}"), ("x-ms-version", version), ("x-ms-date", "-")]


def _claims(row: Row, now: float) -> dict[str, Any]:
    def value(given: Any) -> Any:
        if isinstance(given, str) and given.startswith("NOW"):
            return int(now) + int(given.removeprefix("NOW"))
        return expanded(given) if isinstance(given, str) else given

    return {name: value(given) for name, given in row.get("claims", {}).items()}


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_request_with_a_token(tls_service: ServiceUnderTest, row: Row) -> None:
    assert row["source"]
    assert row.keys() <= ROW_KEYS
    service = tls_service
    service.scheme = row.get("scheme", "https")
    service.assign(*(_assignment(*given) for given in row.get("assigned", ())))
    token = token_at(service, **_claims(row, service.clock.now.timestamp()))
    header = row.get("header", "Bearer TOKEN").replace("TOKEN", token)
    headers = [
        ("Authorization", header),
        ("x-ms-version", row.get("version", VERSION)),
        ("x-ms-date", "-"),
        *row.get("headers", {}).items(),
    ]
    method, _, path = row["send"].partition(" ")
    response = service.send(method, path, headers, row.get("body", "").encode())
    if "comp=" in row["send"]:
        row = {**row, "phase": "service"}
    elif row.get("code") in AT_THE_DOOR:
        row = {**row, "phase": "version" if row.get("version") == "-" else "gateway"}
    if response.status == 401:
        row = {**row, "text": CHALLENGE_TEXT}
    check(row, response)
    challenge = response.headers.get("www-authenticate")
    assert challenge == (CHALLENGE if row.get("challenge") or response.status == 401 else None)
    if response.status == 401 or row["id"] == "no credentials at an old version":  # wire 8.3
        assert response.headers["server"] == "Windows-Azure-Table/1.0 Microsoft-HTTPAPI/2.0"
        assert response.headers["x-ms-version"] == row.get("version", VERSION)


def _assignment(role_name: str, principal: str, table: str | None = None) -> Assignment:
    role = find_role(role_name)
    assert role is not None
    return Assignment(OBJECT_ID if principal == "OID" else principal, role, table)


def test_the_header_twice_is_no_header(tls_service: ServiceUnderTest) -> None:
    token = token_at(tls_service, roles=["Storage Table Data Reader"])
    twice = [*bearer(token), ("authorization", f"Bearer {token}")]
    response = tls_service.send("GET", "/Weather()", twice)
    assert (response.status, error_of(response)[0]) == (400, "InvalidHeaderValue")


def test_a_role_counts_from_the_next_request_on_and_no_longer(
    tls_service: ServiceUnderTest,
) -> None:
    headers = bearer(token_at(tls_service))

    def status() -> int:
        return tls_service.send("GET", "/Weather()", headers).status

    assert status() == 403
    tls_service.assign(Assignment(OBJECT_ID, DATA_READER, None))
    assert status() == 200
    tls_service.assign()
    assert status() == 403


def test_a_token_ends_while_it_is_in_use(tls_service: ServiceUnderTest) -> None:
    headers = bearer(token_at(tls_service, roles=["Storage Table Data Reader"]))
    assert tls_service.send("GET", "/Weather()", headers).status == 200
    tls_service.clock.now += timedelta(hours=1, minutes=2)
    assert tls_service.send("GET", "/Weather()", headers).status == 401


def batch(*parts: str) -> bytes:
    lines = ["--b", "Content-Type: multipart/mixed; boundary=c", ""]
    for part in parts:
        method, _, rest = part.partition(" ")
        url, _, body = rest.partition(" ")
        lines += ["--c", "Content-Type: application/http", "Content-Transfer-Encoding: binary", ""]
        lines += [f"{method} https://127.0.0.1:10002/devstoreaccount1{url} HTTP/1.1"]
        lines += ["Content-Type: application/json", "If-Match: *"]
        lines += ["Accept: application/json;odata=minimalmetadata", "", body]
    return "\r\n".join([*lines, "--c--", "--b--", ""]).encode()


def test_each_operation_of_a_batch_is_authorized_for_itself(tls_service: ServiceUnderTest) -> None:
    """A denied one fails the whole change set, and nothing of it is written (auth 4.4)."""
    insert = 'POST /Weather {"PartitionKey":"p","RowKey":"new"}'
    also = 'POST /Weather {"PartitionKey":"p","RowKey":"also"}'

    def send() -> tuple[int, str]:
        headers = [*bearer(token_at(tls_service)), ("Content-Type", "multipart/mixed; boundary=b")]
        response = tls_service.send("POST", "/$batch", headers, batch(insert, also))
        return response.status, response.body.decode()

    tls_service.assign(Assignment(OBJECT_ID, DATA_READER, None))
    status, body = send()
    assert status == 202
    assert body.count("HTTP/1.1 ") == 1
    assert "HTTP/1.1 403 Forbidden" in body
    assert '"value":"0:This request is not authorized to perform this operation using' in body
    found = tls_service.send("GET", "/Weather()", ())
    assert len(json.loads(found.body)["value"]) == 1
    tls_service.assign(Assignment(OBJECT_ID, DATA_CONTRIBUTOR, "Weather"))
    status, body = send()
    assert (status, body.count("HTTP/1.1 201 Created")) == (202, 2)


def test_a_new_key_is_accepted_at_once_and_the_old_one_no_longer(
    tls_service: ServiceUnderTest, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first token with a new key makes the server fetch the keys again, and already succeeds."""
    monkeypatch.setattr("tablestone.accounts.issuer_keys.READ_AGAIN_SECONDS", 0.0)
    old, new = (
        bearer(token_at(tls_service, key, roles=["Storage Table Data Reader"]))
        for key in (KEY, OTHER_KEY)
    )

    def statuses() -> list[int]:
        return [tls_service.send("GET", "/Weather()", headers).status for headers in (old, new)]

    assert statuses() == [200, 401]
    key_file.write_bytes(key_set(OTHER_KEY))
    assert tls_service.send("GET", "/Weather()", new).status == 200
    assert statuses() == [401, 200]


def test_keys_that_cannot_be_read_leave_the_old_ones(
    tls_service: ServiceUnderTest,
    key_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("tablestone.accounts.issuer_keys.READ_AGAIN_SECONDS", 0.0)
    old, new = (
        bearer(token_at(tls_service, key, roles=["Storage Table Data Reader"]))
        for key in (KEY, OTHER_KEY)
    )
    assert tls_service.send("GET", "/Weather()", old).status == 200
    spoil: tuple[Callable[[], object], ...] = (
        lambda: key_file.write_text("{"),
        lambda: key_file.write_text('{"kid":"one"}'),
    )
    for spoiled in spoil:
        spoiled()
        assert tls_service.send("GET", "/Weather()", new).status == 401
        assert tls_service.send("GET", "/Weather()", old).status == 200
    told = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 2
    assert all("1 stays in use" in line for line in told)
    key_file.write_bytes(key_set(KEY, OTHER_KEY))
    assert tls_service.send("GET", "/Weather()", new).status == 200
    assert "can be read again" in caplog.text


@pytest.mark.parametrize("is_file_gone", [False, True])
def test_keys_that_were_withdrawn_open_nothing(
    tls_service: ServiceUnderTest,
    key_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_file_gone: bool,
) -> None:
    monkeypatch.setattr("tablestone.accounts.issuer_keys.READ_AGAIN_SECONDS", 0.0)
    old, new = (
        bearer(token_at(tls_service, key, roles=["Storage Table Data Reader"]))
        for key in (KEY, OTHER_KEY)
    )
    assert tls_service.send("GET", "/Weather()", old).status == 200
    if is_file_gone:
        key_file.unlink()
    else:
        key_file.write_text('{"keys":[]}')
    assert tls_service.send("GET", "/Weather()", new).status == 401
    assert tls_service.send("GET", "/Weather()", old).status == 401


def test_unknown_keys_make_the_server_look_again_only_seldom(
    tls_service: ServiceUnderTest, key_file: Path
) -> None:
    """Any client can name a key that does not exist."""
    stranger = bearer(token_at(tls_service, OTHER_KEY))
    assert tls_service.send("GET", "/Weather()", stranger).status == 401
    key_file.write_bytes(key_set(OTHER_KEY))
    assert tls_service.send("GET", "/Weather()", stranger).status == 401


def test_nothing_of_a_token_is_logged(
    tls_service: ServiceUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    for token in (token_at(tls_service, exp=1), token_at(tls_service), "a.b.c", "no-token-at-all"):
        assert tls_service.send("GET", "/Weather()", bearer(token)).status in {401, 403}
        assert not [part for part in token.split(".") if len(part) > 3 and part in caplog.text]
    assert "a bearer token is refused: it has expired" in caplog.text
