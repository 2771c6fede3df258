"""The commands that look at tables and change single entities, against the real server."""

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import StartServer
from tablestone.tools.client import Page, Query, TableEndpoint
from tools.data_tools import DataTools, entity

ENTITIES = [
    entity("EWR", "2013-01-01", temp=39.02, wind=10, note="cold"),
    entity("EWR", "2013-07-01", temp=80.6, wind=3, note="warm and wet"),
    entity("JFK", "2013-01-01", temp=38.48, wind=12, note="cold"),
    entity("JFK", "2013-07-01", temp=77.0, wind=5, note="warm"),
    entity("LGA's", "2014-01-01", wind=7, note="wet"),
]


@pytest.fixture
def weather(tools: DataTools, table: str) -> str:
    tools.run("import", tools.write_lines("weather.jsonl", ENTITIES), table, "--quiet")
    return table


def rows(tools: DataTools, *arguments: str) -> list[tuple[str, str]]:
    found = tools.run("query", *arguments, "--output", "jsonl").entities
    return [(each["PartitionKey"], each["RowKey"][:7]) for each in found]


QUERIES = [
    ((), ["EWR 2013-01", "EWR 2013-07", "JFK 2013-01", "JFK 2013-07", "LGA's 2014-01"]),
    (("--filter", "PartitionKey eq 'JFK' and temp gt 40.0"), ["JFK 2013-07"]),
    (("--filter", "PartitionKey eq 'LGA''s'"), ["LGA's 2014-01"]),
    (("--top", "2"), ["EWR 2013-01", "EWR 2013-07"]),
    (("--top", "0"), []),
    (("--order-by", "temp desc", "--top", "2"), ["EWR 2013-07", "JFK 2013-07"]),
    # A missing value comes last, in either direction.
    (
        ("--order-by", "temp"),
        ["JFK 2013-01", "EWR 2013-01", "JFK 2013-07", "EWR 2013-07", "LGA's 2014-01"],
    ),
    (("--order-by", "note,wind desc", "--top", "2"), ["JFK 2013-01", "EWR 2013-01"]),
    (("--newest", "--top", "2"), ["LGA's 2014-01", "JFK 2013-07"]),
    (("--contains", "note=wet"), ["EWR 2013-07", "LGA's 2014-01"]),
    (("--contains", "note=wet", "--top", "1"), ["EWR 2013-07"]),
    (("--contains", "temp=9.0"), ["EWR 2013-01"]),
    (("--contains", "absent=x"), []),
    (("--starts-with", "RowKey=2014"), ["LGA's 2014-01"]),
    (("--starts-with", "note=warm"), ["EWR 2013-07", "JFK 2013-07"]),
    (("--starts-with", "note=warm", "--contains", "note=wet"), ["EWR 2013-07"]),
    (("--starts-with", "absent="), []),
]


@pytest.mark.parametrize(("arguments", "expected"), QUERIES, ids=" ".join)
def test_a_query(
    tools: DataTools, weather: str, arguments: tuple[str, ...], expected: list[str]
) -> None:
    assert [" ".join(row) for row in rows(tools, weather, *arguments)] == expected


def test_what_is_printed(tools: DataTools, weather: str) -> None:
    one = ("query", weather, "--select", "RowKey,temp,wind", "--top", "1", "--output")
    assert tools.run(*one, "yaml").stdout == "- RowKey: '2013-01-01'\n  temp: 39.02\n  wind: 10\n"
    assert tools.run(*one, "table").lines == ["RowKey      temp   wind", "2013-01-01  39.02  10  "]
    csv = ("query", weather, "--top", "1", "--output", "csv")
    assert tools.run(*csv).lines == [
        "PartitionKey,RowKey,note:String,temp:Double,wind:Int32",
        "EWR,2013-01-01,cold,39.02,10",
    ]
    assert tools.run("query", weather, "--distinct", "note").lines == [
        *("cold", "warm and wet", "warm", "wet")
    ]
    assert tools.run("query", weather, "--count", "--filter", "wind gt 5").lines == ["3"]


