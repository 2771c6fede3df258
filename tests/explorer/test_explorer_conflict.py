"""Saving an entity that has changed, was deleted or has expired since it was shown; and the address afterwards.

All without a script: forms are sent as a browser sends them.
"""

import html
import re
from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
from azure.data.tables import TableServiceClient, UpdateMode

from explorer.test_page_guard import COOKIE, ORIGIN, send
from tablestone.testing import TableStorage
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import parse_connection_string

HEADERS = {"cookie": COOKIE, "origin": ORIGIN}
KEY = {"PartitionKey": "a", "RowKey": "b c"}
PATH = "/tables/Orders/entity"
ADDRESS = f"{PATH}?pk=a&rk=b+c"


class _Form(HTMLParser):
    """The names and values that a browser sends for the form of an entity or a conflict."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sent: list[tuple[str, str]] = []
        self._is_in_form = False
        self._templates = 0
        self._text: str | None = None
        self._name = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name = given.get("name") or ""
        self._templates += tag == "template"
        if tag == "form":
            self._is_in_form = given.get("id") in ("entity-form", "conflict-form")
        elif not self._is_in_form or self._templates:
            return
        elif tag == "input" and given.get("type") != "checkbox":
            self.sent.append((name, given.get("value") or ""))
        elif tag == "select":
            self._name = name
        elif tag == "textarea":
            self._name, self._text = name, ""
        elif tag == "option" and "selected" in given:
            self._text = ""

    def handle_endtag(self, tag: str) -> None:
        self._templates -= tag == "template"
        if tag == "form":
            self._is_in_form = False
        if tag in ("textarea", "option") and self._text is not None:
            self.sent.append((self._name, self._text.removeprefix("\n")))
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text += data


@pytest.fixture(params=[True, False], ids=["kept", "not kept"])
def storage(request: pytest.FixtureRequest) -> Iterator[TableStorage]:
    """A table with an entity, and with or without a record of changes."""
    with TableStorage(keep_changes=request.param) as running:
        running.seed({"Orders": [{**KEY, "count": 1, "note": "first", "price": 2.5}]})
        yield running


def table_of(storage: TableStorage) -> Any:
    service = TableServiceClient.from_connection_string(storage.connection_string)
    return service.get_table_client("Orders")


def ask(storage: TableStorage, path: str = ADDRESS, **more: Any) -> httpx.Response:
    connection = parse_connection_string(storage.connection_string)
    return send("POST" if more else "GET", path, HEADERS, connection=connection, **more)


def form_of(page: httpx.Response, **typed: str | None) -> dict[str, Any]:
    """The form of a page as a browser sends it, with properties that were typed, or removed by None."""
    sent = _Form(page.text).sent
    names, kinds, texts = (
        [value for name, value in sent if name == each] for each in ("name", "kind", "text")
    )
    rows = {name: (kind, text) for name, kind, text in zip(names, kinds, texts, strict=True)}
    for name, value in typed.items():
        kind, _ = rows.pop(name)
        if value is not None:
            rows[name] = kind, value
    kinds, texts = map(list, zip(*rows.values(), strict=True))
    return {**dict(sent), "name": list(rows), "kind": kinds, "text": texts}


def save(storage: TableStorage, form: dict[str, Any], **more: str) -> httpx.Response:
    return ask(storage, PATH, data=form | more)


def said(page: httpx.Response) -> str:
    text = page.text.partition("<main")[2].partition("</main>")[0]
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split())


def differing(page: httpx.Response) -> list[str]:
    """The rows that differ: the name, who changed it, and the values."""
    rows = re.findall('<tbody class="differs">(.*?)</tbody>', page.text, re.DOTALL)
    return [" ".join(html.unescape(re.sub("<[^>]*>", " ", row)).split()) for row in rows]


def test_a_conflict_says_who_changed_what(storage: TableStorage) -> None:
    form = form_of(ask(storage), note="mine", price=None)
    with table_of(storage) as table:
        table.update_entity({**KEY, "count": 7, "theirs": True}, UpdateMode.MERGE)
        page = save(storage, form)
        assert page.status_code == 409
        assert sorted(differing(page)) == [
            "count another client changed it 1 Int32 7 Int32 1 Int32",
            "note you changed it first String first String mine String",
            "price you changed it 2.5 Double 2.5 Double absent",
            "theirs another client changed it absent true Boolean absent",
        ]
        assert "takes back what another client changed: count , theirs ." in said(page)
        done = save(storage, form_of(page), mine="1")
        assert done.status_code == 303
        assert dict(table.get_entity(*KEY.values())) == {
            **KEY,
            "count": 7,
            "note": "mine",
            "theirs": True,
        }
        assert differing(save(storage, form_of(page))), "the ETag was that of the conflict"


def test_the_other_may_change_it_again(storage: TableStorage) -> None:
    """Then nothing is written, and the next conflict still knows what was shown first."""
    form = form_of(ask(storage), note="mine")
    with table_of(storage) as table:
        table.update_entity({**KEY, "count": 2}, UpdateMode.MERGE)
        page = save(storage, form)
        assert "has changed since it was shown (412" in said(page)
        table.update_entity({**KEY, "count": 3, "note": "theirs"}, UpdateMode.MERGE)
        page = save(storage, form_of(page), mine="1")
        assert page.status_code == 409
        assert "has changed once more, since the last conflict (412" in said(page)
        assert sorted(differing(page)) == [
            "count another client changed it 1 Int32 3 Int32 1 Int32",
            "note you and another client changed it first String theirs String mine String",
        ]
        assert "takes back note , which you changed too." in said(page)
        save(storage, form_of(page), mine="1")
        assert dict(table.get_entity(*KEY.values())) == {
            **KEY,
            "count": 3,
            "note": "mine",
            "price": 2.5,
        }
        page = save(storage, form)
        save(storage, form_of(page))
        assert table.get_entity(*KEY.values())["count"] == 1, "the other's change is taken back"


def test_who_changed_nothing_cannot_write_only_that(storage: TableStorage) -> None:
    form = form_of(ask(storage))
    with table_of(storage) as table:
        table.update_entity({**KEY, "count": 2}, UpdateMode.MERGE)
    page = save(storage, form)
    assert "another client changed it" in said(page)
    assert "Write only what I changed" not in said(page)


def test_line_ends_stay_as_they_are(storage: TableStorage) -> None:
    """A browser without the page's script sends CRLF for each line end of a text area."""
    lines = {"unix": "a\nb\n\nc", "windows": "a\r\nb", "both": "a\n\r\nb"}
    with table_of(storage) as table:
        table.upsert_entity({**KEY, **lines}, UpdateMode.REPLACE)
        form = form_of(ask(storage))
        form["text"] = [text.replace("\n", "\r\n") for text in form["text"]]
        assert save(storage, form).status_code == 303
        assert dict(table.get_entity(*KEY.values())) == {**KEY, **lines}
        table.update_entity({**KEY, "other": 1}, UpdateMode.MERGE)
        assert differing(save(storage, form)) == [
            "other another client changed it absent 1 Int32 absent"
        ]


