"""Where a page of a query ends: 1,000 entities, about 4 MiB, or 5 seconds; then comes a token (wire 6.6)."""

import json
from itertools import chain, count
from urllib.parse import quote

import pytest

from tablestone import limits
from tablestone.cooperative_scheduling import Turn, Turns
from wire.case_tables import prepare
from wire.service_under_test import ACCOUNT, Response, ServiceUnderTest

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
    """A scan ends its page, even an empty one, when its time is over; the next continues (limits.PAGE_SECONDS_MAX)."""
    prepare(service, _GIVEN)
    rows = 3 * limits.SCAN_ROWS_PER_READ
    _insert(service, rows)
    # A name that is not of ASCII gets no hint, so the filter is evaluated for every row.
    query = f"$filter=RowKey%20eq%20'{rows - 1:05}'%20or%20%C3%A9%20eq%201"
    # Two readings of the clock per row, because each is longer than a turn: 250 rows take 5 seconds.
    service.seconds = count(0, 0.01)
    assert _pages(service, query) == [[]] * 5 + [[f"{rows - 1:05}"]]
    service.seconds = count(0, 0.0001)
    assert _pages(service, query) == [[f"{rows - 1:05}"]]


def test_a_scan_whose_rows_are_costly_lets_others_in_between(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged by the time that rows take, not by their number (limits.TURN_SECONDS)."""
    prepare(service, _GIVEN)
    _insert(service, 100)
    turns: list[None] = []

    async def turn(_seconds: float) -> None:
        turns.append(None)

    monkeypatch.setattr("tablestone.cooperative_scheduling.asyncio.sleep", turn)
    for turns_a_row, expected in ((1.2, 100), (0.6, 50), (0.002, 0)):
        turns.clear()
        service.seconds = count(0, turns_a_row * limits.TURN_SECONDS)
        assert _pages(service, "$filter=%C3%A9%20eq%201") == [[]]
        # Others have two passes of the loop.
        assert abs(len(turns) / 2 - expected) <= expected // 2, turns_a_row


@pytest.mark.parametrize("missing", [3, 30])
def test_many_names_are_selected_as_few_are(service: ServiceUnderTest, missing: int) -> None:
    """In ordinal order; those that the entity lacks are null (wire 5.6)."""
    prepare(service, _GIVEN)
    _insert(service, 1, ',"é":1.5,"b@odata.type":"Edm.Int64","b":"7","c":"n0,"')
    names = [*(f"n{number}" for number in range(missing)), "b", "é", "RowKey"]
    response = service.send("GET", f"/tab()?$select={quote(','.join(names))}")
    (entity,) = json.loads(response.body)["value"]
    assert list(entity)[1:] == ["RowKey", "b@odata.type", "b", *sorted(names[:missing]), "é"]
    assert [entity[name] for name in names] == [None] * missing + ["7", 1.5, "00000"]


def test_a_page_that_grows_as_it_is_written_ends_earlier(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """limits.PAGE_WRITTEN_BYTES_MAX; the next page continues with the next entity."""
    prepare(service, _GIVEN)
    _insert(service, 10)
    monkeypatch.setattr(limits, "PAGE_WRITTEN_BYTES_MAX", 3_000)
    names = ",".join(["RowKey", *(f"{number:0100}n" for number in range(10))]).replace(",0", ",n")
    pages = _pages(service, f"$select={names}")
    assert [len(page) for page in pages] == [3, 3, 3, 1]
    assert list(chain.from_iterable(pages)) == [f"{number:05}" for number in range(10)]


_JSON = ("Accept", "application/json;odata=fullmetadata")
_ATOM = (("Accept", "application/atom+xml"), ("x-ms-version", "2012-02-12"))


@pytest.mark.parametrize(
    ("query", "headers", "turns_an_entity"),
    [("", (), 0), ("?$select=a,b", (), 1), ("", (_JSON,), 1), ("", _ATOM, 1)],
    ids=["as stored", "$select", "full metadata", "Atom"],
)
def test_a_page_that_is_written_anew_lets_others_in_between(
    service: ServiceUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    headers: tuple[tuple[str, str], ...],
    turns_an_entity: int,
) -> None:
    prepare(service, _GIVEN)
    _insert(service, 30, ',"a":"x"')
    turns = _counted_turns(monkeypatch)
    assert service.send("GET", f"/tab(){query}", headers).status == 200
    assert len(turns) == 30 * turns_an_entity


def test_a_large_transaction_lets_others_in_between(service: ServiceUnderTest) -> None:
    prepare(service, _GIVEN)
    parts = "".join(
        "--c\r\nContent-Type: application/http\r\n\r\n"
        f"POST /{ACCOUNT}/tab HTTP/1.1\r\nAccept: application/json\r\nContent-Type: application/json\r\n\r\n"
        f'{{"PartitionKey":"p","RowKey":"{number}"}}\r\n'
        for number in range(30)
    )
    body = f"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{parts}--c--\r\n--b--\r\n"
    seconds = count()
    turns = Turns(seconds.__next__)  # each turn is over at its first check
    service._pipeline._means = service._pipeline._means._replace(turns=turns)
    headers = [("Content-Type", "multipart/mixed; boundary=b")]
    assert service.send("POST", "/$batch", headers, body.encode()).body.count(b" 201 Created") == 30
    # The clock is read at the beginning of each turn, and before each operation.
    assert next(seconds) == 1 + 30 + 30


def _counted_turns(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """An entry for each time that others get their turn, which here is as often as they can."""
    turns: list[None] = []

    async def give_way(_turn: Turn) -> None:
        turns.append(None)

    monkeypatch.setattr(Turn, "give_way", give_way)
    monkeypatch.setattr(Turn, "is_over", True)
    return turns
