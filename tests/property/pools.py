"""Random tables, keys, properties, writes and filters from small pools, so that they collide.

Keys and texts are chosen where encodings go wrong: empty, quotes, percent signs, blanks, and both sides of where UTF-16
and code points sort differently (wire 1.3, 6.10).
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from property.filter_model import Bare, Comparison, filters
from property.model import KINDS, NEEDS_MATCH, Key, Value, Write

TABLES = ("Water", "Water", "Water", "WATER", "Fire")
PARTITIONS = ("", "a", "it's", "50%25", "😀", "\uffff")
ROWS = ("", "'", "a b", "%2F+&", "a", "ab", "é", "😀", "\ue000", "A")
NAMES = ("a", "B", "_c", "größe", "etag", "timestamp")
CLOCK_STEPS = (-20_000_000, -1, 0, 1, 3_000_000, 10_000_000)

VALUES: tuple[Value, ...] = (
    ("Edm.String", ""),
    ("Edm.String", 'it\'s \\ "quoted" \n\x01 😀'),
    ("Edm.String", "\uffff"),
    ("Edm.String", "2012-11-10T03:04:05Z"),
    ("Edm.Boolean", True),
    ("Edm.Boolean", False),
    ("Edm.Int32", 3),
    ("Edm.Int32", -(2**31)),
    ("Edm.Int64", 3),
    ("Edm.Int64", 2**63 - 1),
    ("Edm.Double", 3.0),
    ("Edm.Double", 1e300),
    ("Edm.Double", -0.1),
    ("Edm.DateTime", "2012-11-10T03:04:05.2000000Z"),
    ("Edm.DateTime", "1601-01-01T00:00:00.0000000Z"),
    ("Edm.Guid", "debc44d5-04a9-42ea-ab2f-4e2cb49ff833"),
    ("Edm.Guid", "00000000-04a9-42ea-ab2f-4e2cb49ff833"),
    ("Edm.Binary", b""),
    ("Edm.Binary", b"\x01\xff"),
)
NOT_IN_FILTERS: tuple[Value, ...] = (
    ("Edm.Double", float("inf")),
    ("Edm.Double", float("-inf")),
    ("", None),
)
MOMENTS: tuple[Value, ...] = (
    ("Edm.DateTime", "2017-01-05T03:25:45.5889570Z"),
    ("Edm.DateTime", "2017-01-05T03:25:46.0000000Z"),
)
"""The clock starts at the first."""


def wide(letter: str) -> dict[str, Value]:
    """An entity that is legal; two of them merged are too many properties (wire 9)."""
    return {f"{letter}{number}": VALUES[0] for number in range(150)}


tables = st.sampled_from(TABLES)
key_places = st.tuples(st.sampled_from("001"), st.sampled_from("0123"))
"""Which of the few keys of a run: each run has two partitions with the same four rows (`chosen_keys`)."""
chosen_keys = st.tuples(
    st.lists(st.sampled_from(PARTITIONS), min_size=2, max_size=2, unique=True),
    st.lists(st.sampled_from(ROWS), min_size=4, max_size=4, unique=True),
)
properties = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from(VALUES + NOT_IN_FILTERS), max_size=4
) | st.builds(wide, st.sampled_from("xy"))

IF_MATCHES = (
    *("*", "*", "*", "current", "current", "current", "plain colons"),
    *("stale", "foreign", "malformed", "missing"),
)
"""The conditions of a write; `resolved` in the machine turns the words into headers."""


def _write(kind: str, key: Key, given: dict[str, Value], if_match: str) -> Write:
    """Only a delete may lack its If-Match: the others would be other operations without it (wire 3.9)."""
    if kind == "delete":
        return Write(kind, key, {}, None if if_match == "missing" else if_match)
    if kind in NEEDS_MATCH:
        return Write(kind, key, given, "current" if if_match == "missing" else if_match)
    return Write(kind, key, given)


writes = st.builds(
    _write, st.sampled_from(KINDS), key_places, properties, st.sampled_from(IF_MATCHES)
)


@st.composite
def transactions(draw: st.DrawFn) -> list[Write]:
    """Mostly of one partition and different rows; now and then not."""
    group = draw(st.lists(writes, min_size=1, max_size=4))
    if not draw(st.integers(0, 9)):
        return group
    rows = draw(st.permutations("0123"))
    partition = group[0].key[0]
    return [replace(write, key=(partition, row)) for write, row in zip(group, rows, strict=False)]


@st.composite
def contention(draw: st.DrawFn) -> list[list[Write] | None]:
    """Everybody writes one entity."""
    key, kind = draw(key_places), draw(st.sampled_from(KINDS))
    found: list[list[Write] | None] = []
    for _ in range(draw(st.integers(2, 4))):
        write = draw(writes)
        found.append([replace(write if draw(st.booleans()) else _as(kind, write), key=key)])
    return found


def _as(kind: str, write: Write) -> Write:
    return _write(kind, write.key, dict(write.properties), write.if_match or "current")


jobs = contention() | st.lists(st.none() | transactions(), min_size=2, max_size=4)
"""The actions of clients on one table at the same time: read it (None), write, commit transactions."""

_operators = st.sampled_from(["eq", "ne", "gt", "ge", "lt", "le"])


def _strings(texts: tuple[str, ...]) -> st.SearchStrategy[Value]:
    return st.sampled_from(texts).map(lambda text: ("Edm.String", text))


query_filters = filters(
    st.one_of(
        st.builds(
            Comparison, st.just("PartitionKey"), _operators, _strings(PARTITIONS), st.booleans()
        ),
        st.builds(Comparison, st.just("RowKey"), _operators, _strings(ROWS), st.booleans()),
        st.builds(
            Comparison, st.just("Timestamp"), _operators, st.sampled_from(MOMENTS), st.booleans()
        ),
        st.builds(
            Comparison,
            st.sampled_from(NAMES),
            _operators,
            st.sampled_from(VALUES),
            st.booleans(),
        ),
        st.builds(Bare, st.sampled_from(NAMES)),
    )
)
selects = st.lists(
    st.sampled_from((*NAMES, "PartitionKey", "RowKey", "Timestamp", "missing")),
    unique=True,
    max_size=4,
)
