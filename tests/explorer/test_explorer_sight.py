"""What a person works with is in sight: results, buttons, and the outline of the focus."""

import pytest

from explorer.install import missing
from explorer.pages_in_browser import WatchedPage
from explorer.test_explorer_pages import wait_for_text

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


def is_in_sight(watched: WatchedPage, control: str) -> bool:
    """Whether the whole control is in the window and nothing is above it."""
    return bool(
        watched.page.locator(f"[data-control='{control}']").first.evaluate(
            """(element) => {
              const { left, top, right, bottom } = element.getBoundingClientRect();
              const found = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
              return top >= 0 && bottom <= innerHeight && element.contains(found);
            }"""
        )
    )


SIZES = ((1280, 800), (1280, 420), (400, 800))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_buttons_of_an_entity(watched: WatchedPage, width: int, height: int) -> None:
    page = watched.page
    page.set_viewport_size({"width": width, "height": height})
    watched.open("/tables/Weather")
    page.locator("#grid .piece a").first.click()
    page.wait_for_selector("#panel.open form")
    for control in ("entity.save", "entity.delete"):
        assert is_in_sight(watched, control)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_signature_that_was_made(watched: WatchedPage, width: int, height: int) -> None:
    page = watched.page
    page.set_viewport_size({"width": width, "height": height})
    watched.open("/signature?table=Weather")
    page.get_by_role("button", name="Make the signature").click()
    page.wait_for_selector("#made [data-copy]")
    watched.wait_for(lambda: is_in_sight(watched, "signature-made.copy"))


def test_enter_takes_the_suggestion_for_a_part_of_a_name(watched: WatchedPage) -> None:
    """A name alone is no query. A query that is whole runs, also while there are suggestions."""
    page = watched.page
    watched.open("/tables/Weather")
    page.locator("#filter").press_sequentially("hum")
    page.locator("#completions li").first.wait_for()
    page.keyboard.press("Enter")
    assert page.locator("#filter").input_value() == "humid "
    assert "filter=" not in page.url
    page.locator("#filter").press_sequentially("gt 3")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    page.wait_for_url("**filter=humid*")
    wait_for_text(watched, "#cost", "shown")
