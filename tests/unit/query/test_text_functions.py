"""The functions of text in a filter, which a server has with --query-extensions (tests/spec/query_extensions.toml)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_tables import Row, load
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.errors import StorageError
from tablestone.model.filter_tree import (
    TEXT_FUNCTIONS,
    Comparison,
    ComparisonOperator,
    print_filter,
)
from tablestone.query.evaluate import compile_filter
from tablestone.query.filter_parser import parse_filter
from tablestone.query.index_plan import VALUE_BYTES_MAX, access_paths_of, index_key_of
from tablestone.query.plan import PlanKind, plan_query
from unit.query.query_tables import literal, parameters, parsed

_TABLE = load("query_extensions.toml")


@pytest.mark.parametrize("row", parameters(_TABLE["parses"]))
def test_a_call_means(row: Row) -> None:
    assert print_filter(parsed(row["filter"])) == row["prints"]
    assert parsed(row["prints"]) == parsed(row["filter"])


@pytest.mark.parametrize("row", parameters(_TABLE["refused"]))
def test_a_call_is_refused(row: Row) -> None:
    with pytest.raises(StorageError) as raised:
        parse_filter(row["filter"], extended=True)
    assert raised.value.code == row.get("code", "InvalidInput")
    assert row.get("text", "") in raised.value.text


@pytest.mark.parametrize("row", parameters(_TABLE["parses"]))
def test_without_the_extension_no_function_is_implemented(row: Row) -> None:
    with pytest.raises(StorageError, match="NotImplemented"):
        parse_filter(row["filter"])


@pytest.mark.parametrize("row", parameters(_TABLE["matches"]))
def test_a_text_matches(row: Row) -> None:
    entity = {"p": literal(row["stored"])} if "stored" in row else {}
    found = {
        text: compile_filter(parsed(text))(entity.get) for text in row["true_of"] + row["false_of"]
    }
    assert found == dict.fromkeys(row["true_of"], True) | dict.fromkeys(row["false_of"], False)


HALVES = ("", "a", "\ud83d", "\ude00", "a\ud83d", "\ude00b", "\ud83da")


@pytest.mark.parametrize("part", HALVES)
@pytest.mark.parametrize("function", TEXT_FUNCTIONS)
def test_halves_of_a_character(function: ComparisonOperator, part: str) -> None:
    """As .NET's ordinal search: a text is UTF-16 units, and the first half of 😀 is a prefix of it."""
    stored = EdmValue(EdmType.STRING, "a😀b")
    units, wanted = [
        text.encode("utf-16-be", "surrogatepass").hex(" ", 2) for text in ("a😀b", part)
    ]
    expected = {
        ComparisonOperator.STARTS_WITH: units.startswith(wanted),
        ComparisonOperator.ENDS_WITH: units.endswith(wanted),
        ComparisonOperator.CONTAINS: wanted in units,
    }
    node = Comparison("p", function, EdmValue(EdmType.STRING, part))
    assert compile_filter(node)({"p": stored}.get) is expected[function]


@pytest.mark.parametrize(
    ("text", "kind", "residual"),
    [
        ("startswith(PartitionKey,'a')", PlanKind.PARTITION_RANGE, None),
        ("PartitionKey eq 'p' and startswith(RowKey,'a')", PlanKind.ROW_RANGE, None),
        (
            "PartitionKey eq 'p' and startswith(RowKey,'a') and contains(RowKey,'b')",
            PlanKind.ROW_RANGE,
            "contains(RowKey,'b')",
        ),
        ("startswith(PartitionKey,'')", PlanKind.TABLE, None),
        ("not startswith(PartitionKey,'')", PlanKind.NOTHING, None),
        ("not startswith(PartitionKey,'a')", PlanKind.RANGES, None),
        ("endswith(PartitionKey,'a')", PlanKind.TABLE, "endswith(PartitionKey,'a')"),
        ("not contains(RowKey,'a')", PlanKind.TABLE, "not (contains(RowKey,'a'))"),
        ("PartitionKey eq 'b' and startswith(PartitionKey,'a')", PlanKind.NOTHING, None),
    ],
)
def test_startswith_on_a_key_reads_a_range(text: str, kind: PlanKind, residual: str | None) -> None:
    plan = plan_query(parsed(text))
    assert plan.kind is kind
    assert (None if plan.residual is None else print_filter(plan.residual)) == residual


@given(
    st.text(alphabet="ab\uffff😀", max_size=4),
    st.text(alphabet="ab\uffff😀\ud83d", max_size=3),
    st.sampled_from([0, VALUE_BYTES_MAX - 4, VALUE_BYTES_MAX]),
)
def test_startswith_on_an_indexed_property_reads_a_range(
    stored: str, part: str, length: int
) -> None:
    """Each match has its entry in the range, also where values are cut."""
    stored, part = "x" * length + stored, "x" * length + part
    node = Comparison("p", ComparisonOperator.STARTS_WITH, EdmValue(EdmType.STRING, part))
    ((path,),) = [path.values() for path in access_paths_of(node, ["p"])]
    value = EdmValue(EdmType.STRING, stored)
    key = index_key_of(value)
    is_found = any(start <= key < end for start, end in path)
    matches = compile_filter(node)({"p": value}.get)
    assert is_found >= matches
    if len(part.encode("utf-16-be", "surrogatepass")) < VALUE_BYTES_MAX:
        assert is_found is matches
    assert not any(start <= index_key_of(EdmValue(EdmType.INT32, 5)) < end for start, end in path)


@pytest.mark.parametrize("function", ["endswith", "contains"])
def test_other_functions_have_no_access_path(function: str) -> None:
    assert access_paths_of(parsed(f"{function}(p,'x')"), ["p"]) == []
