"""Keys sort as their values do, and can be read back: for every value of each kind."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from table_patterns import CompositeKey, KeyPartError, Padded, ReverseTicks

TIMES = st.datetimes(timezones=st.timezones() | st.just(UTC)).filter(
    lambda time: 1 < time.year < 9999
)
SHORT_TEXTS = st.text(st.characters(), max_size=20) | st.text(
    "!\"#$%&'./0>?[\\~a\x00\x7f", max_size=20
)
FORBIDDEN = set("/\\#?%'") | {chr(unit) for unit in (*range(0x21), *range(0x7F, 0xA0))}
KINDS: dict[str, tuple[Any, st.SearchStrategy[Any], Any]] = {
    # the kind, its values, what their order is by
    "str": (str, SHORT_TEXTS, lambda text: text.encode("utf-16-be", "surrogatepass")),
    "int": (int, st.integers() | st.integers(-(10**499), 10**499), int),
    "float": (float, st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 5e-324]), float),
    "datetime": (datetime, TIMES, lambda time: time.astimezone(UTC)),
    "Padded": (Padded(6), st.integers(0, 999_999), int),
    "ReverseTicks": (ReverseTicks(), TIMES, lambda time: datetime.max.replace(tzinfo=UTC) - time),
}
VALUES = {name: values for name, (_, values, _) in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_keys_sort_as_their_values(kind: str, data: st.DataObject) -> None:
    part, values, order = KINDS[kind]
    key = CompositeKey(part)
    one, other = data.draw(values), data.draw(values)
    first, second = key.encode(one), key.encode(other)
    assert (first < second, first == second) == (
        order(one) < order(other),
        order(one) == order(other),
    )
    # Times in the hour that summer time leaves out are equal to none of another zone (PEP 495).
    assert [order(value) for value in key.decode(first)] == [order(one)]
    assert first.isascii()
    assert not FORBIDDEN & set(first)


@given(data=st.data(), kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=4))
def test_keys_of_several_parts_sort_by_the_first_that_differs(
    data: st.DataObject, kinds: list[str]
) -> None:
    values = st.tuples(*(KINDS[kind][1] for kind in kinds))
    key = CompositeKey(*(KINDS[kind][0] for kind in kinds))
    one, other = data.draw(values), data.draw(values)
    try:
        first, second = key.encode(*one), key.encode(*other)
    except KeyPartError:
        return  # too long
    orders = [
        tuple(KINDS[kind][2](value) for kind, value in zip(kinds, values, strict=True))
        for values in (one, other)
    ]
    assert (first < second) == (orders[0] < orders[1])
    read = [KINDS[kind][2](value) for kind, value in zip(kinds, key.decode(first), strict=True)]
    assert tuple(read) == orders[0]
    low, above = key.between(*one[:-1])
    assert low <= first < above
    assert (low <= second < above) == (orders[0][:-1] == orders[1][:-1])
    assert key.filter("RowKey", *one[:-1]) == f"RowKey ge '{low}' and RowKey lt '{above}'"


EXAMPLES = [
    # the kinds, the values, the key
    ((str,), ("Smith",), "Smith"),
    ((str,), ("a/b #1",), """a.1b"20"231"""),
    ((str,), ("Müller",), "M~00fcller"),
    ((str,), ("\ud83d\ude00",), "~d83d~de00"),
    ((int,), (42,), "b42"),
    ((int,), (-42,), "Y57"),
    ((int,), (10**30,), "z031" + "1" + "0" * 30),
    ((Padded(6),), (42,), "000042"),
    ((datetime,), (datetime(2026, 11, 29, 8, tzinfo=UTC),), "2026-11-29T08:00:00.000000Z"),
    ((ReverseTicks(),), (datetime(2000, 1, 1, tzinfo=UTC),), "2524556159999999999"),
    ((str, int), ("Smith", 5), "Smith!a5"),
]


@pytest.mark.parametrize(("kinds", "values", "key"), EXAMPLES, ids=[each[2] for each in EXAMPLES])
def test_the_form_does_not_change(
    kinds: tuple[Any, ...], values: tuple[Any, ...], key: str
) -> None:
    assert CompositeKey(*kinds).encode(*values) == key


REFUSED = [
    # the kinds, the values, words of the error
    ((str,), (5,), "no text"),
    ((int,), ("5",), "no int"),
    ((int,), (True,), "no int"),
    ((int,), (10**500,), "at most 500 digits"),
    ((Padded(3),), (1000,), "3 digits"),
    ((Padded(3),), (-1,), "3 digits"),
    ((Padded(3),), (True,), "no int"),
    ((float,), (float("nan"),), "no float that has an order"),
    ((float,), (1,), "no float"),
    ((datetime,), (datetime(2026, 1, 1),), "no time with a zone"),  # noqa: DTZ001 - the case
    ((datetime,), (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),), "years 1 to 9999"),
    ((ReverseTicks(),), (datetime(2026, 1, 1),), "no time with a zone"),  # noqa: DTZ001 - the case
    ((str,), ("a" * 513,), "513 units, more than 512"),
    ((str,), ("ü" * 103,), "515 units, more than 512"),
    ((str, str), ("a" * 256, "b" * 256), "513 units"),
    ((str, str), ("a",), "2 parts, not 1"),
    ((str,), ("a", "b"), "1 parts, not 2"),
]


@pytest.mark.parametrize(("kinds", "values", "words"), REFUSED)
def test_what_is_no_part_is_refused(
    kinds: tuple[Any, ...], values: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(KeyPartError, match=words):
        CompositeKey(*kinds).encode(*values)


@given(key=st.text("""!"#$%&.>[~0129afAZz""", max_size=12) | st.text(max_size=12))
@pytest.mark.parametrize("kind", [str, int, float, datetime, Padded(3), ReverseTicks()])
def test_a_text_is_read_only_if_it_is_such_a_key(kind: Any, key: str) -> None:
    keys = CompositeKey(kind)
    try:
        values = keys.decode(key)
    except KeyPartError:
        return
    assert keys.encode(*values) == key


