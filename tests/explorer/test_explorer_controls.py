"""The table of controls is complete; and the controls that no other test of the explorer drives, each once."""

import re
from pathlib import Path
from typing import Any

import pytest
from azure.data.tables import TableServiceClient, UpdateMode

from explorer.conftest import entity_of
from explorer.driven_controls import DRIVEN_BY, TEMPLATES, controls_of
from explorer.insight_stand_in import insight_address
from explorer.install import missing
from explorer.pages_in_browser import WatchedPage, running_explorer, watched_page
from explorer.test_explorer_bad_input import answering
from explorer.test_explorer_pages import FIRST, field, open_entity, table, wait_for_text
from server_process import ServerProcess

ASSETS = TEMPLATES.parent / "assets"
in_browser = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def named() -> dict[str, list[str | None]]:
    """The named controls of each template."""
    files = sorted(TEMPLATES.glob("*.html"))
    return {path.stem: controls_of(path.read_text(encoding="utf-8")) for path in files}


def test_every_control_is_driven_by_a_test() -> None:
    """A new control needs a name and a line in `DRIVEN_BY`; the test on that line fails if it does not drive it."""
    found = [name for names in named().values() for name in names]
    assert None not in found, named()
    assert len(set(found)) == len(found)
    assert set(found) == set(DRIVEN_BY)


def test_every_test_of_the_table_is_there() -> None:
    directory = Path(__file__).parent
    for by in sorted(set(DRIVEN_BY.values())):
        file, _, function = by.partition(".")
        text = (directory / f"test_explorer_{file}.py").read_text(encoding="utf-8")
        assert f"\ndef {function}(" in text, by


def test_the_script_makes_no_control() -> None:
    """The controls of a page are those of its template; the script only copies them."""
    for path in ASSETS.glob("*.js"):
        made = re.findall(r'createElement\("(\w+)"\)', path.read_text(encoding="utf-8"))
        assert not {"a", "button", "input", "select", "textarea", "summary", "form"} & set(made)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ('<button data-control="a.b">x</button>', ["a.b"]),
        ("<button>planted</button>", [None]),
        ('<label>x <select name="y">', [None]),
        ('<a class="button" href="{{ to() }}" data-control="a.b" data-into="#panel">', ["a.b"]),
        ('<input type="hidden" name="x"><textarea name="t" hidden>', []),
        ('<article><header><abbr data-control="x">', []),
    ],
)
def test_controls_are_found(template: str, expected: list[str | None]) -> None:
    assert controls_of(template) == expected


