"""`--entity-size 2MiB`: larger entities, and a server without the option on the same data (docs/guides/limits.md)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from storage.engines_under_test import URL
from tablestone.limits import OF_2_MIB
from wire.service_under_test import Response, ServiceUnderTest

MEBIBYTE = 1 << 20
KEY = {"PartitionKey": "p", "RowKey": "r"}
OVERHEAD = 4 + 2 * 2 + 8 + 2 + 4
"""Bytes of an entity with these keys beside its one value, whose name has one letter."""
ENTITY = "/Big(PartitionKey='p',RowKey='r')"
ATOM = (
    '<entry xmlns="http://www.w3.org/2005/Atom" xmlns:d="http://schemas.microsoft.com/ado/2007/08/dataservices" '
    'xmlns:m="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"><content type="application/xml">'
    "<m:properties><d:PartitionKey>p</d:PartitionKey><d:RowKey>r</d:RowKey><d:V>{}</d:V></m:properties></content>"
    "</entry>"
)


class Both(NamedTuple):
    """A server with the option, and one without it on the same data."""

    large: ServiceUnderTest
    usual: ServiceUnderTest


@pytest.fixture(params=["memory", "sqlite"] if URL is None else [URL])
def servers(request: pytest.FixtureRequest) -> Iterator[Both]:
    large = ServiceUnderTest(entity_limits=OF_2_MIB, engine=request.param, remote_indexes=True)
    large.send("POST", "/Tables", body=b'{"TableName":"Big"}')
    yield Both(large, ServiceUnderTest(large))
    large.close()


def body_of(value: str | bytes, row: str = "r") -> bytes:
    members: dict[str, Any] = {"PartitionKey": "p", "RowKey": row, "V": value}
    if isinstance(value, bytes):
        members |= {"V": base64.b64encode(value).decode(), "V@odata.type": "Edm.Binary"}
    return json.dumps(members).encode("ascii")


def code_of(answer: Response) -> str:
    found: str = json.loads(answer.body)["odata.error"]["code"]
    return found


@pytest.mark.parametrize(
    "value",
    ["x" * (MEBIBYTE - OVERHEAD // 2), "\x01" * (MEBIBYTE - OVERHEAD // 2), "\U0001f5a4" * 524_200],
    ids=["letters", "six bytes a character", "surrogates"],
)
def test_a_string_fills_the_entity(servers: Both, value: str) -> None:
    assert servers.large.send("POST", "/Big", body=body_of(value)).status == 201
    for server in servers:
        assert json.loads(server.send("GET", ENTITY).body)["V"] == value


def test_a_binary_fills_the_entity(servers: Both) -> None:
    whole = bytes(2 * MEBIBYTE - OVERHEAD)
    assert servers.large.send("POST", "/Big", body=body_of(whole)).status == 201
    read = json.loads(servers.usual.send("GET", ENTITY).body)
    assert base64.b64decode(read["V"]) == whole
    answer = servers.large.send("PUT", ENTITY, body=body_of(whole + b"x"))
    assert (answer.status, code_of(answer)) == (400, "EntityTooLarge")
    assert b"the maximum allowed size (2MB)" in answer.body


def test_an_entity_in_atom(servers: Both) -> None:
    headers = [("Content-Type", "application/atom+xml"), ("x-ms-version", "2012-02-12")]
    value = "&#x20ac;" * 600_000
    large, usual = (
        each.send("PUT", ENTITY, headers, ATOM.format(value).encode()) for each in servers
    )
    assert (large.status, usual.status) == (204, 413)
    assert json.loads(servers.usual.send("GET", ENTITY).body)["V"] == "\u20ac" * value.count(";")


@pytest.mark.parametrize("method", ["POST", "PUT", "MERGE"])
def test_the_body_of_a_lone_request_is_longer(servers: Both, method: str) -> None:
    """14 MiB; a batch keeps its 4, and so do requests that are no OData."""
    path = "/Big" if method == "POST" else ENTITY
    body = body_of("x" * 32_000)
    for length, status in ((14 * MEBIBYTE, 2), (14 * MEBIBYTE + 1, 4)):
        answer = servers.large.send(method, path, body=body.ljust(length))
        assert answer.status // 100 == status, answer
    answer = servers.usual.send(method, path, body=body.ljust(4 * MEBIBYTE + 1))
    assert (answer.status, code_of(answer)) == (413, "RequestBodyTooLarge")
    batch = [("Content-Type", "multipart/mixed; boundary=b")]
    for target, headers in (("/$batch", batch), ("/?restype=service&comp=properties", [])):
        method = "POST" if target == "/$batch" else "PUT"
        answer = servers.large.send(method, target, headers, b" " * (4 * MEBIBYTE + 1))
        assert answer.status == 413, (target, answer)


def test_a_server_without_the_option_writes_no_such_entity(servers: Both) -> None:
    """Neither a new one, nor a merge that would keep it; it may replace it by a smaller one, or delete it."""
    long, wide = "x" * 40_000, {f"P{n}": "x" * 30_000 for n in range(20)}
    for value, code in (({"V": long}, "PropertyValueTooLarge"), (wide, "EntityTooLarge")):
        large = json.dumps(KEY | value).encode()
        assert servers.large.send("PUT", ENTITY, body=large).status == 204
        stored = servers.usual.send("GET", ENTITY).body
        for method, body in (("PUT", large), ("MERGE", b'{"Other":1}'), ("POST", large)):
            answer = servers.usual.send(method, ENTITY if method != "POST" else "/Big", body=body)
            assert (answer.status, code_of(answer)) == (400, code), method
        assert servers.usual.send("GET", ENTITY).body == stored
        assert servers.large.send("MERGE", ENTITY, body=b'{"Other":1}').status == 204
        short = json.dumps(dict.fromkeys(value, "")).encode()
        assert servers.usual.send("MERGE", ENTITY, body=short).status == 204
        assert servers.usual.send("DELETE", ENTITY, [("If-Match", "*")]).status == 204


def merges(rows: int, value: str = "1") -> bytes:
    parts = [
        f"--c\r\nContent-Type: application/http\r\n\r\nMERGE /devstoreaccount1/Big(PartitionKey='p',RowKey='{row}') "
        'HTTP/1.1\r\nContent-Type: application/json\r\nAccept: application/json\r\n\r\n{"Other":'
        + value
        + "}\r\n"
        for row in range(rows)
    ]
    return (
        "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n"
        + "".join(parts)
        + "--c--\r\n--b--\r\n"
    ).encode()


def test_a_transaction_of_more_than_16_mib_is_refused(servers: Both) -> None:
    """Small merges of large entities; the index of an operation would blame that one."""
    value = "x" * (MEBIBYTE - 100)
    for row in range(17):
        servers.large.send("POST", "/Big", body=body_of(value, str(row)))
    batch = [("Content-Type", "multipart/mixed; boundary=b")]
    answer = servers.large.send("POST", "/$batch", batch, merges(17))
    assert (answer.status, answer.body.count(b"HTTP/1.1 413")) == (202, 1), answer
    assert b'"code":"RequestBodyTooLarge"' in answer.body
    assert (
        b'"value":"The entities that the transaction writes would have more than 16 MiB'
        in answer.body
    )
    assert b"Other" not in servers.usual.send("GET", "/Big(PartitionKey='p',RowKey='0')").body
    answer = servers.large.send("POST", "/$batch", batch, merges(15))
    if b"The cluster never takes the write" in answer.body:  # a node with a small heap
        assert answer.body.count(b"HTTP/1.1 413") == 1
    else:
        assert answer.body.count(b"HTTP/1.1 204") == 15


def test_three_new_entities_may_be_too_many(servers: Both) -> None:
    """A DEL has one byte in the body, and six as it is stored: 3 MiB become 18. Nothing is there that merges keep."""
    batch = [("Content-Type", "multipart/mixed; boundary=b")]
    value = '"' + "\x7f" * (MEBIBYTE - 30) + '"'
    for body in (merges(3, value), merges(3, value).replace(b"MERGE", b"PUT")):
        answer = servers.large.send("POST", "/$batch", batch, body)
        assert (answer.status, answer.body.count(b"HTTP/1.1 413")) == (202, 1), answer
    answer = servers.large.send("POST", "/$batch", batch, merges(2, value))
    assert answer.body.count(b"HTTP/1.1 204") == 2


def test_a_page_ends_at_its_bytes(servers: Both) -> None:
    """The second entity reaches 4 MiB."""
    for row in "abc":
        servers.large.send("POST", "/Big", body=body_of("x" * (MEBIBYTE - 20), row))
        servers.large.send("POST", "/Big", body=body_of(bytes(2 * MEBIBYTE - 40), row + "2"))
    pages, token = [], ""
    while True:
        page = servers.usual.send("GET", f"/Big()?$filter=V%20ne%205{token}")
        pages.append([each["RowKey"] for each in json.loads(page.body)["value"]])
        if "x-ms-continuation-nextrowkey" not in page.headers:
            break
        keys = [
            page.headers[f"x-ms-continuation-next{name}"] for name in ("partitionkey", "rowkey")
        ]
        token = f"&NextPartitionKey={keys[0]}&NextRowKey={keys[1]}"
    assert pages == [["a", "a2", "b"], ["b2", "c", "c2"]]


@pytest.mark.skipif(URL is not None, reason="an engine that keeps entries is needed")
def test_an_index_holds_1_kib_of_a_value(servers: Both) -> None:
    service, same = servers.large, "x" * 2000
    values = {"a": same + "y", "b": same + "z" * (MEBIBYTE // 2), "c": same + "y"}
    for row, value in values.items():
        service.send("POST", "/Big", body=body_of(value, row))
    headers = [("x-tablestone-indexes", "1")]
    asked = service.send("PUT", "/Big?comp=indexes", headers, b'{"property":"V"}')
    assert asked.status == 202
    service.work()
    for compared, rows in ((f"eq%20'{same}y'", ["a", "c"]), (f"gt%20'{same}y'", ["b"])):
        found = service.send("GET", f"/Big()?$filter=V%20{compared}&$select=RowKey")
        assert [each["RowKey"] for each in json.loads(found.body)["value"]] == rows
