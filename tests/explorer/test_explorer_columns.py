"""The columns of the grid: their types, their widths, hidden ones, and the order of the loaded rows."""

from typing import Any

import pytest

from explorer.install import missing
from explorer.pages_in_browser import WatchedPage
from explorer.test_explorer_pages import wait_for_text

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


def head_of(watched: WatchedPage, name: str) -> Any:
    return watched.page.locator(f".names [data-name={name}]")


def column(watched: WatchedPage, name: str) -> list[str]:
    """The texts of a column, from top to bottom."""
    page = watched.page
    index = page.locator(".names [data-name]").evaluate_all(
        "(heads, name) => heads.findIndex((each) => each.dataset.name === name)", name
    )
    rows = page.locator(".piece .row").all()
    return [row.locator(".cell").nth(index).inner_text() for row in rows]


def test_a_head_has_the_type_of_its_column(watched: WatchedPage) -> None:
    watched.open("/tables/Weather?top=5")
    kinds = {"temp": "Double", "humid": "Int32", "passengers": "Int64", "seen": "DateTime"}
    for name, kind in kinds.items():
        assert head_of(watched, name).get_attribute("data-kind") == kind
    assert head_of(watched, "RowKey").get_attribute("data-kind") is None


def test_the_loaded_rows_are_sorted(watched: WatchedPage) -> None:
    """As numbers, then descending, then by key again; meanwhile the grid reads no further rows."""
    page = watched.page
    watched.open("/tables/Weather")
    by_key = column(watched, "RowKey")
    head_of(watched, "temp").locator(".sort").click()
    ascending = [float(text) for text in column(watched, "temp")]
    assert ascending == sorted(ascending)
    assert ascending != [float(each) for each in sorted(column(watched, "temp"))]
    wait_for_text(watched, "#cost", "100 shown, sorted by temp")
    head_of(watched, "temp").locator(".sort").click()
    assert [float(text) for text in column(watched, "temp")] == ascending[::-1]
    page.evaluate("document.getElementById('grid').scrollBy(0, 9000)")
    page.wait_for_timeout(300)
    assert page.locator(".piece .row").count() == 100
    head_of(watched, "temp").locator(".sort").click()
    assert head_of(watched, "temp").get_attribute("aria-sort") is None
    watched.wait_until("document.querySelectorAll('.piece .row').length > 100")
    assert column(watched, "RowKey")[:100] == by_key
    page.locator("#grid .piece .cell").first.focus()
    for key in ("ArrowUp", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert head_of(watched, "RowKey").get_attribute("aria-sort") == "ascending"


def test_columns_are_hidden_and_resized(watched: WatchedPage) -> None:
    """Both stay in this browser, also for rows that come later."""
    page = watched.page
    watched.open("/tables/Weather")
    page.locator("[data-control='table.shape']").click()
    page.get_by_label("Show humid", exact=True).uncheck()
    head_of(watched, "humid").wait_for(state="hidden")
    page.keyboard.press("Escape")
    width = "document.querySelector('.names [data-name=temp]').offsetWidth"
    before = page.evaluate(width)
    place = head_of(watched, "temp").locator(".grip").bounding_box()
    assert place is not None
    page.mouse.move(place["x"] + 4, place["y"] + 4)
    page.mouse.down()
    page.mouse.move(place["x"] + 104, place["y"] + 4)
    page.mouse.up()
    assert page.evaluate(width) == before + 100
    watched.open("/tables/Weather?top=3")
    assert page.evaluate(width) == before + 100
    assert head_of(watched, "humid").is_hidden()
    widths = (
        page.locator(".piece .row")
        .first.locator(".cell")
        .evaluate_all("(cells) => cells.map((each) => each.offsetWidth)")
    )
    assert before + 100 in widths
    assert 0 in widths
