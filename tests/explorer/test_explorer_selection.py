"""The checkboxes of the grid: all rows, a range with Shift, the bar of a selection; and keys that stay put."""

import pytest

from explorer.install import missing
from explorer.pages_in_browser import WatchedPage
from explorer.test_explorer_pages import wait_for_text

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


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


def test_a_selection_is_cleared(watched: WatchedPage) -> None:
    page = watched.page
    watched.open("/tables/Weather?top=30")
    for number in (0, 1):
        page.locator("#grid .piece input").nth(number).check()
    page.get_by_role("button", name="Clear").click()
    page.locator("#selection").wait_for(state="hidden")
    assert page.locator("#grid .chosen, #grid input:checked").count() == 0
    assert page.evaluate("document.activeElement.id") == "grid"


def test_a_click_anywhere_in_a_row_opens_it(watched: WatchedPage) -> None:
    """Beside a box it selects the row, and the colour of a row stays under the pointer."""
    page = watched.page
    watched.open("/tables/Weather?top=30")
    colour = "getComputedStyle(document.querySelectorAll('.piece .row')[{}]).backgroundColor"
    page.locator("#grid .piece .box").nth(2).click(position={"x": 3, "y": 3})
    wait_for_text(watched, "#selected", "1 selected")
    assert not page.locator("#panel.open").is_visible()
    plain, chosen = (page.evaluate(colour.format(number)) for number in (3, 2))
    page.locator("#grid .piece .row").nth(1).locator(".cell").nth(3).click()
    page.wait_for_selector("#panel.open form")
    assert page.evaluate(colour.format(2)) == chosen != plain
    assert page.evaluate(colour.format(1)) not in (plain, chosen)
    rk = page.locator("#grid .piece .row").nth(1).locator(".rk").inner_text()
    assert page.inner_text("#panel .rk") == rk


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
