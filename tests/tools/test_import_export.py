"""Import and export: conflicts, rejected rows, journals, and the data after an interrupted run."""

import os
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from server_process import COMMAND
from tablestone.model.keys import EntityKey
from tablestone.tools import exporting, importing
from tablestone.tools.client import TableEndpoint
from tablestone.tools.errors import Unreachable
from tablestone.tools.formats.compressed import CompressedAppender
from tools.data_tools import DataTools, entity


def numbered(count: int, **properties: object) -> list[dict[str, Any]]:
    """Entities in three partitions."""
    return [
        entity(f"p{number % 3}", f"{number:05}", number=number, **properties)
        for number in range(count)
    ]


def in_order(entities: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entities, key=lambda each: (each["PartitionKey"], each["RowKey"]))


def test_a_file_becomes_a_table_and_a_file_again(tools: DataTools, table: str) -> None:
    entities = numbered(1234)
    report = tools.run("import", tools.write_lines("a.jsonl", entities), table, "--json", "--quiet")
    told = orjson.loads(report.stdout)
    assert (told["rows"], told["stored"], told["rejected"], told["created"]) == (
        1234,
        1234,
        0,
        True,
    )
    assert tools.all_of(table) == in_order(entities)
    for name in ("b.jsonl.zst", "b.csv", "b.parquet"):
        path = tools.directory / name
        tools.run("export", table, path)
        other = f"{table}{path.suffix[1:]}"
        tools.run("import", path, other)
        assert tools.all_of(other) == in_order(entities)
        tools.run("tables", "--delete", other, "--yes")
        there = tools.run("export", table, path, status=2).stderr
        assert there == f"tablestone: {path} exists already: --overwrite replaces it.\n"
    assert sorted(path.name for path in tools.directory.iterdir() if path.is_file()) == [
        *("a.jsonl", "b.csv", "b.jsonl.zst", "b.parquet")
    ]


def test_an_export_of_a_part_and_to_standard_output(tools: DataTools, table: str) -> None:
    tools.run("import", tools.write_lines("a.jsonl", numbered(9, s="x")), table)
    part = tools.run("export", table, "-", "--filter", "number ge 7", "--select", "number")
    assert part.entities == [entity("p1", "00007", number=7), entity("p2", "00008", number=8)]
    csv = tools.run("export", table, "-", "--format", "csv", "--filter", "number eq 7")
    assert csv.lines == ["PartitionKey,RowKey,number:Int32,s:String", "p1,00007,7,x"]
    assert csv.stderr == "1 entity written.\n"


CONFLICTS = [
    ("replace", [entity("p", "1", b=2), entity("p", "2", b=2)], "2 entities stored"),
    ("merge", [entity("p", "1", a=1, b=2), entity("p", "2", b=2)], "2 entities stored"),
    ("skip", [entity("p", "1", a=1), entity("p", "2", b=2)], "1 entity stored"),
]


@pytest.mark.parametrize(("rule", "expected", "told"), CONFLICTS)
def test_a_key_that_is_taken(
    tools: DataTools, table: str, rule: str, expected: Any, told: str
) -> None:
    tools.run("import", tools.write_lines("a.jsonl", [entity("p", "1", a=1)]), table)
    second = tools.write_lines("b.jsonl", [entity("p", "1", b=2), entity("p", "2", b=2)])
    assert tools.run("import", second, table, "--on-conflict", rule).stdout.startswith(told)
    assert tools.all_of(table) == expected


def test_by_default_a_key_that_is_taken_ends_the_import(tools: DataTools, table: str) -> None:
    path = tools.write_lines("a.jsonl", [entity("p", "1", a=1)])
    tools.run("import", path, table)
    failed = tools.run("import", path, table, status=1).stderr
    assert failed.startswith(
        "tablestone: Row 1: an entity with PartitionKey 'p' and RowKey '1' is in "
    )


