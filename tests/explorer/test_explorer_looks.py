"""Every page and panel of the explorer: axe-core's rules in light and dark, and a window of 360 pixels.

In the narrow window no page scrolls sideways; a wider grid or list scrolls by itself.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from azure.data.tables import UpdateMode

from explorer.driven_controls import TEMPLATES
from explorer.insight_stand_in import insight_address
from explorer.install import AXE, axe_missing, missing
from explorer.pages_in_browser import ExplorerProcess, WatchedPage, running_explorer
from explorer.test_explorer_pages import FIRST, field, table
from server_process import ServerProcess

NARROW, WIDE = 360, 1280
KEY = f"pk={FIRST[0]}&rk={FIRST[1]}"
Act = Callable[[WatchedPage, ServerProcess], None]


class Look(NamedTuple):
    """A page: its template, its path, and what to do on it before it is checked."""

    template: str
    path: str
    act: Act | None = None


def build(watched: WatchedPage, _server: ServerProcess) -> None:
    """Open every part of a table's page that can be opened."""
    for name in ("table.shape", "table.build", "table.saved", "table.plan", "table.advice"):
        watched.page.locator(f"[data-control='{name}']").click()


def select(watched: WatchedPage, _server: ServerProcess) -> None:
    watched.page.locator("#grid .piece input").first.check()


def copy(watched: WatchedPage, server: ServerProcess) -> None:
    select(watched, server)
    watched.page.locator("[data-control='table.copy']").click()
    watched.page.get_by_role("button", name="JSON").click()
    watched.page.wait_for_selector("#panel [data-copy]")


def ask_delete(watched: WatchedPage, server: ServerProcess) -> None:
    select(watched, server)
    watched.page.get_by_role("button", name="Delete…").click()
    watched.page.wait_for_selector("#panel .keys-listed")


def ask_delete_one(watched: WatchedPage, _server: ServerProcess) -> None:
    watched.page.get_by_role("link", name="Delete", exact=True).click()
    watched.page.get_by_role("button", name="Delete this entity").wait_for()


def open_entity(watched: WatchedPage, _server: ServerProcess) -> None:
    watched.page.locator("#grid .piece a").first.click()
    watched.page.wait_for_selector("#panel.open form")


def conflict(watched: WatchedPage, server: ServerProcess) -> None:
    with table(server, "Weather") as client:
        changed = {"PartitionKey": FIRST[0], "RowKey": FIRST[1], "note": "theirs"}
        client.update_entity(changed, UpdateMode.MERGE)
    field(watched, "note").fill("mine")
    watched.page.get_by_role("button", name="Save", exact=True).click()
    watched.page.wait_for_selector(".both")


def merge(watched: WatchedPage, server: ServerProcess) -> None:
    with table(server, "Weather") as client:
        changed = {"PartitionKey": "LGA", "RowKey": FIRST[1], "note": "merged", "humid": 7}
        client.update_entity(changed, UpdateMode.MERGE)
    watched.page.reload()
    watched.page.locator(".pill").get_by_text("merge").first.wait_for()


def ask_back(watched: WatchedPage, server: ServerProcess) -> None:
    merge(watched, server)
    watched.page.get_by_role("link", name="Put this version back").last.click()
    watched.page.wait_for_selector("#panel.open :is(.both, #entity-form)")


def as_json(watched: WatchedPage, server: ServerProcess) -> None:
    open_entity(watched, server)
    watched.page.get_by_role("button", name="As JSON").click()
    watched.page.locator("[name=json]").fill("{")
    watched.page.get_by_role("button", name="Save").click()
    watched.page.wait_for_selector("#entity-problem")


def count_expiry(watched: WatchedPage, _server: ServerProcess) -> None:
    watched.page.locator("[name=age]").fill("1")
    watched.page.get_by_role("button", name="Count first").click()
    watched.page.locator("#expiry-state").get_by_text("Nothing is set yet").wait_for()


def ask_to_forget(watched: WatchedPage, _server: ServerProcess) -> None:
    saved = watched.page.locator("[data-control='table.saved']")
    saved.click()
    watched.page.locator("[data-control='table.save-name']").fill("wet hours")
    watched.page.get_by_role("button", name="Save this query").click()
    watched.page.get_by_label("Forget wet hours").wait_for(state="attached")
    saved.click()
    watched.page.get_by_label("Forget wet hours").click()
    watched.page.get_by_role("button", name="Forget it").wait_for()


def make(watched: WatchedPage, _server: ServerProcess) -> None:
    watched.page.get_by_role("button", name="Make the signature").click()
    watched.page.wait_for_selector("#made [data-copy]")


def explain(watched: WatchedPage, _server: ServerProcess) -> None:
    watched.page.locator("[name=given]").fill("sv=2019-02-02&tn=Weather&sp=r&sig=x")
    watched.page.get_by_role("button", name="Explain it").click()
    watched.page.wait_for_selector("#explained li")


def count(watched: WatchedPage, _server: ServerProcess) -> None:
    watched.page.get_by_label("Count the table Odd").click()
    watched.page.locator(".size").filter(has_text="3 entities").wait_for()


def complete(watched: WatchedPage, _server: ServerProcess) -> None:
    watched.page.get_by_label("Filter", exact=True).fill("hu")
    watched.page.locator("#completions li").first.wait_for()


def look_at(watched: WatchedPage, _server: ServerProcess) -> None:
    text = "PartitionKey,RowKey,temp,seen\na,1,3.5,2013-01-01T00:00:00Z\n"
    file: Any = {"name": "a.csv", "mimeType": "text/csv", "buffer": text.encode()}
    watched.page.get_by_label("File", exact=True).set_input_files(file)
    watched.page.wait_for_selector(".looked")