def test_a_server_counts_and_reads_backwards(
    tools: DataTools, private_server: StartServer, tmp_path: Path
) -> None:
    """With `--query-extensions` it does, in one request; without, the entities are read."""
    for extensions in ("true", "false"):
        log = tmp_path / f"{extensions}.log"
        options = (f"--query-extensions={extensions}", f"--access-log={log}")
        server = private_server(tmp_path / extensions, *options)
        tools.connection_string = server.connection_string
        tools.run("import", tools.write_lines("weather.jsonl", ENTITIES), "Weather", "--quiet")
        for arguments, expected in (
            (("count", "Weather"), "5"),
            (("count", "Weather", "--filter", "temp lt 40.0"), "2"),
            (("count", "Weather", "--filter", "note eq 'hot'"), "0"),
            (("query", "Weather", "--count", "--filter", "wind gt 5"), "3"),
        ):
            assert tools.run(*arguments).lines == [expected]
        found = tools.run(
            "query", "Weather", "--newest", "--top", "2", "--output", "jsonl"
        ).entities
        assert [each["PartitionKey"] for each in found] == ["LGA's", "JFK"]
        if extensions == "false":
            for command in ("count", "query"):
                refused = tools.run(command, "Weather", "--filter", "contains(note,'x')", status=1)
                assert "need a server with --query-extensions" in refused.stderr
        assert server.stop() == 0
        told = log.read_text()
        seen = (told.count("status=501"), told.count("bytes_out=1 plan="))
        assert seen == ((0, 4) if extensions == "true" else (8, 0)), told


