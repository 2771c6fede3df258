"""The pure parts of the explorer: typed filters, forms of properties, code for SDKs, saved queries."""

from pathlib import Path
from typing import Any

import pytest

from tablestone.advice.workload import TableUse
from tablestone.explorer.account import ExplorerSettings, SeenProperties
from tablestone.explorer.grid import COLUMNS_MAX, Cell, cell_of, columns_of
from tablestone.explorer.grid_query import (
    GridQuery,
    forget_query,
    queries_of,
    read_query,
    read_token,
    save_query,
    write_token,
)
from tablestone.explorer.import_export import ShownPages
from tablestone.explorer.page_templates import _with_code
from tablestone.explorer.property_fields import (
    HINTS,
    PropertyField,
    differences,
    fields_of,
    read_form,
    with_changes,
)
from tablestone.explorer.query_bar import (
    advice_on,
    completions,
    condition_of,
    filter_problem,
    plan_of,
)
from tablestone.explorer.selection import LANGUAGES, code_of
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.keys import EntityKey
from tablestone.tools import odata
from tablestone.tools.client import ContinuationToken, Page, Query
from tablestone.tools.connection import local_connection
from tablestone.tools.errors import TransferRefused
from tablestone.tools.queries import TableReader

RAW: dict[str, Any] = {
    "odata.etag": "W/\"datetime'2026-01-01T00%3A00%3A00Z'\"",
    "PartitionKey": "JFK",
    "RowKey": "1",
    "Timestamp": "2026-01-01T00:00:00Z",
    "temp": 5.0,
    "humid": 40,
    "passengers@odata.type": "Edm.Int64",
    "passengers": "9007199254740993",
    "seen@odata.type": "Edm.DateTime",
    "seen": "2013-01-01T00:00:00.1234567Z",
    "station@odata.type": "Edm.Guid",
    "station": "00000000-0000-0000-0000-000000000001",
    "raw@odata.type": "Edm.Binary",
    "raw": "AAEC",
    "wet": True,
    "place@odata.type": "Edm.GeographyPoint",
    "place": {"type": "Point", "coordinates": [-73.78, 40.64]},
    "note": "fog\r\n<b>",
    "__proto__": "x",
}


def seen() -> SeenProperties:
    found = SeenProperties()
    found.note("Weather", [RAW])
    return found


COMPLETED: list[tuple[str, list[str]]] = [
    # the text before the caret, the first completions
    ("", ["PartitionKey", "RowKey", "Timestamp", "temp"]),
    ("te", ["temp"]),
    ("temp ", ["eq", "ne", "gt", "ge", "lt", "le"]),
    ("temp g", ["gt", "ge"]),
    ("temp gt ", ["5.0"]),
    ("humid eq ", ["40"]),
    ("passengers eq ", ["9007199254740993L"]),
    ("seen ge ", ["datetime'2013-01-01T00:00:00.1234567Z'"]),
    ("station eq ", ["guid'00000000-0000-0000-0000-000000000001'"]),
    ("raw eq ", ["X'000102'"]),
    ("PartitionKey eq ", ["''"]),
    ("temp gt 5.0 ", ["and", "or"]),
    ("temp gt 5.0 and h", ["humid"]),
    ("not (w", ["wet"]),
    ("(temp gt 5.0) o", ["or"]),
    ("nowhere eq ", []),
    ("temp # ", []),
    ("'an open text", []),
]


@pytest.mark.parametrize(("before", "expected"), COMPLETED)
def test_completions(before: str, expected: list[str]) -> None:
    found = completions(before + " ne 3", len(before), seen().of("weather"))
    assert [each.text for each in found][: len(expected)] == expected
    if not expected:
        assert found == []


_UNRECOGNIZED = "InvalidInput: Unrecognized 'Edm.Guid' literal 'guid'x'' at '11'."
_TYPES = (
    "InvalidInput: A binary operator with incompatible types was detected. Found operand types 'Edm.String' and "
    "'Edm.Int32' for operator kind 'Equal'."
)
_OPEN = "InvalidInput: There is an unterminated string literal at position 10."
PROBLEMS: list[tuple[str, str | None, str, str]] = [
    # the filter, its error, the text before and after the position
    ("PartitionKey eq 'JFK'", None, "", ""),
    ("", None, "", ""),
    ("temp qe 1", "InvalidInput: Syntax error at position 7.", "temp qe", " 1"),
    ("note eq '😀' qe", "InvalidInput: Syntax error at position 15.", "note eq '😀' qe", ""),
    ("note eq 'x", _OPEN, "note eq 'x", ""),
    ("station eq guid'x'", _UNRECOGNIZED, "station eq ", "guid'x'"),
    ("RowKey eq 1", _TYPES, "", ""),
]


