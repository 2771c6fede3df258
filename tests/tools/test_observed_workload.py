"""A report of insight as a workload: its advice, its queries, and what it cannot say."""

from dataclasses import replace

import pytest

from tablestone.advice.advising import advise
from tablestone.advice.workload import KeyForm, WriteUse
from tablestone.insight.report import (
    HOUR,
    TARGETS,
    AccountInsight,
    Activity,
    FilterTerm,
    InsightReport,
    PartitionActivity,
    PartitionSize,
    QueryShape,
    Rate,
    Series,
    TableInsight,
    TableSize,
)
from tablestone.query.plan import PlanKind
from tablestone.tools.insight import shapes_of, share_of, takes_large_share, workload_of

ACCOUNT = "devstoreaccount1"
NO_SERIES = Series(60, (), (), (), (), (), (), ())


def rate(peak: float) -> Rate:
    """A partition whose busiest minute is as busy as its busiest second."""
    return Rate(peak / 2, peak, peak > TARGETS["partition"], peak, peak)


def partition(key: str, peak: float, read: int) -> PartitionActivity:
    return PartitionActivity(
        *(ACCOUNT, "Flights", key, True),
        *(Activity(entities_read=read, entities_returned=read), 0, rate(peak), ()),
    )


def shape(
    text: str, *terms: FilterTerm, plan: str = "table", read: int = 0, returned: int = 0
) -> QueryShape:
    return QueryShape(
        ACCOUNT, "Flights", text, terms, "", False, plan, 10, 12, read, returned, 1.0, 1.0, 2.0
    )


BY_DESTINATION = shape(
    "dest eq ? and delay ge ?",
    FilterTerm("dest", "eq", "Edm.String"),
    FilterTerm("delay", "ge", "Edm.Int32"),
    read=3_367_760,
    returned=400,
)
SIZE = TableSize(
    0.0, 16, 336_776, 100_000_000, (), (PartitionSize("UA", True, 58_665, 17_000_000),)
)


def report(
    *queries: QueryShape,
    partitions: tuple[PartitionActivity, ...] = (),
    size: TableSize | None = SIZE,
    points: int = 500,
    account_peak: float = 10,
    writes: dict[str, int] | None = None,
    lost: int = 2,
) -> InsightReport:
    """An hour of one table; other periods are empty."""
    table = TableInsight(
        ACCOUNT,
        "Flights",
        {HOUR: Activity(600, 40, entities_read=1_000, entities_returned=160, conflicts=3)},
        {HOUR: {"point": points, "table": 10}},
        {HOUR: Rate(150, 9_000, is_throttled=False, busiest_minute=300)},
        NO_SERIES,
        NO_SERIES,
        size,
        None,
        {} if writes is None else {HOUR: writes},
        {HOUR: lost},
        {HOUR: 19},
        {HOUR: 900},
    )
    return InsightReport(
        at=10.0,
        started=0.0,
        workers=1,
        targets=TARGETS,
        accounts=(AccountInsight(ACCOUNT, {HOUR: rate(account_peak)}),),
        tables=(table,),
        partitions={HOUR: partitions},
        unlisted={HOUR: 0},
        queries={HOUR: queries},
        other_tables=Activity(),
        sizes_note="",
    )


def test_a_table_of_the_report() -> None:
    busy = (partition("UA", 80.0, 500), partition("AA", 40.0, 260))
    writes = {"insert": 10, "update": 25, "delete": 5}
    (table,) = workload_of(report(BY_DESTINATION, partitions=busy, writes=writes), HOUR).tables
    assert (table.name, table.entities, table.partitions) == ("Flights", 336_776, 16)
    assert [(each.key, each.rate, each.share) for each in table.hottest] == [
        ("UA", 80.0, 500 / 1_040),
        ("AA", 40.0, 260 / 1_040),
    ]
    assert (table.point_reads, table.writes) == (500, WriteUse(10, 25, 5, conflicts=2))
    assert (table.properties_max, table.entity_bytes_max) == (19, 900)
    (query,) = table.queries
    assert (query.runs, query.entities_read, query.entities_returned) == (10, 3_367_760, 400)
    assert query.kind is PlanKind.TABLE


def test_the_advice_on_a_report() -> None:
    writes = {"insert": 10, "update": 25, "delete": 5}
    (advice,) = advise(workload_of(report(BY_DESTINATION, writes=writes), HOUR))
    assert advice.rule == "inter-partition-index"
    assert (advice.partition_key, advice.row_key) == (
        "{dest}",
        "{delay:010}_{PartitionKey}_{RowKey}",
    )
    assert (
        "Because 500 point reads and 30 updates and deletes use the present keys" in advice.change
    )
    inserts = {"insert": 40}
    (alone,) = advise(workload_of(report(BY_DESTINATION, points=0, writes=inserts), HOUR))
    assert alone.rule == "compound-key"


