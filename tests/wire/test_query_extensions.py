"""`--query-extensions`: queries that the service refuses as not implemented (docs/guides/query-extensions.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest

from sas_signing import completed, query_of, signed
from tablestone import limits
from tablestone.wire.continuation import parse_token
from wire.service_under_test import ACCOUNT, KEY, ServiceUnderTest

JSON = ("Content-Type", "application/json")
PARTIAL = ("x-tablestone-partial", "true")
TOKENS = ("x-ms-continuation-nextpartitionkey", "x-ms-continuation-nextrowkey")
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


def lone_query(service: ServiceUnderTest, target: str, accept: str = "application/json") -> bytes:
    part = f"GET http://127.0.0.1/{ACCOUNT}{target} HTTP/1.1\r\nAccept: {accept}\r\n\r\n"
    head = "--b\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    body = f"{head}{part}\r\n--b--\r\n".encode()
    answer = service.send(
        "POST", "/$batch", [("Content-Type", "multipart/mixed; boundary=b")], body
    )
    assert answer.status == 202
    return answer.body


def test_a_lone_query_of_a_batch(service: ServiceUnderTest) -> None:
    found = lone_query(service, "/Stones()?$filter=" + quote("startswith(RowKey,'b')"))
    assert found.count(b'"RowKey":"bone"') == 2


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


NEWEST = "$orderby=PartitionKey%20desc,RowKey%20desc"
ALL = [f"{side}/{row}" for side in ("left", "right") for row in sorted(ROWS)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", ALL[::-1]),
        ("&$top=3", ALL[:-4:-1]),
        ("&$filter=" + quote("PartitionKey eq 'left'"), ALL[4::-1]),
        ("&$filter=" + quote("RowKey ge 'stone'"), [ALL[n] for n in (9, 8, 7, 4, 3, 2)]),
        ("&$filter=" + quote("name eq 'Kies'"), ["right/stones", "left/stones"]),
        ("&$filter=" + quote("contains(name,'ies')") + "&$top=2", ["right/stones", "right/stone"]),
        ("&$select=PartitionKey,RowKey&$top=1", ["right/tone"]),
    ],
)
def test_the_last_keys_first(service: ServiceUnderTest, options: str, expected: list[str]) -> None:
    found = answered(service, f"/Stones()?{NEWEST}{options}")
    assert [f"{each['PartitionKey']}/{each['RowKey']}" for each in found] == expected


@pytest.mark.parametrize("order", ["PartitionKey,RowKey", " PartitionKey asc , RowKey asc "])
def test_the_first_keys_first(service: ServiceUnderTest, order: str) -> None:
    """The order that is there anyway, and its tokens."""
    answer = service.send("GET", f"/Stones()?$top=4&$orderby={quote(order)}")
    plain = service.send("GET", "/Stones()?$top=4")
    tokens = [[each.headers[name] for name in TOKENS] for each in (answer, plain)]
    assert (answer.body, tokens[0]) == (plain.body, tokens[1])


def pages(
    service: ServiceUnderTest, target: str, *headers: tuple[str, str], allowed: list[str] = ALL
) -> list[list[str]]:
    """The keys of each page. Every token names an entity that the caller may read."""
    found, more = list[list[str]](), ""
    while True:
        answer = service.send("GET", target + more, list(headers))
        assert answer.status == 200, answer
        entities = json.loads(answer.body)["value"]
        found.append([f"{each['PartitionKey']}/{each['RowKey']}" for each in entities])
        if TOKENS[0] not in answer.headers:
            return found
        texts = [answer.headers[each] for each in TOKENS]
        assert all(re.fullmatch(r"1!r\d+![A-Za-z0-9*_-]*", text) for text in texts)
        assert "/".join(parse_token(text, reverse=True) for text in texts) in allowed
        names = ("NextPartitionKey", "NextRowKey")
        more = "&" + "&".join(map("=".join, zip(names, map(quote, texts), strict=True)))


@pytest.mark.parametrize("top", [1, 3, 4, 10])
def test_pages_of_the_last_keys_first(service: ServiceUnderTest, top: int) -> None:
    found = pages(service, f"/Stones()?{NEWEST}&$top={top}")
    assert [key for page in found for key in page] == ALL[::-1]
    assert all(len(page) == top for page in found[:-1])


def test_pages_within_a_signature_s_range(service: ServiceUnderTest) -> None:
    given = {"sp": "r", "tn": "Stones", "spk": "left", "srk": "c", "epk": "right", "erk": "c"}
    token = query_of(signed(ACCOUNT, KEY, completed(given)))
    expected = [key for key in ALL if "left/c" <= key <= "right/c"]
    target = f"/Stones()?{NEWEST}&$top=2&{token}"
    found = pages(service, target, ("Authorization", "-"), allowed=expected)
    assert [key for page in found for key in page] == expected[::-1]


def test_a_page_that_takes_long(service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCAN_ROWS_PER_READ", 3)
    service.seconds = count(0, 4)
    found = pages(service, f"/Stones()?{NEWEST}&$filter=" + quote("name ne 'Kies'"))
    assert len(found) > 2
    expected = [key for key in ALL if key.split("/")[1] in ("stone", "bone", "Stone")]
    assert [key for page in found for key in page] == expected[::-1]


def test_a_token_has_a_direction(service: ServiceUnderTest) -> None:
    texts = {}
    for order in ("", NEWEST):
        answer = service.send("GET", f"/Stones()?$top=2&{order}")
        names = ("NextPartitionKey", "NextRowKey")
        tokens = (quote(answer.headers[each]) for each in TOKENS)
        texts[order] = "&".join(map("=".join, zip(names, tokens, strict=True)))
    for order, other in (("", NEWEST), (NEWEST, "")):
        assert service.send("GET", f"/Stones()?{order}&{texts[order]}").status == 200
        answer = service.send("GET", f"/Stones()?{order}&{texts[other]}")
        assert (answer.status, b"InvalidInput" in answer.body) == (400, True)
    half = texts[NEWEST].partition("&")[0]
    assert service.send("GET", f"/Stones()?{NEWEST}&{half}").status == 400


@pytest.mark.parametrize(
    "target",
    [
        *(f"/Stones()?$orderby={quote(order)}" for order in ("name", "RowKey desc", "")),
        "/Stones()?$orderby=" + quote("PartitionKey desc,RowKey"),
        "/Stones()?$orderby=" + quote("PartitionKey asc,RowKey desc"),
        "/Stones()?$orderby=" + quote("RowKey desc,PartitionKey desc"),
        "/Stones()?$orderby=" + quote("PartitionKey desc,RowKey desc,name"),
        "/Stones()?$orderby=" + quote("partitionkey desc,rowkey desc"),
        "/Tables?$orderby=" + quote("TableName desc"),
        f"/Stones(PartitionKey='left',RowKey='bone')?{NEWEST}",
    ],
)
def test_no_other_order(service: ServiceUnderTest, target: str) -> None:
    answer = service.send("GET", target)
    assert (answer.status, b"NotImplemented" in answer.body) == (501, True)
    if "Stones()" in target:
        assert b"$orderby=PartitionKey desc,RowKey desc" in answer.body


def counted(service: ServiceUnderTest, target: str, *headers: tuple[str, str]) -> int:
    answer = service.send("GET", target, list(headers))
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain;charset=utf-8"), (
        answer
    )
    return int(answer.body)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 10),
        ("PartitionKey eq 'left'", 5),
        ("PartitionKey eq 'left' and RowKey eq 'bone'", 1),
        ("PartitionKey eq 'none'", 0),
        ("name eq 'Kies'", 2),
        ("contains(name,'ies')", 6),
        ("false", 0),
    ],
)
def test_a_count(service: ServiceUnderTest, text: str, expected: int) -> None:
    for path in ("/Stones/$count", "/Stones()/$count", "/stones/%24count"):
        assert counted(service, f"{path}?$filter={quote(text)}") == expected


@pytest.mark.parametrize(
    "headers",
    [
        *([("Accept", accept)] for accept in ("*/*", "text/plain", "application/xml", "-")),
        [("x-ms-version", "2011-08-18")],
    ],
)
def test_a_count_is_a_text_whatever_the_caller_accepts(
    service: ServiceUnderTest, headers: list[tuple[str, str]]
) -> None:
    """Among others what curl sends, `*/*`, which means Atom (wire 5.1)."""
    assert counted(service, "/Stones/$count", *headers) == 10
    answer = service.send("GET", "/Stones/other", [("Accept", "*/*")])
    assert answer.status == 415


def test_a_count_in_a_signature_s_range(service: ServiceUnderTest) -> None:
    given = {"sp": "r", "tn": "Stones", "spk": "left", "srk": "c", "epk": "left", "erk": "t"}
    token = query_of(signed(ACCOUNT, KEY, completed(given)))
    for text, expected in (("", 2), ("contains(name,'e')", 2), ("RowKey eq 'bone'", 0)):
        target = f"/Stones/$count?$filter={quote(text)}&{token}"
        assert counted(service, target, ("Authorization", "-")) == expected
    given["sp"] = "a"
    token = query_of(signed(ACCOUNT, KEY, completed(given)))
    answer = service.send("GET", f"/Stones/$count?{token}", [("Authorization", "-")])
    assert answer.status == 403


def test_a_count_leaves_out_what_has_expired(service: ServiceUnderTest) -> None:
    own = [("x-tablestone-indexes", "1")]
    service.send("PUT", "/Bones?comp=expiry", own, b'{"after": 60}')
    for row in "abc":
        body = json.dumps({"PartitionKey": "p", "RowKey": row}).encode()
        assert service.send("POST", "/Bones", [JSON], body).status == 201
        service.clock.now += timedelta(seconds=25)
    assert counted(service, "/Bones/$count") == 2
    assert counted(service, "/Bones/$count?$filter=" + quote("RowKey ne 'c'")) == 1


def test_a_count_that_takes_long(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error that names the header, or with the header a part; the parts add up."""
    monkeypatch.setattr(limits, "SCAN_ROWS_PER_READ", 3)
    service.seconds = count(0, 4)  # each look at the clock is 4 s later
    for target in ("/Stones/$count", "/Stones/$count?$filter=" + quote("name ne 'Kies'")):
        service.seconds = count(0, 4)
        answer = service.send("GET", target)
        assert (answer.status, b"OperationTimedOut" in answer.body) == (500, True), answer
        assert b"x-tablestone-partial: true" in answer.body
        more, parts = "", list[int]()
        while True:
            joined = "&" if "?" in target else "?"
            answer = service.send("GET", target + (more and joined + more), [PARTIAL])
            parts.append(int(answer.body))
            if TOKENS[0] not in answer.headers:
                break
            names = ("NextPartitionKey", "NextRowKey")
            tokens = (quote(answer.headers[each]) for each in TOKENS)
            more = "&".join(map("=".join, zip(names, tokens, strict=True)))
        assert len(parts) > 1
        assert sum(parts) == (6 if "name" in target else 10)


