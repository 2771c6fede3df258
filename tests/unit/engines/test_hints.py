"""Hints never leave out an entity that matches: every filter, on difficult values, in the engines that use them.

The C function answers as SQL does.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, cast
from unittest import mock

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hint_ways import HAS_C, deciding_in
from spec_tables import Row, load
from tablestone.engines import memory
from tablestone.engines.contract import (
    AllOf,
    AnyOf,
    Hint,
    Key,
    KeyRange,
    NumberAfter,
    RowBetween,
    Rows,
)
from tablestone.engines.memory import MemoryRows
from tablestone.engines.sqlite.hinted_read import (
    LOOKS_IN_C,
    VALUES_LOOKED_INTO,
    HintedReader,
    Sql,
    conditions_of,
)
from tablestone.engines.sqlite.row_hints import gives_function
from tablestone.model.edm import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    EdmType,
    EdmValue,
    geography_point,
    parse_date_time,
)
from tablestone.model.entity_json import entity_renderer, members, read_raw, typed_property
from tablestone.model.filter_tree import Comparison, ComparisonOperator, FilterNode
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey, encode_key
from tablestone.query.evaluate import compile_filter
from tablestone.tables.filter_pushdown import COMPARISONS_MAX, hint_of
from unit.query.query_strategies import KEYS, OPERATORS, comparisons, trees_of
from unit.query.query_tables import literal, parameters, parsed

VERSION = parse_date_time("2020-02-29T23:59:59.0000001Z")
_MOMENTS = [
    "2020-02-29T23:59:59Z",
    "2020-02-29T23:59:59.0000001Z",
    "2020-02-29T23:59:59.1Z",
    "2020-02-29T23:59:58.9999999Z",
    "2020-03-01T00:00:00Z",
    "1601-01-01T00:00:00Z",
    "9999-12-31T23:59:59.9999999Z",
]
_TEXTS = [
    *("", '"', "\\", ",", "5", "-5", "NaN", "Infinity", "true", "}", "\0", "é", "\ud7ff", "😀"),
    *(',"a":5', '","a":"5', 'x,"a":5', "a\x7fb", "2020-02-29T23:59:59Z", "/", ".5", "'", "A", "B"),
    "3c9d0a4e-0000-0000-0000-00000000000a",
    "x" * 5000,
]
_POOL = [
    *(EdmValue(EdmType.STRING, text) for text in _TEXTS),
    *(EdmValue(EdmType.INT32, number) for number in (0, 1, -1, 5, 37, INT32_MAX, INT32_MIN)),
    *(
        EdmValue(EdmType.INT64, number)
        for number in (0, 5, 37, 2**53, 2**53 + 1, INT64_MAX, INT64_MAX - 1, INT64_MIN)
    ),
    *(
        EdmValue(EdmType.DOUBLE, number)
        for number in (0.0, 5.0, -5.5, 0.1, 0.1 + 0.2, 5e-324, 2.0**53, 1.7976931348623157e308)
    ),
    *(EdmValue(EdmType.DOUBLE, number) for number in (1e15, -1e-7, math.inf, -math.inf, math.nan)),
    *(EdmValue(EdmType.BOOLEAN, value) for value in (True, False)),
    *(EdmValue(EdmType.DATE_TIME, parse_date_time(text)) for text in _MOMENTS),
    EdmValue(EdmType.GUID, _TEXTS[-2]),
    EdmValue(EdmType.BINARY, b"5"),
]
_POINT = EdmValue(EdmType.GEOGRAPHY_POINT, geography_point(5.0, 37.0))
_NAMES = ["a", "A", "ab", "b", "type", "coordinates", "größe", "odata", "_", "b_1"]
_VALUES = st.one_of(
    st.sampled_from(_POOL),
    st.builds(EdmValue, st.just(EdmType.DOUBLE), st.floats().map(lambda x: x or 0.0)),
    st.builds(EdmValue, st.just(EdmType.INT64), st.integers(INT64_MIN, INT64_MAX)),
    st.builds(EdmValue, st.just(EdmType.STRING), st.text(alphabet='a5",:\\}😀', max_size=8)),
)
_OPERATORS = st.sampled_from(OPERATORS)
_KEY_VALUES = st.builds(EdmValue, st.just(EdmType.STRING), st.sampled_from(KEYS))
_MOMENT_VALUES = st.builds(
    EdmValue, st.just(EdmType.DATE_TIME), st.sampled_from(_MOMENTS).map(parse_date_time)
)
_FILTERS = trees_of(
    st.one_of(
        comparisons(st.sampled_from(_NAMES), _VALUES),
        comparisons(st.sampled_from([PARTITION_KEY, ROW_KEY]), _KEY_VALUES),
        comparisons(st.just("Timestamp"), _MOMENT_VALUES),
    ),
    12,
)
_ENTITIES = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from(KEYS),
    st.dictionaries(st.sampled_from(_NAMES), _VALUES | st.just(_POINT), max_size=6),
)
Stored = tuple[str, str, dict[str, EdmValue]]
_CONNECTION = apsw.Connection(":memory:")
if HAS_C:
    with deciding_in("C"):
        assert gives_function(_CONNECTION)


def _reader(way: str) -> Callable[..., Rows]:
    """Reads rows of the engine in memory, whose hints are decided in this way."""
    with deciding_in(way):
        hinted = HintedReader(apsw.Connection(":memory:"))
    assert hinted.in_c == (way == "C")

    def read(
        rows: list[tuple[Key, bytes]],
        hint: Hint,
        rows_max: int = 1000,
        bytes_max: int = 1 << 22,
        ranges: Sequence[KeyRange] = (KeyRange.of_partition(b"p"),),
    ) -> Rows:
        stored = {key: (1, value) for key, value in rows}
        reading = MemoryRows(sorted(stored), stored, []).read(
            ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint
        )
        with (
            mock.patch.object(memory, "_hints_of", return_value=hinted),
            pytest.raises(StopIteration) as answer,
        ):
            reading.send(None)
        return cast("Rows", answer.value.value)

    return read


_READERS = [_reader(way) for way in ("C", "SQL")[not HAS_C :]]


def _kept(node: FilterNode, row_key: str, value: bytes) -> bool:
    """Whether the engine returns the row, in both ways."""
    hint = hint_of(node)
    if hint is None:
        return True
    kept = _answer(conditions_of(hint, in_c=False).everywhere, row_key, value)
    if HAS_C and (kept or b'"-Infinity"' not in value):  # which SQL takes for 0
        assert _answer(conditions_of(hint, in_c=True).everywhere, row_key, value) == kept
    return kept


def _answer(condition: Sql, row_key: str, value: bytes) -> bool:
    found: Any = _CONNECTION.execute(
        f"SELECT 1 FROM (SELECT ? AS row, ? AS value) AS v WHERE {condition.text}",
        (encode_key(row_key), value, *condition.bindings),
    ).get
    return found is not None


def _stored(entity: Stored) -> bytes:
    partition_key, row_key, properties = entity
    return entity_renderer(EntityKey(partition_key, row_key), members(properties).values())(VERSION)


def _require_kept(node: FilterNode, entity: Stored) -> None:
    value = _stored(entity)
    raw = read_raw(value)
    if compile_filter(node)(lambda name: typed_property(raw, name)):
        assert _kept(node, entity[1], value)
        if (hint := hint_of(node)) is not None:
            key = Key(b"p", encode_key(entity[1]))
            for in_memory in _READERS:
                assert in_memory([(key, value)], hint) == Rows([value], None)


FIVE = NumberAfter(b',"n":', 5.0, 5.5)
NUMBERED = [(Key(b"p", b"%d" % row), b'{,"n":%d}' % (row % 4 + 4)) for row in range(10, 30)]
"""Every fourth row has 5; the first of them is the row 13."""


@pytest.mark.parametrize("read", _READERS)
def test_memory_leaves_out_rows_piece_by_piece(read: Callable[..., Rows]) -> None:
    """`rows_max` limits the rows that are examined, and `bytes_max` those that are returned."""
    five = b'{,"n":5}'
    assert read(NUMBERED, FIVE) == Rows([five] * 5, None, 15)
    assert read(NUMBERED, FIVE, rows_max=3) == Rows([], Key(b"p", b"13"), 3)
    assert read(NUMBERED, FIVE, rows_max=7) == Rows([five], Key(b"p", b"17"), 6)
    assert read(NUMBERED, FIVE, bytes_max=9) == Rows([five] * 2, Key(b"p", b"21"), 15)
    assert read(NUMBERED, FIVE, ranges=[KeyRange.of_partition(b"q")]) == Rows([], None)


@pytest.mark.parametrize("read", _READERS)
def test_memory_compares_rows_before_it_asks_for_values(read: Callable[..., Rows]) -> None:
    rows = RowBetween(b"14", b"20")
    assert len(read(NUMBERED, rows).values) == 6
    assert len(read(NUMBERED, RowBetween(b"26", None)).values) == 4
    assert read(NUMBERED, AllOf((rows, FIVE))).values == [b'{,"n":5}']
    # Their order in a hint of alternatives is not looked into: all of these rows may match.
    assert len(read(NUMBERED, AnyOf((rows, RowBetween(b"20", b"22")))).values) == 8
    assert len(read(NUMBERED, AnyOf((rows, FIVE))).values) == 20


@pytest.mark.parametrize("read", _READERS)
def test_memory_reads_several_ranges_without_the_hint(read: Callable[..., Rows]) -> None:
    ranges = [KeyRange(Key(b"p", b"10"), Key(b"p", end)) for end in (b"12", b"14")]
    assert len(read(NUMBERED, FIVE, ranges=ranges).values) == 6


def test_each_thread_decides_hints_in_memory_by_its_own_connection() -> None:
    """SQLite refuses a connection that two threads use at once."""
    memory._hints_of.cache_clear()
    barrier = Barrier(2)

    def read() -> None:
        barrier.wait()
        rows = MemoryRows([NUMBERED[0][0]], {NUMBERED[0][0]: (1, NUMBERED[0][1])}, [])
        ranges = [KeyRange.of_partition(b"p")]
        with pytest.raises(StopIteration):
            rows.read(ranges, rows_max=1, bytes_max=1, hint=FIVE).send(None)

    with ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(read) for _ in range(2)]:
            each.result()
    assert memory._hints_of.cache_info().currsize == 2


@pytest.mark.slow
@given(_FILTERS, _ENTITIES)
@settings(max_examples=1000, deadline=None)
def test_what_matches_is_never_left_out(node: FilterNode, entity: Stored) -> None:
    _require_kept(node, entity)


@pytest.mark.parametrize("operator", list(ComparisonOperator))
def test_every_value_against_every_literal(operator: ComparisonOperator) -> None:
    """Beside others that could be taken for it."""
    before, after = EdmValue(EdmType.STRING, ',"a":'), EdmValue(EdmType.INT32, 5)
    for value in [*_POOL, _POINT]:
        entity = ("p", "r", {"A": before, "_": _POINT, "a": value, "ab": after})
        for wanted in _POOL:
            if operator in OPERATORS or wanted.type is EdmType.STRING:
                _require_kept(Comparison("a", operator, wanted), entity)
                _require_kept(Comparison("coordinates", operator, wanted), entity)


@pytest.mark.slow
@given(_VALUES, _VALUES, _OPERATORS)
@example(
    EdmValue(EdmType.DOUBLE, math.nextafter(0.3, 1)),
    EdmValue(EdmType.DOUBLE, 0.3),
    ComparisonOperator.GREATER_THAN,
)
@settings(max_examples=1000, deadline=None)
def test_neighbouring_values(
    stored: EdmValue, wanted: EdmValue, operator: ComparisonOperator
) -> None:
    _require_kept(Comparison("a", operator, wanted), ("p", "r", {"a": stored}))


@pytest.mark.parametrize("row", parameters(load("filter_eval.toml")["case"]))
def test_the_cases_of_the_specification(row: Row) -> None:
    entity = {name: literal(text) for name, text in row["entity"].items()}
    keys = [
        str(entity.pop(name, EdmValue(EdmType.STRING, "k"))[1]) for name in (PARTITION_KEY, ROW_KEY)
    ]
    entity.pop("Timestamp", None)
    for text in row["matches"] + row["not_matches"]:
        _require_kept(parsed(text), (keys[0], keys[1], entity))


_ENTITY: dict[str, EdmValue] = {
    "d": EdmValue(EdmType.DOUBLE, 12.5),
    "n": EdmValue(EdmType.INT32, 5),
    "l": EdmValue(EdmType.INT64, 5),
    "s": EdmValue(EdmType.STRING, "it's"),
    "t": EdmValue(EdmType.BOOLEAN, True),
    "w": EdmValue(EdmType.DATE_TIME, parse_date_time("2020-02-29T12:00:00Z")),
    "g": EdmValue(EdmType.GUID, "3c9d0a4e-0000-0000-0000-00000000000a"),
}
LEFT_OUT = [
    *("d gt 12.6", "d ge 13", "d lt 12.4", "d le 12", "d eq 12.25", "d eq 12L"),
    *("n gt 5L and d gt 13.0", "n lt 5 and d lt 1.0", "n eq 6", "n gt 6", "n lt 4", "n ge 6L"),
    *(
        "l lt 4",
        "l le 4L",
        "l lt 5L and l lt -5L",
        "l gt 6L",
        "l eq 6",
        "l ge 6L",
        "s eq 'its'",
        "t eq false",
    ),
    *("w gt datetime'2020-02-29T12:00:01Z'", "w lt datetime'2020-02-29T11:59:59Z'"),
    *("w eq datetime'2020-02-29T12:00:00.1Z'", "absent eq 1", "absent gt 1.5", "absent", "s"),
    *("RowKey gt 'r'", "RowKey lt 'r'", "RowKey eq 'q'", "RowKey ge 's'", "RowKey le 'q'"),
    *("n eq 6 or s eq 'x'", "n eq 6 or n eq 7 or n eq 8", "n ne 5 and n eq 6"),
    "Timestamp lt datetime'2020-02-29T23:59:58Z'",
    "g eq guid'3c9d0a4e-0000-0000-0000-00000000000b'",
]


@pytest.mark.parametrize("text", LEFT_OUT)
def test_what_cannot_match_is_left_out(text: str) -> None:
    assert not _kept(parsed(text), "r", _stored(("p", "r", _ENTITY)))


NO_HINT = [
    *("n ne 5", "not (n eq 5)", "n eq 5 or not t", "n ne 5 and not t", "größe eq 1", "type eq 'x'"),
    *("coordinates eq 1", "d gt NaN", "s gt 'x'", "PartitionKey gt 'x'", "b eq X'01'", "true"),
    " or ".join(f"n eq {number}" for number in range(COMPARISONS_MAX + 1)),
]


@pytest.mark.parametrize("text", NO_HINT)
def test_what_is_not_sure_is_no_hint(text: str) -> None:
    assert hint_of(parsed(text)) is None


def test_a_hint_has_a_bounded_number_of_comparisons() -> None:
    many = " and ".join(f"(n eq {number} or d eq {number}.0)" for number in range(20))
    hint = hint_of(parsed(many))
    assert hint is not None
    condition = conditions_of(hint, in_c=False).everywhere
    assert condition.text.count("CAST(t AS REAL)") == COMPARISONS_MAX
    assert condition.rows_max == VALUES_LOOKED_INTO // COMPARISONS_MAX
    in_c = conditions_of(hint, in_c=True).everywhere
    assert in_c.rows_max == VALUES_LOOKED_INTO // (COMPARISONS_MAX // LOOKS_IN_C)


def test_filters_of_one_shape_share_a_statement() -> None:
    shapes: set[Any] = {
        conditions_of(hint, in_c=False).everywhere.text
        for text in ("d gt 1.5", "n ge 7")
        if (hint := hint_of(parsed(text)))
    }
    assert len(shapes) == 1
