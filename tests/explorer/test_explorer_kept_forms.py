"""A form that cannot be carried out comes back as it was typed, with the reason; without a browser."""

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from azure.data.tables import TableAccessPolicy, TableCorsRule, TableServiceClient

from explorer.test_explorer_bad_input import answering
from explorer.test_page_guard import COOKIE, ORIGIN, send
from tablestone.explorer.account import SeenProperties
from tablestone.explorer.query_bar import filter_problem
from tablestone.model.edm import EdmType
from tablestone.testing import TableStorage
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import Connection, parse_connection_string
from tablestone.tools.errors import ServiceError

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
    """The page after a form, as in a browser: also one that the form leads to."""
    answer = send("POST", path, POSTS, connection=connection, data=form, **more)
    if answer.status_code == 303:
        return send("GET", answer.headers["location"], OPENED, connection=connection)
    return answer


WRONG_QUERIES: list[tuple[str, str, str]] = [
    # the address, the sentence, the field as it was typed
    ("?filter=V+eq+1&top=abc", "Top must be a number", 'name="top" value="abc" aria-invalid="true"'),
    ("?filter=V+eq+1&top=0", "Top must be a number", 'name="top" value="0" aria-invalid="true"'),
    ("?filter=V+eq+1&order=V+sideways", "Order must be a property", 'name="order" value="V sideways" aria-invalid'),
    ("/build?filter=V+eq+1&property=V&kind=Int32&value=abc", '"value">V is &#39;abc&#39;', 'value="abc"'),
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
    ("text", "before", "after", "hint"),
    [
        ("City eq Oslo", "City eq ", "Oslo", "Put a text in quotes: 'Oslo'."),
        ("a gt 1 and City eq Oslo", "a gt 1 and City eq ", "Oslo", "Put a text in quotes: 'Oslo'."),
        ("City qe 'Oslo'", "City qe", " 'Oslo'", ""),
        ("V > 1", "V ", "> 1", "Use gt for >."),
    ],
)  # fmt: skip
def test_quotes_that_were_forgotten(text: str, before: str, after: str, hint: str) -> None:
    problem = filter_problem(text)
    assert problem is not None
    assert (problem.before, problem.after, problem.hint) == (before, after, hint)


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


def test_a_key_with_a_forbidden_character_stays_in_its_form(connection: Connection) -> None:
    form = {"pk": "a/b", "rk": "1", "name": "V", "kind": "String", "text": "mine"}
    answer = post(connection, "/tables/Table/new", form)
    assert answer.status_code == 400
    assert "OutOfRangeInput: The &#39;PartitionKey&#39; parameter of value" in answer.text
    assert r"A key cannot have /, \, #, ? or a control character." in answer.text
    assert "mine</textarea>" in answer.text


def test_an_entity_is_deleted_after_a_question(connection: Connection) -> None:
    form = {"pk": "p", "rk": "asked", "name": "V", "kind": "String", "text": "1"}
    assert post(connection, "/tables/Table/new", form).status_code == 200
    path = "/tables/Table/entity?pk=p&rk=asked"
    asked = path.replace("?", "/delete?") + "&etag=*"
    assert "Delete this entity?" in send("GET", asked, OPENED, connection=connection).text
    form = {"pk": "p", "rk": "asked", "etag": "*"}
    assert send("GET", path, OPENED, connection=connection).status_code == 200
    done = post(connection, "/tables/Table/entity/delete", form)
    assert "<h1><bdi>Table</bdi></h1>" in done.text
    assert send("GET", path, OPENED, connection=connection).status_code == 404


TEXT_ROW = re.compile(
    r'name="name" value="(\w+)".*?<option selected>([^<]*)</option>.*?<textarea[^>]*>\n(.*?)</textarea>',
    re.DOTALL,
)


def typed_in(panel: httpx.Response, **more: str) -> dict[str, Any]:
    """The form of a panel as a browser posts it, for an entity of texts."""
    rows = TEXT_ROW.findall(html.unescape(panel.text.partition('<template id="new-')[0]))
    names, kinds, texts = zip(*rows, strict=True)
    etag = html.unescape(panel.text.partition('name="etag" value="')[2].partition('"')[0])
    return {"name": names, "kind": kinds, "text": texts, "etag": etag, "pk": "p", **more}


