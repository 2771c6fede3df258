"""Random filters and entities from small pools, so that filters often match."""

from hypothesis import strategies as st

from tablestone.model.edm import DATE_TIME_MAX, EdmType, EdmValue, geography_point
from tablestone.model.filter_tree import (
    MIRRORED,
    TEXT_FUNCTIONS,
    And,
    BooleanProperty,
    Comparison,
    ComparisonOperator,
    Constant,
    FilterNode,
    Not,
    Or,
)
from tablestone.model.keys import PARTITION_KEY, ROW_KEY

KEYS = ["", "a", "a ", "aa", "ab", "b", "B", "é", "\ud7ff", "\ue000", "\uffff", "😀", "a😀", "𐀀"]
"""Empty, prefixes of each other, and both sides of where UTF-16 and code points disagree (wire 6.10)."""

FRAGMENTS = [
    *(
        "PartitionKey",
        "RowKey",
        "Timestamp",
        "a",
        "inf",
        "null",
        "true",
        "NaN",
        "not",
        "startswith",
        "substringof('x',a)",
    ),
    *(" and ", " or ", " eq ", " ne ", " lt ", " add ", " in ", " ", "(", ")", "-", "/", ",", "'"),
    *(
        "1",
        "42L",
        "1.5",
        "1e",
        "3D",
        "'x'",
        "X'01'",
        "datetime'",
        "guid'0'",
        "geography'Point(1 2)'",
    ),
]

OPERATORS = tuple(MIRRORED)
_PARTS = [*KEYS, "\ud83d", "\ude00", "a\ud83d", "\ude00a", '"', "\\", "n", "u00", "5"]
"""Texts that others hold, with halves of surrogates, and what JSON escapes."""
_EQUALITIES = st.sampled_from([ComparisonOperator.EQUAL, ComparisonOperator.NOT_EQUAL])

_POINTS = st.builds(
    geography_point,
    st.floats(-180, 180),
    st.floats(-90, 90),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
_VALUES = {
    EdmType.STRING: st.text(max_size=8),
    EdmType.INT32: st.integers(-(2**31), 2**31 - 1),
    EdmType.INT64: st.integers(-(2**63), 2**63 - 1),
    # NaN is not equal to itself, so no tree that contains it is either.
    EdmType.DOUBLE: st.floats(allow_nan=False).map(lambda x: x or 0.0),
    EdmType.BOOLEAN: st.booleans(),
    EdmType.DATE_TIME: st.integers(0, DATE_TIME_MAX),
    EdmType.GUID: st.uuids().map(str),
    EdmType.BINARY: st.binary(max_size=8),
}
LITERALS = st.one_of(
    [st.builds(EdmValue, st.just(kind), values) for kind, values in _VALUES.items()]
)
_NAMES = st.sampled_from(["a", "b_1", "größe", "_", "PartitionKey", "orange"])


def comparisons(
    names: st.SearchStrategy[str], literals: st.SearchStrategy[EdmValue]
) -> st.SearchStrategy[Comparison]:
    """Comparisons with any of the literals, and functions of text."""
    parts = st.builds(EdmValue, st.just(EdmType.STRING), st.sampled_from(_PARTS))
    return st.one_of(
        st.builds(Comparison, names, st.sampled_from(OPERATORS), literals),
        st.builds(Comparison, names, st.sampled_from(OPERATORS), literals),
        st.builds(Comparison, names, st.sampled_from(TEXT_FUNCTIONS), parts),
    )


def trees_of(
    leaves: st.SearchStrategy[FilterNode], leaves_max: int
) -> st.SearchStrategy[FilterNode]:
    """Trees as the parser makes them: no `And` directly in an `And`, no `Or` directly in an `Or`."""

    def chain(kind: type[And | Or], terms: list[FilterNode]) -> FilterNode:
        flat: list[FilterNode] = []
        for term in terms:
            flat.extend(term.terms if isinstance(term, kind) else [term])
        return kind(tuple(flat))

    def extend(inner: st.SearchStrategy[FilterNode]) -> st.SearchStrategy[FilterNode]:
        terms = st.lists(inner, min_size=2, max_size=4)
        return (
            st.builds(Not, inner)
            | terms.map(lambda found: chain(And, found))
            | terms.map(lambda found: chain(Or, found))
        )

    return st.recursive(leaves, extend, max_leaves=leaves_max)


FILTERS = trees_of(
    st.one_of(
        comparisons(_NAMES, LITERALS),
        st.builds(
            Comparison,
            _NAMES,
            _EQUALITIES,
            st.builds(EdmValue, st.just(EdmType.GEOGRAPHY_POINT), _POINTS),
        ),
        st.builds(BooleanProperty, _NAMES),
        st.builds(Constant, st.booleans()),
    ),
    12,
)

_KEY_LITERALS = st.builds(EdmValue, st.just(EdmType.STRING), st.sampled_from(KEYS))
_SMALL_INTEGERS = st.builds(EdmValue, st.just(EdmType.INT32), st.integers(0, 2))

KEY_FILTERS = trees_of(
    st.one_of(
        comparisons(st.sampled_from([PARTITION_KEY, ROW_KEY]), _KEY_LITERALS),
        comparisons(st.sampled_from([PARTITION_KEY, ROW_KEY]), _KEY_LITERALS),
        comparisons(st.just("n"), _SMALL_INTEGERS),
        st.builds(BooleanProperty, st.just("flag")),
        st.builds(Constant, st.booleans()),
    ),
    14,
)
"""Filters that mostly use keys."""

ENTITIES = st.fixed_dictionaries(
    {
        PARTITION_KEY: st.builds(EdmValue, st.just(EdmType.STRING), st.sampled_from(KEYS)),
        ROW_KEY: st.builds(EdmValue, st.just(EdmType.STRING), st.sampled_from(KEYS)),
    },
    optional={
        "n": st.one_of(_SMALL_INTEGERS, st.just(EdmValue(EdmType.STRING, "1"))),
        "flag": st.builds(EdmValue, st.just(EdmType.BOOLEAN), st.booleans()),
        "a": LITERALS,
        "größe": LITERALS,
    },
)