@pytest.mark.slow
@in_browser
def test_the_stored_entity_is_taken_after_a_conflict(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    page = watched.page
    open_entity(watched, "Weather", FIRST)
    with table(filled_server, "Weather") as client:
        client.update_entity(
            {"PartitionKey": FIRST[0], "RowKey": FIRST[1], "humid": 77}, UpdateMode.MERGE
        )
    field(watched, "humid").fill("78")
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_selector(".both")
    page.get_by_role("link", name="Take the stored one").click()
    page.wait_for_selector("#panel .properties")
    assert field(watched, "humid").input_value() == "77"
    assert entity_of(filled_server, "Weather", *FIRST)["humid"] == 77


@pytest.mark.slow
@in_browser
def test_a_property_is_removed_and_the_panel_closed(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    page = watched.page
    open_entity(watched, "Weather", FIRST)
    page.get_by_label("Remove note", exact=True).click()
    page.get_by_role("button", name="Save", exact=True).click()
    wait_for_text(watched, ".done", "The entity is saved.")
    assert "note" not in entity_of(filled_server, "Weather", *FIRST)
    page.get_by_label("Close", exact=True).first.click()
    page.wait_for_selector("#panel.open", state="detached")


@pytest.mark.slow
@in_browser
def test_the_panel_copies_its_entity(watched: WatchedPage) -> None:
    open_entity(watched, "Weather", FIRST)
    panel = watched.page.locator("#panel")
    opener = panel.locator("[data-control='entity.copy']")
    for name, expected in (
        ("JSON", '"PartitionKey":"EWR"'),
        ("filter", "PartitionKey eq 'EWR' and RowKey eq '2013-01-01T00:00'"),
        ("Python", "get_entity("),
        ("JavaScript", "getEntity("),
        ("Go", "GetEntity("),
        ("Java", "getEntity("),
        ("C#", "GetEntity"),
    ):
        opener.click()
        panel.get_by_role("button", name=name, exact=True).click()
        wait_for_text(watched, "#copied h2", name)
        assert expected in watched.page.locator("#copied [data-copy]").input_value()


@pytest.mark.slow
@in_browser
def test_every_field_of_the_service(watched: WatchedPage, filled_server: ServerProcess) -> None:
    page = watched.page
    watched.open("/service")
    page.get_by_label("Origins").fill("https://example.com")
    page.get_by_label("Methods").fill("GET")
    page.get_by_label("Headers that it may send").fill("x-ms-*")
    page.get_by_label("Headers that it may read").fill("ETag")
    for name in ("read", "write"):
        page.get_by_label(name, exact=True).check()
    for name in ("enabled", "by operation"):
        page.get_by_label(name, exact=True).first.check()
    page.locator("[name=hour_days]").fill("9")
    page.get_by_role("button", name="Save the properties").click()
    wait_for_text(watched, ".done", "The properties are saved.")
    with TableServiceClient.from_connection_string(filled_server.connection_string) as service:
        found: Any = service.get_service_properties()
    assert found["hour_metrics"].retention_policy.days == 9
    assert found["cors"][0].allowed_headers == ["x-ms-*"]
    assert found["cors"][0].exposed_headers == ["ETag"]
    assert (found["analytics_logging"].read, found["analytics_logging"].write) == (True, True)
    assert (found["hour_metrics"].enabled, found["hour_metrics"].include_apis) == (True, True)


@pytest.mark.slow
@in_browser
def test_a_policy_begins(watched: WatchedPage, filled_server: ServerProcess) -> None:
    page = watched.page
    watched.open("/tables/Empty/policies")
    page.get_by_label("Id").fill("later")
    page.get_by_label("Begins").fill("2099-01-01T00:00:00")
    page.get_by_role("button", name="Save the policies").click()
    wait_for_text(watched, ".done", "The policies are saved.")
    with TableServiceClient.from_connection_string(filled_server.connection_string) as service:
        policy: Any = service.get_table_client("Empty").get_table_access_policy()["later"]
    assert str(policy.start).startswith("2099-01-01")


@pytest.mark.slow
@in_browser
def test_keys_of_an_import_are_made_of_columns(
    watched: WatchedPage, filled_server: ServerProcess, tmp_path: Path
) -> None:
    page = watched.page
    path = tmp_path / "cities.csv"
    path.write_text("country,city\nNorway,Oslo\n", encoding="utf-8")
    watched.open("/tables/Empty")
    page.get_by_role("link", name="Import").click()
    page.get_by_label("File", exact=True).set_input_files(path)
    page.get_by_label("PartitionKey column").fill("{country}")
    page.get_by_label("RowKey column").fill("{city}")
    page.get_by_role("button", name="Import").click()
    wait_for_text(watched, "#panel [role=status]", "1 entity stored")
    assert entity_of(filled_server, "Empty", "Norway", "Oslo")["city"] == "Oslo"
    page.get_by_role("link", name="To the table Empty").click()
    page.wait_for_selector("#grid")


@pytest.mark.slow
@in_browser
def test_a_large_table_is_counted_on(
    browser: Any, filled_server: ServerProcess, tmp_path: Path
) -> None:
    """After some seconds the page asks whether to go on: here after the first page of 1,000 entities."""
    with table(filled_server, "Counted") as client:
        client.create_table()
        for start in range(0, 1100, 100):
            rows = [{"PartitionKey": "a", "RowKey": f"{start + n:04}"} for n in range(100)]
            client.submit_transaction([("create", row) for row in rows])
    with (
        running_explorer(
            filled_server.connection_string,
            settings=tmp_path,
            constants={"tablestone.explorer.tables.COUNT_SECONDS_MAX": -1.0},
        ) as process,
        watched_page(browser, process) as watched,
    ):
        page = watched.page
        for path, count in (
            ("/", page.get_by_label("Count the table Counted")),
            ("/tables/Counted", page.get_by_role("link", name="count the entities")),
        ):
            watched.open(path)
            count.click()
            wait_for_text(watched, ".size", "more than 1,000 entities")
            page.get_by_role("link", name="count on").click()
            page.locator(".size").filter(has_text="1,100 entities").wait_for()
            assert page.get_by_role("link", name="count on").count() == 0
        wait_for_text(watched, "#cost", "100 of 1,100 shown")


@pytest.mark.slow
@in_browser
def test_the_ways_between_the_pages(watched: WatchedPage) -> None:
    page = watched.page
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    watched.wait_until("document.activeElement.id === 'main'")
    for name, heading in (
        *(("Heat", "Heat"), ("Service", "Account and service"), ("Signatures", "Shared access")),
        ("Tables", "Tables"),
    ):
        page.get_by_label("Pages").get_by_role("link", name=name).click()
        wait_for_text(watched, "h1", heading)
    page.locator(".tables").get_by_role("link", name="Weather", exact=True).click()
    for name, selector in (("Policies", "[name=id]"), ("Data", "#grid")):
        page.get_by_label("Of this table").get_by_role("link", name=name).click()
        page.wait_for_selector(selector)
    page.get_by_label("Tables", exact=True).get_by_role("link", name="Odd").click()
    wait_for_text(watched, "h1", "Odd")
    watched.ask_to_delete("Weather")
    page.get_by_role("link", name="Cancel").click()
    page.wait_for_selector("#grid")
    watched.open("/tables/NoSuchTable")
    page.get_by_role("link", name="To the tables").click()
    page.wait_for_selector(".tables")
    watched.open("/tables/Weather")
    page.get_by_role("link", name="Tablestone explorer").click()
    page.wait_for_selector(".tables")


@pytest.mark.slow
@in_browser
def test_the_ways_on_from_an_entity_that_is_gone(watched: WatchedPage) -> None:
    """To its table, and to its changes, where it can be put back."""
    for link, selector in (("To the table Weather", "#grid"), ("Its changes", "#feed")):
        watched.open("/tables/Weather/entity?pk=JFK&rk=gone")
        watched.page.get_by_role("link", name=link).click()
        watched.page.wait_for_selector(selector)
    assert watched.page.locator("[name=rk]").input_value() == "gone"


@pytest.mark.slow
@in_browser
def test_a_plan_and_its_advice_are_opened(watched: WatchedPage) -> None:
    page = watched.page
    page.context.route("https://learn.microsoft.com/**", lambda route: route.fulfill(body="A page"))
    watched.open("/tables/Weather?filter=temp gt 30.0")
    page.locator(".plan summary").click()
    wait_for_text(watched, ".plan li", "temp")
    page.locator(".better summary").click()
    link = page.locator(".better a").first
    with page.expect_popup() as opened:
        link.click()
    assert opened.value.url.startswith("https://learn.microsoft.com/")


@pytest.mark.slow
@in_browser
def test_every_panel_is_closed(watched: WatchedPage, filled_server: ServerProcess) -> None:
    page = watched.page
    with table(filled_server, "Empty") as client:
        client.upsert_entity({"PartitionKey": "closing", "RowKey": "1"})
    watched.open("/tables/Empty?filter=PartitionKey eq 'closing'")

    def close() -> None:
        page.locator("#panel").get_by_label("Close", exact=True).first.click()
        page.wait_for_selector("#panel.open", state="detached")

    for name in ("Insert", "Export", "Import"):
        page.get_by_role("link", name=name).click()
        page.wait_for_selector("#panel.open h2")
        close()
    for path, table_or_tables in (
        ("/tables/Empty/new", "Empty"),
        ("/tables/Empty/export", "Empty"),
        ("/tables/Empty/import", "Empty"),
        ("/import", "Tables"),
    ):  # as pages of their own
        watched.open(path)
        page.get_by_label("Close", exact=True).click()
        page.wait_for_selector(".tables" if table_or_tables == "Tables" else "#grid")
        assert page.inner_text("h1") == table_or_tables
    watched.open("/tables/Empty?filter=PartitionKey eq 'closing'")
    page.locator("#grid .piece input").check()
    for name in ("JSON", "Delete…"):
        if name == "JSON":
            page.locator("[data-control='table.copy']").click()
        page.get_by_role("button", name=name).click()
        page.wait_for_selector("#panel.open h2")
        if name == "Delete…":
            page.get_by_role("button", name="Delete 1 entity").click()
            wait_for_text(watched, "#panel [role=status]", "1 entity is deleted.")
        close()


@pytest.mark.slow
@in_browser
def test_the_panels_of_a_conflict_and_of_a_deletion_are_closed(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    page = watched.page
    open_entity(watched, "Weather", FIRST)
    with table(filled_server, "Weather") as client:
        client.update_entity(
            {"PartitionKey": FIRST[0], "RowKey": FIRST[1], "humid": 50}, UpdateMode.MERGE
        )
    field(watched, "humid").fill("51")
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_selector(".both")
    page.locator("#panel").get_by_label("Close", exact=True).click()
    page.get_by_role("button", name="Discard it").click()
    page.wait_for_selector("#panel.open", state="detached")
    page.locator("#grid .piece input").first.check()
    page.get_by_role("button", name="Delete…").click()
    page.wait_for_selector("#panel .keys-listed")
    page.locator("#panel").get_by_label("Close", exact=True).click()
    page.wait_for_selector("#panel.open", state="detached")
    assert entity_of(filled_server, "Weather", *FIRST)["humid"] == 50


@pytest.mark.slow
@in_browser
def test_every_field_of_a_signature(watched: WatchedPage) -> None:
    page = watched.page
    watched.open("/signature?table=Weather")
    page.get_by_label("Expires (UTC)").fill("2100-01-01T00:00:00")
    page.get_by_label("Addresses of clients").fill("127.0.0.1")
    policy = page.locator("[name=policy]")
    policy.evaluate("(list) => list.add(new Option('nothere'))")
    policy.select_option("nothere")
    page.get_by_label("over HTTPS only").check()
    for label in ("First PartitionKey", "First RowKey", "Last PartitionKey", "Last RowKey"):
        page.get_by_label(label).fill("k")
    page.get_by_role("button", name="Make the signature").click()
    wait_for_text(watched, "form .problem", "has no policy 'nothere'")
    policy.select_option("")
    page.get_by_role("button", name="Make the signature").click()
    page.wait_for_selector("#made [data-copy]")
    signed = page.locator("#made [data-copy]").input_value()
    for part in ("se=2100-01-01T00%3A00%3A00Z", "spr=https", "sip=127.0.0.1", "srk=k", "erk=k"):
        assert part in signed


@pytest.mark.slow
@in_browser
def test_a_signature_is_copied(watched: WatchedPage) -> None:
    page = watched.page
    watched.open("/signature?table=Weather")
    page.get_by_role("button", name="Make the signature").click()
    page.wait_for_selector("#made [data-copy]")
    page.locator("#made .copy").click()
    watched.wait_until("document.getElementById('announced').textContent.includes('op')")
    assert page.evaluate("document.activeElement.selectionEnd") > 100


@pytest.mark.slow
@in_browser
def test_the_ways_to_the_heat_map(
    browser: Any, filled_server: ServerProcess, tmp_path: Path
) -> None:
    place = filled_server.connection_string
    with (
        insight_address() as admin,
        running_explorer(place, "--admin", admin, settings=tmp_path) as process,
        watched_page(browser, process) as watched,
    ):
        page = watched.page
        watched.open("/tables/Weather")
        page.get_by_label("Of this table").get_by_role("link", name="Heat").click()
        page.wait_for_selector("svg.heat")
        watched.open("/")
        page.get_by_role("link", name="Azure would throttle").click()
        page.wait_for_selector("svg.heat")
        watched.open("/heat")
        page.locator("[aria-labelledby=by-table]").get_by_role("link", name="Weather").click()
        page.wait_for_url("**/tables/Weather/heat?period=hour")


@pytest.mark.slow
@in_browser
def test_the_token_is_typed(watched: WatchedPage) -> None:
    """A page without the token asks for it."""
    page = watched.page
    token = watched.explorer.address.partition("token=")[2]
    page.context.clear_cookies()
    watched.open("/")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Open").click()
    wait_for_text(watched, ".problem", "The token is wrong.")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Open").click()
    page.wait_for_selector(".tables")


@pytest.mark.slow
@in_browser
def test_a_scan_without_a_result_so_far_can_look_further(browser: Any, tmp_path: Path) -> None:
    """The service's first page is empty and has a token, as in a long scan; the second has an entity."""
    found = b'{"value": [{"PartitionKey": "found", "RowKey": "1"}]}'
    token = {"x-ms-continuation-NextPartitionKey": "a"}

    def is_first(path: str) -> bool:
        return "NextPartitionKey" not in path

    def answer(path: str) -> tuple[int, str, bytes]:
        return 200, "application/json", b'{"value": []}' if is_first(path) else found

    at_once = {"tablestone.explorer.grid.PIECE_SECONDS_MAX": -1.0}
    with (
        answering(answer, lambda path: token if is_first(path) else {}) as place,
        running_explorer(place, settings=tmp_path, constants=at_once) as process,
        watched_page(browser, process) as watched,
    ):
        page = watched.page
        watched.open("/tables/T?filter=a eq 1")
        page.get_by_role("link", name="look further").click()
        page.locator(".piece .row:not(.further)").filter(has_text="found").wait_for()
        assert page.get_by_role("link", name="look further").count() == 0
