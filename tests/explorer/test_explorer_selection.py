"""The checkboxes of the grid: all rows, a range with Shift, the bar of a selection; and keys that stay put."""

import pytest

from explorer.install import missing
from explorer.pages_in_browser import WatchedPage
from explorer.test_explorer_pages import wait_for_text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]


def test_all_rows_and_a_range_are_selected(watched: WatchedPage) -> None:
    page = watched.page
    watched.open("/tables/Weather?top=30")
    boxes = page.locator("#grid .piece input")
    bar = page.locator("#selection")
    assert bar.is_hidden()
    page.get_by_label("Select all entities that are loaded").check()
    wait_for_text(watched, "#selected", "30 selected")
    assert bar.is_visible()
    page.get_by_label("Select all entities that are loaded").uncheck()
    bar.wait_for(state="hidden")
    boxes.nth(3).click()
    boxes.nth(8).click(modifiers=["Shift"])
    wait_for_text(watched, "#selected", "6 selected")
    boxes.nth(5).click(modifiers=["Shift"])
    wait_for_text(watched, "#selected", "2 selected")
    page.locator("#grid .piece .row").nth(10).locator(".cell").first.focus()
    for key in ("Space", "ArrowDown", "ArrowDown", "Shift+Space"):
        page.keyboard.press(key)
    wait_for_text(watched, "#selected", "5 selected")


def test_the_keys_stay_when_the_grid_is_scrolled_to_the_side(watched: WatchedPage) -> None:
    page = watched.page
    watched.open("/tables/Weather?top=30")
    page.locator("#grid .piece .cell.pk").first.focus()
    page.keyboard.press("End")
    watched.wait_until("document.getElementById('grid').scrollLeft > 100")
    page.wait_for_selector("#grid.aside")
    left = page.evaluate("document.getElementById('grid').getBoundingClientRect().left")
    for name in ("#select-all", ".names .pk", ".piece .row .pk", ".piece .row .rk"):
        place = page.locator(name).first.bounding_box()
        assert place is not None
        assert left <= place["x"] < left + 300, name
    watched.keep("scrolled")
