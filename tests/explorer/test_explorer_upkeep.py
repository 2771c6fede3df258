"""Indexes and expiry in the explorer: made, dropped, counted, set, suspended and removed, by real requests."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from azure.data.tables import TableServiceClient

from explorer.conftest import entity_of
from explorer.install import missing
from explorer.pages_in_browser import WatchedPage, running_explorer, watched_page
from explorer.test_explorer_bad_input import answering
from explorer.test_explorer_pages import wait_for_text
from explorer.test_page_guard import COOKIE, ORIGIN, send
from server_process import ServerProcess, start_server
from tablestone.explorer.account import ExploredAccount, ExplorerSettings
from tablestone.explorer.page_templates import ASSETS
from tablestone.testing import TableStorage
from tablestone.tools.client import OwnAnswer, TableEndpoint
from tablestone.tools.connection import parse_connection_string

PAGE = "/tables/Sessions/indexes"
TAB = 'href="/tables/Sessions/indexes"'
TYPED = "document.querySelector('[data-control=\"upkeep.property\"]')?.value === 'note'"
IN_SIGHT = """(button) => {
  const end = button.getBoundingClientRect().right;
  return end <= innerWidth && end <= button.closest(".scrolls").getBoundingClientRect().right;
}"""
POSTS = {"cookie": COOKIE, "origin": ORIGIN}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("data")
    server = start_server(data, "--workers", "1", "--remote-indexes")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = start_server(tmp_path_factory.mktemp("closed"), "--workers", "1")
    fill(server.connection_string)
    yield server
    server.stop()


def fill(connection_string: str) -> None:
    with TableServiceClient.from_connection_string(connection_string) as service:
        table = service.create_table("Sessions")
        for number in range(20):
            entity = {"PartitionKey": f"p{number % 3}", "RowKey": f"{number}", "user": f"u{number}"}
            if number % 2:
                entity["expires"] = "x" if number == 1 else 1_000_000_000 + number  # type: ignore[assignment]
            table.create_entity(entity)


def ask(server: ServerProcess, path: str, data: dict[str, str] | None = None, **more: Any) -> Any:
    connection = parse_connection_string(server.connection_string)
    method = "GET" if data is None else "POST"
    return send(method, path, POSTS, connection=connection, data=data, **more)


def text_of(answer: Any) -> str:
    content = re.sub("<[^>]*>", " ", answer.text.partition("<main")[2])
    return " ".join(html.unescape(content).split())


def test_the_server_says_that_the_first_index_is_not_allowed(closed: ServerProcess) -> None:
    answer = ask(closed, PAGE)
    assert "cannot be undone" in answer.text
    assert "<code>tablestone index create --help</code> says how" in answer.text
    command = "tablestone index create Sessions user --account devstoreaccount1 --data /d"
    account: Any = {"storage": " --data /d"}
    ask(closed, "/tables/Sessions", **account)
    assert (
        f"<code>{command.replace('user', 'PROPERTY')}</code>" in ask(closed, PAGE, **account).text
    )
    assert "upkeep.create" not in answer.text
    refused = ask(closed, f"{PAGE}/create", {"property": "user"})
    assert refused.status_code == 400
    assert 'id="index-problem"' in refused.text


BAD: list[tuple[str, dict[str, str], str]] = [
    # the form, the fields, the sentence
    ("expiry/count", {"by": "age", "age": "soon", "unit": "h"}, "a whole number"),
    ("expiry/count", {"by": "age", "age": "0", "unit": "h"}, "a whole number from 1"),
    ("expiry/count", {"by": "age", "age": "9999999", "unit": "d"}, "at most 7,800 years"),
    ("expiry/count", {"by": "age", "age": "9" * 19, "unit": "s"}, "at most 7,800 years"),
    ("expiry/count", {"by": "property", "name": ""}, "Type the name of the property"),
    ("expiry/count", {"by": "property", "name": "RowKey"}, "a key is none"),
    ("expiry/count", {"resume": "1"}, "policy"),
    ("expiry", {"what": "suspend"}, "policy"),
    ("expiry", {"what": "remove"}, "policy"),
    ("expiry", {"what": "", "count": "none", "token": "x"}, "count"),
    ("indexes/drop", {"property": "nosuch"}, "nosuch"),
    ("indexes/create", {"property": " "}, "Type the name of the property"),
]


@pytest.mark.parametrize(("form", "fields", "sentence"), BAD)
def test_bad_input_gets_a_sentence_and_stays(
    closed: ServerProcess, form: str, fields: dict[str, str], sentence: str
) -> None:
    answer = ask(closed, f"/tables/Sessions/{form}", fields)
    assert answer.status_code == 400
    assert "data-posted" in answer.text
    problem = re.search(
        'class="problem" role="alert" id="(index|expiry)-problem" data-field="([^"]+)">([^<]+)<',
        answer.text,
    )
    assert problem is not None
    assert problem[1] == ("index" if form.startswith("indexes") else "expiry")
    named = {"age": "age", "name": "name"}.get(problem[2])
    assert (named in fields) == (named is not None)
    assert sentence in html.unescape(problem[3])
    for name in ("age", "name"):
        if fields.get(name):
            assert f'value="{fields[name]}"' in answer.text


def test_the_tab_is_hidden_where_there_is_nothing(closed: ServerProcess) -> None:
    """A signature may not ask; and the page says so."""
    assert TAB in ask(closed, "/tables/Sessions").text
    signed = parse_connection_string(
        f"TableEndpoint={closed.endpoint};SharedAccessSignature=sv=2019-02-02&sig=x"
    )
    answer = send("GET", PAGE, POSTS, connection=signed)
    assert answer.status_code == 400
    assert TAB not in answer.text
    assert "neither indexes nor expiry" in answer.text


def test_the_tab_says_that_the_connection_is_not_secure() -> None:
    """The tab stays, with the server's sentence; and the server is not asked again for each page."""
    sentence = b"This request comes over plain HTTP from another machine."
    asked = []

    def answer(path: str) -> tuple[int, str, bytes]:
        if "comp=" not in path:
            return 200, "application/json", b'{"value":[]}'
        asked.append(path)
        error = b'{"odata.error":{"code":"SecureConnectionRequired","message":{"lang":"en-US","value":"%b"}}}'
        return 403, "application/json", error % sentence

    with answering(answer) as place:
        account = ExploredAccount(ExplorerSettings(parse_connection_string(place)))
        assert [account.own_parts("Sessions") for _ in range(2)] != [None, None]
        assert len(asked) == 1
        page = send("GET", PAGE, POSTS, connection=parse_connection_string(place))
    assert page.status_code == 403
    assert sentence.decode() in text_of(page)
    assert TAB in page.text
    assert "<form" not in page.text.partition('class="columns"')[2]