def test_an_empty_text_and_an_empty_binary_are_kept(
    connection: Connection, storage: TableStorage
) -> None:
    """Also in a clone, which leaves out empty fields as each new entity does."""
    stored = {"b": b"", "s": "", "n": "x"}
    with TableServiceClient.from_connection_string(storage.connection_string) as service:
        table = service.get_table_client("Table")
        table.create_entity({"PartitionKey": "p", "RowKey": "e", **stored})
        path = "/tables/Table/{}?pk=p&rk=e"
        panel = send("GET", path.format("entity"), OPENED, connection=connection)
        assert post(connection, "/tables/Table/entity", typed_in(panel, rk="e")).status_code == 200
        clone = send("GET", path.format("new"), OPENED, connection=connection)
        form = typed_in(clone, rk="clone", is_new="1")
        assert post(connection, "/tables/Table/new", form).status_code == 200
        for key in ("e", "clone"):
            found = table.get_entity("p", key)
            assert {name: found[name] for name in found if name not in KEYS} == stored
        form |= {"text": [""] * 3, "rk": "without"}
        assert post(connection, "/tables/Table/new", form).status_code == 200
        assert set(table.get_entity("p", "without")) == KEYS


KEYS = {"PartitionKey", "RowKey"}
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
    assert "name its format" not in answer.text
    assert not re.search(r" --\w", answer.text)
    assert "http://127.0.0.1" not in answer.text.partition("<main")[2]


def test_a_refused_file_leaves_no_table_and_keeps_the_form(
    connection: Connection, storage: TableStorage
) -> None:
    form = {"table": "Never", "partition_key": "{nope}", "row_key": "V", "types": "V=Int32"}
    form |= {"conflict": "merge"}
    for name in ("a.csv", "a.xyz"):
        answer = post(connection, "/import", form, files={"file": (name, b"V\n77\n")})
        assert answer.status_code in {400, 409}
        typed = LOOKS.sub("", answer.text)
        for field in ("table", "partition_key", "row_key", "types"):
            assert re.search(f'name="{field}" value="{re.escape(form[field])}"', typed)
        assert "<option selected>merge</option>" in typed
    with TableServiceClient.from_connection_string(storage.connection_string) as service:
        assert [each.name for each in service.list_tables()] == ["Table"]


def test_a_failed_import_says_what_it_did(connection: Connection) -> None:
    """Rows of the file have the same keys, and one of them cannot be stored at all."""
    lines = b"PartitionKey,RowKey\na,1\nb/,1\nc,1\nc,1\n"
    answer = post(connection, "/import", {"table": "Made"}, files={"file": ("a.csv", lines)})
    assert answer.status_code == 409
    content = html.unescape(answer.text)
    for sentence in (
        "Row 5 (the header is row 1): an entity with PartitionKey 'c' and RowKey '1' is in Made already, "
        "from an earlier row.",
        "a.csv: 2 entities stored in Made, ",
        "The table Made was made.",
        "1 row rejected, with the reason in these lines.",
        '{"row":3,"reason":"',
    ):
        assert sentence in content


def test_a_look_at_a_file_names_every_wrong_row(connection: Connection) -> None:
    lines = b"PartitionKey,RowKey\na,1\nb/,1\na,1\nc,\\\n"
    answer = post(
        connection, "/tables/Table/import", {"look": "1"}, files={"file": ("a.csv", lines)}
    )
    content = html.unescape(answer.text)
    for sentence in (
        *("Row 3 cannot be stored: ", "Row 4 has the keys of row 2.", "Row 5 cannot be stored: "),
        *("The header is row 1.", "An import leaves out the rows that cannot be stored"),
    ):
        assert sentence in content
    assert ".." not in content.partition("<main")[2]


def test_a_wrong_filter_leaves_the_buttons_of_the_table(connection: Connection) -> None:
    path = "/tables/Table?filter=V+sideways+1"
    answer = send("GET", path, OPENED, connection=connection)
    assert answer.status_code == 400
    for control in ("head.insert", "head.import", "head.export", "table.shape"):
        assert f'data-control="{control}"' in answer.text
    assert "is empty" not in answer.text
    exported = send(
        "GET", "/tables/Table/export?filter=V+sideways+1", OPENED, connection=connection
    )
    assert exported.status_code == 400
    assert "The filter cannot be read" in exported.text