@pytest.mark.parametrize(("text", "sentence", "before", "after"), PROBLEMS)
def test_an_error_is_shown_at_its_position(
    text: str, sentence: str | None, before: str, after: str
) -> None:
    problem = filter_problem(text)
    if sentence is None:
        assert problem is None
    else:
        assert problem is not None
        assert problem[:3] == (sentence, before, after)


def test_a_filter_of_30_kilobytes() -> None:
    """It gets a plan, and the text around its error is short."""
    text = " or ".join(f"RowKey eq '{number:08}'" for number in range(1300))
    assert len(text) > 30_000
    assert plan_of(text).name == "table scan"
    problem = filter_problem(text + " qe")
    assert problem is not None
    assert len(problem.before) < 100


@pytest.mark.parametrize(
    ("text", "name", "is_scan"),
    [
        ("", "table scan", False),
        ("PartitionKey eq 'JFK' and RowKey eq '1'", "point", False),
        ("PartitionKey eq 'JFK' and RowKey ge '1'", "row range", False),
        ("PartitionKey eq 'JFK'", "partition", False),
        ("PartitionKey eq 'JFK' and temp gt 3.0", "partition", True),
        ("PartitionKey ge 'J'", "partition range", True),
        ("temp gt 3.0", "table scan", True),
    ],
)
def test_the_badge_of_a_plan(text: str, name: str, is_scan: bool) -> None:  # noqa: FBT001 - a column of the table
    assert plan_of(text)[:2] == (name, is_scan)


@pytest.mark.parametrize("text", ["temp gt 50 and note eq 'x'", "temp gt 50.0 and note eq 'x'"])
def test_advice_has_the_format_of_the_type_that_was_seen(text: str) -> None:
    """A whole number can mean a Double in a filter; keys of another format would not find it."""
    (advice,) = advice_on(TableUse("Weather"), text, seen().of("Weather"))
    assert advice.row_key.startswith("{temp:020.6f}_")


def test_an_entity_is_the_same_after_its_form() -> None:
    """Every type, a carriage return, and a name that JavaScript's objects have."""
    fields = fields_of(RAW)
    key = EntityKey("JFK", "1")
    read = read_form(key, [each[:3] for each in fields])
    assert read.entity == odata.read_entity(RAW)


REFUSED: list[tuple[str, str, str, str]] = [
    # the name, the type, the text, the reason
    (
        "a",
        "Int32",
        "2147483648",
        "a is '2147483648', not of type Int32 (-2147483648 to 2147483647)",
    ),
    ("a", "Int64", "1.5", "a is '1.5', not of type Int64 (a whole number of 64 bits)"),
    ("a", "Guid", "x", "a is 'x', not of type Guid (00000000-0000-0000-0000-000000000000)"),
    ("a", "DateTime", "1600-01-01", "a is '1600-01-01', before 1601 or after 9999"),
    ("a", "Binary", "=", "a is '=', not of type Binary (base64, or \"\" for none)"),
    ("a", "Boolean", "yes", "a is 'yes', not of type Boolean (true or false)"),
    (
        "a",
        "GeographyPoint",
        "1 2",
        "a is '1 2', not of type GeographyPoint (" + HINTS["GeographyPoint"] + ")",
    ),
    ("a", "String as JSON", "plain", "a is not a JSON string."),
    ("a", "Decimal", "1", "Decimal is not a type."),
    ("", "String", "x", "The property needs a name."),
    ("RowKey", "String", "x", "RowKey cannot be the name of a property."),
    ("a b", "String", "x", "PropertyNameInvalid: 'a b': The property name is invalid."),
]


@pytest.mark.parametrize(("name", "kind", "text", "reason"), REFUSED)
def test_a_field_that_is_no_value(name: str, kind: str, text: str, reason: str) -> None:
    read = read_form(EntityKey("p", "r"), [(name, kind, text)])
    assert read.entity is None
    assert read.fields[0].problem == reason
    assert read.fields[0].text == text


def test_two_fields_of_one_name_are_refused() -> None:
    read = read_form(EntityKey("p", "r"), [("a", "String", "1"), ("a", "String", "2")])
    assert read.fields[1].problem == "There are two properties a."