def test_the_largest_entity_is_saved_also_as_json(storage: TableStorage) -> None:
    """Hidden fields hold a whole entity, and a form needs nine characters for some of two bytes."""
    names = [f"s{number:02}" for number in range(16)]
    with table_of(storage) as table:
        table.upsert_entity({**KEY, **dict.fromkeys(names, "€" * 32_000)}, UpdateMode.REPLACE)
        form = form_of(ask(storage), s00="x")
        as_json = ask(storage, f"{PATH}/view", data={**form, "view": "JSON"})
        assert as_json.status_code == 200, said(as_json)
        assert save(storage, dict(_Form(as_json.text).sent)).status_code == 303
        assert table.get_entity(*KEY.values())["s00"] == "x"
        conflict = save(storage, form)
        assert conflict.status_code == 409, said(conflict)
        assert save(storage, form_of(conflict, s01="y")).status_code == 303
        assert table.get_entity(*KEY.values())["s01"] == "y"


def test_a_reload_after_a_write_writes_nothing(storage: TableStorage) -> None:
    """The address has the keys, and says what was done for as long as it is so."""
    for form, path, word in (
        (form_of(ask(storage), note="x"), PATH, "saved"),
        (form_of(ask(storage), note="x") | {"pk": "new"}, "/tables/Orders/new", "inserted"),
    ):
        done = ask(storage, path, data=form)
        assert done.status_code == 303
        address = done.headers["location"]
        assert address.startswith(f"{PATH}?pk={form['pk']}&rk=b+c&")
        for _ in range(2):
            assert f"The entity is {word}." in said(ask(storage, address))
        with table_of(storage) as table:
            table.update_entity({**KEY, "PartitionKey": form["pk"], "n": 1}, UpdateMode.MERGE)
        assert f"The entity is {word}." not in said(ask(storage, address))
    refused = save(storage, form | {"kind": ["Nope"] * 3})
    assert f'action="{html.escape(ADDRESS.replace("pk=a", "pk=new"))}"' in refused.text


