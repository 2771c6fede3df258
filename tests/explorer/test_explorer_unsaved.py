"""The page asks before it discards unsaved edits, and a problem in the panel can be closed."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.data.tables import TableAccessPolicy, TableServiceClient, UpdateMode

from explorer.install import missing
from explorer.pages_in_browser import WatchedPage
from explorer.test_explorer_pages import FIRST, field, table, wait_for_text
from server_process import ServerProcess
from tablestone.explorer import page_templates

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


def test_what_was_typed_is_not_thrown_away_unasked(watched: WatchedPage) -> None:
    """Escape, another entity, panel or page: each asks, also after a refusal, and none asks without an edit."""
    page = watched.page
    watched.open(f"/tables/Weather?filter=PartitionKey eq '{FIRST[0]}'&top=2")
    rows = page.locator("#grid .piece a")
    rows.first.click()
    page.wait_for_selector("#panel.open form")
    rows.last.click()
    wait_for_text(watched, "#panel dt", "Timestamp")
    wait_for_text(watched, "#panel .rk", "2013-01-01T01:00")
    page.keyboard.press("Escape")
    page.wait_for_selector("#panel.open", state="detached")

    rows.first.click()
    page.wait_for_selector("#panel.open form")
    field(watched, "humid").fill("many")
    ways: tuple[Callable[[], None], ...] = (
        lambda: page.keyboard.press("Escape"),
        lambda: page.locator("#panel .close").click(),
        rows.last.click,
        page.get_by_role("link", name="Export").click,
    )
    for go in ways:
        go()
        page.get_by_role("button", name="Keep editing").click()
        page.wait_for_selector("#unsaved[open]", state="detached")
        assert field(watched, "humid").input_value() == "many"
    page.get_by_role("button", name="Save").click()
    wait_for_text(watched, ".property.wrong .problem", "humid")
    page.keyboard.press("Escape")
    page.wait_for_selector("#unsaved[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#unsaved[open]", state="detached")
    assert field(watched, "humid").input_value() == "many"
    page.route("**/entity?*", lambda route: route.abort())
    page.get_by_role("button", name="Save").click()
    wait_for_text(watched, "#panel .problem", "The explorer does not answer")
    page.unroute("**/entity?*")
    assert field(watched, "humid").input_value() == "many"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Discard it").click()
    page.wait_for_selector("#panel.open", state="detached")

    rows.first.click()
    page.wait_for_selector("#panel.open form")
    field(watched, "humid").fill("31")
    page.get_by_role("button", name="Save").click()
    wait_for_text(watched, ".done", "The entity is saved.")
    assert watched.asked == 0
    field(watched, "humid").fill("32")
    page.get_by_role("link", name="Service").click()
    page.wait_for_url("**/service")
    assert watched.asked == 1


LATE_BACK = (
    "() => { history.back = () => setTimeout(() => History.prototype.back.call(history), 1000) }"
)


def test_back_closes_the_panel(watched: WatchedPage) -> None:
    """It asks first if something was typed. A panel that was closed otherwise needs no Back."""
    page = watched.page
    watched.open("/service")
    watched.open("/tables/Weather?top=2")
    rows = page.locator("#grid .piece a")
    for row, way in ((rows.first, page.go_back), (rows.last, page.locator("#panel .close").click)):
        row.click()
        page.wait_for_selector("#panel.open form")
        way()
        page.wait_for_selector("#panel.open", state="detached")
        watched.wait_until("history.state === null")
    # The browser may go back only when the next panel is open.
    page.evaluate(LATE_BACK)
    rows.first.click()
    page.wait_for_selector("#panel.open form")
    page.locator("#panel .close").click()
    rows.last.click()
    page.wait_for_selector("#panel.open form")
    page.wait_for_timeout(1500)
    watched.wait_until("history.state?.isPanel === true")
    assert page.locator("#panel.open").count() == 1
    page.go_back()
    page.wait_for_selector("#panel.open", state="detached")
    rows.first.click()
    page.wait_for_selector("#panel.open form")
    field(watched, "humid").fill("99")
    page.go_back()
    page.get_by_role("button", name="Keep editing").click()
    watched.wait_until("history.state?.isPanel === true")
    assert field(watched, "humid").input_value() == "99"
    page.go_back()
    page.get_by_role("button", name="Discard it").click()
    page.wait_for_selector("#panel.open", state="detached")
    assert page.url.endswith("/tables/Weather?top=2")
    page.go_back()
    page.wait_for_url("**/service")


def test_a_problem_in_the_panel_is_closed(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    """Another client has deleted the table: the panel says so, and its links stay on the page."""
    page = watched.page
    with table(filled_server, "Brief") as client:
        client.create_table()
        client.create_entity({"PartitionKey": "a", "RowKey": "1"})
        watched.open("/tables/Brief")
        client.delete_table()
    page.locator("#grid .piece a").first.click()
    wait_for_text(watched, "#panel .problem", "TableNotFound")
    assert page.locator("#panel a").count() == 0
    page.locator("#panel .close").click()
    page.wait_for_selector("#panel.open", state="detached")


def test_a_page_of_an_entity_asks_too(watched: WatchedPage, filled_server: ServerProcess) -> None:
    """Before it is left, after a refusal and between the forms too; not by saving, and not without an edit."""
    page = watched.page
    key = ("LGA", "2013-01-04T00:00")
    watched.open(f"/tables/Weather/entity?pk={key[0]}&rk={key[1]}")
    page.get_by_role("link", name="Policies").click()
    page.wait_for_url("**/policies")
    page.go_back()
    field(watched, "humid").fill("many")
    page.get_by_role("button", name="Save", exact=True).click()
    wait_for_text(watched, ".problem", "Nothing is written")
    field(watched, "humid").fill("77")
    for form, there in (("As JSON", "[name=json]"), ("As fields", "[name=name]")):
        page.get_by_role("button", name=form).click()
        page.locator(there).first.wait_for()
    assert watched.asked == 0
    leaving: tuple[Callable[[], None], ...] = (
        page.get_by_role("link", name="Policies").click,
        page.locator(".panel-head .close").click,
        page.get_by_role("link", name="Delete", exact=True).click,
    )
    for leave in leaving:
        watched.open(f"/tables/Weather/entity?pk={key[0]}&rk={key[1]}")
        field(watched, "humid").fill("77")
        page.get_by_role("button", name="As JSON").click()
        page.locator("[name=json]").wait_for()
        asked = watched.asked
        leave()
        watched.wait_until("!location.pathname.endsWith('/entity')")
        assert watched.asked == asked + 1
    watched.open(f"/tables/Weather/entity?pk={key[0]}&rk={key[1]}")
    field(watched, "humid").fill("77")
    with table(filled_server, "Weather") as client:
        client.upsert_entity({"PartitionKey": key[0], "RowKey": key[1], "humid": 5})
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name="Write yours over it").wait_for()
    asked = watched.asked
    page.get_by_role("link", name="Policies").click()
    page.wait_for_url("**/policies")
    assert watched.asked == asked + 1
    watched.open(f"/tables/Weather/entity?pk={key[0]}&rk={key[1]}")
    field(watched, "humid").fill("78")
    page.get_by_role("button", name="Save", exact=True).click()
    wait_for_text(watched, ".done", "The entity is saved.")
    page.reload()
    wait_for_text(watched, ".done", "The entity is saved.")
    assert field(watched, "humid").input_value() == "78"
    assert watched.asked == asked + 1


GUARDED = {
    "/tables/Weather/policies": ("Id", "Save the policies", "x" * 65, "A policy needs an id"),
    "/service": ("Origins", "Save the properties", "a.example", "needs a scheme"),
    "/tables/Weather/indexes": ("Property", "", "humid", ""),
    "/tables/Weather/import": ("Types", "", "humid=Int32", ""),
}


@pytest.mark.parametrize("path", GUARDED)
def test_each_form_of_a_page_asks_too(watched: WatchedPage, path: str) -> None:
    """Before what was typed is lost, also after a refusal; not without an edit, and not by sending the form."""
    page = watched.page
    label, button, text, refusal = GUARDED[path]

    def leave() -> None:
        page.get_by_role("link", name="Heat").first.click()
        page.wait_for_url("**/heat")

    watched.open(path)
    leave()
    assert watched.asked == 0
    watched.open(path)
    page.get_by_label(label, exact=True).first.fill(text)
    if refusal:
        page.get_by_role("button", name=button).click()
        wait_for_text(watched, ".problem", refusal)
        assert watched.asked == 0
    leave()
    assert watched.asked == 1


def test_a_deletion_asks_before_the_edits_go(watched: WatchedPage) -> None:
    """The question whether to delete takes the place of the form in the panel."""
    page = watched.page
    watched.open(f"/tables/Weather?filter=PartitionKey eq '{FIRST[0]}'&top=2")
    page.locator("#grid .piece a").first.click()
    page.wait_for_selector("#panel.open form")
    field(watched, "humid").fill("33")
    page.get_by_role("link", name="Delete", exact=True).click()
    page.get_by_role("button", name="Keep editing").click()
    assert field(watched, "humid").input_value() == "33"
    page.get_by_role("link", name="Delete", exact=True).click()
    page.get_by_role("button", name="Discard it").click()
    page.get_by_role("link", name="Keep it").click()
    page.get_by_role("button", name="Save", exact=True).wait_for()
    assert not page.locator("#unsaved").evaluate("(each) => each.open")


def test_back_shows_what_is_stored_now(watched: WatchedPage, filled_server: ServerProcess) -> None:
    """The browser reads the page again, and puts nothing of the earlier one on top of it."""
    page = watched.page
    with TableServiceClient.from_connection_string(filled_server.connection_string) as service:
        table = service.create_table("Back")
        keys = {"PartitionKey": "p", "RowKey": "r"}
        table.create_entity({**keys, "paid": True, "text": "old"})
        table.set_table_access_policy({"partner": TableAccessPolicy(permission="raud")})
        watched.open("/tables/Back/entity?pk=p&rk=r")
        page.locator("[data-control='entity.text']").fill("typed")
        watched.open("/tables/Back/policies")
        page.locator("[name=may]").first.uncheck()
        page.get_by_label("Search for a table").locator("input").fill("Weather")
        page.keyboard.press("Enter")
        page.wait_for_url("**/tables/Weather")
        table.set_table_access_policy({"partner": TableAccessPolicy(permission="ra")})
        table.update_entity({**keys, "added": 7, "paid": False, "text": "new"}, UpdateMode.REPLACE)
        page.go_back()
        page.wait_for_selector("[name=may]")
        page.wait_for_timeout(300)
        boxes = page.locator("fieldset").first.locator("[name=may]").all()
        assert [each.is_checked() for each in boxes] == [True, True, False, False]
        page.go_back()
        page.wait_for_selector("#entity-form")
        page.wait_for_timeout(300)
        shown = page.locator("#entity-form fieldset > .property")
        assert [
            [each.locator(f"[name={name}]").input_value() for name in ("name", "kind", "text")]
            for each in shown.all()
        ] == [["added", "Int32", "7"], ["paid", "Boolean", "false"], ["text", "String", "new"]]


def test_each_posted_form_starts_from_what_is_stored() -> None:
    """The browser keeps the state of a form by position, and the page may have other fields after Back."""
    templates = Path(page_templates.__file__).parent / "templates"
    forms = [
        form
        for each in templates.glob("*.html")
        for form in re.findall("<form [^\n]*", each.read_text(encoding="utf-8"))
        if 'method="post"' in form
    ]
    assert len(forms) > 15
    assert [each for each in forms if 'method="post" autocomplete="off"' not in each] == []
