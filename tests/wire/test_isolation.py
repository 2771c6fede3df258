"""Two accounts of one server: the key of one cannot reach, change or see data of the other (auth 1.5, 11)."""

import re
from typing import Any

import pytest

from sas_signing import completed, query_of, signed
from signing import shared_key, shared_key_lite
from wire.service_under_test import (
    ACCOUNT,
    HOST,
    KEY,
    OTHER_ACCOUNT,
    OTHER_KEY,
    Headers,
    Response,
    ServiceUnderTest,
)

ENTITY = "secrets(PartitionKey='p',RowKey='r')"
BATCH_TYPE = "multipart/mixed; boundary=b"


def batch(*operations: str) -> bytes:
    """A change set of operations, each a request line and a body."""
    parts = [
        "--c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        + operation.replace(
            "\n",
            " HTTP/1.1\r\nAccept: application/json\r\nContent-Type: application/json\r\nIf-Match: *\r\n\r\n",
            1,
        )
        + "\r\n"
        for operation in operations
    ]
    head = "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n"
    return f"{head}{''.join(parts)}--c--\r\n--b--\r\n".encode()


def lone_query(target: str) -> bytes:
    """A batch of one query."""
    mime = "Content-Type: application/http\r\nContent-Transfer-Encoding: binary"
    return f"--b\r\n{mime}\r\n\r\nGET {target} HTTP/1.1\r\nAccept: application/json\r\n\r\n\r\n--b--\r\n".encode()


class TwoAccounts:
    """One service; `as_other` asks with the other account's name and key."""

    def __init__(self, service: ServiceUnderTest) -> None:
        self.service = service

    def as_other(
        self,
        method: str,
        target: str,
        *,
        body: bytes = b"",
        content_type: str = "",
        more: Headers = (),
        signed_target: str | None = None,
        name: str = OTHER_ACCOUNT,
        lite: bool = False,
    ) -> Response:
        """Send a request signed with the other account's key, for `signed_target` and as `name` where given."""
        date = self.service.clock.http_date()
        signed = target if signed_target is None else signed_target
        if lite:
            authorization = shared_key_lite(name, OTHER_KEY, target=signed, date=date)
        else:
            authorization = shared_key(
                name, OTHER_KEY, method=method, target=signed, date=date, content_type=content_type
            )
        headers = [("Authorization", authorization), *more]
        if content_type:
            headers.append(("Content-Type", content_type))
        return self.service.exchange(method, target, headers, body)

    def own_state(self) -> bytes:
        """All that the first account holds."""
        tables = self.service.send("GET", "/Tables")
        entities = self.service.send("GET", "/secrets()")
        assert (tables.status, entities.status) == (200, 200)
        return tables.body + entities.body


@pytest.fixture
def accounts(service: ServiceUnderTest) -> TwoAccounts:
    """The first account holds a table with one entity, which has an ETag; the other one has a table called `own`."""
    assert service.send("POST", "/Tables", (), b'{"TableName":"secrets"}').status == 201
    entity = b'{"PartitionKey":"p","RowKey":"r","secret":"s3cret"}'
    assert service.send("POST", "/secrets", (), entity).status == 201
    accounts = TwoAccounts(service)
    made = accounts.as_other(
        "POST",
        f"/{OTHER_ACCOUNT}/Tables",
        body=b'{"TableName":"own"}',
        content_type="application/json",
    )
    assert made.status == 201
    return accounts


Asked = dict[str, Any]
"""The arguments of `TwoAccounts.as_other`."""

_TARGETS = ("/Tables", "/secrets()", f"/{ENTITY}")
_HOSTS = (
    f"{ACCOUNT}.table.localhost",
    f"{ACCOUNT}-secondary.table.localhost",
    f"{ACCOUNT}.table.tables.example",
    f"{ACCOUNT}.table.core.windows.net",
    "data.example",
    "data-secondary.example",
)
_PATHS = (
    f"/{ACCOUNT}",
    f"/{ACCOUNT}-secondary",
    f"/{ACCOUNT}-secondary/{OTHER_ACCOUNT}",
    f"/{OTHER_ACCOUNT}-secondary/{ACCOUNT}",
    f"/{OTHER_ACCOUNT}/{ACCOUNT}",
    f"/{OTHER_ACCOUNT}/../{ACCOUNT}",
    f"/{OTHER_ACCOUNT}/..%2F{ACCOUNT}",
    f"/{OTHER_ACCOUNT}%2F..%2F{ACCOUNT}",
)
_WRITES = (
    ("POST", "/Tables", b'{"TableName":"more"}'),
    ("DELETE", "/Tables('secrets')", b""),
    ("POST", "/secrets", b'{"PartitionKey":"p","RowKey":"s"}'),
    ("PUT", f"/{ENTITY}", b'{"n":1}'),
    ("PATCH", f"/{ENTITY}", b'{"n":1}'),
    ("DELETE", f"/{ENTITY}", b""),
    ("POST", "/$batch", batch(f'PUT http://{HOST}/{ACCOUNT}/{ENTITY}\n{{"n":1}}')),
)


