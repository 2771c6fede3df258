"""Hidden fields that somebody has changed: a sentence, never a failure of the explorer; without a browser."""

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest

from explorer.driven_controls import TEMPLATES
from explorer.test_explorer_kept_forms import POSTS
from explorer.test_page_guard import send
from tablestone.testing import TableStorage
from tablestone.tools.connection import parse_connection_string

STALE = "W/\"datetime'2020-01-01T00%3A00%3A00.0000000Z'\""
SHOWN = '{"PartitionKey":"p","RowKey":"r","V":1}'
ROW = {"name": "V", "kind": "Int32", "text": "2"}
ENTITY = {"pk": "p", "rk": "r", "etag": STALE, "timestamp": "", "shown": SHOWN, "back": "", **ROW}
GONE = {**ENTITY, "rk": "gone"}
JSON = {**ENTITY, "json": '{"V": 2}', "json_types": '{"V": "Edm.Int32"}'}
POLICY = {"shown": "x", "was": "", "again": "", "id": "a", "start": "", "expiry": ""}
INDEX = {"property": "V", "within": "", "accepted": "1", "agreed": "1"}
EXPIRY = {"count": "0123456789abcdef", "token": "x", "by": "age", "age": "1", "unit": "d"}
FORMS: list[tuple[str, str, dict[str, str], str]] = [
    # the template, the path, the fields, which of them are hidden
    ("entity", "entity", ENTITY, "pk rk etag timestamp shown"),
    ("entity", "entity", GONE, "pk rk etag timestamp shown"),
    ("entity", "entity", JSON, "json_types"),
    ("entity", "entity/view", JSON | {"view": "fields"}, "shown json_types"),
    ("entity", "new", ENTITY | {"is_new": "1"}, "is_new back"),
    ("entity", "copy", {"row": '["p", "r"]', "as": "JSON"}, "row"),
    ("conflict", "entity", ENTITY | {"again": "1"}, "pk rk etag timestamp shown back again name kind"),
    ("conflict", "entity", ENTITY | {"again": "1", "mine": "1"}, "shown"),
    ("delete_entity", "entity/delete", ENTITY, "pk rk etag"),
    ("delete_entities", "selected/delete", {"row": '["p", "none"]'}, "row"),
    ("policies", "policies", POLICY, "shown was again"),
    ("service", "/service", {"shown": "x", "was": "", "again": "", "age": "0"}, "shown was again"),
    ("upkeep", "expiry", EXPIRY | {"name": ""}, "count token by age unit name"),
    ("ask", "indexes/drop", {"property": "V", "agreed": "1"}, "property agreed"),
    ("ask", "indexes/create", INDEX, "property within accepted"),
    ("ask", "expiry", {"what": "remove"}, "what"),
    ("ask", "forget", {"name": "q"}, "name"),
]  # fmt: skip
IN_ADDRESS = {"export", "refused", "table"}
"""Templates whose hidden fields are parameters of an address, and those that any address may have."""
TEXTS = ("\r\né😀\0", "[", '{"V@odata.type": 5, "V": {}}', "9" * 30)


@pytest.fixture(scope="module", params=["V", None], ids=["expiry", "none"])
def storage(request: pytest.FixtureRequest) -> Iterator[TableStorage]:
    with TableStorage(keep_changes=True) as running:
        running.seed({"Table": [{"PartitionKey": "p", "RowKey": "r", "V": 2**31 - 1}]})
        if request.param:
            running.set_expiry("Table", property=request.param)
        yield running


def post(storage: TableStorage, path: str, fields: dict[str, str], tmp_path: Any) -> Any:
    connection = parse_connection_string(storage.connection_string)
    path = path if path.startswith("/") else f"/tables/Table/{path}"
    more = {"connection": connection, "saved_queries": tmp_path / "queries.json"}
    return send("POST", path, POSTS, data=fields, **more)


@pytest.mark.parametrize(("path", "fields", "hidden"), [row[1:] for row in FORMS])
def test_a_hidden_field_that_was_changed_gets_a_sentence(
    storage: TableStorage, path: str, fields: dict[str, str], hidden: str, tmp_path: Any
) -> None:
    assert post(storage, path, fields, tmp_path).status_code < 500
    for name in hidden.split():
        for text in TEXTS:
            answer = post(storage, path, {**fields, name: text}, tmp_path)
            assert answer.status_code < 500, (name, text)
            if answer.status_code == 400:
                assert len(re.findall('role="alert"', answer.text)) == 1, (name, text)


@pytest.mark.parametrize(
    ("path", "fields", "sentence"),
    [
        ("entity", {**ENTITY, "shown": "["}, "cannot be read: load the page again."),
        ("entity", {**ENTITY, "shown": "[]"}, "cannot be read: load the page again."),
        ("entity", {**JSON, "json_types": "["}, "cannot be read: load the page again."),
        ("entity", {**ENTITY, "etag": "é😀"}, "characters that no ETag has"),
        ("entity/delete", {**ENTITY, "etag": "a\r\nb: c"}, "characters that no ETag has"),
        ("copy", {"row": "[1]"}, "A selected row is malformed"),
    ],
)
def test_the_sentence(
    storage: TableStorage, path: str, fields: dict[str, str], sentence: str, tmp_path: Any
) -> None:
    answer = post(storage, path, fields, tmp_path)
    assert answer.status_code == 400
    assert sentence in html.unescape(answer.text)


@pytest.mark.parametrize("storage", ["V"], indirect=True)
def test_a_value_that_the_policy_cannot_read(storage: TableStorage, tmp_path: Any) -> None:
    """Of an entity that is gone, the page asks whether it has expired."""
    storage.set_expiry("Table", property="V")  # another test removes it
    for value in ('{"V@odata.type": "Edm.DateTime", "V": "x"}', '{"V": [1]}'):
        answer = post(storage, "entity", {**GONE, "shown": value}, tmp_path)
        assert answer.status_code == 400
        assert "cannot be read: load the page again." in answer.text


def test_every_hidden_field_is_tried() -> None:
    tried = {(form, name) for form, _, _, hidden in FORMS for name in hidden.split()}
    tried |= {("upkeep", "property")}  # that of the question
    for template in TEMPLATES.glob("*.html"):
        if template.stem not in IN_ADDRESS:
            fields = re.findall('type="hidden" name="([^"]*)"', template.read_text("utf-8"))
            for name in fields:
                assert name.startswith("{{") or (template.stem, name) in tried, (
                    template.stem,
                    name,
                )