def test_read_only_shows_no_form(closed: ServerProcess) -> None:
    page = ask(closed, PAGE, read_only=True).text
    assert "Entities do not expire." in page
    assert "<form" not in page.partition("<main")[2]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"by": "age", "age": "24", "unit": "h"}, "1d after their Timestamp"),
        ({"by": "property", "name": "ends"}, "at the time in ends"),
    ],
)
def test_two_people_at_once(closed: ServerProcess, fields: dict[str, str], words: str) -> None:
    """What one has counted, the other changes first: nothing is set, and the page says so and keeps the fields."""
    shared = f"Shared{fields['by']}"
    with TableServiceClient.from_connection_string(closed.connection_string) as service:
        service.create_table(shared).create_entity({"PartitionKey": "p", "RowKey": "r"})
    answer = ask(closed, f"/tables/{shared}/expiry/count", fields)
    path = answer.headers["location"]
    given = {"count": path.rpartition("count=")[2]}
    while 'name="token" value="' not in (page := ask(closed, path).text):
        sleep(0.05)
    form = page.partition('"upkeep.set-form"')[2].partition("</form>")[0]
    given |= dict(re.findall('type="hidden" name="([^"]*)" value="([^"]*)"', form))
    assert ask(closed, f"/tables/{shared}/expiry", given).status_code == 303
    refused = ask(closed, f"/tables/{shared}/expiry", given)
    assert refused.status_code == 400
    assert "ount again" in refused.text.partition('id="expiry-problem"')[2].partition("</p>")[0]
    assert words in refused.text
    if fields["by"] == "age":
        assert 'name="age" value="24"' in refused.text
        assert '<option value="h" selected>' in refused.text
    else:
        assert 'value="property" checked' in refused.text
        assert 'name="name" value="ends"' in refused.text


