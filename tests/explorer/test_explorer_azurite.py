"""The explorer on Azurite, an independent implementation of the service: each page once, in a real browser.

npm installs Azurite, as for the other tests and the benchmarks. Where that fails, the tests are skipped with the
reason.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables import EdmType, EntityProperty, TableServiceClient, UpdateMode

from bench import servers
from bench.prerequisites import PrerequisiteError
from explorer.conftest import weather
from explorer.install import missing
from explorer.pages_in_browser import ExplorerProcess, WatchedPage, running_explorer
from explorer.test_explorer_pages import field, wait_for_text

pytestmark = [
    pytest.mark.network,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

HOURS = 250
FIRST = ("JFK", "2013-01-01T00:00")


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connection string of an Azurite with one table."""
    try:
        server = servers.start(servers.AZURITE, tmp_path_factory.mktemp("azurite"))
    except PrerequisiteError as failed:
        pytest.skip(str(failed))
    place = (
        f"DefaultEndpointsProtocol=http;AccountName={servers.ACCOUNT};AccountKey={servers.KEY};"
        f"TableEndpoint=http://{server.address}{server.base_path};"
    )
    with TableServiceClient.from_connection_string(place) as service:
        table = service.create_table("Weather")
        for start in range(0, HOURS, 50):
            rows = [weather("JFK", hour) for hour in range(start, start + 50)]
            table.submit_transaction([("create", row) for row in rows])
    yield place
    server.stop()


@pytest.fixture(scope="module")
def explorer(azurite: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplorerProcess]:
    with running_explorer(azurite, settings=tmp_path_factory.mktemp("settings")) as process:
        yield process


def stored(place: str, table: str, *key: str) -> Any:
    with TableServiceClient.from_connection_string(place) as service:
        return service.get_table_client(table).get_entity(*key)


def open_first(watched: WatchedPage) -> None:
    watched.open("/tables/Weather")
    watched.page.locator("#grid .piece a").first.click()
    watched.page.wait_for_selector("#panel.open form")


def test_tables_are_made_counted_and_deleted(watched: WatchedPage) -> None:
    page = watched.page
    assert page.locator(".tables .name").all_inner_texts() == ["Weather"]
    page.get_by_label("Count the table Weather").click()
    wait_for_text(watched, ".size", f"{HOURS} entities")
    watched.create_table("Made")
    page.wait_for_url("**/tables/Made")
    assert "The table is empty." in page.inner_text("main")
    watched.open("/")
    watched.create_table("Made")
    wait_for_text(watched, ".card .problem", "The table Made exists already.")
    watched.ask_to_delete("Made")
    page.get_by_label("Type the name of the table").fill("Made")
    page.get_by_role("button", name="Delete").click()
    page.wait_for_selector(".tables")
    assert page.locator(".tables .name").all_inner_texts() == ["Weather"]


def test_what_only_tablestone_has_is_hidden(watched: WatchedPage) -> None:
    """Neither tab is there, their pages say why, and the cost is what was received."""
    page = watched.page
    watched.open("/tables/Weather?top=3")
    wait_for_text(watched, "#cost", "3 shown · 1 page")
    tabs = page.get_by_label("Of this table").get_by_role("link").all_inner_texts()
    assert tabs == ["Data", "Heat", "Policies", "Signatures"]
    watched.open("/tables/Weather/indexes")
    wait_for_text(watched, ".problem", "This service has neither indexes nor expiry")
    watched.open("/tables/Weather/changes")
    wait_for_text(watched, ".problem", "has no feed of changes")


def test_the_grid_reads_on(watched: WatchedPage) -> None:
    page = watched.page
    watched.open("/tables/Weather")
    shown = "[...document.querySelectorAll('.piece input')].map(each => each.value)"
    seen: dict[str, None] = {}
    for _ in range(60):
        seen |= dict.fromkeys(page.evaluate(shown))
        if len(seen) == HOURS:
            break
        page.evaluate("document.getElementById('grid').scrollBy(0, 1200)")
        watched.wait_until(
            "![...document.querySelectorAll('.piece')].some(each => each.isNear && !each.childElementCount)"
        )
    assert len(seen) == HOURS


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ("PartitionKey eq 'JFK' and RowKey lt '2013-01-02'", 24),
        ("humid gt 88", 4),
        ("wet and temp ge 30.0", 4),
        ("passengers eq 1099511627781L", 1),
        ("station eq guid'00000000-0000-0000-0000-000000000005'", 1),
        ("seen lt datetime'2013-01-01T05:00:00Z'", 5),
    ],
)
def test_a_query(watched: WatchedPage, asked: str, count: int) -> None:
    """Values of each type; the expected numbers are computed from the rows here."""
    page = watched.page
    watched.open("/tables/Weather")
    page.get_by_label("Filter", exact=True).fill(asked)
    page.get_by_role("button", name="Run").click()
    page.wait_for_url("**filter=**")
    watched.wait_until("document.querySelector('.piece .row:not(.further)') !== null")
    assert page.locator(".piece .row").count() == count


