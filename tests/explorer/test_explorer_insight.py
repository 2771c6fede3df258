"""What the explorer says of the counts of a server, without a browser."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from explorer.insight_stand_in import report
from explorer.test_page_guard import COOKIE, send
from tablestone.insight.report import PERIODS, InsightReport
from tablestone.testing import TableStorage
from tablestone.tools.connection import parse_connection_string

Show = Callable[[InsightReport, str], str]
TABLE = report("devstoreaccount1", "Weather")
ACCOUNT = report("devstoreaccount1", None)
(SCAN,) = TABLE.queries["hour"]
HOT, CALM = TABLE.partitions["hour"]
UNEVEN = (
    replace(HOT, rate=replace(HOT.rate, is_throttled=False)),
    *(
        replace(CALM, partition_key=each)
        for each in ("EWR", "LGA", "LAX", "ATL", "BOS", "SEA", "SFO")
    ),
)


@pytest.fixture(scope="module")
def storage() -> Iterator[TableStorage]:
    with TableStorage() as running:
        running.seed({"Weather": [{"PartitionKey": "JFK", "RowKey": "1", "temp": 3.5}]})
        yield running


@pytest.fixture
def show(storage: TableStorage, monkeypatch: pytest.MonkeyPatch) -> Show:
    """The page at a path, of a server with these counts."""
    connection = parse_connection_string(storage.connection_string)

    def page(counts: InsightReport, path: str) -> str:
        for module in ("explorer.account", "tools.insight"):
            answer = lambda *_, **__: (counts, b"")  # noqa: E731 - one line
            monkeypatch.setattr(f"tablestone.{module}.ask_for_insight", answer)
        headers = {"cookie": COOKIE}
        return send("GET", path, headers, connection=connection, admin="10003").text

    return page


def of_queries(*queries: Any) -> InsightReport:
    return replace(TABLE, queries=dict.fromkeys(PERIODS, queries))


SENTENCES: list[tuple[InsightReport, str, str, str]] = [
    # the counts, the parameters, the sentence, a sentence of another case
    (TABLE, "", "2,500 read for each returned", "none returned"),
    (of_queries(replace(SCAN, entities_returned=0)), "", "1,000,000 read, none returned", "read for each returned"),
    (of_queries(replace(SCAN, entities_returned=1_000_000)), "", "None scans", "No query in"),
    (of_queries(), "", "No query in the last hour.", "None scans"),
    (of_queries(), "?period=day", "No query in the last day.", "No query in the last hour"),
]  # fmt: skip


@pytest.mark.parametrize(("counts", "parameters", "sentence", "other"), SENTENCES)
def test_the_card_of_the_queries(
    show: Show, counts: InsightReport, parameters: str, sentence: str, other: str
) -> None:
    cards = show(counts, f"/tables/Weather/heat{parameters}").partition("<svg")[0]
    assert sentence in cards
    assert other not in cards


def test_a_map_without_the_chosen_kind(show: Show) -> None:
    (weather,) = TABLE.tables
    assert weather.heat is not None
    nothing = tuple((0,) * len(row) for row in weather.heat.hour.written)
    heat = replace(weather.heat, hour=replace(weather.heat.hour, written=nothing))
    unwritten = replace(TABLE, tables=(replace(weather, heat=heat),))
    assert "No writes in this time." in show(unwritten, "/tables/Weather/heat?show=writes")
    assert "in this time." not in show(unwritten, "/tables/Weather/heat?show=reads")


def test_the_scale_of_the_map_names_its_middle(show: Show) -> None:
    """The colours are those of cube roots: half of the way is an eighth of the entities."""
    legend = show(TABLE, "/tables/Weather/heat").partition('class="legend"')[2].partition("</p>")[0]
    assert "<span>12,835</span>" in legend
    assert "102,681 entities in a cell" in legend
    assert "a scale of their own, up to 40,000 entities" in legend


def test_a_partition_has_the_same_name_on_both_pages(show: Show) -> None:
    uneven = replace(ACCOUNT, partitions=dict.fromkeys(PERIODS, UNEVEN))
    for counts, mark in ((ACCOUNT, "Azure would throttle"), (uneven, "large share")):
        for path in ("/", "/heat"):
            assert f"{mark}<" in show(counts, path)


ADVISED: list[tuple[InsightReport, str]] = [
    (ACCOUNT, "the present keys, keep them and write each entity a second time"),
    # No program has sent a request: that says nothing about what it will send.
    (replace(ACCOUNT, tables=()), "If no other request uses the present keys, these keys can replace"),
]  # fmt: skip


@pytest.mark.parametrize(("counts", "sentence"), ADVISED)
def test_the_advice_on_a_filter_knows_the_other_requests(
    show: Show, counts: InsightReport, sentence: str
) -> None:
    assert sentence in show(counts, "/tables/Weather?filter=temp eq 3.5")