def _crossings() -> dict[str, Asked]:
    """The other account's requests for data of the first; each must be refused without a trace of the data."""
    found: dict[str, Asked] = {}
    for target in _TARGETS:
        read: Asked = {"method": "GET", "target": f"/{ACCOUNT}{target}"}
        found[f"{target} in the first one's name"] = {**read, "name": ACCOUNT}
        found[f"{target} signed for the own path"] = {
            **read,
            "signed_target": f"/{OTHER_ACCOUNT}{target}",
        }
        for path in _PATHS:
            found[f"{path}{target}"] = {"method": "GET", "target": path + target}
            found[f"{path}{target} lite"] = {"method": "GET", "target": path + target, "lite": True}
        for host in _HOSTS:
            there: Asked = {"method": "GET", "target": target, "more": [("Host", host)]}
            found[f"{host}{target}"] = there
            found[f"{host}{target} in the first one's name"] = {**there, "name": ACCOUNT}
            found[f"{host} and the own path {target}"] = {
                **there,
                "target": f"/{OTHER_ACCOUNT}{target}",
            }
    for method, target, body in _WRITES:
        kind = BATCH_TYPE if "batch" in target else "application/json" if body else ""
        found[f"{method} {target}"] = {
            "method": method,
            "target": f"/{ACCOUNT}{target}",
            "body": body,
            "content_type": kind,
            "more": [("If-Match", "*")],
        }
    return found


CROSSINGS = _crossings()


@pytest.mark.parametrize("name", CROSSINGS)
def test_nothing_crosses(accounts: TwoAccounts, name: str) -> None:
    before = accounts.own_state()
    response = accounts.as_other(**CROSSINGS[name])
    assert response.status in {400, 403, 404}, response
    assert b"s3cret" not in response.body
    assert accounts.own_state() == before


INNER_URLS = {
    "path style": f"http://{HOST}/{ACCOUNT}/{ENTITY}",
    "relative path": f"/{ACCOUNT}/{ENTITY}",
    "the secondary": f"http://{HOST}/{ACCOUNT}-secondary/{ENTITY}",
    "host style": f"http://{ACCOUNT}.table.localhost/{ENTITY}",
    "host and path": f"http://{ACCOUNT}.table.localhost/{ACCOUNT}/{ENTITY}",
    "the own path, up": f"http://{HOST}/{OTHER_ACCOUNT}/../{ACCOUNT}/{ENTITY}",
}
OUTER = {
    "outer path style": (f"/{OTHER_ACCOUNT}/$batch", HOST),
    "outer host style": ("/$batch", f"{OTHER_ACCOUNT}.table.localhost"),
}


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER_URLS)
def test_the_urls_inside_a_batch_lead_nowhere_else(
    accounts: TwoAccounts, inner: str, outer: str
) -> None:
    """An inner URL may name any host: the tables are those of the account that signed the outer request."""
    before = accounts.own_state()
    target, host = OUTER[outer]
    bodies = (
        batch(f'PUT {INNER_URLS[inner]}\n{{"n":1}}'),
        batch(f"DELETE {INNER_URLS[inner]}\n"),
        lone_query(INNER_URLS[inner]),
    )
    for body in bodies:
        response = accounts.as_other(
            "POST", target, body=body, content_type=BATCH_TYPE, more=[("Host", host)]
        )
        assert response.status == 202
        assert re.search(rb"HTTP/1\.1 (400|404) ", response.body), response.body
        assert b"s3cret" not in response.body
    assert accounts.own_state() == before


@pytest.mark.parametrize(
    ("target", "host", "inner"),
    [
        (f"/{ACCOUNT}/$batch", HOST, f"http://{HOST}/{ACCOUNT}/{ENTITY}"),
        (f"/{ACCOUNT}/$batch", HOST, f"/{ACCOUNT}/{ENTITY}"),
        ("/$batch", f"{ACCOUNT}.table.localhost", f"http://{ACCOUNT}.table.localhost/{ENTITY}"),
        ("/$batch", f"{ACCOUNT}.table.localhost", f"/{ENTITY}"),
        ("/$batch", "data.example", f"http://data.example/{ENTITY}"),
    ],
)
def test_a_batch_in_each_style(accounts: TwoAccounts, target: str, host: str, inner: str) -> None:
    """Inner URLs have the style of the outer one, and so have the URLs in the answers (wire 7.2)."""
    service = accounts.service
    headers = [("Host", host), ("Content-Type", BATCH_TYPE)]
    written = service.exchange("POST", target, headers, batch(f'PUT {inner}\n{{"n":1}}'))
    assert written.status == 202
    assert b"HTTP/1.1 204 " in written.body
    base = f"http://{host}{target.removesuffix('$batch')}"
    inserted = service.exchange(
        "POST",
        target,
        headers,
        batch(f'POST {inner.split("(", maxsplit=1)[0]}\n{{"PartitionKey":"p","RowKey":"s"}}'),
    )
    location = f"Location: {base}secrets(PartitionKey='p',RowKey='s')\r\n"
    assert location.encode() in inserted.body, inserted.body
    found = service.exchange("POST", target, headers, lone_query(inner))
    assert f'"odata.metadata":"{base}$metadata#secrets/@Element"'.encode() in found.body
    assert b'"n":1' in found.body