@pytest.mark.parametrize(
    ("changed", "rules"),
    [
        (report(), []),
        (report(partitions=(partition("UA", 2_500.0, 500),)), ["hot-partition"]),
        (report(account_peak=25_000), ["account-rate"]),
        (
            report(
                partitions=tuple(
                    partition(f"2013-07-{day:02}", 1_900.0 - day, 50) for day in range(1, 9)
                ),
                size=None,
            ),
            ["append"],
        ),
        (report(size=replace(SIZE, partitions=1)), ["giant-partition"]),
        (
            report(
                shape("PartitionKey eq ?", plan="partition", read=900, returned=900),
                size=replace(SIZE, partitions=1, entities=200),
                writes={"insert": 11_000, "delete": 11_000},
            ),
            ["queue"],
        ),
        (report(writes={"update": 300}, lost=200), ["contention"]),
        (
            report(shape("PartitionKey eq ?", plan="partition", read=900, returned=900), size=None),
            [],
        ),
    ],
)
def test_the_rules_that_speak(changed: InsightReport, rules: list[str]) -> None:
    assert [each.rule for each in advise(workload_of(changed, HOUR))] == rules


PASSING = TableSize(0.0, 1, 300, 90_000, (), (PartitionSize("queue", True, 300, 90_000),))
DAYS = tuple(partition(f"2013-07-{day:02}", 1_900.0 - day, 50) for day in range(1, 9))
ONE_EACH = TableSize(0.0, 50_000, 50_000, 9_000_000, (), ())
READ_WHOLE = shape("PartitionKey eq ?", plan="partition", read=320, returned=320)
OF_A_DAY = FilterTerm("RowKey", "ge", "Edm.String")


@pytest.mark.parametrize(
    ("seen", "rules"),
    [
        # The workloads of tests/unit/advice as a server reports them.
        (
            report(
                shape("PartitionKey eq ? and RowKey ge ?", OF_A_DAY, plan="row range", read=240, returned=240),
                partitions=(partition("JFK", 12.0, 300), partition("LGA", 11.0, 290)),
                size=TableSize(0.0, 3, 26_115, 9_000_000, (), (PartitionSize("JFK", True, 8_706, 3_000_000),)),
                writes={"insert": 26_115},
            ),
            [],
        ),
        (report(BY_DESTINATION, writes={"insert": 336_776}), ["inter-partition-index"]),
        (
            report(READ_WHOLE, size=PASSING, writes={"insert": 500_000, "delete": 499_700}, points=0),
            ["queue"],
        ),
        (report(READ_WHOLE, size=PASSING, writes={"insert": 500_000, "delete": 9}, points=0), []),
        (report(partitions=DAYS, size=None, writes={"insert": 900_000}), ["append"]),
        (
            report(partitions=DAYS, size=None, writes={"insert": 900_000, "delete": 400_000}),
            ["append", "high-volume-delete"],
        ),
        (report(size=replace(SIZE, partitions=1), writes={"insert": 9}), ["giant-partition"]),
        (
            report(
                shape("Device eq ?", FilterTerm("Device", "eq", "Edm.String"), read=500_000, returned=400),
                size=ONE_EACH,
                points=0,
                writes={"insert": 9},
            ),
            ["compound-key", "unique-partition-key"],
        ),
        (report(size=ONE_EACH, points=4_000_000, writes={"insert": 9_000, "update": 90_000}), []),
    ],
    ids=[
        *("sensor readings", "flights by destination", "a queue", "appended only", "keys of days"),
        *("keys of days, deleted one by one", "one giant partition", "a PartitionKey for each entity"),
        "a partition for each user, read by their names",
    ],
)  # fmt: skip
def test_the_known_workloads_as_a_server_reports_them(
    seen: InsightReport, rules: list[str]
) -> None:
    assert sorted(each.rule for each in advise(workload_of(seen, HOUR))) == rules


def test_writes_are_counted_by_kind() -> None:
    (table,) = workload_of(report(writes={"insert": 5, "delete": 2}), HOUR).tables
    assert (table.writes.inserts, table.writes.updates, table.writes.deletes) == (5, 0, 2)
    (of_an_older_server,) = workload_of(report(), HOUR).tables
    assert of_an_older_server.writes.updates == of_an_older_server.writes.total == 40


def test_a_report_without_sizes_has_unknown_numbers() -> None:
    (table,) = workload_of(report(size=None), HOUR).tables
    assert (table.entities, table.partitions, table.entity_bytes_mean) == (None, None, None)
    assert table.partition_form is KeyForm.OTHER


def test_hashed_keys_have_no_form() -> None:
    hidden = tuple(
        replace(partition(f"2013-07-{day:02}", 9.0, 1), is_key_whole=False) for day in range(1, 9)
    )
    (table,) = workload_of(report(partitions=hidden, size=None), HOUR).tables
    assert table.partition_form is KeyForm.OTHER


