"""No request leaves anything in memory: each kind is sent some hundred times, on one connection and one directory.

The whole server above the socket runs in this process, so its blocks of memory can be counted.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from wire.served_bytes import ServedBytes
from wire.service_under_test import ACCOUNT, Clock

TIMES = 120
TRIES_MAX = 8
BLOCKS_MAX = 60
"""One block left by each request is found; what a cache still takes is not."""
ROW = f"/{ACCOUNT}/Kept(PartitionKey='p1',RowKey='0001')"
JSON = [("Content-Type", "application/json")]
ANY = [*JSON, ("If-Match", "*")]
SCAN = quote("Value gt 5")
HALF = quote("PartitionKey eq 'p1' and RowKey ge '0010'")
ROWS = quote("RowKey ge '0010' and RowKey lt '0012' and Value ge 0")
BATCH = (
    b"--batch_b\r\nContent-Type: multipart/mixed; boundary=changeset_c\r\n\r\n"
    b"--changeset_c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    b"PUT http://127.0.0.1:10002%b HTTP/1.1\r\nAccept: application/json\r\n"
    b"Content-Type: application/json\r\n\r\n{}\r\n"
    b"--changeset_c--\r\n--batch_b--\r\n"
) % ROW.encode()
REQUESTS: dict[str, tuple[int, str, str, list[tuple[str, str]], bytes]] = {
    "a point read": (200, "GET", ROW, [], b""),
    "a point read of nothing": (404, "GET", ROW.replace("0001", "none"), [], b""),
    "a point read with a filter": (404, "GET", f"{ROW}?$filter=Value%20eq%20-1", [], b""),
    "a page": (200, "GET", f"/{ACCOUNT}/Kept()?$filter={HALF}", [], b""),
    "a page with a token": (200, "GET", f"/{ACCOUNT}/Kept()?$top=3", [], b""),
    "a page of a partition with a token": (
        *(200, "GET", f"/{ACCOUNT}/Kept()?$top=3&$filter={HALF}", []),
        b"",
    ),
    "a later page": (
        *(200, "GET", f"/{ACCOUNT}/Kept()?$top=3&NextPartitionKey=p1&NextRowKey=0001", []),
        b"",
    ),
    "a scan": (200, "GET", f"/{ACCOUNT}/Kept()?$filter={SCAN}", [], b""),
    "a scan with a token": (200, "GET", f"/{ACCOUNT}/Kept()?$top=1&$filter={SCAN}", [], b""),
    "a scan by RowKey": (200, "GET", f"/{ACCOUNT}/Kept()?$filter={ROWS}", [], b""),
    "a scan by RowKey with a token": (
        200,
        "GET",
        f"/{ACCOUNT}/Kept()?$top=1&$filter={ROWS}",
        [],
        b"",
    ),
    "a list of tables": (200, "GET", f"/{ACCOUNT}/Tables", [], b""),
    "a list of tables with a token": (200, "GET", f"/{ACCOUNT}/Tables?$top=1", [], b""),
    "an upsert": (204, "PUT", ROW, JSON, b'{"Value":1}'),
    "a merge": (204, "PATCH", ROW, ANY, b'{"Other":1}'),
    "an update": (204, "PUT", ROW, ANY, b'{"Value":1}'),
    "an insert of what is there": (
        *(409, "POST", f"/{ACCOUNT}/Kept", JSON),
        b'{"PartitionKey":"p1","RowKey":"0001"}',
    ),
    "a delete of nothing": (404, "DELETE", ROW.replace("0001", "none"), [("If-Match", "*")], b""),
    "a transaction": (
        *(202, "POST", f"/{ACCOUNT}/$batch"),
        [("Content-Type", "multipart/mixed; boundary=batch_b")],
        BATCH,
    ),
    "a wrong filter": (400, "GET", f"/{ACCOUNT}/Kept()?$filter=Value%20eq", [], b""),
    "a wrong signature": (403, "GET", ROW, [("Authorization", f"SharedKey {ACCOUNT}:AAAA")], b""),
    "a table that is not there": (404, "GET", f"/{ACCOUNT}/None()", [], b""),
    "the service's properties": (
        *(200, "GET", f"/{ACCOUNT}/?restype=service&comp=properties", []),
        b"",
    ),
    "the policies of a table": (200, "GET", f"/{ACCOUNT}/Kept?comp=acl", [], b""),
    "a preflight": (
        *(403, "OPTIONS", ROW),
        [("Origin", "http://a.example"), ("Access-Control-Request-Method", "GET")],
        b"",
    ),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBytes]:
    server = ServedBytes(Clock(), f"sqlite:{tmp_path_factory.mktemp('data')}")
    for name in ("Kept", "Other", "Third"):
        body = b'{"TableName":"%b"}' % name.encode()
        assert server.exchange("POST", f"/{ACCOUNT}/Tables", JSON, body).status == 201
    for partition in range(4):
        for row in range(30):
            entity = f"/{ACCOUNT}/Kept(PartitionKey='p{partition}',RowKey='{row:04}')"
            body = b'{"Value":%d}' % row
            assert server.exchange("PUT", entity, JSON, body).status == 204
    yield server
    server.close()


def blocks_left(ask: Callable[[], object]) -> int:
    """The blocks of memory that so many calls leave: what each call leaves, they leave in every try.

    Caches fill up during the first tries, and a task of the server may run during another.
    """
    left = 0
    for _ in range(TRIES_MAX):
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(TIMES):
            ask()
        gc.collect()
        left = sys.getallocatedblocks() - before
        if left < BLOCKS_MAX:
            break
    return left


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_leaves_nothing(served: ServedBytes, kind: str) -> None:
    status, method, target, headers, body = REQUESTS[kind]

    def ask() -> None:
        answer = served.exchange(method, target, headers, body)
        assert answer.status == status, answer
        assert ("x-ms-continuation-nextpartitionkey" in answer.headers) is (
            ("token" in kind and "tables" not in kind) or kind == "a later page"
        )

    assert blocks_left(ask) < BLOCKS_MAX


def test_what_is_left_is_found() -> None:
    kept: list[bytearray] = []
    assert blocks_left(lambda: kept.append(bytearray(10))) >= TIMES