@pytest.mark.parametrize(
    ("removed", "words"),
    [
        (0, "All of these are removed for good within the next hour. 2"),
        (4, "the next hour; 4 of them within minutes, if the server has run for an hour. 2"),
        (9, "the next hour; all of them within minutes, if the server has run for an hour. 2"),
    ],
)
def test_a_count_says_what_is_removed_when(
    closed: ServerProcess, monkeypatch: pytest.MonkeyPatch, removed: int, words: str
) -> None:
    """None of them at once, and all of them later."""
    real = TableEndpoint.own_form
    numbers = {"entities": 20, "hidden": 9, "removed": removed, "never": 2, "far": 0, "sample": []}
    told = {
        "state": "counted",
        "policy": {"after": 60},
        "token": "t",
        "until": "2026-11-29T03:40:00Z",
    }

    def own_form(endpoint: TableEndpoint, *given: Any, **more: Any) -> OwnAnswer:
        return (
            OwnAnswer(told | numbers, None) if "count" in more else real(endpoint, *given, **more)
        )

    monkeypatch.setattr(TableEndpoint, "own_form", own_form)
    said = text_of(ask(closed, f"{PAGE}?count=1"))
    assert "of 20 entities, 9 are hidden at once." in said
    assert words in said
    assert "9 expire later." in said
    assert "Nothing is set yet." in said
    set_now = OwnAnswer({"after": 60, "suspended": False}, None)
    monkeypatch.setattr(
        TableEndpoint,
        "own_form",
        lambda endpoint, method, table, comp, **more: (
            set_now
            if comp == "expiry" and not more
            else own_form(endpoint, method, table, comp, **more)
        ),
    )
    said = text_of(ask(closed, f"{PAGE}?count=1"))
    assert "This is what is set." in said, "the browser's Back, after it was set"
    assert "Nothing is set yet." not in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nosuch", "No entity that was read has nosuch : a typing error?"),
        ("user", "user is Edm.String in the entities that were read, not Edm.DateTime."),
        ("expires", ""),
    ],
)
def test_a_property_without_times_is_said(closed: ServerProcess, name: str, said: str) -> None:
    """The field with a text is the one that counts, also if the other option is selected."""
    answer = ask(closed, "/tables/Sessions/expiry/count", {"by": "age", "age": "", "name": name})
    assert answer.status_code == 303
    while "have no time and never expire" not in (
        text := text_of(ask(closed, answer.headers["location"]))
    ):
        sleep(0.05)
    assert f"at the time in {name}" in text
    assert said in text
    assert ("that were read" in text or "that was read" in text) == bool(said)


def test_an_index_that_no_entity_has_is_made_after_a_question(tmp_path: Path) -> None:
    server = start_server(tmp_path, "--workers", "1", "--remote-indexes")
    fill(server.connection_string)
    for name, asks in (("usr", True), ("user", False), ("RowKey", False)):
        given = {"property": name, "accepted": "1"}
        answer = ask(server, f"{PAGE}/create", given)
        assert answer.status_code == 303
        path = answer.headers["location"]
        assert ("/create?" in path) == asks
        if asks:
            assert f"No entity of Sessions that was read has '{name}'" in text_of(ask(server, path))
            assert "The table has no index." in ask(server, PAGE).text
            assert ask(server, f"{PAGE}/create", {**given, "agreed": "1"}).status_code == 303
        assert f"<bdi>{name}</bdi>" in ask(server, PAGE).text
    for name in ("bad name!", "n" * 300):
        answer = ask(server, f"{PAGE}/create", {"property": name, "accepted": "1"})
        assert answer.status_code == 400
        assert f"'{name}' cannot be the name of a property." in text_of(answer)
    server.stop()


