"""An entity as JSON: every type comes back as it was, and an error names its line."""

import math
from uuid import UUID

import pytest

from explorer.test_page_guard import COOKIE, ORIGIN, send
from tablestone.explorer.property_fields import json_of, read_json_form, types_of
from tablestone.model.edm import EdmType, EdmValue, GeographyPoint, parse_date_time
from tablestone.model.keys import EntityKey
from tablestone.testing import TableStorage
from tablestone.tools.connection import parse_connection_string
from tablestone.tools.odata import TypedEntity, canonical

KEY = EntityKey("p", "r")
VALUES = {
    "text": EdmValue(EdmType.STRING, "a\r\n\u00e9 \U0001f600 <b>"),
    "empty": EdmValue(EdmType.STRING, ""),
    "int32": EdmValue(EdmType.INT32, -1),
    "int64": EdmValue(EdmType.INT64, 2**53 + 1),
    "whole": EdmValue(EdmType.DOUBLE, 5.0),
    "double": EdmValue(EdmType.DOUBLE, 0.1),
    "infinite": EdmValue(EdmType.DOUBLE, -math.inf),
    "yes": EdmValue(EdmType.BOOLEAN, True),
    "time": EdmValue(EdmType.DATE_TIME, 635_000_000_000_000_001),
    "guid": EdmValue(EdmType.GUID, str(UUID(int=7))),
    "bytes": EdmValue(EdmType.BINARY, b"\0\1"),
    "none": EdmValue(EdmType.BINARY, b""),
    "place": EdmValue(EdmType.GEOGRAPHY_POINT, GeographyPoint(1.5, -2.0)),
}


def test_every_type_comes_back() -> None:
    given = TypedEntity(KEY, VALUES)
    read, line = read_json_form(KEY, json_of(given), {})
    assert (read.problem, line) == ("", 0)
    assert read.entity is not None
    assert canonical(read.entity) == canonical(given)


KEPT: list[tuple[str, str, EdmValue]] = [
    # what is typed where a value of another form stood, without a type
    ("double", "300", EdmValue(EdmType.DOUBLE, 300.0)),
    ("whole", "-7", EdmValue(EdmType.DOUBLE, -7.0)),
    ("int64", "5", EdmValue(EdmType.INT64, 5)),
    ("int64", '"6"', EdmValue(EdmType.INT64, 6)),
    ("time", '"2026-01-31T12:00:00Z"', EdmValue(EdmType.DATE_TIME, parse_date_time("2026-01-31T12:00:00Z"))),
    ("guid", f'"{UUID(int=8)}"', EdmValue(EdmType.GUID, str(UUID(int=8)))),
    ("bytes", '"AAEC"', EdmValue(EdmType.BINARY, b"\0\1\2")),
    ("text", '"5"', EdmValue(EdmType.STRING, "5")),
    ("new", "5", EdmValue(EdmType.INT32, 5)),
    ("new", "5.5", EdmValue(EdmType.DOUBLE, 5.5)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "value"), KEPT)
def test_a_property_keeps_its_type(name: str, text: str, value: EdmValue) -> None:
    """Whether or not the line with the type is still there; one that is gone, or new, has no other's type."""
    types = types_of(TypedEntity(KEY, VALUES))
    read, _ = read_json_form(KEY, f'{{"{name}": {text}}}', types)
    assert read.entity == TypedEntity(KEY, {name: value})
    named = f'{{"{name}@odata.type": "Edm.String", "{name}": "7"}}'
    read, _ = read_json_form(KEY, named, types)
    assert read.entity == TypedEntity(KEY, {name: EdmValue(EdmType.STRING, "7")}), "as it says"


@pytest.mark.parametrize(
    ("name", "text"),
    [("int32", "3.5"), ("yes", '"no"'), ("text", "5"), ("time", '"soon"'), ("guid", "7")],
)
def test_another_type_has_to_be_named(name: str, text: str) -> None:
    types = types_of(TypedEntity(KEY, VALUES))
    read, line = read_json_form(KEY, f'{{\n"new": 1,\n"{name}": {text}}}', types)
    assert (read.entity, line) == (None, 3)
    sentence = f"A property keeps its type unless {name}@odata.type names another one."
    assert sentence in read.problem


WRONG = [
    ('{\n "a": 1\n "b": 2\n}', 3, "delimiter"),
    ('{\n "a": 1,\n "b": 2,\n "a": 3\n}', 4, "'a' cannot be read, or is there twice"),
    ('{\n "a": 1,\n "b": NaN\n}', 3, "'NaN' cannot be read"),
    ('{\n "a": 3000000000\n}', 2, "Edm.Int64"),
    ('{\n "c@odata.type": "Edm.Int64",\n "c": "many"\n}', 3, "not of type Int64"),
    ('{\n "a": 1,\n "c@odata.type": "Edm.Int64"\n}', 3, "is the type of no property"),
    ('{\n "a@odata.type": "Edm.Odd",\n "a": "1"\n}', 3, "which the service does not have"),
    ('{\n "a": [1]\n}', 2, "which no property can hold"),
    ('{\n "a": 1,\n "b-c": 2\n}', 3, "b-c"),
    ('{\n "PartitionKey": "other"\n}', 2, "PartitionKey is that of another entity"),
    ("[1]", 1, "It is no JSON object"),
    ("", 1, "Expecting value"),
    ("[" * 100_000, 1, "nested too deeply"),
    ('{"a": ' + "9" * 5_000 + "}", 1, "cannot be read"),
]


@pytest.mark.parametrize(("text", "line", "sentence"), WRONG)
def test_an_error_names_its_line(text: str, line: int, sentence: str) -> None:
    read, found = read_json_form(KEY, text, {})
    assert read.entity is None
    assert found == line
    assert read.problem.startswith(f"Nothing is written. Line {line}: ")
    assert sentence in read.problem


def test_the_own_keys_may_be_in_it() -> None:
    """So what the explorer copies as JSON can be pasted."""
    read, _ = read_json_form(KEY, '{"PartitionKey": "p", "RowKey": "r", "a": 1}', {})
    assert read.entity == TypedEntity(KEY, {"a": EdmValue(EdmType.INT32, 1)})


def test_an_empty_text_is_no_entity_without_properties() -> None:
    """All was deleted by mistake: the entity stays as it is."""
    headers = {"cookie": COOKIE, "origin": ORIGIN}
    with TableStorage() as storage:
        storage.seed({"Table": [{"PartitionKey": "p", "RowKey": "r", "a": 1}]})
        connection = parse_connection_string(storage.connection_string)
        form = {"pk": "p", "rk": "r", "etag": "*", "json": ""}
        for path in ("entity", "entity/view", "new"):
            answer = send(
                "POST", f"/tables/Table/{path}", headers, connection=connection, data=form
            )
            assert answer.status_code == 400
            assert "Line 1" in answer.text
        stored = send("GET", "/tables/Table/entity?pk=p&rk=r", headers, connection=connection)
    assert 'aria-label="Value of a"' in stored.text
