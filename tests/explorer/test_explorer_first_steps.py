"""An account without tables: sample data, or a file that becomes a table; then the tables as a sorted list."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from explorer.install import missing
from explorer.pages_in_browser import WatchedPage, running_explorer, watched_page
from explorer.test_explorer_pages import wait_for_text
from server_process import start_server

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


SOON = {"tablestone.server.admin.size_survey.SURVEY_PAUSE_SECONDS": 0.2}


@pytest.fixture
def empty(browser: Any, tmp_path: Path) -> Iterator[WatchedPage]:
    """The page of the tables of a new server, which tells their sizes soon."""
    admin = ("--admin", "0")
    server = start_server(tmp_path / "data", "--workers", "1", *admin, constants=SOON)
    line = next(each for each in server.stdout if each.startswith("Admin address: "))
    address = line.split(" ")[2].strip()
    try:
        with (
            running_explorer(
                server.connection_string, "--admin", address, settings=tmp_path / "settings"
            ) as process,
            watched_page(browser, process) as watched,
        ):
            yield watched
    finally:
        server.stop()


def test_an_account_without_tables(empty: WatchedPage) -> None:
    page = empty.page
    wait_for_text(empty, "main", "The account has no tables.")
    empty.keep("empty")
    page.locator(".empty").get_by_role("link", name="Import a file").click()
    page.wait_for_selector("#panel.open [name=file]")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Load sample data").click()
    page.wait_for_selector(".tables")
    names = page.locator(".tables .name")
    assert names.all_inner_texts() == ["Airports", "Flights", "Weather"]

    def is_counted() -> bool:
        empty.open("/")
        return page.locator(".tables .size").all_inner_texts() == ["86", "842", "211"]

    empty.wait_for(is_counted)
    for head, first in (("Entities", "Flights"), ("Entities", "Airports"), ("Name", "Airports")):
        page.locator("[data-control='tables.sort']").filter(has_text=head).first.click()
        assert names.first.inner_text() == first
    assert page.locator("[aria-sort]").inner_text().startswith("Name")
    empty.open("/tables/Flights")
    wait_for_text(empty, "#cost", "100 of 842 shown")
    wait_for_text(empty, ".meta", "842 entities · ")
    empty.open("/tables/flights")
    assert page.inner_text("h1") == "Flights"


def test_a_file_becomes_a_table(empty: WatchedPage, tmp_path: Path) -> None:
    """Its first rows are shown with their types, and what cannot be stored, before anything is."""
    page = empty.page
    path = tmp_path / "readings.csv"
    path.write_text("sensor,at,value\ns1,2026-01-01T00:00:00Z,3.5\n", encoding="utf-8")
    page.get_by_role("link", name="Import a file").first.click()
    page.get_by_label("Table", exact=True).fill("Readings")
    page.get_by_label("File", exact=True).set_input_files(path)
    wait_for_text(empty, "#looked .problem", "PartitionKey")
    page.get_by_role("button", name="Import", exact=True).click()
    wait_for_text(empty, "#panel .problem[role=alert]", "has no column 'PartitionKey'")
    assert page.get_by_label("Table", exact=True).input_value() == "Readings"
    assert (
        page.get_by_label("File", exact=True).evaluate("(field) => field.files[0].name")
        == path.name
    )
    page.get_by_label("PartitionKey column").fill("{sensor}")
    page.get_by_label("RowKey column").fill("{at}")
    page.get_by_label("Types").fill("at=DateTime, value=Double")
    page.keyboard.press("Tab")
    wait_for_text(empty, "#looked th", "at DateTime")
    assert page.locator("#looked th").all_inner_texts() == [
        *("PartitionKey String", "RowKey String", "sensor String", "at DateTime", "value Double")
    ]
    assert "3.5" in page.inner_text("#looked td.Double")
    empty.keep("first-rows")
    page.get_by_role("button", name="Import", exact=True).click()
    wait_for_text(empty, "#panel [role=status]", "1 entity stored")
    listed = page.get_by_label("Tables", exact=True).get_by_role("link", name="Readings")
    listed.wait_for()
    wait_for_text(empty, "main .meta", "table")
    assert page.locator(".tables .name").all_inner_texts() == ["Readings"]
    page.get_by_role("link", name="To the table Readings").click()
    wait_for_text(empty, "h1", "Readings")
    page.get_by_label("Tables", exact=True).get_by_role("link", name="Readings").wait_for()