@pytest.mark.parametrize(
    ("target", "status", "text"),
    [
        ("/Stones/$count?$top=5", 400, "A count has no query option $top."),
        ("/Stones/$count?$select=name", 400, "A count has no query option $select."),
        ("/Stones/$count?$filter=" + quote("name eq"), 400, "Syntax error"),
        ("/Nothing/$count", 404, "TableNotFound"),
        ("/Stones/$Count", 501, "NotImplemented"),
        ("/Stones/$count/x", 501, "NotImplemented"),
        ("/Stones/$count?$orderby=name", 501, "NotImplemented"),
        ("/Tables/$count", 400, "Error in query syntax"),
    ],
)
def test_a_count_that_is_refused(
    service: ServiceUnderTest, target: str, status: int, text: str
) -> None:
    answer = service.send("GET", target)
    assert (answer.status, text in answer.body.decode()) == (status, True), answer


@pytest.mark.parametrize("accept", ["*/*", "text/plain", "-", "image/png"])
def test_a_count_is_text_whatever_is_accepted(service: ServiceUnderTest, accept: str) -> None:
    assert counted(service, "/Stones/$count", ("Accept", accept)) == 10


def test_a_count_in_a_batch(service: ServiceUnderTest) -> None:
    for accept in ("application/json", "*/*", "text/plain"):
        assert b"\r\n\r\n10\r\n" in lone_query(service, "/Stones/$count", accept)
    assert b"MediaTypeNotSupported" in lone_query(service, "/Stones()", "text/plain")


