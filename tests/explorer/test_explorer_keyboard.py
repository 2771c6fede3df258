"""Every form of the explorer by keyboard alone: the focus reaches it, is visible at each stop, and submits it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.data.tables import UpdateMode

from explorer import driven_controls
from explorer.conftest import entity_of
from explorer.driven_controls import TEMPLATES, controls_of
from explorer.insight_stand_in import insight_address
from explorer.install import missing
from explorer.pages_in_browser import ExplorerProcess, WatchedPage, running_explorer, watched_page
from explorer.test_explorer_pages import FIRST, table
from server_process import ServerProcess, start_server
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import parse_connection_string

STOPS_MAX = 200
"""How often the tab key may be pressed before the element has the focus."""
SEEN = """(wanted) => {
  const focused = document.activeElement;
  if (focused === document.body) return "nothing";
  const place = focused.getBoundingClientRect();
  const style = getComputedStyle(focused);
  const isOutlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  const isInside = place.bottom > 0 && place.right > 0 && place.top < innerHeight && place.left < innerWidth;
  if (!isOutlined || !isInside) return `unseen: ${focused.outerHTML.slice(0, 200)}`;
  return focused.matches(wanted) ? "there" : "elsewhere";
}"""

READING = f"/tables/Weather?filter=PartitionKey eq '{FIRST[0]}' and RowKey eq '{FIRST[1]}'"
ENTITY = f"/tables/Weather/entity?pk={FIRST[0]}&rk={FIRST[1]}"


class Tab(NamedTuple):
    """Press Tab, or with `back` Shift+Tab, until this element has the focus."""

    to: str
    back: bool = False


class Type(NamedTuple):
    """Type a text into the focused element, over what is there."""

    text: str


class Press(NamedTuple):
    """Press some keys, one after the other."""

    keys: str


class Wait(NamedTuple):
    """Wait for an element that contains this text."""

    selector: str
    text: str = ""


Step = Tab | Type | Press | Wait
IN_THE_GRID = (Tab("#grid"), Press("ArrowDown"))

COUNTED: list[Step] = [
    Tab("[name=age]"), Type("3650"), Tab("[data-control='upkeep.count']"), Press("Enter"),
    Wait("#expiry-state", "Nothing is set yet"),
]  # fmt: skip
SET: list[Step] = [
    *COUNTED, Tab("[data-control='upkeep.set']", back=True), Press("Enter"),
    Wait("#expiry-state > p", "Entities expire 3650d after their Timestamp."),
]  # fmt: skip
DROPPING: list[Step] = [
    Tab("[aria-label='Drop the index on html']"), Press("Enter"), Wait("h1", "Drop the index on html"),
]  # fmt: skip

FORMS: dict[str, tuple[str, list[Step]]] = {
    # the form, the page to start from, the steps
    "page.find-form": ("/", [Press("/"), Type("od"), Press("Enter"), Wait(".meta", "1 table with")]),
    "tables.create-form": ("/", [
        Tab("[data-control='tables.new']"), Press("Enter"), Tab("[name=name]"), Type("ByKeys"), Press("Enter"),
        Wait("main", "The table is empty."),
    ]),
    "tables.sample-form": ("/", [
        Tab("[data-control='tables.sample']"), Press("Enter"), Wait(".tables", "Flights"),
    ]),
    "delete-table.form": ("/tables/Gone", [
        Tab("[data-control='head.more']"), Press("Enter"), Tab("[data-control='head.delete']"), Press("Enter"),
        Wait("h1", "Delete the table"),
        Tab("[name=typed]"), Type("Gone"), Press("Enter"), Wait("h1", "Tables"),
    ]),
    "table.query": ("/tables/Weather", [
        Press("f"), Type("humid gt 88"), Press("Enter"), Wait(".badge", "table scan"),
    ]),
    "table.build-form": ("/tables/Weather", [
        Tab("[data-control='table.build']"), Press("Enter"), Tab("[name=property]"), Type("humid"),
        Tab("[name=comparison]"), Press("ArrowDown"), Tab("[name=value]"), Type("30"),
        Tab(".tools [name=kind]"), Press("i"), Tab("[data-control='table.add']"), Press("Enter"),
        Wait(".badge", "table scan"),
    ]),
    "table.save-form": ("/tables/Weather?filter=wet", [
        Tab("[data-control='table.saved']"), Press("Enter"), Tab("[data-control='table.save-name']"),
        Type("by keys"), Press("Enter"), Wait("summary", "Saved queries (1)"),
    ]),
    "table.forget-form": ("/tables/Weather?filter=wet", [
        Tab("[data-control='table.saved']"), Press("Enter"), Tab("[data-control='table.save-name']"),
        Type("soon forgotten"), Press("Enter"), Wait("[aria-label='Forget soon forgotten']"),
        Tab("[data-control='table.saved']"), Press("Enter"),
        Tab("[aria-label='Forget soon forgotten']"), Press("Enter"), Wait("h1", "Forget soon forgotten"),
        Tab("[data-control='ask.do']"), Press("Enter"), Wait("summary", "Saved queries"),
    ]),
    "table.selection": (READING, [
        *IN_THE_GRID, Press("Space"), Wait("#selected", "1 selected"),
        Tab("[data-control='table.copy']"), Press("Enter"),
        Tab("[data-control='table.copy-json']"), Press("Enter"), Wait("#panel h2", "as JSON"),
        Tab("#panel .copy"), Press("Enter"), Press("Escape"), Wait("#panel:not(.open)"),
    ]),
    "delete-entities.form": ("/tables/Many", [
        *IN_THE_GRID, Press("Space"), Wait("#selected", "1 selected"),
        Tab("[data-control='table.delete']"), Press("Enter"), Wait("#panel h2", "Delete 1 entity"),
        Tab("[data-control='delete-entities.delete']"), Press("Enter"), Wait("#panel", "1 entity is deleted."),
    ]),
    "delete-entity.form": ("/tables/Many", [
        *IN_THE_GRID, Press("Enter"), Wait("#panel.open form"), Tab("[data-control='entity.delete']"),
        Press("Enter"), Wait("#panel h2", "Delete this entity"),
        Tab("[data-control='delete-entity.delete']"), Press("Enter"), Wait("#panel", "1 entity is deleted."),
    ]),
    "entity.form": (READING, [
        *IN_THE_GRID, Press("Enter"), Wait("#panel.open form"), Tab("[aria-label='Value of humid']"),
        Type("41"), Tab("[data-control='entity.save']"), Press("Enter"), Wait(".done", "The entity is saved."),
    ]),
    "entity.copy-form": (READING, [
        *IN_THE_GRID, Press("Enter"), Wait("#panel.open form"), Tab("[data-control='entity.copy']"),
        Press("Enter"), Tab("[data-control='entity.copy-json']"),
        Press("Enter"), Wait("#copied h2", "as JSON"),
    ]),
    "changes.form": ("/tables/Weather/changes", [
        Tab("[name=pk]"), Type("JFK"), Tab("[name=rk]"), Type("2013-01-01T05:00"), Press("Enter"),
        Wait(".note", "1 change found"),
    ]),
    # No entity of this table has the property, so the page asks first.
    "upkeep.index-form": ("/tables/Odd/indexes", [
        Tab("[data-control='upkeep.property']"), Type("byKeys"), Press("Enter"),
        Wait("h1", "Make an index on 'byKeys'"), Tab("[data-control='ask.do']"), Press("Enter"),
        Wait("#index-list tr", "ready"),
    ]),
    "upkeep.drop-form": ("/tables/Odd/indexes", DROPPING),
    "ask.form": ("/tables/Many/indexes", [
        *DROPPING, Tab("[data-control='ask.do']"), Press("Enter"), Wait("#index-list", "no index"),
    ]),
    "upkeep.count-form": ("/tables/Empty/indexes", [
        Tab("[name=age]"), Type("soon"), Press("Enter"), Wait("#expiry-problem", "a whole number"), *COUNTED,
    ]),
    "upkeep.set-form": ("/tables/Empty/indexes", SET),
    # Another table than that of upkeep.set-form: there is nothing to set when a count is of what is set.
    "upkeep.expiry-form": ("/tables/Odd/indexes", [
        *SET, Tab("[data-control='upkeep.suspend']"), Press("Enter"), Wait("#expiry-state", "(suspended)"),
    ]),
    "conflict.form": (ENTITY, [
        Wait("#entity-form"), Tab("[aria-label='Value of humid']"), Type("42"),
        Tab("[data-control='entity.save']"), Press("Enter"), Wait(".both"),
        Tab("[data-control='conflict.write']"), Press("Enter"), Wait(".done", "The entity is saved."),
    ]),
    "export.form": ("/tables/Empty", [
        Tab("[data-control='head.export']"), Press("Enter"), Wait("#panel.open form"),
        Tab("[data-control='export.kind']"), Press("c"), Tab("[data-control='export.download']"), Press("Enter"),
    ]),
    "import.form": ("/tables/Empty", [
        Tab("[data-control='head.import']"), Press("Enter"), Wait("#panel.open form"),
        Tab("[data-control='import.file']"), Press("Enter"), Wait("#looked td", "keys"),
        Tab("[data-control='import.import']"), Press("Enter"), Wait("#panel [role=status]", "1 entity stored"),
    ]),
    "policies.form": ("/tables/Empty/policies", [
        Tab("[name=id]"), Type("keys"), Tab("[name=may]"), Press("Space"), Press("Enter"),
        Wait(".done", "The policies are saved."),
    ]),
    "service.form": ("/service", [
        Tab("[name=log_read]"), Press("Space"), Tab("[data-control='service.save']"), Press("Enter"),
        Wait(".done", "The properties are saved."),
    ]),
    "signature.form": ("/signature?table=Weather", [
        Tab("[name=may_a]"), Press("Space"), Tab("[data-control='signature.make']"), Press("Enter"),
        Wait("#made h2", "The signature"),
    ]),
    "signature.explain-form": ("/signature", [
        Tab("[name=given]"), Type("sv=2019-02-02&tn=Weather&sp=r&sig=x"),
        Tab("[data-control='signature.explain']"), Press("Enter"), Wait("#explained", "It permits: read."),
    ]),
    "heat.form": ("/heat", [
        Tab("[name=period]"), Press("ArrowDown"), Tab("[data-control='heat.go']"), Press("Enter"),
        Wait("#hot", "since the server started"),
    ]),
    "refused.form": ("/", [
        Tab("[name=token]"), Type("TOKEN"), Press("Enter"), Wait("h1", "Tables"),
    ]),
}  # fmt: skip


def test_the_table_has_every_form() -> None:
    texts = [path.read_text(encoding="utf-8") for path in TEMPLATES.glob("*.html")]
    forms = {
        name
        for text in texts
        for form in text.split("<form ")[1:]
        for name in controls_of(f"<form {form.partition('>')[0]}>")
    }
    assert set(FORMS) == forms


@pytest.fixture(scope="module")
def explorer(
    filled_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExplorerProcess]:
    """An explorer that knows the admin address of a server with two more tables."""
    place = filled_server.connection_string
    for name in ("Gone", "Many"):
        table(filled_server, name).create_table()
    with TableEndpoint(parse_connection_string(place)) as endpoint:
        for name in ("Odd", "Many"):
            endpoint.own_form("PUT", name, "indexes", {"property": "html"})
            while [each.state for each in endpoint.indexes(name) or ()] != ["ready"]:
                time.sleep(0.05)  # while an index is built, the page changes by itself
    for key in "12":
        table(filled_server, "Many").create_entity({"PartitionKey": "a", "RowKey": key})
    with (
        insight_address() as admin,
        running_explorer(
            place, "--admin", admin, settings=tmp_path_factory.mktemp("settings")
        ) as process,
    ):
        yield process


class Keyboard:
    """The keys on a page. At each stop of Tab, the focused element must be inside the window and outlined."""

    def __init__(self, watched: WatchedPage) -> None:
        self._watched = watched
        self._page = watched.page

    def do(self, step: Step) -> None:
        """Do one step of a case."""
        match step:
            case Tab(selector, back):
                self._reach(selector, "Shift+Tab" if back else "Tab")
            case Type(text):
                self._page.keyboard.press("ControlOrMeta+a")
                self._page.keyboard.type(text)
                # What takes the focus meanwhile would get the rest.
                assert self._page.evaluate("document.activeElement.value") == text
            case Press(keys):
                self._page.keyboard.press(keys)
            case Wait(selector, text):
                found = self._page.locator(selector).filter(has_text=text).first
                found.wait_for(state="attached")
                # Text may be there before the script of the page that Enter led to.
                self._watched.wait_until("document.readyState === 'complete'")

    def _reach(self, selector: str, key: str) -> None:
        # What opens takes the focus, so the element may have it already.
        for number in range(STOPS_MAX):
            if number or not self._page.locator(f"{selector}:focus").count():
                self._page.keyboard.press(key)
            seen = self._page.evaluate(SEEN, selector)
            assert not seen.startswith("unseen"), seen
            if seen == "there":
                return
        raise AssertionError(f"{selector} is not reached")


@pytest.fixture
def opened(
    browser: Any, watched: WatchedPage, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[WatchedPage]:
    """The page under test; that of an account without tables for the form that only such an account has."""
    if request.getfixturevalue("form") != "tables.sample-form":
        yield watched
        return
    server = start_server(tmp_path / "none", "--engine", "memory")
    try:
        with (
            running_explorer(server.connection_string, settings=tmp_path) as process,
            watched_page(browser, process) as empty,
        ):
            yield empty
    finally:
        server.stop()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_form_by_the_keyboard_alone(
    opened: WatchedPage, filled_server: ServerProcess, tmp_path: Path, form: str
) -> None:
    page = opened.page
    path, steps = FORMS[form]
    file = tmp_path / "file.jsonl"
    file.write_text('{"PartitionKey":"by","RowKey":"keys"}\n', encoding="utf-8")
    page.on("filechooser", lambda chooser: chooser.set_files(file))
    downloads: list[Any] = []
    page.on("download", lambda download: downloads.append(download))  # noqa: PLW0108 - no built-in function
    if form == "refused.form":
        page.context.clear_cookies()
        token = opened.explorer.address.partition("token=")[2]
        steps = [Type(token) if step == Type("TOKEN") else step for step in steps]
    opened.open(path)
    if form == "conflict.form":
        with table(filled_server, "Weather") as client:
            changed = {"PartitionKey": FIRST[0], "RowKey": FIRST[1], "humid": 77}
            client.update_entity(changed, UpdateMode.MERGE)
    keyboard = Keyboard(opened)
    for step in steps:
        keyboard.do(step)
    if form == "export.form":
        opened.wait_for(lambda: bool(downloads))
        assert downloads[0].suggested_filename == "Empty.csv"
    if form == "conflict.form":
        assert entity_of(filled_server, "Weather", *FIRST)["humid"] == 42
    opened.wait_for(lambda: form in driven_controls.DRIVEN)


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_card_leaves_the_focus_to_whoever_was_quicker(watched: WatchedPage) -> None:
    """The browser tells later that a card is open: the next key may be before that."""
    page, keyboard = watched.page, Keyboard(watched)
    watched.open("/tables/Weather?filter=wet")
    for step in (
        Tab("[data-control='table.saved']"),
        Press("Enter"),
        Wait(".drop[open] .card :focus"),
    ):
        keyboard.do(step)
    keyboard.do(Tab("[data-control='table.save']"))
    page.evaluate("() => document.querySelector('.drop[open]').dispatchEvent(new Event('toggle'))")
    assert page.locator("[data-control='table.save']:focus").count() == 1