def test_the_versions_of_a_conflict() -> None:
    """Who changed, removed or added a property, of which type it is, and what is written of it."""
    given = {**odata.content_of(RAW), "their": 1}
    shown = {name: value for name, value in given.items() if name not in ("wet", "wet@odata.type")}
    yours = odata.read_entity(shown)
    del yours.properties["note"], yours.properties["their"]
    yours.properties["humid"] = EdmValue(EdmType.INT64, 40)
    yours.properties["mine"] = EdmValue(EdmType.STRING, "x")
    stored = {**given, "temp": 99.5, "their": 2}
    found = {each.name: each for each in differences(yours, stored, shown) if each.differs}
    assert {name: (each.is_yours, each.is_theirs) for name, each in found.items()} == {
        "humid": (True, False),
        "mine": (True, False),
        "note": (True, False),
        "temp": (False, True),
        "their": (True, True),
        "wet": (False, True),
    }
    assert found["humid"][1:] == (
        *[PropertyField("humid", "Int32", "40")] * 2,
        PropertyField("humid", "Int64", "40"),
    )
    assert found["mine"].stored is found["note"].yours is found["wet"].shown is None
    written = odata.read_entity(stored).properties
    del written["note"], written["their"]
    assert with_changes(yours, stored, shown).properties == written | {
        name: yours.properties[name] for name in ("humid", "mine")
    }


def test_cells() -> None:
    assert cell_of(RAW, "seen") == Cell("2013-01-01T00:00:00.1234567Z", "DateTime")
    assert cell_of(RAW, "passengers") == Cell("9007199254740993", "Int64")
    assert cell_of(RAW, "place") == Cell('{"type":"Point","coordinates":[-73.78,40.64]}', "GeographyPoint")  # fmt: skip
    assert cell_of(RAW, "note") == Cell("fog␍⏎<b>", "String")
    assert cell_of(RAW, "absent") == Cell("", "")
    assert cell_of({"odd@odata.type": "Edm.Decimal", "odd": "1"}, "odd") == Cell("1", "Unknown")
    assert len(cell_of({"long": "x" * 70_000}, "long").text) < 130


def test_advice_has_code_between_its_back_ticks() -> None:
    assert str(_with_code("a `{b}` <c> `<d>`")) == (
        "a <code>{b}</code> &lt;c&gt; <code>&lt;d&gt;</code>"
    )


def test_a_double_has_its_shortest_text() -> None:
    """As on the command line; parsing the text gives the same number."""
    assert cell_of({"t": 56.92038748222122}, "t").text == "56.92038748222122"
    assert cell_of({"t": 5.0}, "t").text == "5.0"
    assert cell_of({"t@odata.type": "Edm.Double", "t": "NaN"}, "t").text == "NaN"


def test_columns_keep_their_places_and_their_number() -> None:
    first = columns_of([{"PartitionKey": "a", "RowKey": "b", "x": 1}], (), ())
    assert first == ["PartitionKey", "RowKey", "x"]
    assert columns_of([{"y": 1, "x": 2}], first, ()) == [*first, "y"]
    assert columns_of([{"y": 1}], first, ("z",)) == ["z"]
    wide = columns_of([{f"p{number}": number for number in range(252)}], (), ())
    assert len(wide) == COLUMNS_MAX


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, GridQuery()),
        ({"filter": " a eq 1 ", "top": "5"}, GridQuery("a eq 1", top=5)),
        ({"select": "a, b,a,"}, GridQuery(select=("a", "b"))),
        ({"order": "a desc"}, GridQuery(order="a desc")),
        ({"top": "0"}, TransferRefused),
        ({"top": "-1"}, TransferRefused),
        ({"top": "٣"}, TransferRefused),
        ({"top": "99999999999999999999"}, TransferRefused),
        ({"order": "a upwards"}, TransferRefused),
        ({"select": ",".join(f"p{number}" for number in range(253))}, TransferRefused),
    ],
)
def test_a_query_in_an_address(
    given: dict[str, str], expected: GridQuery | type[Exception]
) -> None:
    if isinstance(expected, GridQuery):
        assert read_query(given) == expected
    else:
        with pytest.raises(expected):
            read_query(given)


@pytest.mark.parametrize(
    "token",
    [
        None,
        ContinuationToken("a", "b"),
        ContinuationToken("😀", ""),
        ContinuationToken("1!8!", "מ"),
    ],
)
def test_a_token_in_an_address(token: ContinuationToken | None) -> None:
    assert read_token(write_token(token)) == token


