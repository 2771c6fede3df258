"""The tab with the last changes of a table."""

import html
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.data.tables import EdmType, EntityProperty, TableServiceClient, UpdateMode

from explorer.install import missing
from explorer.pages_in_browser import WatchedPage, running_explorer, watched_page
from explorer.test_explorer_conflict import ask, form_of, said
from explorer.test_explorer_pages import wait_for_text
from explorer.test_page_guard import COOKIE, send
from server_process import ServerProcess
from tablestone.clock import TICKS_PER_SECOND
from tablestone.explorer import changes
from tablestone.model.edm import format_date_time, parse_date_time
from tablestone.testing import TableStorage
from tablestone.tools.changes import ChangesPage, pages_of_changes
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import parse_connection_string
from tablestone.tools.errors import read_json

NOW = parse_date_time("2026-01-31T12:00:00Z")
TAB = 'href="/tables/Weather/changes"'


@pytest.fixture(params=[True, False], ids=["kept", "not kept"])
def storage(request: pytest.FixtureRequest) -> Iterator[TableStorage]:
    with TableStorage(keep_changes=request.param) as running:
        running.seed({"Weather": [{"PartitionKey": "JFK", "RowKey": "1", "temp": 3.5}]})
        running.seed({"Empty": []})
        yield running


def show(storage: TableStorage, path: str) -> Any:
    connection = parse_connection_string(storage.connection_string)
    return send("GET", path, {"cookie": COOKIE}, connection=connection)


def test_the_tab_is_there_if_changes_are_kept(
    storage: TableStorage, request: pytest.FixtureRequest
) -> None:
    is_kept = "not kept" not in request.node.name
    assert (TAB in show(storage, "/tables/Weather").text) == is_kept
    answer = show(storage, "/tables/Weather/changes")
    assert answer.status_code == (200 if is_kept else 400)
    assert ("All 1 change that" if is_kept else "has no feed of changes") in answer.text
    if is_kept:
        assert "No change is kept: " in show(storage, "/tables/Empty/changes").text


KEY = {"PartitionKey": "a", "RowKey": "b"}


def test_a_new_row_is_as_that_of_a_loaded_page(kept: TableStorage) -> None:
    """The record does not say it in the new line: the page reads again what it has."""
    with table_of(kept) as table:
        table.create_entity({**KEY, "X": 1, "Y": 1})
        page = show(kept, "/tables/Orders/changes").text
        times = re.findall('datetime="([^"]*)"', page)
        path = f"/tables/Orders/changes/wait?since={cursor_of(kept)}"
        table.update_entity({**KEY, "Y": 2, "Z": 9}, UpdateMode.MERGE)
        table.update_entity({**KEY, "Y": 2}, UpdateMode.REPLACE)
        table.create_entity({**KEY, "RowKey": "new", "X": 1})
    alone = rows_of(show(kept, path).text)
    assert alone[2] == f"merge a , b Y 1 → 2 {ADDED} Put this version back…"
    made = ["put a , new X 1", "put a , b X 1 → absent Z 9 → absent 1 unchanged Y 2"]
    made += ["merge a , b Y 1 → 2 Z absent → 9"]
    for parameters in ("", "&pk=a&rk=b"):
        rows = rows_of(show(kept, f"{path}&from={times[-1]}{parameters}").text)
        wanted = made[1:] if parameters else made
        assert rows == [f"{each} Put this version back…" for each in wanted]
        loaded = rows_of(show(kept, f"/tables/Orders/changes?{parameters}").text)
        assert rows == loaded[: len(rows)]
    assert show(kept, f"{path}&from=nothing").status_code == 400


def test_a_deleted_entity_leads_to_its_changes(kept: TableStorage) -> None:
    page = show(kept, "/tables/Orders/entity?pk=a&rk=b")
    assert page.status_code == 404
    assert 'href="/tables/Orders">To the table Orders</a>' in page.text
    assert 'href="/tables/Orders/changes?pk=a&amp;rk=b">Its changes</a>' in page.text
    assert ">Its changes<" not in show(kept, "/tables/NoSuch").text


def cursor_of(storage: TableStorage) -> str:
    page = show(storage, "/tables/Orders/changes").text
    return str(page.partition('data-cursor="')[2].partition('"')[0])