def test_tables_of_one_name_are_two(accounts: TwoAccounts) -> None:
    made = accounts.as_other(
        "POST",
        f"/{OTHER_ACCOUNT}/Tables",
        body=b'{"TableName":"secrets"}',
        content_type="application/json",
    )
    assert made.status == 201
    assert b"s3cret" not in accounts.as_other("GET", f"/{OTHER_ACCOUNT}/secrets()").body
    gone = accounts.as_other("DELETE", f"/{OTHER_ACCOUNT}/Tables('secrets')")
    assert gone.status == 204
    assert b"s3cret" in accounts.own_state()


def test_a_continuation_of_one_shows_the_other_nothing(accounts: TwoAccounts) -> None:
    """A token contains a key, or a table's name; the request decides which account it is about."""
    service = accounts.service
    entity = b'{"PartitionKey":"q","RowKey":"r","secret":"s3cret"}'
    assert service.send("POST", "/secrets", (), entity).status == 201
    for path in ("/secrets()", "/Tables"):
        service.send("POST", "/Tables", (), b'{"TableName":"zzz"}')
        first = service.send("GET", f"{path}?$top=1")
        token = "&".join(
            f"{name.removeprefix('x-ms-continuation-')}={value}"
            for name, value in first.headers.items()
            if name.startswith("x-ms-continuation-")
        )
        assert token
        names = {"nextpartitionkey": "NextPartitionKey", "nextrowkey": "NextRowKey"}
        names["nexttablename"] = "NextTableName"
        for lower, name in names.items():
            token = token.replace(f"{lower}=", f"{name}=")
        assert service.send("GET", f"{path}?{token}").status == 200
        response = accounts.as_other("GET", f"/{OTHER_ACCOUNT}{path}?{token}")
        assert response.status in {200, 404}
        assert b"s3cret" not in response.body
        assert b"zzz" not in response.body


def test_the_first_key_does_not_open_the_other_account(accounts: TwoAccounts) -> None:
    date = accounts.service.clock.http_date()
    path = f"/{OTHER_ACCOUNT}/Tables"
    for name in (ACCOUNT, OTHER_ACCOUNT):
        authorization = shared_key(name, KEY, method="GET", target=path, date=date)
        response = accounts.service.exchange("GET", path, [("Authorization", authorization)])
        assert response.status == 403


_SIGNATURES = {
    "an account SAS": {"ss": "t", "srt": "sco", "sp": "rwdlacu"},
    "a table SAS": {"tn": "secrets", "sp": "raud"},
}
_SAS_ADDRESSES = (
    (f"/{ACCOUNT}", HOST),
    (f"/{ACCOUNT}-secondary", HOST),
    ("", f"{ACCOUNT}.table.localhost"),
    ("", "data.example"),
)


@pytest.mark.parametrize(("path", "host"), _SAS_ADDRESSES)
@pytest.mark.parametrize("signer", [OTHER_ACCOUNT, ACCOUNT])
@pytest.mark.parametrize("kind", _SIGNATURES)
def test_a_signature_of_the_other_key_opens_nothing(
    accounts: TwoAccounts, kind: str, signer: str, path: str, host: str
) -> None:
    """Made in either account's name; in its own account the same signature is valid."""
    before = accounts.own_state()
    parameters = signed(signer, OTHER_KEY, completed(_SIGNATURES[kind]))
    query = query_of(parameters)
    headers = [("Authorization", "-"), ("Host", host)]
    for target in ("/secrets()", f"/{ENTITY}", "/Tables"):
        response = accounts.service.exchange("GET", f"{path}{target}?{query}", headers)
        assert response.status == 403
        assert b"s3cret" not in response.body
    deleted = accounts.service.exchange(
        "DELETE", f"{path}/{ENTITY}?{query}", [*headers, ("If-Match", "*")]
    )
    assert deleted.status == 403
    assert accounts.own_state() == before
    own = accounts.service.exchange(
        "GET", f"/{OTHER_ACCOUNT}/secrets()?{query}", [("Authorization", "-")]
    )
    # It is the other account's own signature, and its account has no such table (auth 3.10).
    assert own.status == (404 if signer == OTHER_ACCOUNT else 403)
