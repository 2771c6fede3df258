"""A form that cannot be carried out comes back as it was typed, with the reason; without a browser."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from explorer.test_explorer_bad_input import answering
from explorer.test_page_guard import COOKIE, ORIGIN, send
from tablestone.explorer.query_bar import filter_problem
from tablestone.testing import TableStorage
from tablestone.tools.connection import Connection, parse_connection_string

OPENED = {"cookie": COOKIE}
LOOKS = re.compile(r' (spellcheck|autocomplete|list|size|inputmode|placeholder)="[^"]*"')
POSTS = OPENED | {"origin": ORIGIN}


@pytest.fixture(scope="module")
def storage() -> Iterator[TableStorage]:
    with TableStorage() as running:
        running.seed({"Table": [{"PartitionKey": "p", "RowKey": "stored", "V": 1}]})
        yield running


@pytest.fixture
def connection(storage: TableStorage) -> Connection:
    return parse_connection_string(storage.connection_string)


def post(connection: Connection, path: str, form: Mapping[str, str], **more: Any) -> httpx.Response:
    return send("POST", path, POSTS, connection=connection, data=form, **more)


WRONG_QUERIES: list[tuple[str, str, str]] = [
    # the address, the sentence, the field as it was typed
    ("?filter=V+eq+1&top=abc", "Top must be a number", 'name="top" value="abc" aria-invalid="true"'),
    ("?filter=V+eq+1&top=0", "Top must be a number", 'name="top" value="0" aria-invalid="true"'),
    ("?filter=V+eq+1&order=V+sideways", "Order must be a property", 'name="order" value="V sideways" aria-invalid'),
    ("/build?filter=V+eq+1&property=V&kind=Int32&value=abc", "V is &#39;abc&#39;", 'name="value" value="abc"'),
    ("/build?filter=V+eq+1&property=a-b&value=c", "is not the name of a property", 'name="property" value="a-b"'),
]  # fmt: skip


@pytest.mark.parametrize(("address", "sentence", "field"), WRONG_QUERIES)
def test_a_wrong_query_stays_in_its_form(
    connection: Connection, address: str, sentence: str, field: str
) -> None:
    answer = send("GET", f"/tables/Table{address}", OPENED, connection=connection)
    assert answer.status_code == 400
    assert sentence in answer.text
    typed = LOOKS.sub("", answer.text)
    assert typed.count(field) == 1
    assert 'value="V eq 1"' in answer.text
    assert "--order-by" not in answer.text


@pytest.mark.parametrize(
    ("text", "before", "behind", "hint"),
    [
        ("City eq Oslo", "City eq ", "Oslo", "Put a text in quotes: 'Oslo'."),
        ("a gt 1 and City eq Oslo", "a gt 1 and City eq ", "Oslo", "Put a text in quotes: 'Oslo'."),
        ("City qe 'Oslo'", "City qe", " 'Oslo'", ""),
        ("V > 1", "V ", "> 1", "Use gt for >."),
    ],
)  # fmt: skip
def test_quotes_that_were_forgotten(text: str, before: str, behind: str, hint: str) -> None:
    problem = filter_problem(text)
    assert problem is not None
    assert (problem.before, problem.behind, problem.hint) == (before, behind, hint)


def test_an_order_that_no_entity_has(connection: Connection) -> None:
    for order, is_told in (("Nope desc", True), ("V", False)):
        answer = send("GET", f"/tables/Table?order={order}", OPENED, connection=connection)
        assert ("None of the entities has Nope" in answer.text) is is_told


@pytest.mark.parametrize("etag", ['W/"an-old-one"', ""])
def test_the_values_for_a_deleted_entity_are_kept(connection: Connection, etag: str) -> None:
    """Another client has deleted the entity: the panel offers to insert the values that were typed."""
    form = {"pk": "p", "rk": "gone", "etag": etag or "*", "name": "V", "kind": "String", "text": "mine"}  # fmt: skip
    answer = post(connection, "/tables/Table/entity", form)
    assert answer.status_code == 409
    assert "Another client has deleted this entity" in answer.text
    assert "mine</textarea>" in answer.text
    assert 'action="/tables/Table/new"' in answer.text
    form |= {"rk": f"again-{len(etag)}"}
    assert "The entity is inserted." in post(connection, "/tables/Table/new", form).text


def test_an_entity_without_keys_is_an_explicit_choice(connection: Connection) -> None:
    form = {"pk": "", "rk": "", "name": "V", "kind": "String", "text": "mine"}
    answer = post(connection, "/tables/Table/new", form)
    assert answer.status_code == 400
    assert "type a PartitionKey and a RowKey" in answer.text
    assert "mine</textarea>" in answer.text
    assert (
        "The entity is inserted."
        in post(connection, "/tables/Table/new", form | {"empty_keys": "1"}).text
    )


def test_an_entity_is_deleted_after_a_question(connection: Connection) -> None:
    form = {"pk": "p", "rk": "asked", "name": "V", "kind": "String", "text": "1"}
    assert post(connection, "/tables/Table/new", form).status_code == 200
    form = {"pk": "p", "rk": "asked", "etag": "*"}
    asked = post(connection, "/tables/Table/entity/delete", form)
    assert "Delete this entity?" in asked.text
    path = "/tables/Table/entity?pk=p&rk=asked"
    assert send("GET", path, OPENED, connection=connection).status_code == 200
    done = post(connection, "/tables/Table/entity/delete", form | {"sure": "1"})
    assert "1 entity is deleted." in done.text
    assert send("GET", path, OPENED, connection=connection).status_code == 404


IMPORTS: list[tuple[str, str, int, str]] = [
    # the file's name, its text, the status, the sentence
    ("a.xyz", "", 400, "a.xyz does not end in .jsonl, "),
    ("a.jsonl", '{"PartitionKey":"p","RowKey":"stored"}\n', 409, "Nothing is stored."),
    ("b.jsonl", '{"PartitionKey":"q","RowKey":"1"}\n', 200, "b.jsonl: 1 entity stored"),
]


@pytest.mark.parametrize(("name", "text", "status", "sentence"), IMPORTS)
def test_an_import_says_what_is_stored(
    connection: Connection, name: str, text: str, status: int, sentence: str
) -> None:
    answer = post(connection, "/tables/Table/import", {}, files={"file": (name, text.encode())})
    assert answer.status_code == status
    assert sentence in answer.text
    assert not re.search(r" --\w", answer.text)
    assert "http://127.0.0.1" not in answer.text.partition("<main")[2]


LOOKS_AT_FILES: list[tuple[str, dict[str, str], str]] = [
    # the file's name, the fields, the sentence
    ("a.xyz", {}, "a.xyz does not end in .jsonl, "),
    ("a.csv", {"types": "V=Nope"}, "&#39;Nope&#39; is no type"),
    ("a.csv", {}, "PartitionKey"),
    ("a.csv", {"partition_key": "{V}", "row_key": "{V}", "types": "V=Int32"}, "<small>Int32</small>"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "sentence"), LOOKS_AT_FILES)
def test_a_look_at_a_file_stores_nothing_and_has_no_form(
    connection: Connection, name: str, fields: dict[str, str], sentence: str
) -> None:
    form = {"look": "1"} | fields
    answer = post(connection, "/tables/Table/import", form, files={"file": (name, b"V\n77\n")})
    assert answer.status_code == 200
    content = answer.text.partition("<main")[2]
    assert sentence in content
    assert "<form" not in content
    path = "/tables/Table/entity?pk=77&rk=77"
    assert send("GET", path, OPENED, connection=connection).status_code == 404


def test_a_name_of_an_address_is_not_seen(connection: Connection) -> None:
    """An address selects `$$`, a name that no entity has, so no completion offers it."""
    path = "/tables/Table?select=$$,Nothing"
    assert send("GET", path, OPENED, connection=connection).status_code == 200
    answer = send("GET", path, OPENED, connection=connection)
    assert '<option value="$$">' not in answer.text
    assert '<option value="Nothing">' not in answer.text


RULE = {"origins": "https://a.example", "methods": "GET", "allowed": "", "exposed": "", "age": "5"}
WRONG_RULES: list[tuple[dict[str, str], str, str]] = [
    # the fields, the sentence, the field as it was typed
    ({"methods": ""}, "needs methods", 'value="https://a.example"'),
    ({"methods": "FETCH"}, "The service answers", 'value="FETCH"'),
    ({"age": "soon"}, "must be a whole number", 'value="soon"'),
    ({"log_days": "many"}, "The days of the log must be a whole number", 'value="many"'),
]


@pytest.mark.parametrize(("fields", "sentence", "field"), WRONG_RULES)
def test_wrong_properties_stay_in_their_form(
    connection: Connection, fields: dict[str, str], sentence: str, field: str
) -> None:
    answer = post(connection, "/service", RULE | fields)
    assert answer.status_code == 400
    assert sentence in answer.text
    assert field in answer.text
    assert 'value="https://a.example"' in answer.text


def test_a_table_created_at_no_table_service() -> None:
    """Deeply nested JSON makes the SDK's own reader fail."""
    with answering(lambda _path: (201, "application/json", b"[" * 100_000)) as place:
        given = parse_connection_string(place)
        answer = post(given, "/tables", {"name": "T"})
    assert answer.status_code == 502
    assert "does not answer as a table service does" in answer.text
