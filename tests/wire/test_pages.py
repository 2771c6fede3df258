"""Where a page of a query ends: 1,000 entities, about 4 MiB, 5 seconds; then a token, be the page empty (wire 6.6)."""

from __future__ import annotations

import json
from itertools import chain, count
from urllib.parse import quote

import pytest

from tablestone import limits
from wire.case_tables import prepare
from wire.service_under_test import Response, ServiceUnderTest

_GIVEN = {"given": ['POST /Tables {"TableName":"tab"}']}
_NEXT = ("NextPartitionKey", "NextRowKey")


def _insert(service: ServiceUnderTest, rows: int, members: str = "") -> None:
    for number in range(rows):
        body = f'{{"PartitionKey":"p","RowKey":"{number:05}"{members}}}'
        headers = [("Prefer", "return-no-content")]
        assert service.send("POST", "/tab", headers, body.encode()).status == 204


def _pages(service: ServiceUnderTest, query: str) -> list[list[str]]:
    """The RowKeys of every page of a query, following its tokens to the end."""
    pages = []
    token = ""
    while True:
        response = service.send("GET", f"/tab()?{query}{token}")
        pages.append([entity["RowKey"] for entity in json.loads(response.body)["value"]])
        token = _next(response)
        if not token:
            return pages


def _next(response: Response) -> str:
    pairs = [(name, response.headers.get(f"x-ms-continuation-{name.lower()}")) for name in _NEXT]
    return "".join(f"&{name}={quote(value)}" for name, value in pairs if value is not None)


def test_a_page_has_a_thousand_entities(service: ServiceUnderTest) -> None:
    prepare(service, _GIVEN)
    _insert(service, 1001)
    pages = _pages(service, "$select=RowKey")
    assert [len(page) for page in pages] == [1000, 1]
    assert list(chain.from_iterable(pages)) == [f"{number:05}" for number in range(1001)]


def test_a_page_has_about_four_mebibytes(service: ServiceUnderTest) -> None:
    """The entity that reaches the limit is the page's last (limits.PAGE_BYTES_MAX)."""
    prepare(service, _GIVEN)
    _insert(service, 10, "".join(f',"s{n}":"{"x" * 32_000}"' for n in range(16)))
    pages = _pages(service, "")
    entity_bytes = 16 * 32_000
    expected = -(-4 * 1024 * 1024 // entity_bytes)
    assert [len(page) for page in pages] == [expected, 10 - expected]
    assert list(chain.from_iterable(pages)) == [f"{number:05}" for number in range(10)]


def test_a_page_takes_five_seconds(service: ServiceUnderTest) -> None:
    """A scan whose time is up ends its page, be it empty, and the next one goes on (limits.PAGE_SECONDS_MAX)."""
    prepare(service, _GIVEN)
    rows = 3 * limits.SCAN_ROWS_PER_READ
    _insert(service, rows)
    query = f"$filter=RowKey%20eq%20'x'%20or%20RowKey%20eq%20'{rows - 1:05}'"
    # Two looks at the clock a row, since every look is longer than a turn: 250 rows take 5 seconds.
    service.seconds = count(0, 0.01)
    assert _pages(service, query) == [[]] * 5 + [[f"{rows - 1:05}"]]
    service.seconds = count(0, 0.0001)
    assert _pages(service, query) == [[f"{rows - 1:05}"]]


def test_a_scan_whose_rows_are_costly_lets_others_in_between(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time rows take, not by their number (limits.SCAN_SECONDS_PER_TURN)."""
    prepare(service, _GIVEN)
    _insert(service, 100)
    turns: list[None] = []

    async def turn(_seconds: float) -> None:
        turns.append(None)

    monkeypatch.setattr("tablestone.tables.reads.asyncio.sleep", turn)
    for turns_a_row, expected in ((1.2, 100), (0.6, 50), (0.002, 0)):
        turns.clear()
        service.seconds = count(0, turns_a_row * limits.SCAN_SECONDS_PER_TURN)
        assert _pages(service, "$filter=RowKey%20eq%20'x'") == [[]]
        # Others have two passes of the loop.
        assert abs(len(turns) / 2 - expected) <= expected // 2, turns_a_row
