"""Filters on properties as filters on the keys of templates: the keys for each, and that no entity is lost."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestone.advice.filter_shape import read_shape
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.filter_tree import FilterNode, print_filter
from tablestone.model.keys import EntityKey
from tablestone.query.evaluate import compile_filter
from tablestone.query.filter_parser import parse_filter
from tablestone.query.plan import PlanKind, plan_query
from tablestone.tools.formats.rows import KeyTemplate
from tablestone.tools.simulated_queries import PRESENT, KeyTemplates, map_filter, sign_notes
from unit.query.query_strategies import trees_of


def templates(partition_key: str, row_key: str, *, present: bool = False) -> KeyTemplates:
    return KeyTemplates(KeyTemplate(partition_key, ""), KeyTemplate(row_key, ""), present)


class Case(NamedTuple):
    """Templates, a filter, the filter on the new keys beside it, and its plan there."""

    partition_key: str
    row_key: str
    filter: str
    keys: str
    plan: PlanKind


CASES = [
    Case("City", "Date", "City eq 'Rome'", "PartitionKey eq 'Rome'", PlanKind.PARTITION),
    Case(
        "City",
        "Date",
        "City eq 'Rome' and Date ge '2013' and Date lt '2014'",
        "PartitionKey eq 'Rome' and RowKey ge '2013' and RowKey lt '2014'",
        PlanKind.ROW_RANGE,
    ),
    Case(
        "City",
        "Date",
        "City eq 'Rome' and Date eq '2013'",
        "PartitionKey eq 'Rome' and RowKey eq '2013'",
        PlanKind.POINT,
    ),
    Case("City", "Date", "Date ge '2013'", "RowKey ge '2013'", PlanKind.TABLE),
    Case("City", "Date", "City ge 'R'", "PartitionKey ge 'R'", PlanKind.PARTITION_RANGE),
    # A key of several properties is narrowed from its beginning on.
    Case(
        "city_{City}",
        "{Date}_{Id}",
        "City eq 'Rome' and Date eq '2013'",
        "PartitionKey eq 'city_Rome' and RowKey ge '2013_' and RowKey lt '2013`'",
        PlanKind.ROW_RANGE,
    ),
    Case(
        "city_{City}",
        "{Date}_{Id}",
        "City eq 'Rome' and Date gt '2013' and Date le '2014'",
        "PartitionKey eq 'city_Rome' and RowKey ge '2013' and RowKey lt '2015'",
        PlanKind.ROW_RANGE,
    ),
    Case(
        "City",
        "{Date}_{Id}",
        "City eq 'Rome' and Id eq '7'",
        "PartitionKey eq 'Rome'",
        PlanKind.PARTITION,
    ),
    Case(
        "{Country}-{City}",
        "Id",
        "Country eq 'IT'",
        "PartitionKey ge 'IT-' and PartitionKey lt 'IT.'",
        PlanKind.PARTITION_RANGE,
    ),
    # Numbers: equality always, a range only if the format pads them.
    Case(
        "City",
        "Age",
        "City eq 'Rome' and Age eq 7",
        "PartitionKey eq 'Rome' and RowKey eq '7'",
        PlanKind.POINT,
    ),
    Case(
        "City", "Age", "City eq 'Rome' and Age gt 7", "PartitionKey eq 'Rome'", PlanKind.PARTITION
    ),
    Case(
        "City",
        "{Age:03}",
        "City eq 'Rome' and Age gt 7",
        "PartitionKey eq 'Rome' and RowKey gt '007'",
        PlanKind.ROW_RANGE,
    ),
    Case(
        "City",
        "{Age:03}",
        "City eq 'Rome' and Age gt -7",
        "PartitionKey eq 'Rome'",
        PlanKind.PARTITION,
    ),
    Case(
        "City",
        "{Heat:08.2f}",
        "City eq 'Rome' and Heat le 7.5",
        "PartitionKey eq 'Rome' and RowKey le '00007.50'",
        PlanKind.ROW_RANGE,
    ),
    Case(
        "City",
        "At",
        "City eq 'Rome' and At ge datetime'2013-07-04T15:00:00Z'",
        "PartitionKey eq 'Rome' and RowKey ge '2013-07-04T15:00:00Z'",
        PlanKind.ROW_RANGE,
    ),
    # The beginning of a text sorts as the text does, but several texts begin alike.
    Case(
        "{At:.10}",
        "Id",
        "At gt datetime'2013-07-04T15:00:00Z' and At lt datetime'2013-07-06T12:00:00Z'",
        "PartitionKey ge '2013-07-04' and PartitionKey lt '2013-07-07'",
        PlanKind.PARTITION_RANGE,
    ),
    Case(
        "{At:.7}",
        "Id",
        "At eq datetime'2013-07-04T15:00:00Z'",
        "PartitionKey eq '2013-07'",
        PlanKind.PARTITION,
    ),
    Case("Open", "Id", "Open", "PartitionKey eq 'true'", PlanKind.PARTITION),
    # or, not, ne.
    Case(
        "City",
        "Id",
        "City eq 'Rome' or City eq 'Bonn'",
        "PartitionKey eq 'Rome'|PartitionKey eq 'Bonn'",
        PlanKind.RANGES,
    ),
    Case(
        "City",
        "Id",
        "City eq 'Rome' and (Id eq '1' or Id eq '2')",
        "PartitionKey eq 'Rome'|PartitionKey eq 'Rome' and RowKey eq '1'|PartitionKey eq 'Rome' and RowKey eq '2'",
        PlanKind.POINTS,
    ),
    Case("City", "Id", "City eq 'Rome' or Name eq 'Ada'", "PartitionKey eq 'Rome'", PlanKind.TABLE),
    Case("City", "Id", "City ne 'Rome'", "", PlanKind.TABLE),
    Case("City", "Id", "not (City eq 'Rome')", "", PlanKind.TABLE),
    Case(
        "City",
        "Id",
        "not (not (City eq 'Rome') or Id ne '1')",
        "PartitionKey eq 'Rome'",
        PlanKind.PARTITION,
    ),
    Case("City", "Id", "Name eq 'Ada'", "", PlanKind.TABLE),
    # A file without keys: the filter may name the new ones.
    Case("City", "Id", "PartitionKey eq 'Rome' and RowKey eq '1'", "", PlanKind.POINT),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.filter)
def test_a_filter_on_the_new_keys(case: Case) -> None:
    tree = parse_filter(case.filter)
    assert tree is not None
    mapped = map_filter(tree, templates(case.partition_key, case.row_key)).filter
    text = print_filter(mapped)
    for keys in case.keys.split("|"):
        assert keys in text
    if not case.keys:
        assert text == print_filter(tree)
    assert plan_query(mapped).kind is case.plan


@pytest.mark.parametrize(
    ("row_key", "filter_text", "note"),
    [
        ("Age", "Age gt 7", "{Age:010} would"),
        ("Age", "Age gt 7L", "{Age:019} would"),
        ("{Age:3}", "Age gt 7", "{Age:010} would"),
        ("Heat", "Heat gt 7.5", "{Heat:020.6f} would"),
        ("{Age:03}", "Age gt -7", "negative"),
        ("Id", "Id gt guid'00000000-0000-0000-0000-000000000000'", "does not sort"),
        ("{Name:>9}", "Name gt 'x'", "does not sort"),
    ],
)
def test_a_range_that_no_key_can_have_says_why(row_key: str, filter_text: str, note: str) -> None:
    tree = parse_filter(filter_text)
    assert tree is not None
    (told,) = map_filter(tree, templates("City", row_key)).notes
    assert note in told


def test_the_present_keys_of_a_table_are_properties_under_new_keys() -> None:
    tree = parse_filter("PartitionKey eq 'Rome' and RowKey ge '2013'")
    assert tree is not None
    mapped = map_filter(tree, templates("{RowKey}", "{PartitionKey}", present=True)).filter
    assert print_filter(mapped) == (
        "PartitionKey ge '2013' and RowKey eq 'Rome' and "
        f"{PRESENT}PartitionKey eq 'Rome' and {PRESENT}RowKey ge '2013'"
    )


@pytest.mark.parametrize(
    ("filter_text", "notes"),
    [
        ("City eq ? and Age gt ?", ["A range of Age is a range of these keys only if no Age is negative."]),
        ("City eq ? and Age eq ?", []),
        ("City eq ? and Id gt ?", []),
    ],
)  # fmt: skip
def test_a_shape_does_not_show_the_sign_of_a_number(filter_text: str, notes: list[str]) -> None:
    tree = read_shape(filter_text, {"Age": EdmType.INT32, "Id": EdmType.INT32})
    assert tree is not None
    assert list(sign_notes(tree, templates("City", "{Age:010}_{Id}"))) == notes


TEXTS = st.text("aB_~é", min_size=1, max_size=3)
NUMBERS = st.integers(0, 120)
ROWS = st.fixed_dictionaries(
    {
        "a": TEXTS.map(lambda text: EdmValue(EdmType.STRING, text)),
        "b": TEXTS.map(lambda text: EdmValue(EdmType.STRING, text)),
        "n": NUMBERS.map(lambda number: EdmValue(EdmType.INT32, number)),
        "flag": st.booleans().map(lambda value: EdmValue(EdmType.BOOLEAN, value)),
    }
)
OPERATORS = st.sampled_from(["eq", "ne", "gt", "ge", "lt", "le"])
LEAVES = st.one_of(
    st.builds("{} {} '{}'".format, st.sampled_from("ab"), OPERATORS, TEXTS),
    st.builds("n {} {}".format, OPERATORS, NUMBERS),
    st.just("flag"),
).map(parse_filter)
TEMPLATES = st.sampled_from(
    [
        "a",
        "b",
        "{n:03}",
        "x{a}",
        "{n:03}-{b}",
        "{flag}{n}",
        "{a:3}",
        "n",
        "{n:04d}_{a}",
        "{a:.1}",
        "x{b:.2}",
    ]
)


@given(ROWS, trees_of(LEAVES, 8), TEMPLATES, TEMPLATES)  # type: ignore[arg-type]
def test_the_keys_of_a_filter_hold_every_entity_that_matches(
    row: dict[str, EdmValue], tree: FilterNode, partition_key: str, row_key: str
) -> None:
    """A text of any length can only be the end of a key here: before another one, a bound could lose shorter texts."""
    given_templates = templates(partition_key, row_key)
    key = EntityKey(given_templates.partition_key.render(row), given_templates.row_key.render(row))
    keyed = {
        **row,
        "PartitionKey": EdmValue(EdmType.STRING, key.partition_key),
        "RowKey": EdmValue(EdmType.STRING, key.row_key),
    }
    mapped = map_filter(tree, given_templates).filter
    assert compile_filter(mapped)(keyed.get) is compile_filter(tree)(keyed.get)
