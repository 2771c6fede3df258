"""`--query-extensions`: queries that the service refuses as not implemented (docs/guides/query-extensions.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from sas_signing import completed, query_of, signed
from wire.service_under_test import ACCOUNT, KEY, ServiceUnderTest

JSON = ("Content-Type", "application/json")
ROWS = {"stone": "Kiesel", "stones": "Kies", "bone": "Elfenbein", "Stone": "kies", "tone": None}


def filled(*, query_extensions: bool) -> ServiceUnderTest:
    service = ServiceUnderTest(query_extensions=query_extensions)
    for table in ("Stones", "Bones"):
        service.send("POST", "/Tables", [JSON], json.dumps({"TableName": table}).encode())
    for partition in ("left", "right"):
        for row, name in ROWS.items():
            entity = {"PartitionKey": partition, "RowKey": row, "name": name}
            body = json.dumps({key: value for key, value in entity.items() if value}).encode()
            assert service.send("POST", "/Stones", [JSON], body).status == 201
    return service


@pytest.fixture
def service() -> Iterator[ServiceUnderTest]:
    made = filled(query_extensions=True)
    yield made
    made.close()


def answered(service: ServiceUnderTest, target: str) -> list[dict[str, Any]]:
    answer = service.send("GET", target)
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = json.loads(answer.body)["value"]
    return found


def rows(service: ServiceUnderTest, text: str, more: str = "") -> list[str]:
    found = answered(service, f"/Stones()?$filter={quote(text)}{more}")
    return [f"{each['PartitionKey']}/{each['RowKey']}" for each in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PartitionKey eq 'left' and startswith(RowKey,'st')", ["stone", "stones"]),
        ("PartitionKey eq 'left' and endswith(RowKey,'tone')", ["Stone", "stone", "tone"]),
        ("PartitionKey eq 'left' and contains(name,'ies')", ["Stone", "stone", "stones"]),
        ("PartitionKey eq 'left' and substringof('Kies',name)", ["stone", "stones"]),
        ("PartitionKey eq 'left' and not contains(name,'ies')", ["bone", "tone"]),
        ("startswith(PartitionKey,'le') and startswith(name,'Kies')", ["stone", "stones"]),
    ],
)
def test_a_filter_of_text(service: ServiceUnderTest, text: str, expected: list[str]) -> None:
    assert rows(service, text) == [f"left/{each}" for each in expected]


def test_pages_of_a_filter_of_text(service: ServiceUnderTest) -> None:
    target, found = "/Stones()?$top=2&$filter=" + quote("endswith(RowKey,'one')"), []
    more = ""
    while True:
        answer = service.send("GET", target + more)
        found += [each["RowKey"] for each in json.loads(answer.body)["value"]]
        if "x-ms-continuation-nextpartitionkey" not in answer.headers:
            break
        tokens = [
            answer.headers[f"x-ms-continuation-next{name}key"] for name in ("partition", "row")
        ]
        more = "&NextPartitionKey={}&NextRowKey={}".format(*map(quote, tokens))
    assert found == ["Stone", "bone", "stone", "tone"] * 2


def test_a_filter_of_tables(service: ServiceUnderTest) -> None:
    """Names of tables differ not by case alone (wire 3.1)."""
    found = answered(service, "/Tables?$filter=" + quote("contains(TableName,'TONE')"))
    assert [each["TableName"] for each in found] == ["Stones"]


def test_a_filter_of_one_entity(service: ServiceUnderTest) -> None:
    """Wire 6.11."""
    target = "/Stones(PartitionKey='left',RowKey='stone')?$filter="
    assert service.send("GET", target + quote("startswith(name,'Kie')")).status == 200
    assert service.send("GET", target + quote("startswith(name,'kie')")).status == 404


def test_a_lone_query_of_a_batch(service: ServiceUnderTest) -> None:
    target = "/Stones()?$filter=" + quote("startswith(RowKey,'b')")
    part = f"GET http://127.0.0.1/{ACCOUNT}{target} HTTP/1.1\r\nAccept: application/json\r\n\r\n"
    head = "--b\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    body = f"{head}{part}\r\n--b--\r\n".encode()
    answer = service.send(
        "POST", "/$batch", [("Content-Type", "multipart/mixed; boundary=b")], body
    )
    assert (answer.status, answer.body.count(b'"RowKey":"bone"')) == (202, 2), answer


def test_a_signature_sees_no_more_than_its_range(service: ServiceUnderTest) -> None:
    given = {"sp": "r", "tn": "Stones", "spk": "left", "srk": "c", "epk": "left", "erk": "t"}
    token = query_of(signed(ACCOUNT, KEY, completed(given)))
    for text in ("contains(RowKey,'one')", "startswith(PartitionKey,'')", "endswith(name,'sel')"):
        answer = service.send(
            "GET", f"/Stones()?$filter={quote(text)}&{token}", [("Authorization", "-")]
        )
        keys = {(each["PartitionKey"], each["RowKey"]) for each in json.loads(answer.body)["value"]}
        assert keys <= {("left", "stone"), ("left", "stones")}, (text, keys)
        assert ("left", "stone") in keys


@pytest.mark.parametrize(
    "target",
    [
        "/Stones()?$filter=" + quote("startswith(RowKey,'b')"),
        "/Tables?$filter=" + quote("startswith(TableName,'b')"),
        "/Stones(PartitionKey='left',RowKey='stone')?$filter=" + quote("contains(name,'i')"),
    ],
)
def test_without_the_option_nothing_is_new(target: str) -> None:
    service = filled(query_extensions=False)
    answer = service.send("GET", target)
    assert (answer.status, b"NotImplemented" in answer.body) == (501, True)
    service.close()