def test_a_wait_of_a_few_seconds_alarms_nobody(
    closed: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = TableEndpoint.own_form
    waiting = [{"property": "user", "state": "building", "withinPartition": False, "waits": True}]
    monkeypatch.setattr(
        TableEndpoint,
        "own_form",
        lambda *given, **more: (
            OwnAnswer({"indexes": waiting}, "ready")
            if given[-1] == "indexes"
            else real(*given, **more)
        ),
    )
    page = ask(closed, PAGE).text
    assert 'goes on by itself.<span class="late"> If this stays' in page
    css = (ASSETS / "explorer.css").read_text(encoding="utf-8")
    assert ".late { animation: late 1s 30s backwards; }" in css
    assert "@keyframes late { from { visibility: hidden; } }" in css


def test_a_table_of_the_test_kit() -> None:
    with TableStorage() as storage:
        storage.seed({"Sessions": [{"PartitionKey": "p", "RowKey": "r", "user": "u"}]})
        connection = parse_connection_string(storage.connection_string)
        answer = send("GET", PAGE, POSTS, connection=connection)
        assert "The table has no index." in answer.text


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"keys": 2, "stored": " --data /d"}, "account show devstoreaccount1 --keys --data /d"),
        ({"keys": 1}, "whose key everybody knows"),
        ({}, "does not know how many keys"),
    ],
)
def test_the_page_says_where_the_keys_are(settings: dict[str, Any], sentence: str) -> None:
    with TableStorage() as storage:
        connection = parse_connection_string(storage.connection_string)
        text = send("GET", "/service", {"cookie": COOKIE}, connection=connection, **settings).text
    assert sentence in text
    assert ("The account has" in text) == ("keys" in settings)
    assert str(connection.secret) not in text


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_an_index_and_an_expiry_without_the_documents(
    browser: Any, server: ServerProcess, tmp_path: Path
) -> None:
    """Each is made with what the page says, shown while the server works, and undone."""
    fill(server.connection_string)
    with (
        running_explorer(server.connection_string, settings=tmp_path) as process,
        watched_page(browser, process) as watched,
    ):
        page = watched.page
        watched.open("/tables/Sessions")
        page.get_by_label("Of this table").get_by_role("link", name="Indexes").click()
        page.get_by_label("Property", exact=True).fill("user")
        page.get_by_role("button", name="Make the index").click()
        wait_for_text(watched, "#index-problem", "confirm that the change")
        beside = "document.querySelector('[name=accepted]').closest('label').nextElementSibling"
        watched.wait_until(f"{beside}.id === 'index-problem'")
        assert page.get_by_label("Property", exact=True).input_value() == "user"
        assert page.url.endswith("/indexes"), "a reload sends nothing again"
        page.locator("[name=accepted]").check()
        page.get_by_role("button", name="Make the index").click()
        wait_for_text(watched, "#index-list tr", "ready")
        page.get_by_label("Property", exact=True).fill("usr")
        page.locator("[name=within]").check()
        page.get_by_role("button", name="Make the index").click()
        wait_for_text(watched, "main", "No entity of Sessions that was read has 'usr'")
        page.get_by_role("button", name="Make the index").click()
        wait_for_text(watched, "#index-list", "no entity has this property")
        page.get_by_label("Property", exact=True).fill("user")
        page.get_by_role("button", name="Make the index").click()
        wait_for_text(watched, "#index-problem", "user")
        for width in (400, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.get_by_label("Drop the index on usr").evaluate(IN_SIGHT), width
        page.get_by_label("Property", exact=True).fill("note")
        for agrees in (False, True):
            page.get_by_role("button", name="Drop the index on usr").click()
            wait_for_text(watched, "h1", "Drop the index on usr")
            if agrees:
                page.get_by_role("button", name="Drop the index").click()
            else:
                page.get_by_role("link", name="Cancel").click()
                page.wait_for_selector("#index-list")
                assert "usr" in page.inner_text("#index-list")
            watched.wait_until(TYPED)
        watched.wait_for(lambda: "usr" not in page.inner_text("#index-list"))
        page.go_back()
        assert page.inner_text("h1") == "Drop the index on usr", "and so does the browser's Back"
        page.go_forward()
        page.get_by_label("Property", exact=True).fill("note")

        expire(watched, "property", "expires")
        wait_for_text(watched, "#expiry-state", "of 20 entities, 9 are hidden at once")
        wait_for_text(watched, "#expiry-state", "all of them within minutes")
        watched.wait_until(TYPED)
        assert page.locator("[data-control='upkeep.name']").input_value() == "expires"
        assert page.locator("[data-control='upkeep.by-property']").is_checked()
        wait_for_text(watched, "#expiry-state", "11 have no time and never expire")
        wait_for_text(watched, "#expiry-state", "Nothing is set yet")
        assert entity_of(server, "Sessions", "p0", "3")["user"] == "u3"
        page.get_by_role("button", name="Set it, and hide 9").click()
        wait_for_text(watched, "#expiry-state", "Entities expire at the time in expires.")
        page.get_by_role("button", name="Suspend").click()
        wait_for_text(watched, "#expiry-state", "(suspended)")
        page.get_by_role("button", name="Resume…").click()
        page.get_by_role("button", name="Set it, and hide 9").click()
        watched.wait_for(lambda: "(suspended)" not in page.inner_text("#expiry-state"))
        page.get_by_role("button", name="Let nothing expire…").click()
        page.get_by_role("button", name="Remove the policy").click()
        wait_for_text(watched, "#expiry-state", "Entities do not expire.")
        expire(watched, "age", "7")
        wait_for_text(watched, "#expiry-state", "7d after their Timestamp")
        page.get_by_role("button", name="Set it", exact=True).click()
        wait_for_text(watched, "#expiry-state > p", "Entities expire 7d after their Timestamp.")


def expire(watched: WatchedPage, by: str, value: str) -> None:
    page = watched.page
    for each in ("property", "age", "property" if by == "age" else "age"):
        page.locator(f"[name=by][value={each}]").check()
    page.locator("[name=name]" if by == "property" else "[name=age]").fill(value)
    assert page.locator(f"[name=by][value={by}]").is_checked(), "what is typed selects its option"
    if by == "age":
        page.locator("[name=unit]").select_option("d")
    page.get_by_role("button", name="Count first").click()
