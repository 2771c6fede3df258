"""`/TABLE?comp=expiry`: a table's policy for the account's key; any other request gets the service's own answer."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from sas_signing import completed, query_of, signed
from tablestone import limits
from tablestone.model.expiry import ExpiryPolicy
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog
from wire.service_under_test import ACCOUNT, KEY, Response, ServiceUnderTest


@pytest.fixture
def service() -> Iterator[ServiceUnderTest]:
    """One with a table whose entities expire, and a table without a policy."""
    made = ServiceUnderTest()
    for table in ("Sessions", "Plain"):
        body = json.dumps({"TableName": table}).encode()
        assert (
            made.send("POST", "/Tables", [("Content-Type", "application/json")], body).status == 201
        )
    yield made
    made.close()


def set_policy(service: ServiceUnderTest, policy: ExpiryPolicy | None) -> None:
    catalog = Catalog(service.engine, service.clock.ticks, lambda: b"12345678")
    asyncio.run(catalog.change_expiry(Named(ACCOUNT), "Sessions", lambda _old: policy))


def anonymous(response: Response) -> tuple[int, dict[str, str], bytes]:
    """The answer without the id of its request."""
    headers = {name: text for name, text in response.headers.items() if "request-id" not in name}
    return response.status, headers, re.sub(rb"RequestId:\S+", b"", response.body)


@pytest.mark.parametrize(
    ("policy", "members"),
    [
        (ExpiryPolicy(after=86_400), {"after": 86_400, "suspended": False}),
        (
            ExpiryPolicy(property_name="expires", suspended=True),
            {"property": "expires", "suspended": True},
        ),
    ],
)
def test_the_key_of_the_account_reads_a_policy(
    service: ServiceUnderTest, policy: ExpiryPolicy, members: dict[str, object]
) -> None:
    set_policy(service, policy)
    answer = service.send("GET", "/sessions?comp=expiry")
    assert (answer.status, json.loads(answer.body)) == (200, members)
    assert answer.headers["content-type"] == "application/json"
    set_policy(service, None)
    assert service.send("GET", "/Sessions?comp=expiry").status == 400


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /Plain?comp=",
        "GET /Absent?comp=",
        "GET /Sessions?restype=service&comp=",
        "GET /?comp=",
        "POST /Sessions?comp=",
        "DELETE /Sessions?comp=",
        "MERGE /Sessions?comp=",
        "HEAD /Sessions?comp=",
        "DELETE /Plain?comp=",
        "PUT /?comp=",
        "PUT /Sessions(PartitionKey='p',RowKey='r')?comp=",
        "SAS-PUT /Sessions?comp=",
        "GET /Sessions(PartitionKey='p',RowKey='r')?comp=",
        "GET /1?comp=",
        "SAS /Sessions?comp=",
    ],
)
def test_all_else_is_answered_as_any_other_comp(
    service: ServiceUnderTest, request_line: str
) -> None:
    set_policy(service, ExpiryPolicy(after=60))
    method, path = request_line.split()
    answers = []
    for comp in ("expiry", "exqiry"):
        target, headers = path + comp, []
        if method.startswith("SAS"):
            parameters = completed({"tn": "Sessions", "sp": "raud"})
            target += f"&{query_of(signed(ACCOUNT, KEY, parameters))}"
            headers = [("Authorization", "-")]
        verb = {"SAS": "GET", "SAS-PUT": "PUT"}.get(method, method)
        answers.append(anonymous(service.send(verb, target, headers)))
    assert answers[0] == answers[1]
    assert answers[0][0] >= 400


def put(service: ServiceUnderTest, table: str, body: bytes) -> tuple[int, str | None]:
    answer = service.send("PUT", f"/{table}?comp=expiry", (), body)
    return answer.status, answer.headers.get("x-ms-error-code")


@pytest.mark.parametrize(
    "members",
    [
        {"after": 60, "suspended": False},
        {"property": "expires", "suspended": True},
        {"after": limits.EXPIRY_AGE_SECONDS_MAX, "suspended": False},
    ],
)
def test_the_key_of_the_account_gives_an_empty_table_its_policy(
    service: ServiceUnderTest, members: dict[str, object]
) -> None:
    body = json.dumps(members).encode()
    assert put(service, "sessions", body) == (204, None)
    assert json.loads(service.send("GET", "/Sessions?comp=expiry").body) == members
    assert put(service, "Absent", body) == (404, "TableNotFound")
    entity = b'{"PartitionKey": "p", "RowKey": "r"}'
    sent = service.send("POST", "/Sessions", [("Content-Type", "application/json")], entity)
    assert sent.status == 201
    for policy in (body, b'{"after": 7}'):
        assert put(service, "Sessions", policy) == (409, "TableNotEmpty")
    assert json.loads(service.send("GET", "/Sessions?comp=expiry").body) == members


def test_an_expired_entity_keeps_its_table_from_being_empty(service: ServiceUnderTest) -> None:
    assert put(service, "Sessions", b'{"after": 1}') == (204, None)
    entity = b'{"PartitionKey": "p", "RowKey": "r"}'
    service.send("POST", "/Sessions", [("Content-Type", "application/json")], entity)
    service.clock.now += timedelta(hours=1)
    assert json.loads(service.send("GET", "/Sessions()").body)["value"] == []
    assert put(service, "Sessions", b'{"after": 7200}') == (409, "TableNotEmpty")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"after": 0}',
        b'{"after": -1}',
        b'{"after": true}',
        b'{"after": 1.5}',
        b'{"after": "60"}',
        b'{"after": 60, "after": 61}',
        b'{"after": %d}' % (limits.EXPIRY_AGE_SECONDS_MAX + 1),
        b'{"after": 60, "property": "expires"}',
        b'{"property": 1}',
        b'{"property": ""}',
        b'{"property": "a-b"}',
        b'{"property": "RowKey"}',
        b'{"property": "Timestamp"}',
        b'{"after": 60, "suspended": 1}',
        b'{"after": 60, "suspended": "no"}',
        b'{"after": 60, "until": 70}',
        b"\xff",
    ],
)
def test_what_is_no_policy_is_refused(service: ServiceUnderTest, body: bytes) -> None:
    status, code = put(service, "Sessions", body)
    assert status == 400
    assert code in ("InvalidInput", "DuplicatePropertiesSpecified")
    assert service.send("GET", "/Sessions?comp=expiry").status == 400


def test_a_table_that_is_made_again_meanwhile_gets_no_policy(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = service.engine.scan

    async def scan_and_make_again(*given: Any, **more: Any) -> Any:
        found = await scan(*given, **more)
        catalog = Catalog(service.engine, service.clock.ticks, lambda: b"87654321")
        await catalog.delete(Named(ACCOUNT), "Sessions")
        await catalog.create(Named(ACCOUNT), "Sessions")
        return found

    monkeypatch.setattr(service.engine, "scan", scan_and_make_again)
    assert put(service, "Sessions", b'{"after": 60}') == (404, "TableNotFound")
    assert service.send("GET", "/Sessions?comp=expiry").status == 400
