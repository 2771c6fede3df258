"""What the explorer says of the counts of a server, without a browser."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from explorer.insight_stand_in import report
from explorer.test_page_guard import COOKIE, send
from tablestone.insight.report import PERIODS, Activity, InsightReport
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
    (of_queries(replace(SCAN, entities_returned=1_000_000)), "", "None reads in vain", "No query in"),
    (of_queries(), "", "No query in the last hour.", "None reads in vain"),
    (of_queries(), "?period=day", "No query in the 1 h 0 min since the server started.", "No query in the last hour"),
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


def legend_of(page: str) -> str:
    return page.partition('class="legend"')[2].partition("</p>")[0]


def test_the_legend_names_the_ends_of_the_scale_and_the_target(show: Show) -> None:
    page = show(TABLE, "/tables/Weather/heat")
    legend = legend_of(page)
    assert "144,000 entities in a cell; <q>across</q>: 40,000" in legend
    assert 'class="tick"' in legend
    assert "Azure's target for a partition, 120,000 in this time" in legend
    assert page.count('class="over"') == 1
    high = replace(TABLE, targets={**TABLE.targets, "partition": 3_000})
    page = show(high, "/tables/Weather/heat")
    assert 'class="tick"' not in legend_of(page)
    assert "Below Azure's target for a partition, 180,000 in this time" in legend_of(page)
    assert 'class="over"' not in page


def test_a_table_that_is_only_scanned(show: Show) -> None:
    """No row of a key, no scale from 1 to 0, and the card does not contradict the row."""
    (weather,) = TABLE.tables
    assert weather.heat is not None
    nothing = ((),) * len(weather.heat.hour.starts)
    heat = replace(weather.heat.hour, ranges=(), read=nothing, written=nothing)
    good = replace(SCAN, entities_returned=SCAN.entities_read)
    scanned = replace(
        TABLE,
        tables=(replace(weather, heat=replace(weather.heat, hour=heat)),),
        partitions=dict.fromkeys(PERIODS, ()),
        queries=dict.fromkeys(PERIODS, (good,)),
    )
    page = show(scanned, "/tables/Weather/heat")
    assert "None reads in vain" in page
    assert "also across partitions: 1,000,000 entities" in page
    assert "(empty)" not in page
    assert "40,000 entities across the ranges" in legend_of(page)


def test_what_was_passed_over_is_told_apart(show: Show) -> None:
    """A seek through a table is no reading of it: Azure would read it."""
    seek = replace(SCAN, entities_read=5, entities_returned=5, passed_over=999_995)
    page = show(replace(TABLE, queries=dict.fromkeys(PERIODS, (seek,))), "/tables/Weather/heat")
    assert "5 read, 999,995 passed over</strong>" in page
    assert (
        "5 entities read, and 999,995 passed over that Azure would read, for 5 returned (200,000"
        in page
    )


def test_the_map_is_of_the_period_of_the_lists(show: Show) -> None:
    """The last five minutes of the report have one column with a scan, and the hour many."""
    hour, now = (
        show(TABLE, f"/tables/Weather/heat?period={each}").count("<title>across, ")
        for each in ("hour", "now")
    )
    assert (hour, now) == (9, 1)


def test_requests_of_tools_are_apart(show: Show) -> None:
    """They are named, and in no list, card or advice."""
    (weather,) = TABLE.tables
    tools = dict.fromkeys(PERIODS, Activity(reads=9, entities_read=1_234))
    watched = replace(weather, by_tools=tools, tool_requests=dict.fromkeys(PERIODS, 9))
    looked = replace(of_queries(replace(SCAN, from_tools=True)), tables=(watched,))
    page = show(looked, "/tables/Weather/heat")
    assert "of these 1,234 by tools" in page
    assert "No query in the last hour." in page
    assert "temp gt ?" not in page
    assert "requests in the last hour" not in page, "the head is of another report"
    head = show(looked, "/tables/Weather")
    assert "5,912 requests in the last hour, of these 9 by tools" in head
    assert "of these 9 by tools" in show(looked, "/")
    only = replace(watched, activity=dict.fromkeys(PERIODS, Activity()))
    page = show(replace(looked, tables=(only,)), "/tables/Weather/heat")
    assert "No request of a program in the last hour" in page
    assert "read or written 1,234 entities" in page


@pytest.mark.parametrize("path", ["/tables/Weather/heat", "/heat"])
def test_little_load_is_not_drawn(show: Show, path: str) -> None:
    counts = TABLE if "tables" in path else ACCOUNT
    for entities, is_little in ((999, True), (1_000, False)):
        activity = dict.fromkeys(PERIODS, Activity(reads=5, entities_read=entities))
        tables = (replace(counts.tables[0], activity=activity),)
        page = show(replace(counts, tables=tables), path)
        assert ("Little load" in page) == is_little
        assert ('class="cards"' in page) != is_little
        assert ('<svg class="heat"' in page) == ("tables" in path and not is_little)
        assert "Hottest partitions" not in page or not is_little


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


@pytest.mark.parametrize("seconds", [11, 90])
def test_the_numbers_of_the_first_minutes_fit_together(show: Show, seconds: int) -> None:
    """One period, and a minute that the start cuts off is not calmer than the mean."""
    rate = replace(HOT.rate, mean=117.3, busiest_minute=22.1, is_throttled=False)
    hot: tuple[Any, ...] = (replace(HOT, rate=rate),)
    partitions = dict.fromkeys(PERIODS, hot)
    young = replace(TABLE, started=TABLE.at - seconds, partitions=partitions)
    page = show(young, "/tables/Weather/heat?show=reads")
    words = {11: "11 s", 90: "1 min 30 s"}[seconds]
    assert f"read or written in the {words} since the server started" in page
    assert "117 entities/s in its busiest minute, 6% of Azure" in page
    assert page.count('<td class="number">117.3</td>') == 2
    assert "22" not in re.findall("<td[^>]*>([0-9]+)", page)
    assert "the last hour" not in page.partition('id="live"')[2]
    assert "The shares leave out 1,000,000 entities read across partitions." in page
    assert "Shares of the reads." in page
    assert "Shares of the" not in show(TABLE, "/tables/Weather/heat")
