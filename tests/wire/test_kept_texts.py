"""Only short texts of clients are cached for later requests, so that clients cannot fill the memory."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from wire.case_tables import prepare
from wire.service_under_test import ACCOUNT, Headers, ServiceUnderTest

_LENGTH = 20_000
_REQUESTS = 40
_KEPT_BYTES_MAX = _REQUESTS * _LENGTH // 2

_Sent = tuple[str, str, Headers]
_PLACES: dict[str, Callable[[str], _Sent]] = {
    "x-ms-date, unsigned": lambda text: (
        "GET",
        "/Tables",
        [("Authorization", f"SharedKey {ACCOUNT}:AAAA"), ("x-ms-date", text)],
    ),
    "Host": lambda text: ("GET", "/Tables", [("Host", text)]),
    "Accept": lambda text: ("GET", "/Tables", [("Accept", f"application/json;x={text}")]),
    "DataServiceVersion": lambda text: ("GET", "/Tables", [("DataServiceVersion", text)]),
    "Prefer": lambda text: ("GET", "/Tables", [("Prefer", text)]),
    "Content-Type": lambda text: (
        "POST",
        "/Tables",
        [("Content-Type", f"application/json;x={text}")],
    ),
    "$select": lambda text: ("GET", f"/tab()?$select={text}", []),
    "$filter": lambda text: ("GET", f"/tab()?$filter=n%20eq%20'{text}'", []),
    "$filter, a name": lambda text: ("GET", f"/tab()?$filter={text}%20eq%201", []),
    "$filter, a name in order": lambda text: ("GET", f"/tab()?$filter={text}%20lt%201", []),
    "a table": lambda text: ("GET", f"/{text}()", []),
    "a table to delete": lambda text: ("DELETE", f"/Tables('{text}')", []),
    "a key": lambda text: ("GET", f"/tab(PartitionKey='{text}',RowKey='r')", []),
    "If-Match": lambda text: (
        "DELETE",
        "/tab(PartitionKey='p',RowKey='r')",
        [("If-Match", f'W/"{text}"')],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("place", _PLACES)
def test_long_texts_are_not_kept(service: ServiceUnderTest, place: str) -> None:
    given = ['POST /Tables {"TableName":"tab"}', 'POST /tab {"PartitionKey":"p","RowKey":"r"}']
    prepare(service, {"given": given})

    def ask(number: int) -> None:
        method, path, headers = _PLACES[place](f"a{number:04}" + "b" * _LENGTH)
        service.exchange(method, f"/{ACCOUNT}{path}", headers, b"")

    ask(0)
    tracemalloc.start()
    try:
        for number in range(1, _REQUESTS + 1):
            ask(number)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < _KEPT_BYTES_MAX