def test_digits_below_a_microsecond_are_cut_off() -> None:
    keys = CompositeKey(ReverseTicks())
    written = keys.encode(datetime(2026, 1, 1, tzinfo=UTC))
    by_others = str(int(written) - 7)
    assert keys.decode(by_others) == (datetime(2026, 1, 1, tzinfo=UTC),)


@pytest.mark.parametrize("kinds", [(), (bytes,), (object,)])
def test_a_kind_without_an_order_is_refused(kinds: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        CompositeKey(*kinds)


@pytest.mark.parametrize("first", [(), ("a", 1, 2)])
def test_a_range_needs_first_values(first: tuple[Any, ...]) -> None:
    with pytest.raises(KeyPartError, match="1 to 2 first values"):
        CompositeKey(str, int).between(*first)


WRONG_KEYS = [
    "a\n!2516000000000000000",
    "~ 1_2!2516000000000000000",
    "a" * 500 + "!" + "2" * 19,
    None,
    5,
]


@pytest.mark.parametrize("key", WRONG_KEYS)
def test_a_key_with_ticks_is_read_as_strictly_as_others(key: Any) -> None:
    with pytest.raises(KeyPartError, match="is no key of these parts"):
        CompositeKey(str, ReverseTicks()).decode(key)


def test_ticks_of_other_languages_are_read() -> None:
    (read,) = CompositeKey(ReverseTicks()).decode("2516000000000000003")
    (same,) = CompositeKey(ReverseTicks()).decode("2516000000000000009")
    assert read == same


def test_a_prefix_that_is_not_ascii_is_refused() -> None:
    with pytest.raises(ValueError, match="'ü' has characters"):
        CompositeKey(str, prefix="ü")


@pytest.mark.parametrize("kind", [5, "str", b"bytes", None, Padded])
def test_what_is_no_kind_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="is no kind of a part"):
        CompositeKey(kind)
