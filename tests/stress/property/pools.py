"""Random tables, keys, properties, writes and filters from small pools, so that they collide.

Keys and texts are chosen where encodings go wrong: empty, quotes, percent signs, blanks, and both sides of where UTF-16
and code points sort differently (wire 1.3, 6.10). All of it is drawn from a `Random`: Hypothesis brings one that it
records and shrinks, a long run one with a seed.
"""

from dataclasses import replace
from random import Random

from stress.property.filter_model import FUNCTIONS, Bare, Both, Comparison, Filter, Not
from stress.property.model import KINDS, NEEDS_MATCH, Key, Value, Write

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
    ("Edm.DateTime", "2017-01-05T03:25:46.3000000Z"),
    ("Edm.Int32", 1483586746),
    ("Edm.Int64", 1483586747),
    ("Edm.Double", 1483586746.5),
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
"""The clock starts at the first. The later ones of `VALUES`, and the numbers of seconds, come soon."""


def wide(letter: str) -> dict[str, Value]:
    """A legal entity; two of them merged have too many properties (wire 9)."""
    return {f"{letter}{number}": VALUES[0] for number in range(150)}


IF_MATCHES = (
    *("*", "*", "*", "current", "current", "current", "plain colons"),
    *("stale", "foreign", "malformed", "missing"),
)
"""The conditions of a write; `resolved` in the program turns the words into headers."""
READ_CONDITIONS = (
    "none",
    "none",
    "*",
    "current",
    "stale",
    "foreign",
    "unless current",
    "unless stale",
)
"""The conditions of a point read: If-Match, or If-None-Match if there is an `unless`."""
POLICY_IDS = ("a", "it's", "x" * 64, "B", "b", "é")
PERMISSIONS = ("r", "a", "u", "d", "ra", "au", "raud")
OPERATORS = ("eq", "ne", "gt", "ge", "lt", "le")
FILTER_DEPTH_MAX = 3


def table(random: Random) -> str:
    return random.choice(TABLES)


def place(random: Random) -> Key:
    """One of the few keys of a run: each run has two partitions with the same four rows (`keys`)."""
    return random.choice("001"), random.choice("0123")


def keys(random: Random) -> tuple[list[str], list[str]]:
    return random.sample(PARTITIONS, 2), random.sample(ROWS, 4)


def properties(random: Random) -> dict[str, Value]:
    if not random.randrange(8):
        return wide(random.choice("xy"))
    names = random.sample(NAMES, random.randrange(5))
    return {name: random.choice(VALUES + NOT_IN_FILTERS) for name in names}


def write(random: Random) -> Write:
    return _write(
        random.choice(KINDS), place(random), properties(random), random.choice(IF_MATCHES)
    )


def _write(kind: str, key: Key, given: dict[str, Value], if_match: str) -> Write:
    """Only a delete may lack its If-Match; without it, the others would be other operations (wire 3.9)."""
    if kind == "delete":
        return Write(kind, key, {}, None if if_match == "missing" else if_match)
    if kind in NEEDS_MATCH:
        return Write(kind, key, given, "current" if if_match == "missing" else if_match)
    return Write(kind, key, given)


def well_formed_write(random: Random) -> Write:
    """A write whose request is valid."""
    drawn = write(random)
    if drawn.kind not in NEEDS_MATCH or drawn.if_match not in (None, "malformed"):
        return drawn
    return replace(drawn, if_match="current")


def transaction(random: Random) -> list[Write]:
    """Mostly in one partition and on different rows; now and then not."""
    group = [write(random) for _ in range(random.randint(1, 4))]
    if not random.randrange(10):
        return group
    partition = group[0].key[0]
    rows = random.sample("0123", len(group))
    return [replace(each, key=(partition, row)) for each, row in zip(group, rows, strict=True)]


def jobs(random: Random) -> list[list[Write] | None]:
    """What clients do to one table concurrently: read it (None), write, commit transactions."""
    if random.randrange(2):
        return _contention(random)
    return [
        None if not random.randrange(3) else transaction(random)
        for _ in range(random.randint(2, 4))
    ]


def _contention(random: Random) -> list[list[Write] | None]:
    """Every client writes one entity."""
    key, kind = place(random), random.choice(KINDS)
    found: list[list[Write] | None] = []
    for _ in range(random.randint(2, 4)):
        drawn = write(random)
        if not random.randrange(2):
            given = dict(drawn.properties)
            drawn = _write(kind, drawn.key, given, drawn.if_match or "current")
        found.append([replace(drawn, key=key)])
    return found


def policies(random: Random) -> dict[str, str]:
    """Stored access policies by id; now and then one more than is allowed."""
    ids = random.sample(POLICY_IDS, random.choice((0, 1, 2, 3, 5, 6)))
    return {policy: random.choice(PERMISSIONS) for policy in ids}


def select(random: Random) -> list[str]:
    names = (*NAMES, "PartitionKey", "RowKey", "Timestamp", "missing")
    return random.sample(names, random.choice((0, 0, 1, 2, 4)))


def query_filter(random: Random, depth: int = FILTER_DEPTH_MAX) -> Filter:
    """A random tree of comparisons."""
    draw = random.randrange(5)
    if depth and draw == 0:
        return Not(query_filter(random, depth - 1))
    if depth and draw in (1, 2):
        left, right = query_filter(random, depth - 1), query_filter(random, depth - 1)
        return Both(random.choice(("and", "or")), left, right)
    return _comparison(random)


def _comparison(random: Random) -> Filter:
    name = random.choice(("PartitionKey", "RowKey", "Timestamp", "", "", ""))
    if not name and not random.randrange(6):
        return Bare(random.choice(NAMES))
    literals: dict[str, tuple[Value, ...]] = {
        "PartitionKey": tuple(("Edm.String", text) for text in PARTITIONS),
        "RowKey": tuple(("Edm.String", text) for text in ROWS),
        "Timestamp": MOMENTS,
    }
    literal = random.choice(literals.get(name, VALUES))
    operators = (*OPERATORS, *FUNCTIONS) if literal[0] == "Edm.String" else OPERATORS
    return Comparison(
        name or random.choice(NAMES), random.choice(operators), literal, random.random() < 0.5
    )