def test_a_filter_that_only_the_service_refuses_stays_in_its_form(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/tables/Table?filter=contains(V,'x')&select=V"
    for order in ("", "&order=V"):
        answer = send("GET", f"{path}{order}", OPENED, connection=connection)
        assert answer.status_code == 400
        said = answer.text.partition('id="problem"')[2].partition("</div>")[0]
        assert "NotImplemented" in said
        assert "--query-extensions true" in said
        assert 'value="contains(V,&#39;x&#39;)"' in LOOKS.sub("", answer.text)
    refusal = ServiceError(400, "InvalidInput", "Too many conditions.")
    monkeypatch.setattr(TableEndpoint, "page", raiser(refusal))
    answer = send("GET", "/tables/Table?filter=V eq 1", OPENED, connection=connection)
    assert "InvalidInput: Too many conditions." in answer.text.partition('id="problem"')[2][:90]
    assert "--query-extensions" not in answer.text
    assert "<h1>A problem" in send("GET", "/tables/Table", OPENED, connection=connection).text


def raiser(error: Exception) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("text", "hint"),
    [("tailnumber eq 'N1'", "Did you mean <code>tailnum</code>?"), ("tailnum eq 'N2'", "")],
)
def test_a_property_that_no_entity_has_is_named_at_once(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, text: str, hint: str
) -> None:
    seen = {"tailnum": {EdmType.STRING: None}}
    monkeypatch.setattr(SeenProperties, "of", lambda *_: seen)
    answer = send("GET", f"/tables/Table?filter={text}", OPENED, connection=connection)
    said = answer.text.partition('id="nothing"')[2].partition("</p>")[0]
    assert "No entity matches the filter." in said
    assert hint in said
    assert ("Did you mean" in said) is bool(hint)
    assert ("Why nothing may match" in answer.text) is bool(hint)


def test_a_table_that_does_not_exist_is_not_listed(connection: Connection) -> None:
    answer = send("GET", "/tables/Nope", OPENED, connection=connection)
    assert answer.status_code == 404
    assert 'data-table="nope"' not in answer.text


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
    ({"methods": "GET,FOO"}, "FOO is not a method that a CORS rule can allow", 'value="GET,FOO"'),
    (
        {"origins": "https://a.example,b.example"},
        "The origin b.example needs a scheme, such as https://b.example",
        'value="GET"',
    ),
    ({"age": "99999999999"}, "must be a whole number up to 2,147,483,647", 'value="99999999999"'),
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
    assert f'value="{(RULE | fields)["origins"]}"' in answer.text


WRONG_POLICIES: list[tuple[dict[str, str], str, str]] = [
    # the fields, the sentence, the field as it was typed
    ({"start": "20261-01-01T00:00"}, '"start:0">&#39;20261-01-01T00:00&#39;', 'value="20261-01-01T00:00"'),
    ({"expiry": "tomorrow"}, '"expiry:0">&#39;tomorrow&#39; is not a time.', 'value="tomorrow"'),
    ({"id": "m" * 65}, '"id:0">A policy needs an id of 1 to 64 characters, not 65.', f'value="{"m" * 65}"'),
    ({"start": "2030-01-01T00:01"}, '"expiry:0">The policy mine would end', 'value="2030-01-01T00:01:00"'),
    ({"start": "2030-01-01T00:00"}, '"expiry:0">The policy mine would end', 'value="2030-01-01T00:00:00"'),
    ({"id": ""}, '"id:0">A policy needs an id of 1', 'value="2030-01-01T00:00:00"'),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "sentence", "field"), WRONG_POLICIES)
def test_wrong_policies_stay_in_their_form(
    connection: Connection, fields: dict[str, str], sentence: str, field: str
) -> None:
    form = {"id": "mine", "start": "", "expiry": "2030-01-01T00:00", "may": "0r"} | fields
    answer = post(connection, "/tables/Table/policies", form)
    assert answer.status_code == 400
    assert sentence in answer.text
    assert field in answer.text
    assert 'value="0r" checked' in answer.text
    assert f'value="{form["id"]}"' in answer.text
    stored = send("GET", "/tables/Table/policies", OPENED, connection=connection)
    assert "legend>Policy" not in stored.text


REVOKED: dict[str, Any] = {}
PARTNER = {"partner": TableAccessPolicy(permission="r", expiry="2030-01-01T00:00:00Z")}
MINE: dict[str, Any] = {"start": ["", ""], "expiry": ["", ""]}


@pytest.fixture
def service(storage: TableStorage) -> Iterator[TableServiceClient]:
    with TableServiceClient.from_connection_string(storage.connection_string) as client:
        yield client
        client.get_table_client("Table").set_table_access_policy({})
        client.set_service_properties(cors=[])


def digest_in(page: httpx.Response) -> str:
    """What a page says that it shows."""
    return page.text.partition('name="shown" value="')[2].partition('"')[0]


