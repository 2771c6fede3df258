"""Every main control of the explorer once, in a real browser, against the real server."""

import json
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables import EdmType, EntityProperty, TableServiceClient, UpdateMode

from explorer.conftest import AIRPORTS, HOURS, ODD_KEY, entity_of
from explorer.install import missing
from explorer.pages_in_browser import ExplorerProcess, WatchedPage
from server_process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

FIRST = ("EWR", "2013-01-01T00:00")


def table(server: ServerProcess, name: str) -> Any:
    return TableServiceClient.from_connection_string(server.connection_string).get_table_client(
        name
    )


def wait_for_text(watched: WatchedPage, selector: str, text: str) -> None:
    watched.page.locator(selector).filter(has_text=text).first.wait_for()


def field(watched: WatchedPage, name: str) -> Any:
    """The text of a property in the open panel."""
    return watched.page.get_by_label(f"Value of {name}", exact=True)


def cell(watched: WatchedPage, name: str) -> str:
    """The text in the first row of a column."""
    names = watched.page.locator(".names [data-name]").all_inner_texts()
    cells = watched.page.locator(".piece .row").first.locator(".cell").all_inner_texts()
    return str(cells[names.index(name)])


def open_entity(watched: WatchedPage, name: str, key: tuple[str, str]) -> None:
    pk, rk = key
    watched.open(f"/tables/{name}?filter=PartitionKey eq '{pk}' and RowKey eq '{rk}'")
    watched.page.locator("#grid .piece a").first.click()
    watched.page.wait_for_selector("#panel.open form")


def test_tables_are_found_counted_created_and_deleted(watched: WatchedPage) -> None:
    page = watched.page
    assert page.locator(".tables .name").all_inner_texts() == ["Empty", "Odd", "Weather"]
    assert page.get_by_role("button", name="Size").is_hidden(), "no size is known"
    page.get_by_label("Count the table Weather").click()
    wait_for_text(watched, ".size", f"{len(AIRPORTS) * HOURS} entities")
    wait_for_text(watched, "tr[data-table=weather] .bytes", "KiB")
    wait_for_text(watched, "nav.list [data-table=weather]", f"{len(AIRPORTS) * HOURS:,}")
    page.get_by_role("button", name="Size").click()
    assert page.locator(".tables .name").all_inner_texts()[0] == "Weather"
    page.get_by_role("button", name="Name").click()
    page.get_by_label("Find a table").fill("OD")
    assert page.locator(".tables .name:visible").all_inner_texts() == ["Odd"]
    assert page.locator("nav.list a:visible").all_inner_texts() == ["Odd"]
    page.keyboard.press("Enter")
    page.wait_for_url("**find=OD")
    assert page.locator(".tables .name").all_inner_texts() == ["Odd"]
    watched.create_table("Made")
    page.wait_for_url("**/tables/Made")
    assert "The table is empty." in page.inner_text("main")
    watched.open()
    watched.create_table("1")
    wait_for_text(watched, ".card .problem", "A table has a name of 3 to 63 letters")
    watched.open()
    watched.create_table("n" * 64)
    wait_for_text(watched, ".card .problem", "A table has a name of 3 to 63 letters")
    assert page.get_by_label("Name", exact=True).input_value() == "n" * 64
    page.get_by_label("Find a table").fill("odd")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tables/Odd")
    watched.ask_to_delete("Made")
    page.get_by_label("Type the name of the table").fill("made")
    page.get_by_role("button", name="Delete").click()
    wait_for_text(watched, ".problem", "type its name: ")
    page.get_by_label("Type the name of the table").fill("Made")
    page.get_by_role("button", name="Delete").click()
    page.wait_for_selector(".tables")
    assert page.locator(".tables .name").all_inner_texts() == ["Empty", "Odd", "Weather"]


def test_the_grid_is_read_as_one_scrolls(watched: WatchedPage) -> None:
    """To the last entity, each once and in key order."""
    page = watched.page
    watched.open("/tables/Weather")
    names = page.locator(".names [data-name]").all_inner_texts()
    assert names[:2] == ["PartitionKey", "RowKey"]
    keys = "[...document.querySelectorAll('.piece input')].map(each => each.value)"
    seen: dict[str, None] = dict.fromkeys(page.evaluate(keys))
    assert len(seen) < HOURS
    for _ in range(200):
        page.evaluate("document.getElementById('grid').scrollBy(0, 1200)")
        watched.wait_until(
            "![...document.querySelectorAll('.piece')].some(each => each.isNear && !each.childElementCount)"
        )
        seen.update(dict.fromkeys(page.evaluate(keys)))
        if len(seen) == len(AIRPORTS) * HOURS:
            break
    assert [json.loads(each) for each in seen] == [
        [airport, f"2013-01-{1 + hour // 24:02}T{hour % 24:02}:00"]
        for airport in AIRPORTS
        for hour in range(HOURS)
    ]
    wait_for_text(watched, "#cost", "900 shown · 900 examined, 9 pages")
    watched.keep("grid")