def test_a_query_with_and_without_a_select_is_one_query() -> None:
    """Its advice is given once; the same key helps both."""
    both = report(BY_DESTINATION, replace(BY_DESTINATION, names_select=True, p99_ms=7.0))
    (advice,) = advise(workload_of(both, HOUR))
    assert advice.filter == BY_DESTINATION.filter
    (of_both,) = shapes_of(both, HOUR)
    assert (of_both.queries, of_both.entities_read, of_both.p99_ms) == (20, 2 * 3_367_760, 7.0)
    assert not of_both.names_select


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (10, "1 minute"),
        (14 * 60 + 20, "14 minutes"),
        (3_599, "60 minutes"),
        (3_600, "the last hour"),
        (86_400, "the last hour"),
    ],
)
def test_the_advice_says_for_how_long_was_looked(seconds: float, words: str) -> None:
    seen = replace(report(BY_DESTINATION, points=0, writes={"insert": 40}), at=seconds)
    (advice,) = advise(workload_of(seen, HOUR))
    assert f"In {words}, no other request was seen that uses the present keys." in advice.change


@pytest.mark.parametrize(
    ("storage", "command"),
    [
        (
            " --data /srv/t",
            "`tablestone index create Flights dest --account devstoreaccount1 --data /srv/t`.",
        ),
        (None, "`tablestone index create Flights dest`, with the --account and the --data of the"),
        ("", ""),
    ],
)
def test_a_command_can_be_pasted_where_there_is_one(storage: str | None, command: str) -> None:
    """An older server does not say its directory; one on memory has none."""
    seen = replace(report(BY_DESTINATION, size=replace(SIZE, indexes={})), storage=storage)
    changes = [each.change for each in advise(workload_of(seen, HOUR)) if each.rule == "index"]
    assert [command in each for each in changes] == [True] * bool(command)


@pytest.mark.parametrize(
    ("queries", "values", "rule"),
    [
        (10, 2, "flag"),
        (8, 4, "flag"),
        (10, 5, "flag"),
        (3, 3, "inter-partition-index"),
        (10, 6, "inter-partition-index"),
    ],
)
def test_few_values_make_no_partition_key(queries: int, values: int, rule: str) -> None:
    """Only values that came again show that there are few."""
    few = report(replace(BY_DESTINATION, queries=queries, values=values), points=0)
    (advice,) = advise(workload_of(few, HOUR))
    assert (advice.rule, bool(advice.partition_key)) == (rule, rule != "flag")
    if rule == "flag":
        assert f"{queries} queries named {values} values of dest" in advice.change


def test_a_search_by_hand_has_no_advice() -> None:
    """The explorer and `count` are not among the uses that a table's keys have to serve."""
    look = report(replace(BY_DESTINATION, from_tools=True))
    assert advise(workload_of(look, HOUR)) == []
    both = report(BY_DESTINATION, replace(BY_DESTINATION, from_tools=True))
    assert [each.queries for each in shapes_of(both, HOUR)] == [10, 10]


def test_a_query_of_both_keys_is_no_point_read_besides() -> None:
    one = shape("PartitionKey eq ? and RowKey eq ?", plan="point", read=10, returned=10)
    (table,) = workload_of(report(one), HOUR).tables
    assert table.point_reads == 500 - one.pages


def test_the_rate_of_the_account_is_no_advice_on_one_of_its_tables() -> None:
    busy = report(account_peak=25_000)
    assert workload_of(busy, HOUR).rate == 25_000
    assert workload_of(busy, HOUR, of_one_table=True).rate is None


EVEN = tuple(partition(f"K{number}", 10.0, 1_000) for number in range(8))
WITHOUT_SIZES: list[tuple[str, tuple[PartitionActivity, ...], float, bool]] = [
    # what, the partitions with the hottest first, its share, whether it is large
    ("one of nine, which takes a third", (partition("UA", 80.0, 4_000), *EVEN), 1 / 3, True),
    ("one of nine, like the others", (partition("UA", 10.0, 1_000), *EVEN), 1 / 9, False),
    ("nearly all of three", (partition("UA", 80.0, 18_000), *EVEN[:2]), 9 / 10, True),
    ("half of three", (partition("UA", 80.0, 2_000), *EVEN[:2]), 1 / 2, False),
    ("most of two", (partition("UA", 80.0, 9_000), *EVEN[:1]), 9 / 10, False),
    ("half of four", (partition("UA", 80.0, 3_000), *EVEN[:3]), 1 / 2, True),
    ("less than half of four", (partition("UA", 80.0, 2_000), *EVEN[:3]), 2 / 5, False),
    ("few requests", (partition("UA", 1.0, 900), *(partition(key, 1.0, 50) for key in "abcdefgh")), 9 / 13, False),
]  # fmt: skip


@pytest.mark.parametrize(("what", "partitions", "share", "is_large"), WITHOUT_SIZES)
def test_a_large_share_of_a_table(
    what: str, partitions: tuple[PartitionActivity, ...], share: float, *, is_large: bool
) -> None:
    made = report(partitions=partitions, size=None)
    assert share_of(made, partitions[0], HOUR) == pytest.approx(share), what
    assert takes_large_share(made, partitions[0], HOUR) is is_large


def test_what_scans_read_takes_no_share() -> None:
    """The table read 41,000 entities, of which a scan read 40,000: the partition read half of the others."""
    hot = partition("UA", 80.0, 500)
    made = report(shape("", read=40_000, returned=40_000), partitions=(hot,))
    read = {HOUR: Activity(entities_read=41_000)}
    made = replace(made, tables=(replace(made.tables[0], activity=read),))
    assert share_of(made, hot, HOUR) == 0.5