def test_a_failed_import_says_what_it_did(tools: DataTools, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("PartitionKey,RowKey\na,1\nb/,1\nc,1\nc,1\n", encoding="utf-8")
    failed = tools.run("import", path, "Fallen", status=1)
    assert failed.stdout == ""
    assert failed.stderr.startswith(
        "tablestone: Row 5 (the header is row 1): an entity with PartitionKey 'c' and RowKey '1' is in Fallen "
        "already, from an earlier row. --on-conflict skip, replace or merge says what becomes of such rows. "
        "2 entities stored in Fallen, "
    )
    assert failed.stderr.endswith(
        f" The table Fallen was made. 1 row rejected, with the reason in {path}.rejects.jsonl.\n"
    )


def test_the_later_row_of_a_key_wins(tools: DataTools, table: str) -> None:
    lines = [entity("p", "1", n=n) for n in range(7)]
    tools.run("import", tools.write_lines("a.jsonl", lines), table, "--on-conflict", "replace")
    assert tools.all_of(table) == [entity("p", "1", n=6)]


def test_rows_that_cannot_be_stored_are_kept_with_the_reason(tools: DataTools, table: str) -> None:
    lines = [
        entity("p", "1", ok=True),
        entity("p/q", "2"),
        entity("p", "3", text="x" * 32_769),
        {"PartitionKey": "p"},
        entity("p", "5", ok=True),
    ]
    path = tools.write_lines("a.jsonl", lines)
    ended = tools.run("import", path, table, status=1)
    assert "3 rows rejected, with the reasons in " in ended.stdout
    rejects = [
        orjson.loads(line) for line in Path(f"{path}.rejects.jsonl").read_bytes().splitlines()
    ]
    rejects.sort(key=lambda each: each["row"])  # the service refuses later than the reader
    assert [(each["row"], each["reason"][:23]) for each in rejects] == [
        *((2, "OutOfRangeInput: The 'P"), (3, "PropertyValueTooLarge: "), (4, "there is no RowKey"))
    ]
    assert orjson.loads(rejects[0]["text"]) == lines[1]
    assert tools.all_of(table) == [lines[0], lines[4]]


def test_a_row_that_only_the_service_refuses(
    tools: DataTools, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction is sent again without the row."""

    def let_through(raw: dict[str, Any], _size: int) -> tuple[EntityKey, bool]:
        key = EntityKey(raw["PartitionKey"], raw["RowKey"])
        return key, True

    monkeypatch.setattr("tablestone.tools.odata.require_valid", let_through)
    lines = [
        entity("p", f"{number:03}", text="x" * (40_000 if number in (0, 57) else 10))
        for number in range(100)
    ]
    path = tools.write_lines("a.jsonl", lines)
    tools.run("import", path, table, status=1)
    rejects = [
        orjson.loads(line) for line in Path(f"{path}.rejects.jsonl").read_bytes().splitlines()
    ]
    assert sorted((each["row"], each["reason"].partition(":")[0]) for each in rejects) == [
        *((1, "PropertyValueTooLarge"), (58, "PropertyValueTooLarge"))
    ]
    assert len(tools.all_of(table)) == 98


@pytest.mark.parametrize(
    ("marker", "is_page"),
    [
        ({}, False),
        (None, False),
        ({"nextpartitionkey": None, "nextrowkey": None}, False),
        ({"nextpartitionkey": "1!4!cA--", "nextrowkey": None}, True),
    ],
)
def test_a_page_of_az_says_that_it_is_not_the_whole_table(
    tools: DataTools, table: str, marker: object, *, is_page: bool
) -> None:
    path = tools.directory / "az.json"
    path.write_bytes(orjson.dumps({"items": [entity("p", "r")], "nextMarker": marker}))
    said = tools.run("import", path, table, "--quiet").stdout
    assert said.startswith("1 entity stored in ")
    assert (importing.ONE_PAGE in said) is is_page


def test_standard_input(tools: DataTools, table: str) -> None:
    process = subprocess.run(
        [COMMAND, "import", "-", table, "--quiet"],
        input=b'{"PartitionKey":"p","RowKey":"1"}\n',
        capture_output=True,
        check=True,
        env=os.environ | tools.environment(),
    )
    assert process.stdout.startswith(b"1 entity stored in ")
    assert tools.all_of(table) == [entity("p", "1")]


@pytest.fixture
def fails_after(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that lets some transactions through, and then makes the service unreachable."""

    def arm(count: int) -> None:
        real = TableEndpoint.transact
        calls = iter(range(10**9))

        def transact(self: TableEndpoint, *arguments: Any) -> None:
            if next(calls) >= count:
                raise Unreachable("gone")
            real(self, *arguments)

        monkeypatch.setattr(TableEndpoint, "transact", transact)
        monkeypatch.setattr("tablestone.tools.retrying.FIRST_PAUSE_SECONDS", 0.0)

    return arm


def test_an_import_goes_on_where_it_was(
    tools: DataTools, table: str, monkeypatch: pytest.MonkeyPatch, fails_after: Any
) -> None:
    monkeypatch.setattr(importing, "WINDOW_ROWS", 200)
    lines = numbered(1000)
    lines[3] = {"PartitionKey": "p"}
    path = tools.write_lines("a.jsonl", lines)
    with monkeypatch.context() as _:
        fails_after(8)
        failed = tools.run("import", path, table, "--parallel", "1", status=1).stderr
    assert "The service cannot be reached: gone" in failed
    monkeypatch.undo()
    told = tools.run("import", path, table, status=1).lines
    assert told[0].startswith("999 entities stored in ")
    assert told[1].startswith("An earlier run had stored the rows up to ")
    assert told[2].startswith("1 row rejected")
    assert len(Path(f"{path}.rejects.jsonl").read_bytes().splitlines()) == 1
    assert tools.all_of(table) == in_order(lines[:3] + lines[4:])
    assert list((tools.directory / "journals").glob("*.json")) == []
    again = tools.run("import", path, table, status=1).stderr
    assert "is in " in again  # the import is complete, so the next run is a new one


def test_a_run_that_goes_on_in_smaller_windows_knows_what_the_earlier_one_sent(
    tools: DataTools, table: str, monkeypatch: pytest.MonkeyPatch, fails_after: Any
) -> None:
    """A window can also end by the clock, so two runs may end their windows at different rows."""
    entities = [entity("p", f"{number:05}") for number in range(1000)]
    path = tools.write_lines("a.jsonl", entities)
    monkeypatch.setattr(importing, "WINDOW_SECONDS", 1000.0)
    fails_after(8)
    tools.run("import", path, table, "--parallel", "1", status=1)
    monkeypatch.undo()
    monkeypatch.setattr(importing, "WINDOW_SECONDS", 0.0)
    told = tools.run("import", path, table).stdout
    assert told.startswith("1,000 entities stored in ")
    assert tools.all_of(table) == entities


def test_a_file_that_changed_is_another_import(
    tools: DataTools, table: str, monkeypatch: pytest.MonkeyPatch, fails_after: Any
) -> None:
    path = tools.write_lines("a.jsonl", numbered(10))
    fails_after(1)
    tools.run("import", path, table, "--parallel", "1", status=1)
    monkeypatch.undo()
    tools.write_lines("a.jsonl", numbered(12))
    told = tools.run("import", path, table, "--on-conflict", "skip").lines
    assert told[-1].endswith("rows skipped: their keys were taken.")


def test_a_damaged_journal_is_reported(
    tools: DataTools, table: str, monkeypatch: pytest.MonkeyPatch, fails_after: Any
) -> None:
    path = tools.write_lines("a.jsonl", numbered(10))
    fails_after(0)
    tools.run("import", path, table, status=1)
    monkeypatch.undo()
    (journal,) = (tools.directory / "journals").glob("*.json")
    assert (
        tools.connection_string.partition("AccountKey=")[2].partition(";")[0]
        not in journal.read_text()
    )
    journal.write_text("{")
    refused = tools.run("import", path, table, status=2).stderr
    assert refused.endswith("cannot be read: --restart begins again.\n")
    tools.run("import", path, table, "--restart")


def test_an_export_goes_on_where_it_was(
    tools: DataTools, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "PAGES_PER_CHECKPOINT", 1)
    entities = numbered(3500)
    tools.run("import", tools.write_lines("a.jsonl", entities), table)
    for name in ("b.jsonl.gz", "b.csv", "b.parquet"):
        path = tools.directory / name
        real = TableEndpoint.page
        calls = iter(range(10**9))

        def page(self: TableEndpoint, *arguments: Any, real: Any = real, calls: Any = calls) -> Any:
            if next(calls) >= 2:
                raise Unreachable("gone")
            return real(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(TableEndpoint, "page", page)
            patch.setattr("tablestone.tools.retrying.FIRST_PAUSE_SECONDS", 0.0)
            tools.run("export", table, path, status=1)
        assert not path.exists()
        told = tools.run("export", table, path).lines
        assert told[1].startswith("An earlier run had read the first ")
        other = f"{table}{path.suffix[1:]}"
        tools.run("import", path, other)
        assert tools.all_of(other) == in_order(entities)
        tools.run("tables", "--delete", other, "--yes")


def test_a_full_disk_leaves_nothing_under_the_name(
    tools: DataTools, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.run("import", tools.write_lines("a.jsonl", numbered(10)), table)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(CompressedAppender, "finish", full)
        failed = tools.run("export", table, tools.directory / "b.csv", status=1).stderr
    assert failed.startswith("tablestone: The disk is full while ")
    assert not (tools.directory / "b.csv").exists()
    tools.run("export", table, tools.directory / "b.csv")


def test_deleting_asks_and_counts(tools: DataTools, table: str) -> None:
    tools.run("import", tools.write_lines("a.jsonl", numbered(2500)), table)
    some = ("delete", table, "--filter", "number lt 1500")
    assert tools.run(*some, "--dry-run").lines == ["1,500 entities would be deleted."]
    refused = tools.run(*some, status=2).stderr
    assert refused.endswith("needs --yes without a terminal.\n")
    assert tools.run(*some, "--yes").lines == ["1,500 entities deleted."]
    assert tools.run("count", table).lines == ["1000"]
    assert tools.run("clear", table, "--yes", "--json").stdout == (
        f'{{"table": "{table}", "deleted": 1000, "changed": 0, "uncertain": 0, "gone": 0}}\n'
    )
    assert tools.run("count", table).lines == ["0"]
    assert tools.run("delete", table, status=2).stderr.startswith(
        "tablestone: delete needs --filter;"
    )


def test_what_changed_after_it_was_read_is_not_deleted(
    tools: DataTools, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.run("import", tools.write_lines("a.jsonl", numbered(10)), table)
    real = TableEndpoint.page

    def page(self: TableEndpoint, *arguments: Any) -> Any:
        found = real(self, *arguments)
        for raw in found.entities:
            if raw["RowKey"] == "00004":
                raw["odata.etag"] = (
                    "W/\"datetime'2013-01-01T00%3A00%3A00Z'\""  # as if the entity were older
                )
        return found

    with monkeypatch.context() as patch:
        patch.setattr(TableEndpoint, "page", page)
        told = tools.run("clear", table, "--yes").lines
    assert told == ["9 entities deleted.", "1 changed after they were read, and are still there."]
    assert [each["RowKey"] for each in tools.all_of(table)] == ["00004"]