def leave(watched: WatchedPage, _server: ServerProcess) -> None:
    watched.page.context.clear_cookies()
    watched.open("/")


LOOKS: dict[str, Look] = {
    "tables": Look("tables", "/"),
    "a size": Look("size", "/", count),
    "a table": Look("table", "/tables/Weather?filter=temp gt 30.0&top=8", build),
    "a completion": Look("table", "/tables/Weather", complete),
    "an error in the filter": Look("table", "/tables/Weather?filter=humid qe 3"),
    "an empty table": Look("table", "/tables/Empty"),
    "an entity in the panel": Look("entity", "/tables/Weather?top=8", open_entity),
    "an entity as JSON": Look("entity", "/tables/Weather?top=8", as_json),
    "an entity": Look("entity", f"/tables/Weather/entity?{KEY}"),
    "odd values": Look("entity", "/tables/Odd?filter=PartitionKey eq '😀 שלום'", open_entity),
    "a new entity": Look("entity", "/tables/Weather/new"),
    "a conflict": Look("conflict", f"/tables/Weather/entity?{KEY}", conflict),
    "a copy": Look("copied", "/tables/Weather?top=8", copy),
    "entities to be deleted": Look("delete_entities", "/tables/Weather?top=8", ask_delete),
    "an entity to be deleted": Look(
        "delete_entity", f"/tables/Weather/entity?{KEY}", ask_delete_one
    ),
    "an entity that is gone": Look("done", "/tables/Weather/entity?pk=no&rk=no"),
    "a table to be deleted": Look("delete_table", "/tables/Weather/delete"),
    "export": Look("export", "/tables/Weather/export?filter=temp gt 30.0&order=temp&top=5"),
    "import": Look("import", "/tables/Weather/import"),
    "import of a new table": Look("import", "/import"),
    "the first rows of a file": Look("looked", "/tables/Weather/import", look_at),
    "a problem": Look("problem", "/tables/NoSuchTable"),
    "changes": Look("changes", "/tables/Weather/changes", merge),
    "a version to put back": Look("conflict", "/tables/Weather/changes", ask_back),
    "no changes": Look("changes", "/tables/Empty/changes"),
    "a question": Look("ask", "/tables/Weather?filter=wet", ask_to_forget),
    "indexes": Look("upkeep", "/tables/Weather/indexes", count_expiry),
    "policies": Look("policies", "/tables/Weather/policies"),
    "service": Look("service", "/service"),
    "a signature made": Look("signature_made", "/signature?table=Weather", make),
    "a signature explained": Look("signature_explained", "/signature", explain),
    "signatures": Look("signature", "/signature"),
    "heat": Look("heat", "/tables/Weather/heat"),
    "heat of the account": Look("heat", "/heat"),
    "without the token": Look("refused", "/", leave),
    "without an admin address": Look("no_heat", "/heat"),
}
OF_OTHERS = {"page", "part", "rows", "advised", "table_head", "changes_rows"}
"""Templates that are parts of others; the address of rows alone leads to the page of their table."""


def test_the_table_has_every_template() -> None:
    templates = {path.stem for path in TEMPLATES.glob("*.html")}
    assert {each.template for each in LOOKS.values()} == templates - OF_OTHERS


@pytest.fixture(scope="module")
def explorers(
    filled_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[bool, ExplorerProcess]]:
    """Two explorers: one knows an admin address, the other does not."""
    place = filled_server.connection_string
    settings = tmp_path_factory.mktemp("settings")
    with (
        insight_address() as admin,
        running_explorer(place, "--admin", admin, settings=settings) as beside,
        running_explorer(place, settings=settings) as alone,
    ):
        yield {True: beside, False: alone}


@pytest.fixture
def explorer(
    explorers: dict[bool, ExplorerProcess], request: pytest.FixtureRequest
) -> ExplorerProcess:
    """The explorer of the page under test."""
    return explorers[LOOKS[request.getfixturevalue("look")].template != "no_heat"]


BROKEN = """axe.run({ resultTypes: ["violations"] }).then((found) => found.violations.map((each) =>
  `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 150)).join(" | ")}`))"""
SCROLLS = """[document.documentElement, document.body, document.querySelector("main"),
  ...document.querySelectorAll("#panel.open")]
  .filter((each) => each.scrollWidth > each.clientWidth)
  .map((each) => `${each.tagName} ${each.id}: ${each.scrollWidth} of ${each.clientWidth}: ` +
    [...each.querySelectorAll("*")].filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
      .slice(0, 3).map((one) => one.outerHTML.slice(0, 100)).join(" | "))"""


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.skipif(axe_missing() is not None, reason=str(axe_missing()))
@pytest.mark.parametrize("look", LOOKS)
def test_a_page_can_be_read_by_everyone(
    watched: WatchedPage, filled_server: ServerProcess, look: str
) -> None:
    page = watched.page
    shown = LOOKS[look]
    page.set_viewport_size({"width": WIDE, "height": 800})
    page.emulate_media(color_scheme="light")
    watched.open(shown.path)
    if shown.act is not None:
        shown.act(watched, filled_server)
    name = look.replace(" ", "-")
    watched.keep(f"{name}-light")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    broken = {f"light {WIDE}": page.evaluate(BROKEN)}
    page.set_viewport_size({"width": NARROW, "height": 740})
    page.emulate_media(color_scheme="dark")
    watched.keep(f"{name}-dark")
    broken[f"dark {NARROW}"] = page.evaluate(BROKEN)
    assert not any(broken.values()), broken
    assert page.evaluate(SCROLLS) == []
