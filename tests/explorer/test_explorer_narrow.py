"""A window as narrow as a telephone: the tables are a menu, and the grid begins in the upper half."""

import pytest
from azure.data.tables import UpdateMode

from explorer.install import missing
from explorer.pages_in_browser import WatchedPage
from explorer.test_explorer_pages import table, wait_for_text
from server_process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


WIDTH, HEIGHT = 400, 800


def test_the_tables_are_a_menu(watched: WatchedPage) -> None:
    page = watched.page
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    watched.open("/tables/Weather")
    tables = page.get_by_label("Tables", exact=True)
    assert tables.is_hidden()
    page.get_by_role("button", name="Menu").click()
    assert page.get_by_role("button", name="Menu").get_attribute("aria-expanded") == "true"
    tables.get_by_role("link", name="Odd").click()
    wait_for_text(watched, "h1", "Odd")


@pytest.mark.parametrize("query", ["", "?filter=humid gt 30&select=humid,temp&order=temp desc"])
def test_the_grid_begins_in_the_upper_half(watched: WatchedPage, query: str) -> None:
    page = watched.page
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    watched.open(f"/tables/Weather{query}")
    page.wait_for_selector(".piece .row")
    place = page.locator(".piece .row").first.bounding_box()
    assert place is not None
    assert place["y"] < HEIGHT / 2
    page.locator("#grid .piece a").first.click()
    page.wait_for_selector("#panel.open form")
    save = page.get_by_role("button", name="Save").bounding_box()
    assert save is not None
    assert save["y"] + save["height"] <= HEIGHT, "Save is in sight"


def test_a_version_can_be_put_back(watched: WatchedPage, filled_server: ServerProcess) -> None:
    """No scrolling to the side: what was changed, and the way to put it back, are in sight."""
    page = watched.page
    with table(filled_server, "Weather") as client:
        key = {"PartitionKey": "LGA", "RowKey": "2013-01-03T00:00"}
        client.update_entity({**key, "humid": 7, "note": "x" * 400}, UpdateMode.MERGE)
    for width in (WIDTH, 1280, 1920):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        watched.open("/tables/Weather/changes?pk=LGA&rk=2013-01-03T00:00")
        page.get_by_role("link", name="Put this version back").first.wait_for()
        assert page.locator(".changes").evaluate(
            "(each) => each.scrollWidth <= each.parentElement.clientWidth"
        )
        for place in page.locator("[data-control='changes.back']").all():
            box = place.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