def test_a_change_of_the_type_and_of_the_end_is_seen(kept: TableStorage) -> None:
    long = "word " * 100
    with table_of(kept) as table:
        table.create_entity({**KEY, "T": 5, "long": f"{long}one{long}"})
        after = {"T": EntityProperty(5, EdmType.INT64), "long": f"{long}two{long}"}
        table.update_entity({**KEY, **after}, UpdateMode.MERGE)
    row = rows_of(show(kept, "/tables/Orders/changes").text)[0]
    assert "T 5 Int32 → 5 Int64" in row
    assert re.search(r"long …(?:word )*one[word ]*… → …(?:word )*two[word ]*… ", row)
    assert len(row) < 350


@pytest.fixture
def kept() -> Iterator[TableStorage]:
    """Every kind of change of an entity, and a change of another one."""
    with TableStorage(keep_changes=True) as running:
        running.seed({"Orders": [{**KEY, "total": 1, "note": "first"}]})
        with table_of(running) as table:
            table.update_entity({**KEY, "total": 2}, UpdateMode.MERGE)
            table.update_entity({**KEY, "open": True}, UpdateMode.MERGE)
            table.create_entity({**KEY, "RowKey": "other"})
            table.delete_entity(*KEY.values())
        yield running


def table_of(storage: TableStorage) -> Any:
    return TableServiceClient.from_connection_string(storage.connection_string).get_table_client(
        "Orders"
    )


def rows_of(text: str) -> list[str]:
    """The rows of the list as texts."""
    body = text.partition("<tbody data-cursor")[2].partition("</tbody>")[0]
    return [
        " ".join(html.unescape(re.sub("<[^>]*>", " ", row)).split()[2:])
        for row in body.split("<tr>")[1:]
    ]


MADE = [
    "delete a , b The record holds its key only. none to put back",
    "put a , other Put this version back…",
    "merge a , b open absent → true Put this version back…",
    "merge a , b total 1 → 2 Put this version back…",
    "put a , b note first total 1 Put this version back…",
]


def test_each_change_says_what_it_made(kept: TableStorage) -> None:
    assert rows_of(show(kept, "/tables/Orders/changes").text) == MADE


def test_what_changed_comes_first(kept: TableStorage) -> None:
    """Also of a whole entity, if the version before is among those read; a property may be gone."""
    many = {f"p{number}": number for number in range(6)}
    with table_of(kept) as table:
        table.upsert_entity({**KEY, **many}, UpdateMode.REPLACE)
        table.upsert_entity({**KEY, **many, "p5": 7}, UpdateMode.REPLACE)
        del many["p0"]
        table.upsert_entity({**KEY, **many}, UpdateMode.REPLACE)
        table.upsert_entity({**KEY, "p1": 1, "p5": 6}, UpdateMode.MERGE)
        table.upsert_entity({**KEY, "p1": 1}, UpdateMode.MERGE)
    back = "Put this version back…"
    for path in ("", "?pk=a&rk=b"):
        rows = rows_of(show(kept, f"/tables/Orders/changes{path}").text)
        assert rows[0] == f"merge a , b 1 unchanged p1 1 It changed no property. {back}"
        assert rows[1] == f"merge a , b p5 5 → 6 1 unchanged p1 1 {back}"
        assert rows[2].startswith("put a , b p5 7 → 5 p0 0 → absent 4 unchanged p1 1")
        assert rows[3].startswith("put a , b p5 5 → 7 5 unchanged p0 0")
        assert rows[4].startswith("put a , b p0 0 p1 1 p2 2 p3 3 2 more")
        assert rows[5] == MADE[0]


