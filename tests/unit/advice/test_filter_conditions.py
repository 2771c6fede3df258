"""The conditions of filters, shapes of filters, and keys that follow time: tables of cases."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestone.advice.filter_shape import NoShape, read_shape, shape_of
from tablestone.advice.proposed_keys import BRANCHES_MAX, Conditions, conditions_of
from tablestone.advice.workload import KeyForm, form_of
from tablestone.model.edm import EdmType
from tablestone.query.filter_parser import parse_filter
from tablestone.query.plan import PlanKind, plan_query

C = Conditions


@pytest.mark.parametrize(
    ("text", "branches"),
    [
        ("a eq 1", [C(("a",))]),
        ("a eq 1 and b ge 2 and b lt 9", [C(("a",), ("b",))]),
        ("a eq 1 and a ge 0", [C(("a",))]),
        ("a ne 1 and b eq 2", [C(("b",), (), ("a",))]),
        ("a", [C(("a",))]),
        ("not a", [C((), (), ("a",))]),
        ("not (a eq 1)", [C((), (), ("a",))]),
        ("a gt -1", [C((), (), ("a",))]),
        ("a gt guid'00000000-0000-0000-0000-000000000000'", [C((), (), ("a",))]),
        ("a gt 0.5", [C((), ("a",))]),
        ("not (a lt 1)", [C((), (), ("a",))]),
        ("not (RowKey lt 'x')", [C((), ("RowKey",))]),
        ("not (RowKey ne 'x')", [C(("RowKey",))]),
        ("not (not (a eq 1))", [C(("a",))]),
        ("true", [C()]),
        ("a eq 1 or a eq 2", [C(("a",), several=frozenset("a"))]),
        ("(a eq 1 and b eq 1) or (b eq 2 and a eq 2)", [C(("a", "b"), several=frozenset("ab"))]),
        ("b eq 3 and (a eq 1 or a eq 2)", [C(("b", "a"), several=frozenset("a"))]),
        ("a eq 1 and (a eq 1 or a eq 2)", [C(("a",))]),
        ("a lt 1 or a gt 5", [C((), ("a",))]),
        ("a eq 1 or b gt 2", [C(("a",)), C((), ("b",))]),
        ("c eq 1 and (a eq 1 or b gt 2)", [C(("c", "a")), C(("c",), ("b",))]),
        ("not (a ne 1 or RowKey ne 'x')", [C(("RowKey",), (), ("a",))]),
        (
            "not (RowKey eq 'x' and PartitionKey eq 'y')",
            [C((), (), ("RowKey",)), C((), (), ("PartitionKey",))],
        ),
    ],
)
def test_what_a_key_can_do_with_a_filter(text: str, branches: list[Conditions]) -> None:
    assert list(conditions_of(parse_filter(text))) == branches


def test_an_or_of_very_many_properties_is_one_condition() -> None:
    text = " or ".join(f"p{n} eq 1" for n in range(BRANCHES_MAX + 1))
    (conditions,) = conditions_of(parse_filter(text))
    assert conditions.equal == ()
    assert len(conditions.unusable) == BRANCHES_MAX + 1
    (conditions,) = conditions_of(parse_filter(f"x eq 1 and ({text})"))
    assert conditions.equal == ("x",)


def test_types_are_those_of_the_values() -> None:
    (conditions,) = conditions_of(parse_filter("a eq 1L and not b and c lt 'x'"))
    assert conditions.types == {"a": EdmType.INT64, "b": EdmType.BOOLEAN, "c": EdmType.STRING}


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("City eq 'Paris' and Date ge datetime'2013-01-01T00:00:00Z'", "City eq ? and Date ge ?"),
        ("not (a eq 1) and b", "not (a eq ?) and b"),
        ("(a eq 1 or b eq 2) and c eq 3", "(a eq ? or b eq ?) and c eq ?"),
        (" or ".join(f"RowKey eq '{n}'" for n in range(50)), "RowKey eq ? or RowKey eq ?"),
        ("RowKey ge 'a' and RowKey lt 'b'", "RowKey ge ? and RowKey lt ?"),
        ("true", "true"),
    ],
)
def test_a_shape_has_no_values(text: str, shape: str) -> None:
    assert shape_of(parse_filter(text)) == shape
    assert shape_of(read_shape(shape)) == shape


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ("", PlanKind.TABLE),
        ("PartitionKey eq ? and RowKey eq ?", PlanKind.POINT),
        ("PartitionKey eq ? and (RowKey eq ? or RowKey eq ?)", PlanKind.POINTS),
        ("PartitionKey eq ? and (RowKey eq ? or ...)", PlanKind.POINT),
        ("PartitionKey eq ? and RowKey lt ? and RowKey ge ?", PlanKind.ROW_RANGE),
        ("PartitionKey eq ? and City eq ?", PlanKind.PARTITION),
        ("PartitionKey gt ? and PartitionKey le ?", PlanKind.PARTITION_RANGE),
        ("PartitionKey eq ? or PartitionKey eq ?", PlanKind.RANGES),
        ("RowKey eq ?", PlanKind.TABLE),
        ("Timestamp ge ? and Name eq 'really?'", PlanKind.TABLE),
    ],
)
def test_a_shape_has_the_plan_of_its_queries(shape: str, kind: PlanKind) -> None:
    assert plan_query(read_shape(shape)).kind is kind


def test_types_of_a_shape() -> None:
    (conditions,) = conditions_of(read_shape("a eq ? and b", {"a": EdmType.INT32}))
    assert conditions.types == {"a": EdmType.INT32, "b": EdmType.BOOLEAN}


@pytest.mark.parametrize(
    "text", ["City eq", "length(City) eq ?", "? eq ?", "(((", "...", "a eq ? or"]
)
def test_a_text_that_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(NoShape):
        read_shape(text)


NOW = datetime(2026, 11, 22, 17, 0, tzinfo=UTC)
MOMENTS = [NOW + timedelta(hours=n) for n in range(40)]
TICKS = [
    int((each - datetime(1, 1, 1, tzinfo=UTC)).total_seconds()) * 10_000_000 for each in MOMENTS
]
TICKS_MAX = 3_155_378_975_999_999_999
"""DateTime.MaxValue.Ticks of .NET, from which the log tail pattern subtracts."""


@pytest.mark.parametrize(
    ("keys", "form"),
    [
        ([each.isoformat() for each in MOMENTS], KeyForm.TIME_ASCENDING),
        ([f"{each:%Y-%m-%d}" for each in MOMENTS], KeyForm.TIME_ASCENDING),
        ([f"{each:%Y%m%d%H}" for each in MOMENTS], KeyForm.TIME_ASCENDING),
        ([f"{each:%Y-%m-%dT%H}_{n}" for n, each in enumerate(MOMENTS)], KeyForm.TIME_ASCENDING),
        ([str(int(each.timestamp())) for each in MOMENTS], KeyForm.TIME_ASCENDING),
        ([str(int(each.timestamp()) * 1000) for each in MOMENTS], KeyForm.TIME_ASCENDING),
        ([f"0{each}" for each in TICKS], KeyForm.TIME_ASCENDING),
        ([str(each) for each in TICKS], KeyForm.TIME_ASCENDING),
        ([f"{TICKS_MAX - each:019}" for each in TICKS], KeyForm.TIME_DESCENDING),
        ([f"{TICKS_MAX - each:019}_{n}" for n, each in enumerate(TICKS)], KeyForm.TIME_DESCENDING),
        (["JFK", "LGA", "EWR"], KeyForm.OTHER),
        ([f"{n:06}" for n in range(50)], KeyForm.OTHER),
        ([f"{n:010}" for n in range(50)], KeyForm.OTHER),
        (["2013-07", "Paris", "Rome"], KeyForm.OTHER),
        ([f"2013{n:02}-order" for n in range(50)], KeyForm.OTHER),
        (["2013-07-04"], KeyForm.OTHER),
        ([], KeyForm.OTHER),
    ],
)
def test_keys_that_follow_time_are_recognised(keys: list[str], form: KeyForm) -> None:
    assert form_of(keys) is form


@given(st.lists(st.text()))
def test_any_keys_have_a_form(keys: list[str]) -> None:
    assert form_of(keys) is form_of(reversed(keys))
