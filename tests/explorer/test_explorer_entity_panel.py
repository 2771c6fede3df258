"""The panel of an entity: as JSON, from entity to entity, with long values, with errors, and in a conflict."""

import json
from typing import Any

import pytest
from azure.data.tables import UpdateMode

from explorer.conftest import entity_of
from explorer.install import missing
from explorer.pages_in_browser import WatchedPage
from explorer.test_explorer_pages import FIRST, field, open_entity, table, wait_for_text
from server_process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]
IN_SIGHT = """(each) => {
  const place = each.getBoundingClientRect();
  return place.top >= 0 && place.left >= 0 && place.bottom <= innerHeight && place.right <= innerWidth;
}"""


def as_json(watched: WatchedPage) -> Any:
    watched.page.get_by_role("button", name="As JSON").click()
    return watched.page.get_by_label("The properties as JSON")


def test_an_entity_is_edited_as_json(watched: WatchedPage, filled_server: ServerProcess) -> None:
    """Types stay, an error is shown at its line, and what was typed is kept between the forms."""
    page = watched.page
    open_entity(watched, "Weather", FIRST)
    before = entity_of(filled_server, "Weather", *FIRST)
    field(watched, "humid").fill("44")
    field(watched, "temp").fill("195.42")
    text = as_json(watched)
    shown = json.loads(text.input_value())
    assert shown["humid"] == 44
    assert (shown["passengers@odata.type"], shown["passengers"]) == ("Edm.Int64", str(2**40))
    wrong = text.input_value().replace('"humid": 44', '"humid": 4x4')
    line = wrong[: wrong.index("4x4")].count("\n") + 1
    text.fill(wrong)
    page.get_by_role("button", name="Save", exact=True).click()
    wait_for_text(watched, "#entity-problem", f"Nothing is written. Line {line}: ")
    assert text.input_value() == wrong
    selected = text.evaluate("(each) => each.value.slice(each.selectionStart, each.selectionEnd)")
    assert selected.strip() == '"humid": 4x4,'
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Keep editing").click()
    text.fill(wrong.replace("4x4", "45").replace("195.42", "300"))
    page.get_by_role("button", name="As fields").click()
    watched.wait_for(lambda: field(watched, "humid").input_value() == "45")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Keep editing").click()
    as_json(watched).wait_for()
    page.get_by_role("button", name="Save", exact=True).click()
    wait_for_text(watched, ".done", "The entity is saved.")
    after = entity_of(filled_server, "Weather", *FIRST)
    assert after["humid"] == 45
    assert (type(after["temp"]), after["temp"]) == (float, 300)
    assert {**after, "humid": before["humid"], "temp": before["temp"]} == before


def test_one_goes_to_the_next_entity_and_back(watched: WatchedPage) -> None:
    """The button keeps the focus; edits are not lost unasked; a page of its own has no next."""
    page = watched.page
    watched.open("/tables/Weather?top=3")
    rows = page.locator("#grid .piece .row")
    rows.nth(1).locator("a").click()
    page.wait_for_selector("#panel.open form")
    hours = ["2013-01-01T00:00", "2013-01-01T01:00", "2013-01-01T02:00"]
    for name, hour in (("Next", hours[2]), ("Previous", hours[1]), ("Previous", hours[0])):
        page.get_by_role("button", name=f"{name} entity").click()
        wait_for_text(watched, "#panel .rk", hour)
        assert (
            page.evaluate("document.activeElement.getAttribute('aria-label')") == f"{name} entity"
        )
    page.keyboard.press("Enter")
    wait_for_text(watched, "#announced", "This is the first entity")
    field(watched, "humid").fill("1")
    page.get_by_role("button", name="Next entity").click()
    page.get_by_role("button", name="Keep editing").click()
    assert field(watched, "humid").input_value() == "1"
    page.get_by_role("button", name="Next entity").click()
    page.get_by_role("button", name="Discard it").click()
    wait_for_text(watched, "#panel .rk", hours[1])
    field(watched, "humid").fill("88")
    page.get_by_role("button", name="Save", exact=True).click()
    wait_for_text(watched, ".done", "The entity is saved.")
    page.locator("#grid .row .Int32").filter(has_text="88").wait_for()
    page.get_by_role("button", name="Next entity").click()
    wait_for_text(watched, "#panel .rk", hours[2])
    watched.open(f"/tables/Weather/entity?pk={FIRST[0]}&rk={FIRST[1]}")
    assert page.get_by_role("button", name="Next entity").is_hidden()


