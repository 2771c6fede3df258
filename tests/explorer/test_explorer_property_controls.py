"""The controls of an entity's properties fit their types, and a row without a value is left out."""

import pytest

from explorer.conftest import entity_of
from explorer.install import missing
from explorer.pages_in_browser import WatchedPage
from explorer.test_explorer_pages import FIRST, field, open_entity, wait_for_text
from server_process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


def tag(watched: WatchedPage, name: str) -> str:
    return str(field(watched, name).evaluate("(each) => each.tagName"))


def test_a_control_fits_its_type(watched: WatchedPage, filled_server: ServerProcess) -> None:
    page = watched.page
    open_entity(watched, "Weather", FIRST)
    tags = {name: tag(watched, name) for name in ("wet", "humid", "note", "raw")}
    assert tags == {"wet": "SELECT", "humid": "INPUT", "note": "TEXTAREA", "raw": "TEXTAREA"}
    field(watched, "wet").select_option("false")
    page.get_by_label("Type of humid", exact=True).select_option("String")
    assert (tag(watched, "humid"), field(watched, "humid").input_value()) == ("TEXTAREA", "30")
    page.get_by_role("button", name="Save", exact=True).click()
    wait_for_text(watched, ".done", "The entity is saved.")
    stored = entity_of(filled_server, "Weather", *FIRST)
    assert (stored["wet"], stored["humid"]) == (False, "30")


def test_a_row_without_a_value_is_left_out(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    """Also one that was only added; but an empty text is a value of a String."""
    key = ("LGA", "2013-01-01T00:00")
    page = watched.page
    open_entity(watched, "Weather", key)
    for name in ("temp", "note"):
        field(watched, name).fill("")
    page.get_by_role("button", name="Add a property").click()
    page.get_by_role("button", name="Save", exact=True).click()
    wait_for_text(watched, ".done", "The entity is saved.")
    stored = entity_of(filled_server, "Weather", *key)
    assert "temp" not in stored
    assert stored["note"] == ""


def test_save_stays_in_sight(watched: WatchedPage) -> None:
    """Below 252 properties, before and after they are scrolled."""
    page = watched.page
    watched.open("/tables/Odd?filter=PartitionKey eq 'wide'")
    page.locator("#grid .piece a").first.click()
    page.wait_for_selector("#panel.open form")
    for scroll in (0, 3000):
        page.evaluate(f"document.getElementById('panel').scrollTo(0, {scroll})")
        for name in ("Save", "Delete"):
            place = page.locator(".foot :is(button, a)", has_text=name).first.bounding_box()
            assert place is not None
            assert 600 < place["y"] < 800
