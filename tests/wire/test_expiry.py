"""`GET /TABLE?comp=expiry`: a table's policy for the account's key; any other request gets the service's own answer."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator

import pytest

from sas_signing import completed, query_of, signed
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
        "PUT /Plain?comp=",
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
        if method == "SAS":
            parameters = completed({"tn": "Sessions", "sp": "raud"})
            target += f"&{query_of(signed(ACCOUNT, KEY, parameters))}"
            headers = [("Authorization", "-")]
        verb = "GET" if method == "SAS" else method
        answers.append(anonymous(service.send(verb, target, headers)))
    assert answers[0] == answers[1]
    assert answers[0][0] >= 400