def test_a_search_compares_over_its_pages(
    kept: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of one entity; of several it remembers those of a page."""
    lines = pages_of_changes

    def one_by_one(*given: Any, **more: Any) -> Iterator[ChangesPage]:
        for each in lines(*given, **more):
            yield from (ChangesPage([line], each.cursor, each.is_last) for line in each.lines)

    monkeypatch.setattr(changes, "pages_of_changes", one_by_one)
    with table_of(kept) as table:
        table.upsert_entity({**KEY, "RowKey": "other", "n": 1}, UpdateMode.REPLACE)
    for path, made in (("?pk=a&rk=other", "n absent → 1"), ("?pk=a", "n 1")):
        rows = rows_of(show(kept, f"/tables/Orders/changes{path}").text)
        assert rows[0] == f"put a , other {made} Put this version back…"


SEARCHES = [
    ("pk=a&rk=b", [0, 2, 3, 4]),
    ("rk=other", [1]),
    ("kind=merge", [2, 3]),
    ("kind=delete&pk=a", [0]),
    ("kind=expired", []),
    ("pk=nobody", []),
    ("kind=<b>", [0, 1, 2, 3, 4]),
]


@pytest.mark.parametrize(("parameters", "found"), SEARCHES)
def test_changes_are_found_by_key_and_kind(
    kept: TableStorage, parameters: str, found: list[int]
) -> None:
    assert rows_of(show(kept, f"/tables/Orders/changes?{parameters}").text) == [
        MADE[each] for each in found
    ]


def test_a_search_reads_a_bounded_number_of_lines(
    kept: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then one goes on from there, with the same key, and a page that is not at the end does not follow."""
    monkeypatch.setattr(changes, "SEARCHED_MAX", 2)
    lines = pages_of_changes

    def by_twos(endpoint: Any, table: str, since: str | None, **more: Any) -> Iterator[ChangesPage]:
        for each in lines(endpoint, table, since, **more):
            for start in range(0, len(each.lines), 2):
                part = each.lines[start : start + 2]
                yield ChangesPage(part, read_json(part[-1])["cursor"], start + 2 >= len(each.lines))

    monkeypatch.setattr(changes, "pages_of_changes", by_twos)
    found, path = [], "/tables/Orders/changes?pk=a&rk=b"
    for turn in range(3):
        page = show(kept, path).text
        found.append(rows_of(page))
        assert ("data-follow" in page) == (turn == 2)
        path = html.unescape(page.partition('"changes.further" href="')[2].partition('"')[0])
    assert found == [[MADE[3], MADE[4]], [MADE[2].replace("open absent → true", ADDED)], [MADE[0]]]


ADDED = "The record does not say which properties it added."


def test_the_page_waits_for_the_next_change(kept: TableStorage) -> None:
    """For those of its key: the cursor moves over the others too."""
    page = show(kept, "/tables/Orders/changes").text
    cursor = page.partition('data-cursor="')[2].partition('"')[0]
    with table_of(kept) as table:
        table.create_entity({**KEY, "RowKey": "third"})
    for rk, count in (("third", 1), ("fourth", 0)):
        part = show(kept, f"/tables/Orders/changes/wait?since={cursor}&rk={rk}").text
        assert len(rows_of(part)) == count
        assert part.partition('data-cursor="')[2].partition('"')[0] not in ("", cursor)
    refused = show(kept, "/tables/Orders/changes/wait?since=nothing")
    assert refused.status_code == 400
    assert "since" in refused.text


def version_path(page: str, row: int) -> str:
    """The address behind "Put this version back" in a row."""
    body = page.partition("<tbody")[2].split("<tr>")[1:][row]
    return html.unescape(body.partition('"changes.back" href="')[2].partition('"')[0])


def test_a_version_that_is_not_kept_is_not_put_back(kept: TableStorage) -> None:
    path = version_path(show(kept, "/tables/Orders/changes").text, 3)
    assert "deleted. “Insert” stores" in show(kept, path).text
    answer = show(kept, path.replace("rk=b", "rk=c"))
    assert answer.status_code == 404
    assert "does not hold this version any more" in answer.text
    connection = parse_connection_string(kept.connection_string)
    refused = send("GET", path, {"cookie": COOKIE}, connection=connection, read_only=True)
    assert refused.status_code == 403
    page = send(
        *("GET", "/tables/Orders/changes", {"cookie": COOKIE}),
        connection=connection,
        read_only=True,
    ).text
    assert "Put this version back" not in page


def test_what_was_put_back_is_said(kept: TableStorage) -> None:
    """Also after a conflict, unless only a part of the version is written; and of an entity that was deleted."""

    def posted(form: dict[str, Any], path: str = "entity") -> str:
        answer = ask(kept, f"/tables/Orders/{path}", data=form)
        return said(answer if answer.status_code != 303 else ask(kept, answer.headers["location"]))

    with table_of(kept) as table:
        version = version_path(show(kept, "/tables/Orders/changes").text, 3)
        assert BACK in posted(form_of(ask(kept, version)) | {"is_new": "1"}, "new")
        for more, is_back in ({}, True), ({"mine": "1"}, False):
            table.upsert_entity({**KEY, "n": 1}, UpdateMode.REPLACE)
            form = form_of(ask(kept, version))
            table.upsert_entity({**KEY, "n": 2}, UpdateMode.REPLACE)
            conflict = ask(kept, "/tables/Orders/entity", data=form)
            assert "has changed since it was shown" in said(conflict)
            assert (BACK in posted(form_of(conflict) | more)) == is_back
        table.upsert_entity({**KEY, "n": 3}, UpdateMode.REPLACE)
        assert BACK in posted(form_of(ask(kept, version)))
        shown = form_of(ask(kept, "/tables/Orders/entity?pk=a&rk=b"))
        assert "The entity is saved." in posted(shown)


BACK = "The earlier version is put back, as a new one."


def test_an_empty_binary_is_put_back(kept: TableStorage) -> None:
    """Beside the stored entity as it is; as `""` in the form that inserts it again."""
    with table_of(kept) as table:
        table.create_entity({**KEY, "bytes": b""})
        table.upsert_entity(KEY, UpdateMode.REPLACE)
        path = version_path(show(kept, "/tables/Orders/changes").text, 1)
        beside = html.unescape(show(kept, path).text)
        assert re.search(r'name="kind" value="Binary".*?name="text"[^>]*>\s*</textarea>', beside)
        table.delete_entity(*KEY.values())
        again = html.unescape(show(kept, path).text)
        assert re.search(
            r'<option selected>Binary</option>.*?name="text"[^>]*>\n""</textarea>', again, re.DOTALL
        )


def test_a_version_that_has_expired_is_put_back(
    kept: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entity is hidden, not deleted; the form says whether it stays hidden."""
    monkeypatch.setattr(TableEndpoint, "service_time", lambda _: kept.clock.ticks())
    path = version_path(show(kept, "/tables/Orders/changes").text, 1)
    kept.set_expiry("Orders", after=timedelta(hours=1))
    kept.clock.advance(hours=2)
    page = html.unescape(show(kept, path).text)
    assert "This entity has expired: those of this table expire 1h after" in page
    assert "deleted" not in page
    assert "hidden at once" not in page
    with table_of(kept) as table:
        table.upsert_entity({**KEY, "RowKey": "other", "ends": 1_000_000_000})
        path = version_path(show(kept, "/tables/Orders/changes").text, 0)
        kept.set_expiry("Orders", property="ends")
        page = html.unescape(show(kept, path).text)
    assert "This entity has expired: those of this table expire at the time in ends" in page
    assert "With these values it is hidden at once" in page


class Feed:
    """An endpoint whose feed has lines at these ages in seconds, the oldest first."""

    def __init__(self, ages: list[float]) -> None:
        self.times = [NOW - int(age * TICKS_PER_SECOND) for age in ages]
        self.asked = 0

    def service_time(self) -> int:
        return NOW

    def changes(self, _table: str, since: str | None, _wait: int) -> tuple[list[bytes], str, bool]:
        self.asked += 1
        start = 0
        if since is not None and since.startswith("at "):
            start = int(since[3:])
        elif since is not None:
            start = sum(time < parse_date_time(since) for time in self.times)
        end = min(start + 1000, len(self.times))
        lines = [
            b'{"n":%d,"time":"%b"}' % (n, format_date_time(self.times[n]).encode())
            for n in range(start, end)
        ]
        return lines, f"at {end}", end < len(self.times)


@pytest.mark.parametrize(
    ("ages", "count"),
    [
        ([float(n) for n in range(1500, 0, -1)], 100),  # two pages are the whole feed
        ([float(n) for n in range(100_000, 0, -1)], 100),  # one each second
        ([86_400 + n / 1000 for n in range(50_000, 0, -1)], 100),  # an import of yesterday
        ([3600.0] * 5000 + [30.0] * 7, 7),  # thousands at one moment, and few since
    ],
)
def test_the_last_changes_are_found(ages: list[float], count: int) -> None:
    feed: Any = Feed(ages)
    last = changes.last_changes(feed, "Weather")
    assert last.has_newest
    assert last.lines[-1].startswith(b'{"n":%d,' % (len(ages) - 1))
    assert len(last.lines) >= count
    assert feed.asked <= 2 * (changes.READS_MAX + 1)


def test_a_table_that_changes_too_fast() -> None:
    feed: Any = Feed([0.0] * 5000)
    last = changes.last_changes(feed, "Weather")
    assert not last.has_newest
    assert len(last.lines) == 2000


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_the_tab_leads_to_the_last_changes(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    page = watched.page
    key = {"PartitionKey": "a b", "RowKey": "<i>é"}
    with TableServiceClient.from_connection_string(filled_server.connection_string) as service:
        table = service.get_table_client("Empty")
        table.create_entity({**key, "temp": 3.5, "note": "<b>fog</b>"})
        table.update_entity({**key, "note": "clear"}, UpdateMode.MERGE)
        table.create_entity({**key, "RowKey": "gone"})
        table.delete_entity(key["PartitionKey"], "gone")
    watched.open("/tables/Empty")
    page.get_by_role("link", name="Changes", exact=True).click()
    rows = page.locator(".changes tbody tr")
    rows.first.wait_for()
    assert [row.split("\t")[1] for row in rows.all_inner_texts()] == [
        "delete",
        "put",
        "merge",
        "put",
    ]
    made = page.locator(".changes .made > div")
    assert made.nth(2).inner_text() == "note <b>fog</b> → clear"
    assert made.nth(3).inner_text() == "temp 3.5\nnote <b>fog</b>"
    assert "The record holds its key only." in rows.nth(0).inner_text()
    assert "none to put back" in rows.nth(0).inner_text()
    assert page.get_by_text("All 4 changes").is_visible()
    rows.nth(2).get_by_role("link").first.click()
    page.locator("#entity-form").wait_for()
    assert page.locator("#entity-form .rk").inner_text() == key["RowKey"]


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_an_old_version_is_found_and_put_back(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    """From the entity to its history, to an old version, and back to it: also after the entity was deleted."""
    page = watched.page
    key = {"PartitionKey": "back", "RowKey": "1"}
    many = {f"p{number}": number for number in range(6)}
    with TableServiceClient.from_connection_string(filled_server.connection_string) as service:
        table = service.get_table_client("Empty")
        table.create_entity({**key, "temp": 3.5, **many})
        table.update_entity({**key, "temp": 4.5}, UpdateMode.REPLACE)
        watched.open(f"/tables/Empty/entity?pk={key['PartitionKey']}&rk=1")
        page.get_by_role("link", name="its changes").click()
        rows = page.locator(".changes tbody tr")
        rows.nth(1).wait_for()
        rows.nth(1).get_by_text("3 more").click()
        rows.nth(1).get_by_role("link", name="Put this version back").click()
        page.wait_for_selector(".both")
        table.update_entity({**key, "temp": 5.5}, UpdateMode.REPLACE)
        page.get_by_role("button", name="Put this version back").click()
        wait_for_text(watched, "#panel .problem", "The entity has changed since it was shown")
        page.get_by_role("button", name="Write yours over it").click()
        wait_for_text(watched, "#panel .done", "The earlier version is put back")
        assert dict(table.get_entity("back", "1")) == {**key, "temp": 3.5, **many}
        rows.nth(3).wait_for()
        table.delete_entity("back", "1")
        wait_for_text(watched, ".changes tbody tr", "delete")
        rows.last.get_by_role("link", name="Put this version back").click()
        page.get_by_role("button", name="Insert").click()
        wait_for_text(watched, "#panel .done", "The earlier version is put back")
        assert dict(table.get_entity("back", "1")) == {**key, "temp": 3.5, **many}


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_new_changes_appear_unless_the_page_is_paused(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    page = watched.page
    with TableServiceClient.from_connection_string(filled_server.connection_string) as service:
        table = service.get_table_client("Empty")
        table.create_entity({"PartitionKey": "live", "RowKey": "0"})
        watched.open("/tables/Empty/changes")
        page.get_by_label("PartitionKey", exact=True).fill("live")
        page.get_by_label("RowKey", exact=True).fill("0")
        page.get_by_label("RowKey", exact=True).fill("")
        page.locator("[name=kind]").select_option("put")
        page.get_by_role("button", name="Find").click()
        page.wait_for_url("**pk=live**")
        rows = page.locator(".changes tbody tr")
        assert rows.count() == 1
        table.create_entity({"PartitionKey": "dead", "RowKey": "1"})
        table.create_entity({"PartitionKey": "live", "RowKey": "1"})
        rows.nth(1).wait_for()
        page.get_by_role("button", name="Pause").click()
        table.create_entity({"PartitionKey": "live", "RowKey": "2"})
        page.wait_for_timeout(1500)
        assert rows.count() == 2, "paused"
        page.get_by_role("button", name="Pause").click()
        rows.nth(2).wait_for()
        page.get_by_role("link", name="The last changes").click()
        page.wait_for_url("**/changes")


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_long_search_goes_on(browser: Any, filled_server: ServerProcess, tmp_path: Path) -> None:
    place = filled_server.connection_string
    with TableServiceClient.from_connection_string(place) as service:
        table = service.create_table("Long")
        for turn in range(11):
            rows = [{"PartitionKey": f"{turn:02}", "RowKey": f"{row}"} for row in range(100)]
            table.submit_transaction([("create", row) for row in rows])
    constants = {"tablestone.explorer.changes.SEARCHED_MAX": 1}
    with (
        running_explorer(place, settings=tmp_path, constants=constants) as process,
        watched_page(browser, process) as watched,
    ):
        watched.open("/tables/Long/changes?pk=10")
        wait_for_text(watched, ".note", "0 changes found among 1,000 changes from the oldest one")
        watched.page.get_by_role("link", name="Go on with later changes").click()
        wait_for_text(watched, ".note", "100 changes found among 100 changes")
