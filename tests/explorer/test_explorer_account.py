"""The account's pages in a real browser: heat, policies, properties, CORS, signatures; the explorer of `serve`."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableClient, TableServiceClient

from explorer.insight_stand_in import insight_address
from explorer.install import missing
from explorer.pages_in_browser import ExplorerProcess, WatchedPage, running_explorer, watched_page
from server_process import ServerProcess, start_server
from tablestone.server.admin.size_survey import IN_MEMORY

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


@pytest.fixture(scope="module")
def explorer(
    filled_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExplorerProcess]:
    """An explorer that knows the admin address."""
    settings = tmp_path_factory.mktemp("settings")
    place = filled_server.connection_string
    with (
        insight_address() as admin,
        running_explorer(place, "--admin", admin, settings=settings) as process,
    ):
        yield process


def wait_for_text(watched: WatchedPage, selector: str, text: str) -> None:
    watched.page.locator(selector).filter(has_text=text).first.wait_for()


def test_the_heat_map_and_its_lists(watched: WatchedPage) -> None:
    page = watched.page
    watched.open("/tables/weather/heat")
    assert page.inner_text("h1") == "Weather"
    assert "JFK" in page.inner_text("[aria-labelledby=card-partition]")
    card = "31% of Weather: 2,400 entities/s in its busiest minute, 120% of Azure's target."
    assert card in page.inner_text(".cards")
    assert "2,500 read for each returned" in page.inner_text("[aria-labelledby=card-query]")
    assert "JFK" in page.locator(".heat-keys .hot").all_text_contents()
    assert "The brightest: JFK, " in str(page.locator("svg.heat").get_attribute("aria-label"))
    assert page.locator("svg.heat rect").count() > 200
    assert "JFK" in page.inner_text("[aria-labelledby=hot]")
    assert "Azure would throttle" in page.inner_text("[aria-labelledby=hot]")
    scans = page.inner_text("[aria-labelledby=scans]")
    assert "temp gt ?" in scans
    assert "1,000,000 entities read for 400 returned" in scans
    assert "Warning:" in scans
    assert "Sources:" in scans
    sizes = set()
    for width in (1920, 1280, 400):
        page.set_viewport_size({"width": width, "height": 800})
        letters = page.locator(".heat-keys .hot").first.bounding_box()
        assert letters is not None
        sizes.add(round(letters["height"]))
        legend = page.locator(".legend").bounding_box()
        assert legend is not None
        assert legend["height"] < 24, "one line"
    assert len(sizes) == 1, "letters keep their size"
    table = page.get_by_label("List of the hottest partitions")
    assert table.evaluate("(each) => each.scrollWidth > each.clientWidth"), "the table scrolls"
    watched.open("/tables/weather/heat")
    newest = "document.querySelector('svg.heat').parentElement.scrollLeft > 100"
    watched.wait_until(newest)
    keys = page.locator(".heat-keys")
    assert "JFK" in keys.locator(".hot").all_text_contents()
    place = keys.bounding_box()
    assert place is not None
    assert 0 <= place["x"] < 60, "the keys stay in sight"
    severities = page.locator(".advice strong").all_inner_texts()
    assert set(severities) <= {"Severe:", "Warning:", "Note:"}
    watched.keep("heat")
    page.locator("[name=period]").select_option("day")
    page.locator("[name=show]").select_option("writes")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**period=day&show=writes")
    assert "written" in str(page.locator("svg.heat").get_attribute("aria-label"))
    page.get_by_role("link", name="Why, and what it costs").click()
    page.wait_for_url("**#advice")
    page.get_by_role("link", name="JFK").click()
    page.wait_for_url("**filter=PartitionKey**")


def test_heat_is_refreshed_unless_it_is_paused(watched: WatchedPage) -> None:
    """The focus and the place of the map stay."""
    page = watched.page
    page.clock.install()
    page.set_viewport_size({"width": 400, "height": 800})
    watched.open("/tables/weather/heat")
    mark = "document.querySelector('.cards').dataset.old = '1'"
    is_old = "document.querySelector('.cards').dataset.old === '1'"
    page.evaluate(mark)
    page.evaluate("document.querySelector('.map').scrollLeft = 50")
    page.get_by_role("link", name="JFK").focus()
    page.clock.run_for(11_000)
    watched.wait_until(f"!({is_old})")
    assert page.evaluate("document.activeElement.textContent") == "JFK"
    assert page.evaluate("document.querySelector('.map').scrollLeft") == 50
    assert page.locator("h1").count() == 1
    page.get_by_role("button", name="Pause").click()
    page.evaluate(mark)
    page.clock.run_for(30_000)
    page.wait_for_load_state("networkidle")
    assert page.evaluate(is_old), "paused"
    page.get_by_role("button", name="Pause").click()
    page.clock.run_for(11_000)
    watched.wait_until(f"!({is_old})")


def test_policies_are_written_and_read(watched: WatchedPage, filled_server: ServerProcess) -> None:
    page = watched.page
    watched.open("/tables/Weather")
    page.get_by_label("Of this table").get_by_role("link", name="Policies").click()
    page.get_by_label("Id").fill("readers")
    page.get_by_label("read", exact=True).check()
    page.get_by_label("Ends").fill("2100-01-01T00:00")
    page.get_by_role("button", name="Save the policies").click()
    wait_for_text(watched, ".done", "The policies are saved.")
    with TableServiceClient.from_connection_string(filled_server.connection_string) as service:
        found = service.get_table_client("Weather").get_table_access_policy()
    assert found["readers"] is not None
    assert found["readers"].permission == "r"
    assert str(found["readers"].expiry).startswith("2100-01-01 00:00:00")
    page.get_by_label("delete", exact=True).first.check()
    page.get_by_label("Id").last.fill("readers")
    page.get_by_role("button", name="Save the policies").click()
    wait_for_text(watched, ".problem", "Two policies have the same id.")
    assert page.get_by_label("delete", exact=True).first.is_checked()
    watched.open("/tables/Weather/policies")
    letters = ("read", "add", "update", "delete")
    boxes = [page.get_by_label(each, exact=True).first.is_checked() for each in letters]
    assert boxes == [True, False, False, False]
    assert page.get_by_label("Ends").first.input_value() == "2100-01-01T00:00"
    page.get_by_label("Id").first.fill("")
    page.get_by_role("button", name="Save the policies").click()
    wait_for_text(watched, ".done", "The policies are saved.")
    assert page.get_by_label("Id").count() == 1


def test_properties_and_cors_rules(watched: WatchedPage, filled_server: ServerProcess) -> None:
    page = watched.page
    watched.open("/service")
    page.get_by_label("Origins").fill("https://example.com,https://example.org")
    page.get_by_label("Methods").fill("GET,POST")
    page.get_by_label("Max age in seconds").fill("60")
    page.get_by_label("delete", exact=True).check()
    page.get_by_label("Kept for days").first.fill("7")
    page.get_by_role("button", name="Save the properties").click()
    wait_for_text(watched, ".done", "The properties are saved.")
    with TableServiceClient.from_connection_string(filled_server.connection_string) as service:
        found: Any = service.get_service_properties()
    assert found["cors"][0].allowed_origins == ["https://example.com", "https://example.org"]
    assert found["cors"][0].max_age_in_seconds == 60
    assert (found["analytics_logging"].delete, found["analytics_logging"].read) == (True, False)
    assert found["analytics_logging"].retention_policy.days == 7
    page.get_by_label("Max age in seconds").first.fill("soon")
    page.get_by_role("button", name="Save the properties").click()
    wait_for_text(watched, ".problem", "must be a whole number up to 2,147,483,647, not 'soon'")


def test_a_signature_is_made_and_explained(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    page = watched.page
    watched.open("/tables/Weather")
    page.get_by_label("Of this table").get_by_role("link", name="Signatures").click()
    page.get_by_label("First PartitionKey").fill("JFK")
    page.get_by_label("Last PartitionKey").fill("JFK")
    page.get_by_role("button", name="Make the signature").click()
    page.wait_for_selector("#made [data-copy]")
    signed = page.locator("#made [data-copy]").input_value()
    assert filled_server.account_key not in page.content()
    said = page.inner_text("#made")
    for line in (
        "A signature of the table Weather",
        "It permits: read.",
        "not expired",
        "It is valid for the keys from PartitionKey 'JFK' through PartitionKey 'JFK'.",
    ):
        assert line in said
    signature = signed.partition("?")[2]
    with TableClient(
        filled_server.endpoint, "Weather", credential=AzureSasCredential(signature)
    ) as client:
        client.get_entity("JFK", "2013-01-01T00:00")
        with pytest.raises(HttpResponseError):
            client.get_entity("LGA", "2013-01-01T00:00")
    page.get_by_label("Signature, URL or connection string").fill(
        "sv=2019-02-02&ss=t&srt=so&sp=rl&se=2020-01-01T00:00:00Z&spr=https&sig=x"
    )
    page.get_by_role("button", name="Explain it").click()
    wait_for_text(watched, "#explained", "it has expired")
    wait_for_text(watched, "#explained", "An account signature for tables")
    page.get_by_label("Signature, URL or connection string").fill("nothing")
    page.get_by_role("button", name="Explain it").click()
    wait_for_text(watched, "form .problem", "This is not a shared access signature")
    for name in ("First PartitionKey", "Last PartitionKey"):
        page.get_by_label(name).fill("")
    page.locator("[name=table]").select_option("")
    page.get_by_label("list", exact=True).check()
    page.get_by_role("button", name="Make the signature").click()
    wait_for_text(watched, "#made", "An account signature for tables")


def test_the_explorer_of_a_server(browser: Any, tmp_path: Path) -> None:
    """`serve --explorer` puts the page below /explorer/ of the admin address, and opens one for it."""
    server = start_server(tmp_path / "data", "--explorer", "--workers", "1")
    try:
        line = next(each for each in server.stdout if each.startswith("Explorer: "))
        address = line.split(" ", 1)[1].strip()
        process = ExplorerProcess(server.process, address)
        with watched_page(browser, process) as watched:
            page = watched.page
            watched.create_table("Made")
            page.wait_for_url("**/explorer/tables/Made")
            page.get_by_role("link", name="Insert").click()
            page.get_by_label("PartitionKey", exact=True).fill("a")
            page.get_by_role("button", name="Insert").click()
            wait_for_text(watched, ".done", "The entity is inserted.")
            page.get_by_label("Pages").get_by_role("link", name="Tables").click()
            page.wait_for_url("**/explorer/")
            assert page.locator(".tables .name").all_inner_texts() == ["Made"]
    finally:
        assert server.stop() == 0
    assert address.partition("token=")[2] not in server.stderr


KEYS = {name: base64.b64encode(name.encode() * 8).decode() for name in ("alpha", "beta", "gamma")}


def test_a_server_with_several_accounts(browser: Any, tmp_path: Path) -> None:
    """Each account has its own pages, and the address names it; a change in one does not show in another."""
    given = [word for name, key in KEYS.items() for word in ("--account", f"{name}:{key}")]
    server = start_server(tmp_path / "data", "--explorer", "--workers", "1", *given)
    try:
        line = next(each for each in server.stdout if each.startswith("Explorer: "))
        process = ExplorerProcess(server.process, line.split(" ", 1)[1].strip())
        with watched_page(browser, process) as watched:
            page = watched.page
            page.wait_for_url("**/explorer/account/alpha/")
            for name in ("beta", "gamma", "alpha"):
                page.locator(".accounts summary").click()
                assert page.locator(".accounts a").all_inner_texts() == list(KEYS)
                page.locator(".accounts").get_by_role("link", name=name).click()
                page.wait_for_url(f"**/explorer/account/{name}/")
                assert "The account has no tables." in page.inner_text("main")
                others = page.locator("[data-control='tables.account']")
                assert others.all_inner_texts() == [each for each in KEYS if each != name]
                if name == "alpha":
                    others.first.click()
                    page.wait_for_url("**/explorer/account/beta/")
                    page.go_back()
                watched.create_table(f"Of{name}")
                page.wait_for_url(f"**/explorer/account/{name}/tables/Of{name}")
            watched.keep("accounts")
            for name, key in KEYS.items():
                watched.open(f"/explorer/account/{name}/")
                assert page.locator(".tables .name").all_inner_texts() == [f"Of{name}"]
                assert key not in page.content()
            watched.open("/explorer/account/absent/tables/Ofalpha")
            assert "There is no such page." in page.inner_text("main")
    finally:
        assert server.stop() == 0


SOON = {"tablestone.server.admin.size_survey.SURVEY_PAUSE_SECONDS": 0.2}


def test_the_sizes_in_the_list_of_tables(browser: Any, tmp_path: Path) -> None:
    """SQLite's are shown once they have been counted, also for a table without requests."""
    server = start_server(tmp_path / "data", "--explorer", "--workers", "1", constants=SOON)
    try:
        with TableServiceClient.from_connection_string(server.connection_string) as service:
            table = service.create_table("Filled")
            rows = [{"PartitionKey": "a", "RowKey": str(n), "text": "x" * 1000} for n in range(30)]
            table.submit_transaction([("create", row) for row in rows])
        line = next(each for each in server.stdout if each.startswith("Explorer: "))
        process = ExplorerProcess(server.process, line.split(" ", 1)[1].strip())
        with watched_page(browser, process) as watched:
            row = watched.page.locator(".tables tbody tr")

            def is_counted() -> bool:
                watched.open("/explorer/")
                return row.locator("td").first.inner_text() == "30"

            watched.wait_for(is_counted)
            assert "KiB" in row.inner_text()
            watched.keep("sizes")
            watched.open("/explorer/tables/Filled")
            assert "30 entities · " in watched.page.inner_text(".meta")
    finally:
        assert server.stop() == 0


def test_the_sizes_of_an_engine_that_does_not_know_them(browser: Any, tmp_path: Path) -> None:
    """The page of the tables says so; the table can still be counted."""
    server = start_server(tmp_path, "--explorer", "--engine", "memory")
    try:
        with TableServiceClient.from_connection_string(server.connection_string) as service:
            service.create_table("Filled").create_entity({"PartitionKey": "a", "RowKey": "1"})
        line = next(each for each in server.stdout if each.startswith("Explorer: "))
        process = ExplorerProcess(server.process, line.split(" ", 1)[1].strip())
        with watched_page(browser, process) as watched:
            page = watched.page
            watched.open("/explorer/")
            assert IN_MEMORY in page.inner_text("main")
            page.get_by_label("Count the table Filled").click()
            wait_for_text(watched, ".size", "1 entity")

            def is_shown() -> bool:
                watched.open("/explorer/heat")
                return "Filled" in page.inner_text("main")

            watched.wait_for(is_shown)
            assert "1" in page.inner_text("[aria-labelledby=by-table] tbody")
    finally:
        assert server.stop() == 0