@pytest.mark.parametrize(
    ("before", "now", "typed", "listed"),
    [
        (PARTNER, REVOKED, ["partner", "mine2"], "Stored now: no policy."),
        (REVOKED, PARTNER, ["mine2", ""], "<bdi>partner</bdi> (read, ends 2030-01-01T00:00:00"),
    ],
)
def test_policies_that_another_client_changed_stay(
    connection: Connection,
    service: TableServiceClient,
    before: dict[str, Any],
    now: dict[str, Any],
    typed: list[str],
    listed: str,
) -> None:
    """A revoked policy does not come back, and a new one is not deleted, until the person has seen what is stored."""
    table, path = service.get_table_client("Table"), "/tables/Table/policies"
    table.set_table_access_policy(before)
    form = MINE | {"id": typed}
    form["shown"] = digest_in(send("GET", path, OPENED, connection=connection))
    table.set_table_access_policy(now)
    answer = send("POST", path, POSTS, connection=connection, data=form)
    assert answer.status_code == 409
    assert "Another client has changed the policies since this page was shown." in answer.text
    assert listed in answer.text
    assert 'value="mine2"' in answer.text
    assert table.get_table_access_policy().keys() == now.keys()
    # A field that is refused meanwhile does not count as a look at what is stored.
    wrong = send("POST", path, POSTS, connection=connection, data=form | {"expiry": ["soon", ""]})
    assert digest_in(wrong) == form["shown"]
    assert 'name="again" value="1"' in answer.text
    again = post(connection, path, form | {"shown": digest_in(answer)})
    assert "The policies are saved." in again.text
    assert table.get_table_access_policy().keys() == set(filter(None, typed))


def test_properties_that_another_client_changed_stay(
    connection: Connection, service: TableServiceClient
) -> None:
    shown = digest_in(send("GET", "/service", OPENED, connection=connection))
    service.set_service_properties(cors=[TableCorsRule(["https://theirs.example"], ["PUT"])])
    answer = send("POST", "/service", POSTS, connection=connection, data=RULE | {"shown": shown})
    assert answer.status_code == 409
    assert "Another client has changed the properties since this page was shown." in answer.text
    assert "Stored now: the CORS rule <bdi>https://theirs.example · PUT</bdi>; " in answer.text
    assert 'value="https://a.example"' in answer.text
    service.set_service_properties(cors=[TableCorsRule(["https://new.example"], ["PUT"])])
    assert 'name="again" value="1"' in answer.text
    form = RULE | {"shown": digest_in(answer), "again": "1"}
    answer = send("POST", "/service", POSTS, connection=connection, data=form)
    assert "has changed the properties once more, since that was said." in answer.text
    found: Any = service.get_service_properties()
    assert found["cors"][0].allowed_origins == ["https://new.example"]
    again = post(connection, "/service", RULE | {"shown": digest_in(answer)})
    assert "The properties are saved." in again.text
    found = service.get_service_properties()
    assert [each.allowed_origins for each in found["cors"]] == [["https://a.example"]]


SAVES: list[tuple[str, dict[str, Any], str]] = [
    # the page, its form, the sentence
    ("/service", RULE, "The properties are saved."),
    (
        "/tables/Table/policies",
        {"id": "mine", "start": "", "expiry": "2030-01-01T00:00", "may": ["0u", "0r"]},
        "The policies are saved.",
    ),
]


@pytest.mark.parametrize(("path", "form", "sentence"), SAVES)
def test_a_save_has_an_address_that_writes_nothing(
    connection: Connection,
    service: TableServiceClient,
    path: str,
    form: dict[str, Any],
    sentence: str,
) -> None:
    """The sentence is there as long as it is true; the same form again changes nothing, and says so."""
    form = form | {"shown": digest_in(send("GET", path, OPENED, connection=connection))}
    answer = send("POST", path, POSTS, connection=connection, data=form)
    assert answer.status_code == 303
    saved = answer.headers["location"]
    assert send("GET", saved, OPENED, connection=connection).text.count(sentence) == 1
    again = post(connection, path, form)
    assert again.status_code == 200
    assert "Nothing was changed." in again.text
    assert sentence not in again.text
    service.get_table_client("Table").set_table_access_policy({})
    service.set_service_properties(cors=[])
    assert sentence not in send("GET", saved, OPENED, connection=connection).text


@pytest.mark.parametrize("name", ["", "n" * 81])
def test_a_query_without_a_good_name_stays_in_its_form(connection: Connection, name: str) -> None:
    answer = post(connection, "/tables/Table/save?filter=V+eq+1", {"name": name})
    assert answer.status_code == 400
    assert "The query needs a name" in answer.text.partition('id="save-problem"')[2][:60]
    assert f'name="name" value="{name}" required' in answer.text
    assert 'name="filter" value="V eq 1"' in answer.text


def test_a_table_created_at_no_table_service() -> None:
    """Deeply nested JSON makes the SDK's own reader fail."""
    with answering(lambda _path: (201, "application/json", b"[" * 100_000)) as place:
        given = parse_connection_string(place)
        answer = post(given, "/tables", {"name": "Tab"})
    assert answer.status_code == 502
    assert "does not answer as a table service does" in answer.text