def test_the_newest_of_a_server_that_ignores_the_order(
    tools: DataTools, weather: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Azurite does: it answers with the first keys."""
    page = TableEndpoint.page

    def in_order(self: TableEndpoint, query: Query, *rest: Any, **named: Any) -> Page:
        return page(self, query._replace(reverse=False), *rest, **named)

    monkeypatch.setattr(TableEndpoint, "page", in_order)
    found = tools.run("query", weather, "--newest", "--top", "1", "--output", "jsonl").entities
    assert [each["PartitionKey"] for each in found] == ["LGA's"]


def test_counts_and_partitions(tools: DataTools, weather: str) -> None:
    assert tools.run("count", weather).lines == ["5"]
    assert tools.run("count", weather, "--filter", "temp lt 40.0").lines == ["2"]
    assert tools.run("count", weather, "--by", "PartitionKey").lines == [
        "2\tEWR",
        "2\tJFK",
        "1\tLGA's",
    ]
    assert tools.run("partitions", weather).lines == ["EWR", "JFK", "LGA's"]


def test_the_sizes_of_tables(tools: DataTools, weather: str) -> None:
    """The documented formula: 4 bytes, 2 for each unit of the keys; for a property 8, its name and its value."""
    size = 4 + 2 * len("EWR2013-01-01")
    size += (8 + 2 * 4 + 8) + (8 + 2 * 4 + 4) + (8 + 2 * 4 + 4 + 2 * 4)
    one = entity("EWR", "2013-01-01", temp=39.02, wind=10, note="cold")
    tools.run("clear", weather, "--yes", "--quiet")
    tools.run("import", tools.write_lines("one.jsonl", [one]), weather, "--quiet")
    lines = tools.run("tables", "--sizes", "--quiet").lines
    assert f"{weather}\t1 entity\t{size} B" in lines
    as_json = [json.loads(line) for line in tools.run("tables", "--sizes", "--json").lines]
    assert {"table": weather, "entities": 1, "bytes": size} in as_json
    assert {"table": weather} in [json.loads(line) for line in tools.run("tables", "--json").lines]
    refused = tools.run("tables", "--sizes", "--create", "x", status=2).stderr
    assert refused.endswith("go with a list, not with --create or --delete.\n")


PLANS = [
    ((), "table scan"),
    (("--filter", "PartitionKey eq 'JFK' and RowKey eq '2013-01-01'"), "point"),
    (("--filter", "PartitionKey eq 'JFK' and temp gt 40.0"), "partition"),
    (("--filter", "PartitionKey eq 'JFK' and RowKey ge '2013-05'"), "row range"),
    (("--filter", "PartitionKey ge 'JFK'"), "partition range"),
    (("--starts-with", "PartitionKey=J"), "partition range"),
]


@pytest.mark.parametrize(("arguments", "kind"), PLANS, ids=str)
def test_the_plan_of_a_query(
    tools: DataTools, weather: str, arguments: tuple[str, ...], kind: str
) -> None:
    told = tools.run("query", weather, *arguments, "--explain").stderr.splitlines()
    assert told[0] == f"plan: {kind}"
    assert told[-1].startswith("cost: 1 request, ")


def test_the_command_shows_what_the_client_read(tools: DataTools, weather: str) -> None:
    assert (
        tools.run("query", weather, "--newest", "--top", "1").stderr
        == "5 entities received for 1 shown.\n"
    )
    assert (
        tools.run("query", weather, "--top", "1", "--explain")
        .stderr.splitlines()[-1]
        .startswith("cost: 1 request, 1 entity received for 1 shown, ")
    )


def test_one_entity(tools: DataTools, weather: str) -> None:
    key = (weather, "new", "it's 1%")
    tools.run("put", *key, "a:Int64=9007199254740993", "b=text", "c:Double=NaN", "d:Boolean=true")
    values = {
        "a@odata.type": "Edm.Int64",
        "a": "9007199254740993",
        "b": "text",
        "c@odata.type": "Edm.Double",
        "c": "NaN",
        "d": True,
    }
    assert tools.run("get", *key).entities == [{**entity("new", "it's 1%"), **values}]
    tools.run("merge", *key, "b=changed")
    assert tools.run("get", *key, "--select", "b,d").entities == [{"b": "changed", "d": True}]
    described = tools.directory / "one.json"
    described.write_text('{"when@odata.type":"Edm.DateTime","when":"2013-01-01T00:00:00.1234567Z"}')
    tools.run("put", *key, "--json", described)
    assert tools.run("get", *key).entities[0]["when"] == "2013-01-01T00:00:00.1234567Z"
    changed = tools.run(
        "merge", *key, "b=x", "--if-match", "W/\"datetime'2013-01-01T00%3A00%3A00Z'\"", status=1
    )
    assert "UpdateConditionNotSatisfied" in changed.stderr
    odd = tools.run("merge", *key, "b=x", "--if-match", "é😀", status=2)
    assert odd.stderr == "tablestone: The ETag or token has characters that no ETag has.\n"
    tools.run("delete-entity", *key, "--yes")
    gone = tools.run("get", *key, status=1).stderr
    assert gone == f"tablestone: {weather} has no entity with these keys.\n"


BAD = [
    (
        ("query", "TABLE", "--filter", "temp gt gt 3"),
        2,
        "Syntax error at position 12 in 'temp gt gt 3'.",
    ),
    (
        ("query", "nosuchtable"),
        1,
        "nosuchtable: TableNotFound: The table specified does not exist.",
    ),
    (
        ("query", "TABLE", "--order-by", "a b c"),
        2,
        "--order-by 'a b c' is not of the form NAME or NAME desc.",
    ),
    (("query", "TABLE", "--contains", "x"), 2, "--contains 'x' is not of the form NAME=TEXT."),
    (("query", "TABLE", "--newest", "--order-by", "a"), 2, "each name an order: give one of them."),
    (
        ("put", "TABLE", "a/b", "c", "x=1"),
        2,
        "OutOfRangeInput: The 'PartitionKey' parameter of value 'a/b'",
    ),
    (("put", "TABLE", "a", "c", "x:Int32=3000000000"), 2, "x is '3000000000', not of type Int32."),
    (
        ("put", "TABLE", "a", "c", "x:Int=3"),
        2,
        "'Int' is no type; the types are String, Int32, Int64, ",
    ),
    (("put", "TABLE", "a", "c", "x"), 2, "'x' is not of the form NAME=VALUE or NAME:TYPE=VALUE."),
    (
        ("import", "x.csv", "TABLE", "--delimiter", ";;"),
        2,
        "--delimiter must be one character, not ';;'.",
    ),
    (("tables", "--create", "x"), 2, "Storage table names must be alphanumeric"),
    (("count", "TABLE", "--connection-string", "AccountName=x"), 2, "has neither AccountKey nor"),
    (
        (
            "tables",
            "--connection-string",
            "AccountName=x;AccountKey=c2VjcmV0;TableEndpoint=http://127.0.0.1:9/x",
        ),
        1,
        "http://127.0.0.1:9/x cannot be reached: ",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"), BAD, ids=lambda value: str(value)[:60]
)
def test_bad_input(
    tools: DataTools, weather: str, arguments: tuple[str, ...], status: int, sentence: str
) -> None:
    words = [weather if word == "TABLE" else word for word in arguments]
    ended = tools.run(*words, status=status)
    assert ended.stderr.startswith("tablestone: ")
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "c2VjcmV0" not in ended.stderr


ADVICE = [
    (("--filter", "temp gt 40.0"), "a part of temp, such as its thousands, in the PartitionKey"),
    (
        ("--filter", "note eq 'cold'"),
        "under PartitionKey `{note}` and RowKey `{PartitionKey}_{RowKey}`",
    ),
    (
        ("--filter", "PartitionKey eq 'JFK' and temp gt 40.0"),
        "into its partition, under RowKey `temp_{temp:020.6f}_{RowKey}`",
    ),
    (("--newest", "--top", "1"), "inverted ticks"),
]


@pytest.mark.parametrize(("arguments", "words"), ADVICE, ids=str)
def test_a_scan_is_explained_with_advice(
    tools: DataTools, weather: str, arguments: tuple[str, ...], words: str
) -> None:
    told = tools.run("query", weather, *arguments, "--explain").stderr.splitlines()
    advice, *others = [line for line in told if line.startswith("advice (")]
    assert words in advice
    # A filter that an index would serve is told so, after the keys; --newest has no filter.
    assert [line[: len("advice (index)")] for line in others] == ["advice (index)"] * bool(
        "--filter" in arguments
    )
    assert told[told.index(advice) + 1].startswith("  cost of writes: ")


@pytest.mark.parametrize(("arguments", "kind"), [PLANS[0], PLANS[1], *PLANS[3:]], ids=str)
def test_a_query_without_a_better_key_has_no_advice(
    tools: DataTools, weather: str, arguments: tuple[str, ...], kind: str
) -> None:
    told = tools.run("query", weather, *arguments, "--explain").stderr
    assert f"plan: {kind}" in told
    assert "advice:" not in told


def test_a_table_that_is_not_there_is_not_deleted(tools: DataTools, table: str) -> None:
    missing = tools.run("tables", "--delete", table, "--yes", status=1)
    assert (missing.stdout, missing.stderr) == ("", f"tablestone: There is no table {table}.\n")
    tools.run("tables", "--create", table)
    assert tools.run("tables", "--delete", table, "--yes").lines == [f"Table {table} deleted."]


@pytest.mark.parametrize(
    ("arguments", "stdout", "stderr"),
    [
        (("--distinct", "a", "--count"), "2\n", "3 entities received for 2 distinct values.\n"),
        (("--distinct", "a"), "1\n2\n", "3 entities received for 2 distinct values.\n"),
        (("--contains", "s=x", "--count"), "2\n", "3 entities received for 2 counted.\n"),
        (
            ("--order-by", "nosuch", "--select", "s", "--output", "csv"),
            "s:String\nx\nxy\nz\n",
            "--order-by nosuch: no entity that was read has this property.\n"
            "3 entities received for 3 shown.\n",
        ),
        (
            ("--order-by", "a desc", "--select", "RowKey,nosuch", "--output", "csv", "--top", "1"),
            "RowKey,nosuch\n2,\n",
            "3 entities received for 1 shown.\n",
        ),
        (("--select", "nosuch", "--filter", "a eq 9", "--output", "csv"), "nosuch\n", ""),
        (("--filter", "a eq 9", "--output", "csv"), "PartitionKey,RowKey\n", ""),
        (("--order-by", "nosuch", "--filter", "a eq 9"), "", "0 entities received for 0 shown.\n"),
        (
            ("--filter", "A eq 1 and b eq 2", "--output", "jsonl"),
            "",
            "--filter A: no entity that was read has this property. Did you mean a?\n",
        ),
        (
            ("--filter", "s gt 10.0 and a lt 'x'", "--output", "jsonl"),
            "",
            "--filter s gt 10.0: s is Edm.String in the entities that were read, not Edm.Double. Write s gt '10.0'.\n",
        ),
        (
            ("--filter", "a gt 7L", "--output", "jsonl"),
            "",
            "--filter a gt 7L: a is Edm.Int32 in the entities that were read, not Edm.Int64. Write a gt 7.\n",
        ),
        (("--filter", "a gt 7", "--output", "jsonl"), "", ""),
        (
            ("--order-by", "RowKy desc", "--count"),
            "3\n",
            "--order-by RowKy: no entity that was read has this property. Did you mean RowKey?\n"
            "3 entities received for 3 counted.\n",
        ),
        (
            ("--select", "S,nosuch", "--output", "csv", "--top", "1"),
            "S,nosuch\n,\n",
            "--select S: no entity that was read has this property. Did you mean s?\n",
        ),
        (
            ("--distinct", "nosuch"),
            "\n",
            "--distinct nosuch: no entity that was read has this property.\n"
            "3 entities received for 1 distinct value.\n",
        ),
    ],
)
def test_what_a_refined_query_shows(
    tools: DataTools, table: str, arguments: tuple[str, ...], stdout: str, stderr: str
) -> None:
    rows = [
        entity("p", "1", a=1, s="x"),
        entity("p", "2", a=2, s="xy"),
        entity("p", "3", a=1, s="z"),
    ]
    tools.run("import", tools.write_lines("a.jsonl", rows), table)
    told = tools.run("query", table, *arguments)
    assert (told.stdout, told.stderr) == (stdout, stderr)


def test_other_commands_name_a_property_in_other_letters(
    tools: DataTools, table: str, tmp_path: Path
) -> None:
    tools.run("import", tools.write_lines("a.jsonl", [entity("p", "1", a=1)]), table)
    sentence = "{}: no entity that was read has this property. Did you mean a?\n"
    counted = tools.run("count", table, "--by", "A", "--quiet")
    assert (counted.stdout, counted.stderr) == ("1\t\n", sentence.format("--by A"))
    for command in (["count"], ["delete", "--dry-run"]):
        ended = tools.run(*command, table, "--filter", "A eq 1")
        assert ended.stderr == sentence.format("--filter A")
    ended = tools.run("export", table, tmp_path / "x.csv", "--filter", "A eq 1", "--quiet")
    assert ended.stderr == sentence.format("--filter A")


def test_a_name_that_no_property_can_have_is_selected(
    tools: DataTools, table: str, tmp_path: Path
) -> None:
    """The service answers null for it."""
    tools.run("import", tools.write_lines("a.jsonl", [entity("p", "1", a=1)]), table)
    path = tmp_path / "x.csv"
    tools.run("export", table, path, "--select", "a,a-b", "--quiet")
    assert path.read_text("utf-8").count("1") >= 2


def test_only_what_is_selected_is_shown(tools: DataTools, table: str) -> None:
    tools.run("import", tools.write_lines("a.jsonl", [entity("p", "1", a=1, b=2)]), table)
    ordered = tools.run("query", table, "--select", "a", "--order-by", "b", "--output", "jsonl")
    assert ordered.entities == [{"a": 1}]