@pytest.mark.parametrize("text", ["x", "====", "W10", "WzEsMl0", "é", "W1tdLFtdXQ"])
def test_a_broken_token_is_refused(text: str) -> None:
    with pytest.raises(TransferRefused):
        read_token(text)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (("a", "eq", "String", "it's"), "a eq 'it''s'"),
        (("a", "gt", "Int64", "5"), "a gt 5L"),
        (("a", "le", "DateTime", "2026-01-01"), "a le datetime'2026-01-01T00:00:00Z'"),
        (("a", "ne", "Boolean", "true"), "a ne true"),
        (("a", "prefix", "String", "ab"), "a ge 'ab' and a lt 'ac'"),
        (("a", "prefix", "Int32", "1"), None),
        (("a b", "eq", "String", ""), None),
        (("a", "contains", "String", ""), None),
        (("a", "eq", "Int32", "x"), None),
    ],
)
def test_the_builder(condition: tuple[str, str, str, str], expected: str | None) -> None:
    if expected is None:
        with pytest.raises(TransferRefused):
            condition_of(*condition)
    else:
        assert condition_of(*condition) == expected
        assert filter_problem(expected) is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_code_has_the_keys_as_literals(language: str) -> None:
    """Quotes and backslashes cannot leave their literal, and the code is ASCII."""
    code = code_of(language, "Weather", "", EntityKey('a"b\\', "😀"))
    assert '"a\\"b\\\\"' in code
    assert code.isascii()
    assert ("\\U0001f600" if language in ("Python", "Go") else "\\ud83d\\ude00") in code
    assert '"temp gt 3.0"' in code_of(language, "Weather", "temp gt 3.0")
    assert "temp" not in code_of(language, "Weather", "")
    assert code_of(language, "Weather", "", EntityKey("", "")).count('""') == 2
    if language == "Python":
        compile(code, "code", "exec")
        compile(code_of(language, "Weather", "a eq '\"'"), "code", "exec")


def test_saved_queries(tmp_path: Path) -> None:
    settings = ExplorerSettings(
        local_connection(), saved_queries=tmp_path / "kept" / "queries.json"
    )
    query = GridQuery("temp gt 3.0", ("temp",), "temp desc", 5)
    save_query(settings, "Weather", "wärm 😀", query)
    save_query(settings, "Other", "x", GridQuery())
    assert queries_of(settings, "Weather") == {"wärm 😀": query}
    assert settings.saved_queries is not None
    assert settings.saved_queries.stat().st_mode & 0o077 == 0
    forget_query(settings, "Weather", "wärm 😀")
    assert queries_of(settings, "Weather") == {}
    for name in ("", " ", "x" * 81):
        with pytest.raises(TransferRefused):
            save_query(settings, "Weather", name, query)


def test_a_file_without_saved_queries_is_refused(tmp_path: Path) -> None:
    settings = ExplorerSettings(local_connection(), saved_queries=tmp_path / "queries.json")
    assert settings.saved_queries is not None
    settings.saved_queries.write_text("{", encoding="utf-8")
    with pytest.raises(TransferRefused):
        queries_of(settings, "Weather")


FOUND = [
    {"PartitionKey": "p", "RowKey": str(n), "n": n, "m": -n, "t": "x"} for n in (3, 1, 2, 5, 4)
]


class _Endpoint:
    """Pages of two entities."""

    def __init__(self) -> None:
        self.asked: list[Query] = []

    def page(self, query: Query, token: ContinuationToken | None) -> Page:
        self.asked.append(query)
        start = 0 if token is None else int(token.next_row_key)
        end = start + 2
        return Page(
            FOUND[start:end], ContinuationToken("a", str(end)) if end < len(FOUND) else None, 9
        )


@pytest.mark.parametrize(
    ("query", "numbers", "asked_for"),
    [
        (GridQuery(), [3, 1, 2, 5, 4], ()),
        (GridQuery(top=1), [3], ()),
        (GridQuery(top=2), [3, 1], ()),
        (GridQuery(top=3), [3, 1, 2], ()),
        (GridQuery(top=9), [3, 1, 2, 5, 4], ()),
        (GridQuery(order="n"), [1, 2, 3, 4, 5], ()),
        (GridQuery(order="n desc", top=2), [5, 4], ()),
        (GridQuery(select=("n",), order="m", top=2), [5, 4], ("PartitionKey", "RowKey", "n", "m")),
    ],
)
def test_the_pages_of_what_is_shown(
    query: GridQuery, numbers: list[int], asked_for: tuple[str, ...]
) -> None:
    """In the grid's order, and no more than its `top`; a property that only sorts is left out."""
    endpoint: Any = _Endpoint()
    pages = list(ShownPages(TableReader(endpoint), query).pages(Query("T", None, asked_for)))
    found = [raw for page in pages for raw in page.entities]
    assert [raw["n"] for raw in found] == numbers
    assert [page.next_token is None for page in pages] == [False] * (len(pages) - 1) + [True]
    assert endpoint.asked[0].select == asked_for
    assert all("m" not in raw for raw in found) == (query.select == ("n",))