def test_an_entity_is_edited_under_its_etag(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    """Types stay; another writer's change is shown beside this one; then this one is written."""
    page = watched.page
    open_entity(watched, "Weather", FIRST)
    before = entity_of(filled_server, "Weather", *FIRST)
    field(watched, "passengers").fill("9007199254740993")
    field(watched, "seen").fill("2013-01-01T00:00:00.1234567Z")
    page.get_by_role("button", name="Save").click()
    wait_for_text(watched, ".done", "The entity is saved.")
    page.locator("#grid .Int64").filter(has_text="9007199254740993").wait_for()
    assert (cell(watched, "humid"), cell(watched, "wet")) == ("30", "true")
    assert "1 shown" in page.inner_text("#cost")
    after = entity_of(filled_server, "Weather", *FIRST)
    assert after["passengers"] == EntityProperty(9007199254740993, EdmType.INT64)
    assert after["seen"].tables_service_value == "2013-01-01T00:00:00.1234567Z"
    unchanged = set(before) - {"passengers", "seen"}
    assert {name: after[name] for name in unchanged} == {name: before[name] for name in unchanged}

    with table(filled_server, "Weather") as client:
        client.update_entity(
            {"PartitionKey": FIRST[0], "RowKey": FIRST[1], "humid": 99}, UpdateMode.MERGE
        )
    field(watched, "note").fill("mine")
    page.get_by_role("button", name="Save").click()
    page.wait_for_selector(".both")
    differing = page.locator(".both .differs").all_inner_texts()
    assert sorted(text.split()[0] for text in differing) == ["humid", "note"]
    assert "99" in " ".join(differing)
    watched.keep("conflict")
    page.get_by_role("button", name="Write yours over it").click()
    wait_for_text(watched, ".done", "The entity is saved.")
    assert entity_of(filled_server, "Weather", *FIRST)["note"] == "mine"


def test_a_wrong_value_is_explained_beside_it(watched: WatchedPage) -> None:
    open_entity(watched, "Weather", FIRST)
    field(watched, "humid").fill("many")
    watched.page.get_by_role("button", name="Save").click()
    wait_for_text(
        watched,
        ".property.wrong .problem",
        "humid is 'many', not of type Int32 (-2147483648 to 2147483647)",
    )
    assert field(watched, "humid").input_value() == "many"


def test_insert_clone_and_delete(watched: WatchedPage, filled_server: ServerProcess) -> None:
    page = watched.page
    watched.open("/tables/Empty")
    page.get_by_role("link", name="Insert").click()
    page.wait_for_selector("#panel.open form")
    page.get_by_role("button", name="Insert").click()
    wait_for_text(watched, ".problem", "type a PartitionKey and a RowKey")
    page.get_by_label("Both keys are empty").click()
    page.get_by_label("PartitionKey", exact=True).fill("a")
    page.get_by_label("RowKey", exact=True).fill("1")
    page.get_by_role("button", name="Add a property").click()
    row = page.locator(".property").last
    row.get_by_label("Name").fill("count")
    row.get_by_role("combobox").first.select_option("Int64")
    row.get_by_role("textbox").last.fill("5000000000")
    page.get_by_role("button", name="Insert").click()
    wait_for_text(watched, ".done", "The entity is inserted.")
    assert entity_of(filled_server, "Empty", "a", "1")["count"].value == 5_000_000_000
    page.locator("#grid .piece a").first.wait_for()
    page.get_by_role("link", name="Clone").click()
    page.get_by_role("button", name="Insert").wait_for()
    page.get_by_role("button", name="Insert").click()
    wait_for_text(watched, ".problem", "An entity with these keys already exists.")
    page.get_by_label("RowKey", exact=True).fill("2")
    page.get_by_role("button", name="Insert").click()
    wait_for_text(watched, ".done", "The entity is inserted.")
    assert entity_of(filled_server, "Empty", "a", "2")["count"].value == 5_000_000_000
    page.get_by_role("link", name="Delete", exact=True).click()
    page.get_by_role("link", name="Keep it").click()
    page.get_by_role("link", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete this entity").click()
    wait_for_text(watched, "#panel [role=status]", "1 entity is deleted.")
    with pytest.raises(ResourceNotFoundError):
        entity_of(filled_server, "Empty", "a", "2")


def test_many_are_copied_and_deleted(watched: WatchedPage, filled_server: ServerProcess) -> None:
    """By keyboard alone: the arrows move in the grid, and the space bar selects."""
    page = watched.page
    with table(filled_server, "Empty") as client:
        for number in range(3):
            client.upsert_entity({"PartitionKey": "many", "RowKey": str(number), "n": number})
    watched.open("/tables/Empty?filter=PartitionKey eq 'many'")
    page.locator("#grid").focus()
    page.keyboard.press("ArrowDown")
    for key in ("Space", "ArrowDown", "Space", "End", "Home"):
        page.keyboard.press(key)
    wait_for_text(watched, "#selected", "2 selected")
    for wanted, expected in (
        ("JSON", '{"PartitionKey":"many","RowKey":"0","n":0}\n'),
        ("filter", "(PartitionKey eq 'many' and RowKey eq '0') or (PartitionKey eq 'many' and RowKey eq '1')"),
        ("Python", "query_entities("),
        ("JavaScript", "listEntities("),
        ("Go", "NewListEntitiesPager("),
        ("Java", "setFilter("),
        ("C#", "QueryAsync<TableEntity>("),
    ):  # fmt: skip
        page.locator("[data-control='table.copy']").click()
        page.locator("#selection").get_by_role("button", name=wanted, exact=True).click()
        wait_for_text(watched, "#panel h2", wanted)
        assert expected in page.locator("[data-copy]").input_value()
    page.get_by_role("button", name="Copy", exact=True).click()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete 2 entities").click()
    wait_for_text(watched, "#panel [role=status]", "2 entities are deleted.")
    page.locator("#selection").wait_for(state="hidden")
    with table(filled_server, "Empty") as client:
        left = [each["RowKey"] for each in client.query_entities("PartitionKey eq 'many'")]
    assert left == ["2"]


def test_enter_opens_the_entity_and_escape_comes_back(watched: WatchedPage) -> None:
    page = watched.page
    watched.open("/tables/Weather")
    page.locator("#grid").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("#panel.open form")
    assert page.inner_text("#panel .keys .rk") == "2013-01-01T01:00"
    page.keyboard.press("Escape")
    watched.wait_until("document.activeElement.getAttribute('role') === 'gridcell'")
    page.keyboard.press("f")
    watched.wait_until("document.activeElement.id === 'filter'")
    page.locator("#grid").focus()
    page.keyboard.press("/")
    watched.wait_until("document.activeElement.id === 'find'")


def test_the_query_bar(watched: WatchedPage) -> None:
    """Completion, an error at its position, the plan, order, top and select; the address has the query."""
    page = watched.page
    watched.open("/tables/Weather")
    page.get_by_label("Filter", exact=True).fill("hu")
    page.locator("#completions li").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.get_by_label("Filter", exact=True).input_value() == "humid "
    columns = (
        "[...document.querySelectorAll('.names [data-name]')]"
        ".map((each) => each.outerText + each.offsetWidth).join()"
    )
    height = "document.querySelector('.query').offsetHeight + document.querySelector('.status').offsetHeight"
    before = page.evaluate(columns), page.evaluate(height)
    page.get_by_label("Filter", exact=True).fill("humid qe 3")
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector(".located")
    page.wait_for_function(f"(before) => {columns} === before", arg=before[0])  # the columns stay
    assert page.evaluate(height) == before[1], "the bar stays"
    assert page.inner_text(".located") == "humid qe▸ 3"
    watched.keep("error")
    page.get_by_label("Filter", exact=True).fill("PartitionKey eq 'JFK' and humid gt 80")
    page.get_by_text("All columns, by key").click()
    page.get_by_label("Select", exact=True).fill("humid,wet")
    page.get_by_label("Order", exact=True).fill("humid desc")
    page.get_by_label("Top", exact=True).fill("3")
    page.locator("[data-control='table.shape-run']").click()
    page.wait_for_url("**top=3")
    assert page.evaluate(height) == before[1]
    assert page.inner_text(".badge") == "partition"
    assert "scan" in str(page.locator(".badge").get_attribute("class"))
    assert page.locator(".names [data-name]").all_inner_texts() == ["humid", "wet"]
    shown = page.locator(".piece .row").all_inner_texts()
    assert [row.split()[0] for row in shown] == ["89", "89", "89"]
    watched.keep("query")


def test_the_builder_and_saved_queries(watched: WatchedPage) -> None:
    page = watched.page
    watched.open("/tables/Weather?filter=wet")
    page.get_by_text("Build a filter").click()
    page.get_by_label("Property", exact=True).fill("humid")
    assert page.locator(".tools [name=kind]").input_value() == "Int32"
    page.locator("[name=comparison]").select_option("gt")
    page.get_by_label("Value", exact=True).fill("85")
    page.locator(".tools [name=kind]").select_option("Int32")
    page.get_by_role("button", name="Add to the filter").click()
    page.wait_for_url("**humid**")
    assert page.get_by_label("Filter", exact=True).input_value() == "(wet) and (humid gt 85)"
    page.get_by_text("Saved queries (0)").click()
    page.get_by_label("Name", exact=True).fill("wet hours")
    page.get_by_role("button", name="Save this query").click()
    page.get_by_text("Saved queries (1)").click()
    watched.open("/tables/Weather")
    page.get_by_text("Saved queries (1)").click()
    page.get_by_role("link", name="wet hours").click()
    page.wait_for_url("**humid**")
    page.get_by_text("Saved queries (1)").click()
    page.get_by_label("Forget wet hours").click()
    page.get_by_role("button", name="Forget it").click()
    page.get_by_text("Saved queries (0)").wait_for()


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "csv", "parquet"])
def test_what_is_exported_can_be_imported(
    watched: WatchedPage, filled_server: ServerProcess, tmp_path: Path, kind: str
) -> None:
    page = watched.page
    watched.open("/tables/Weather?filter=PartitionKey eq 'LGA' and humid ge 60&select=humid,seen")
    page.get_by_role("link", name="Export").click()
    page.get_by_label("Format").select_option(kind)
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download").click()
    assert coming.value.suggested_filename == f"Weather.{kind}"
    path = tmp_path / f"Weather.{kind}"
    coming.value.save_as(path)
    watched.open("/tables/Empty")
    page.get_by_role("link", name="Import").click()
    page.get_by_label("File", exact=True).set_input_files(path)
    page.get_by_label("If an entity exists").select_option("replace")
    page.get_by_role("button", name="Import").click()
    wait_for_text(watched, "#panel [role=status]", f"Weather.{kind}: 150 entities stored")
    stored = entity_of(filled_server, "Empty", "LGA", "2013-01-02T06:00")
    assert set(stored) == {"PartitionKey", "RowKey", "humid", "seen"}
    with table(filled_server, "Empty") as client:
        count = sum(1 for _ in client.query_entities("PartitionKey eq 'LGA'"))
    assert count == 150


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_an_export_has_the_order_and_the_top_of_the_grid(
    watched: WatchedPage, tmp_path: Path, kind: str
) -> None:
    """The rows of the file are those of the grid, in its order, with its columns and the keys."""
    page = watched.page
    asked = "filter=PartitionKey ne 'EWR'&select=humid,seen&order=temp desc&top=7"
    watched.open(f"/tables/Weather?{asked}")
    rows = [
        json.loads(str(each.get_attribute("value"))) for each in page.locator(".piece input").all()
    ]
    page.get_by_role("link", name="Export").click()
    said = page.locator("#panel p").first
    assert "in the order temp desc, the first 7." in said.inner_text()
    page.get_by_label("Format").select_option(kind)
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download").click()
    path = tmp_path / "shown"
    coming.value.save_as(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    if kind == "jsonl":
        found = [json.loads(line) for line in lines]
        keys = [[each["PartitionKey"], each["RowKey"]] for each in found]
        assert {name for each in found for name in each if "@" not in name and "." not in name} == {
            *("PartitionKey", "RowKey", "humid", "seen")
        }
    else:
        assert [name.partition("@")[0] for name in lines[0].split(",")][:2] == [
            "PartitionKey",
            "RowKey",
        ]
        keys = [line.split(",")[:2] for line in lines[1:]]
    assert len(rows) == 7
    assert keys == rows


def test_looks_can_be_changed(watched: WatchedPage) -> None:
    page = watched.page
    page.emulate_media(color_scheme="light")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.get_by_label("Change between light and dark").click()
    assert page.evaluate(colour) != light
    watched.open("/tables/Weather")
    assert page.evaluate(colour) != light


def test_odd_values_are_text(watched: WatchedPage, filled_server: ServerProcess) -> None:
    """HTML, script, right-to-left text, `__proto__`, line breaks: shown as text, and unchanged by an edit."""
    page = watched.page
    watched.open("/tables/Odd?filter=PartitionKey eq '😀 שלום'")
    page.locator("#grid .piece a").first.click()
    page.wait_for_selector("#panel.open form")
    assert page.locator("main img, #panel script, .piece script").count() == 0
    assert field(watched, "__proto__").input_value() == "a prototype"
    before = entity_of(filled_server, "Odd", *ODD_KEY)
    field(watched, "constructor").fill("changed")
    page.get_by_role("button", name="Save").click()
    wait_for_text(watched, ".done", "The entity is saved.")
    after = entity_of(filled_server, "Odd", *ODD_KEY)
    assert dict(after) == dict(before) | {"constructor": "changed"}


def test_an_explorer_says_where_it_is(explorer: ExplorerProcess) -> None:
    assert explorer.address.startswith(f"{explorer.base}/?token=")