def test_the_question_before_a_deletion_says_whether_it_can_be_undone(
    storage: TableStorage, request: pytest.FixtureRequest
) -> None:
    is_kept = "not kept" not in request.node.name
    shown = ask(storage)
    link = re.search('"entity.delete"[^>]* href="([^"]*)"', shown.text)
    assert link is not None
    path = html.unescape(link[1])
    for address, can in ((path, is_kept), (path.replace("etag=", "etag=x"), False)):
        asked = said(ask(storage, address))
        assert ("The tab Changes can put it back" in asked) is can
        assert ("This cannot be undone." in asked) is not can
    row = '["a", "b c"]'
    asked = said(ask(storage, "/tables/Orders/selected", data={"row": row}))
    assert ("This cannot be undone." in asked) is not is_kept
    with table_of(storage) as table:
        table.update_entity({**KEY, "count": 2}, UpdateMode.MERGE)
    refused = ask(storage, f"{PATH}/delete", data=form_of(shown))
    changed = form_of(refused)
    assert refused.status_code == 409
    assert f"since it was shown, at {changed['timestamp']}. This is its present" in said(refused)
    done = ask(storage, f"{PATH}/delete", data=changed)
    assert (done.status_code, done.headers["location"]) == (303, "/tables/Orders")
    assert ask(storage).status_code == 404


AGE = {"after": timedelta(hours=1)}
PASSED = (
    "With these values it is hidden at once: entities of this table expire at the time in ends."
)


@pytest.mark.parametrize("policy", [AGE, {"property": "ends"}], ids=["age", "property"])
def test_an_entity_that_has_expired_is_stored_again(
    storage: TableStorage, policy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form says that it has expired, not that someone deleted it, and what brings it back."""
    # Only the storage's clock advances, not that of its HTTP server.
    monkeypatch.setattr(TableEndpoint, "service_time", lambda _: storage.clock.ticks())
    is_age = "after" in policy
    with table_of(storage) as table:
        table.upsert_entity({**KEY, "note": "x", "ends": storage.clock.now() + timedelta(hours=1)})
        storage.set_expiry("Orders", **policy)
        form = form_of(ask(storage), note="mine")
        storage.clock.advance(hours=2)
        page = save(storage, form)
        assert page.status_code == 409
        assert "This entity has expired: those of this table expire" in said(page)
        assert "deleted" not in said(page)
        assert (PASSED in said(page)) is not is_age
        assert "or has expired: entities of this table expire" in said(ask(storage))
        done = ask(storage, "/tables/Orders/new", data=form_of(page) | {"is_new": "1"})
        if is_age:
            assert done.status_code == 303
        else:
            assert "The entity is inserted. " + PASSED in said(done)
            later = "2200-01-01T00:00:00Z"
            form = form_of(done, ends=later) | {"is_new": "1"}
            assert ask(storage, "/tables/Orders/new", data=form).status_code == 303
        assert table.get_entity(*KEY.values())["note"] == "mine"
        form = form_of(ask(storage))
        table.delete_entity(*KEY.values())
    assert "Another client has deleted this entity" in said(save(storage, form))