def test_how_many_entities_a_count_examines(service: ServiceUnderTest) -> None:
    asks = [("x-tablestone-examined", "1")]
    for text, examined in (("", 10), ("name eq 'Kies'", 10), ("PartitionKey eq 'left'", 5)):
        answer = service.send("GET", f"/Stones/$count?$filter={quote(text)}", asks)
        assert int(answer.headers["x-tablestone-examined"]) == examined


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "MERGE", "PATCH", "HEAD"])
@pytest.mark.parametrize("table", ["Stones", "Nothing", "x"])
def test_without_the_option_a_count_is_any_segment(method: str, table: str) -> None:
    """Every byte is that of another segment after a table (wire 1.2)."""
    body = b'{"PartitionKey": "p", "RowKey": "r"}' if method in ("POST", "PUT") else b""
    told = []
    for segment in ("$count", "other"):
        service = filled(query_extensions=False)
        answer = service.send(method, f"/{table}/{segment}", [JSON], body)
        told.append((answer.status, list(answer.headers), answer.body[:120]))
        service.close()
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "target",
    [
        "/Stones()?$filter=" + quote("startswith(RowKey,'b')"),
        "/Tables?$filter=" + quote("startswith(TableName,'b')"),
        "/Stones(PartitionKey='left',RowKey='stone')?$filter=" + quote("contains(name,'i')"),
        "/Stones/$count",
        f"/Stones()?{NEWEST}",
        "/Stones()?$orderby=" + quote("PartitionKey,RowKey"),
    ],
)
def test_without_the_option_nothing_is_new(target: str) -> None:
    service = filled(query_extensions=False)
    answer = service.send("GET", target)
    assert (answer.status, b"NotImplemented" in answer.body) == (501, True)
    service.close()