def test_a_long_value_is_folded(watched: WatchedPage) -> None:
    """Values have two thirds of the width."""
    page = watched.page
    watched.open("/tables/Odd?filter=PartitionKey eq 'large'")
    page.locator("#grid .piece a").first.click()
    page.wait_for_selector("#panel.open form")
    value = field(watched, "s00")
    height = "(each) => each.offsetHeight"
    assert value.evaluate(height) < 100
    page.get_by_role("button", name="Show all 32,000 characters").first.click()
    assert value.evaluate(height) > 300
    share = "(each) => each.offsetWidth / each.closest('.property').offsetWidth"
    assert 0.55 < value.evaluate(share) < 0.67


def test_the_field_that_is_wrong_is_scrolled_to(watched: WatchedPage) -> None:
    page = watched.page
    watched.open("/tables/Odd?filter=PartitionKey eq 'wide'")
    page.locator("#grid .piece a").first.click()
    page.wait_for_selector("#panel.open form")
    field(watched, "p200").fill("much")
    page.get_by_role("button", name="Save", exact=True).click()
    wait_for_text(watched, ".property.wrong .problem", "p200")
    assert field(watched, "p200").evaluate(IN_SIGHT)
    assert page.evaluate("document.activeElement.value") == "much"


def test_a_conflict_shows_both_versions(watched: WatchedPage, filled_server: ServerProcess) -> None:
    """Whatever the values, all versions and the buttons are in sight: in a narrow window below each other."""
    page = watched.page
    key = ("LGA", "2013-01-02T00:00")
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 800})
        open_entity(watched, "Weather", key)
        with table(filled_server, "Weather") as client:
            changed = {"PartitionKey": key[0], "RowKey": key[1], "note": f"{width}" + "x" * 9_000}
            client.update_entity(changed, UpdateMode.MERGE)
        field(watched, "note").fill("y" * 9_000)
        page.get_by_role("button", name="Save", exact=True).click()
        page.wait_for_selector(".both")

        version = ".both th:text-is('{}')" if width > 400 else "[data-of='{}']"
        for shown in (
            page.locator(version.format("As shown")).first,
            page.locator(version.format("Yours")).first,
            page.get_by_role("button", name="Write only what I changed"),
            page.locator(version.format("Stored now")).first,
            page.get_by_role("button", name="Write yours over it"),
            page.get_by_role("link", name="Take the stored one"),
        ):
            assert shown.evaluate(IN_SIGHT)
        rows = page.locator(".both").first.locator("tbody")
        assert rows.count() == 1
        assert page.get_by_role("rowheader", name="humid").is_hidden()
        page.get_by_text("7 equal properties").click()
        page.get_by_role("rowheader", name="humid").wait_for()
        page.locator("[data-control='conflict.long']").first.click()
        page.get_by_role("link", name="Take the stored one").click()
        page.wait_for_selector("#entity-form")


def test_only_what_one_changed_is_written(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    key = ("LGA", "2013-01-03T00:00")
    open_entity(watched, "Weather", key)
    with table(filled_server, "Weather") as client:
        changed = {"PartitionKey": key[0], "RowKey": key[1], "humid": 99}
        client.update_entity(changed, UpdateMode.MERGE)
    field(watched, "note").fill("mine")
    watched.page.get_by_role("button", name="Save", exact=True).click()
    wait_for_text(watched, ".both tbody", "another client changed it")
    watched.page.get_by_role("button", name="Write only what I changed").click()
    wait_for_text(watched, ".done", "The entity is saved.")
    after = entity_of(filled_server, "Weather", *key)
    assert (after["humid"], after["note"]) == (99, "mine")
