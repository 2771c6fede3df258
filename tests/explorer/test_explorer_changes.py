"""The tab with the last changes of a table."""

from collections.abc import Iterator
from typing import Any

import pytest
from azure.data.tables import TableServiceClient, UpdateMode

from explorer.install import missing
from explorer.pages_in_browser import WatchedPage
from explorer.test_page_guard import COOKIE, send
from server_process import ServerProcess
from tablestone.clock import TICKS_PER_SECOND
from tablestone.explorer import changes
from tablestone.model.edm import format_date_time, parse_date_time
from tablestone.testing import TableStorage
from tablestone.tools.connection import parse_connection_string

NOW = parse_date_time("2026-01-31T12:00:00Z")
TAB = 'href="/tables/Weather/changes"'


@pytest.fixture(params=[True, False], ids=["kept", "not kept"])
def storage(request: pytest.FixtureRequest) -> Iterator[TableStorage]:
    with TableStorage(keep_changes=request.param) as running:
        running.seed({"Weather": [{"PartitionKey": "JFK", "RowKey": "1", "temp": 3.5}]})
        running.seed({"Empty": []})
        yield running


def show(storage: TableStorage, path: str) -> Any:
    connection = parse_connection_string(storage.connection_string)
    return send("GET", path, {"cookie": COOKIE}, connection=connection)


def test_the_tab_is_there_if_changes_are_kept(
    storage: TableStorage, request: pytest.FixtureRequest
) -> None:
    is_kept = "not kept" not in request.node.name
    assert (TAB in show(storage, "/tables/Weather").text) == is_kept
    answer = show(storage, "/tables/Weather/changes")
    assert answer.status_code == (200 if is_kept else 400)
    assert ("All 1 change that" if is_kept else "has no feed of changes") in answer.text
    if is_kept:
        assert "is kept." in show(storage, "/tables/Empty/changes").text


class Feed:
    """An endpoint whose feed has lines at these ages in seconds, the oldest first."""

    def __init__(self, ages: list[float]) -> None:
        self.times = [NOW - int(age * TICKS_PER_SECOND) for age in ages]
        self.asked = 0

    def service_time(self) -> int:
        return NOW

    def changes(self, _table: str, since: str | None, _wait: int) -> tuple[list[bytes], str, bool]:
        self.asked += 1
        start = 0
        if since is not None and since.startswith("at "):
            start = int(since[3:])
        elif since is not None:
            start = sum(time < parse_date_time(since) for time in self.times)
        end = min(start + 1000, len(self.times))
        lines = [
            b'{"n":%d,"time":"%b"}' % (n, format_date_time(self.times[n]).encode())
            for n in range(start, end)
        ]
        return lines, f"at {end}", end < len(self.times)


@pytest.mark.parametrize(
    ("ages", "count"),
    [
        ([float(n) for n in range(1500, 0, -1)], 100),  # two pages are the whole feed
        ([float(n) for n in range(100_000, 0, -1)], 100),  # one each second
        ([86_400 + n / 1000 for n in range(50_000, 0, -1)], 100),  # an import of yesterday
        ([3600.0] * 5000 + [30.0] * 7, 7),  # thousands at one moment, and few since
    ],
)
def test_the_last_changes_are_found(ages: list[float], count: int) -> None:
    feed: Any = Feed(ages)
    last = changes.last_changes(feed, "Weather")
    assert last.has_newest
    assert last.lines[-1].startswith(b'{"n":%d,' % (len(ages) - 1))
    assert len(last.lines) >= count
    assert feed.asked <= 2 * (changes.READS_MAX + 1)


def test_a_table_that_changes_too_fast() -> None:
    feed: Any = Feed([0.0] * 5000)
    last = changes.last_changes(feed, "Weather")
    assert not last.has_newest
    assert len(last.lines) == 2000


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_the_tab_leads_to_the_last_changes(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    page = watched.page
    key = {"PartitionKey": "a b", "RowKey": "<i>é"}
    with TableServiceClient.from_connection_string(filled_server.connection_string) as service:
        table = service.get_table_client("Empty")
        table.create_entity({**key, "temp": 3.5, "note": "<b>fog</b>"})
        table.update_entity({**key, "note": "clear"}, UpdateMode.MERGE)
        table.create_entity({**key, "RowKey": "gone"})
        table.delete_entity(key["PartitionKey"], "gone")
    watched.open("/tables/Empty")
    page.get_by_role("link", name="Changes", exact=True).click()
    rows = page.locator(".changes tbody tr")
    rows.first.wait_for()
    assert [row.split("\t")[1] for row in rows.all_inner_texts()] == [
        "delete",
        "put",
        "merge",
        "put",
    ]
    assert rows.nth(2).locator("td").last.inner_text() == "note <b>fog</b>"
    assert page.get_by_text("All 4 changes").is_visible()
    rows.nth(2).get_by_role("link").click()
    page.locator("#entity-form").wait_for()
    assert page.locator("#entity-form .rk").inner_text() == key["RowKey"]