def test_an_entity_keeps_its_types_and_a_conflict_is_shown(
    watched: WatchedPage, azurite: str
) -> None:
    page = watched.page
    open_first(watched)
    before = stored(azurite, "Weather", *FIRST)
    field(watched, "passengers").fill("9007199254740993")
    page.get_by_role("button", name="Save", exact=True).click()
    wait_for_text(watched, ".done", "The entity is saved.")
    after = stored(azurite, "Weather", *FIRST)
    assert dict(after) == dict(before) | {
        "passengers": EntityProperty(9007199254740993, EdmType.INT64)
    }
    with TableServiceClient.from_connection_string(azurite) as service:
        service.get_table_client("Weather").update_entity(
            {"PartitionKey": FIRST[0], "RowKey": FIRST[1], "humid": 99}, UpdateMode.MERGE
        )
    field(watched, "note").fill("mine")
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_selector(".both")
    differing = page.locator(".both .differs").all_inner_texts()
    assert sorted(text.split()[0] for text in differing) == ["humid", "note"]
    page.get_by_role("button", name="Write yours over it").click()
    wait_for_text(watched, ".done", "The entity is saved.")
    assert stored(azurite, "Weather", *FIRST)["note"] == "mine"


def test_entities_are_inserted_and_deleted(watched: WatchedPage, azurite: str) -> None:
    page = watched.page
    watched.open("/tables/Weather?filter=PartitionKey eq 'new'")
    for number in ("1", "2"):
        page.get_by_role("link", name="Insert").click()
        page.wait_for_selector("#panel.open form")
        page.get_by_label("PartitionKey", exact=True).fill("new")
        page.get_by_label("RowKey", exact=True).fill(number)
        field(watched, "humid").fill("7")
        page.get_by_role("button", name="Insert", exact=True).click()
        wait_for_text(watched, ".done", "The entity is inserted.")
    assert stored(azurite, "Weather", "new", "2")["humid"] == 7
    page.get_by_role("button", name="Insert", exact=True).wait_for(state="detached")
    page.get_by_role("link", name="Clone").click()
    page.get_by_role("button", name="Insert", exact=True).click()
    wait_for_text(watched, ".problem", "An entity with these keys already exists.")
    watched.open("/tables/Weather?filter=PartitionKey eq 'new'")
    for box in page.locator("#grid .piece input").all():
        box.check()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete 2 entities").click()
    wait_for_text(watched, "#panel [role=status]", "2 entities are deleted.")
    with pytest.raises(ResourceNotFoundError):
        stored(azurite, "Weather", "new", "1")


def test_import_and_export(watched: WatchedPage, tmp_path: Path) -> None:
    page = watched.page
    watched.open("/tables/Weather?select=humid&order=humid desc&top=3")
    page.get_by_role("link", name="Export").click()
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download").click()
    path = tmp_path / "Weather.jsonl"
    coming.value.save_as(path)
    assert path.read_text(encoding="utf-8").count("\n") == 3
    page.get_by_role("link", name="Import").click()
    page.get_by_label("File", exact=True).set_input_files(path)
    page.get_by_label("If an entity exists").select_option("merge")
    page.get_by_role("button", name="Import").click()
    wait_for_text(watched, "#panel [role=status]", "3 entities stored")


def test_the_pages_of_the_account(watched: WatchedPage) -> None:
    """Policies and properties. The page says so where Azurite lacks them."""
    page = watched.page
    watched.open("/tables/Weather/policies")
    page.get_by_label("Id").fill("readers")
    page.get_by_label("read", exact=True).first.check()
    page.get_by_role("button", name="Save the policies").click()
    # Azurite only accepts policies with a start and an expiry.
    page.locator(".problem").filter(has_text="does not take this: HTTP status 400").wait_for()
    watched.open("/tables/Weather/policies")
    page.get_by_label("Id").fill("readers")
    page.get_by_label("read", exact=True).first.check()
    page.get_by_label("Begins").fill("2026-01-01T00:00:00")
    page.get_by_label("Ends").fill("2100-01-01T00:00:00")
    page.get_by_role("button", name="Save the policies").click()
    wait_for_text(watched, ".done", "The policies are saved.")
    watched.open("/service")
    page.get_by_label("Kept for days").first.fill("7")
    page.get_by_role("button", name="Save the properties").click()
    page.locator(".done, .problem").first.wait_for()
    watched.open("/heat")
    assert "needs the admin address" in page.inner_text("main")


def test_an_error_is_explained(watched: WatchedPage) -> None:
    page = watched.page
    watched.open("/tables/Nothere")
    assert "TableNotFound" in page.inner_text(".problem")
    watched.open("/tables/Weather/entity?pk=no&rk=no")
    assert "does not exist" in page.inner_text("main")
    page.get_by_role("link", name="Tables").first.click()
    page.wait_for_selector(".tables")
