"""Azurite's own file, read without Azurite: `azurite_db_table.json` was written by Azurite 3.37.

Two accounts have tables. Azurite's entities went through its protocol, with every type.
"""

from pathlib import Path

import orjson
import pytest

from tablestone.tools.client import TableEndpoint
from tablestone.tools.errors import TransferFailed
from tools.data_tools import DataTools, entity

FILE = Path(__file__).with_name("azurite_db_table.json")
TYPES = entity(
    "p",
    "types",
    String="ä'\"€",
    Empty="",
    Int32=-5,
    Double=4.5,
    Boolean=True,
    Big=1e300,
    **{
        "Int64@odata.type": "Edm.Int64",
        "Int64": "9007199254740993",
        "Whole": 5.0,
        "Nan@odata.type": "Edm.Double",
        "Nan": "NaN",
        "Inf@odata.type": "Edm.Double",
        "Inf": "Infinity",
        "NegInf@odata.type": "Edm.Double",
        "NegInf": "-Infinity",
        "Date@odata.type": "Edm.DateTime",
        "Date": "2013-01-01T05:00:00.123456Z",
        "Guid@odata.type": "Edm.Guid",
        "Guid": "c9da6455-213d-42c9-9a79-3e9149a57833",
        "Binary@odata.type": "Edm.Binary",
        "Binary": "AP8QYWJj",
    },
)
MERGED = entity("p", "merged", a=1, **{"b@odata.type": "Edm.Int64", "b": "7"})


@pytest.fixture
def empty_account(tools: DataTools) -> DataTools:
    for name in ("Readings", "Weather", "Empty"):
        tools.run("tables", "--delete", name, "--yes", status=None)
    return tools


def test_all_tables_of_the_account_are_loaded(empty_account: DataTools) -> None:
    tools = empty_account
    ended = tools.run("import", FILE, "--quiet")
    assert [line.partition(", ")[0] for line in ended.lines] == [
        *("3 entities stored in Readings", "The table Readings was made."),
        *("0 entities stored in Empty", "The table Empty was made."),
    ]
    assert ended.stderr == (
        "tablestone: Not imported: the tables of account other. To load them too, give --from-account, and the "
        "connection of the account that gets them.\n"
    )
    assert tools.all_of("Readings") == [entity("a'b", "quote"), MERGED, TYPES]
    assert tools.all_of("Empty") == []
    assert tools.run("tables").lines.count("Weather") == 0


def test_one_table_and_another_account(empty_account: DataTools) -> None:
    tools = empty_account
    told = tools.run("import", FILE, "readings", "--quiet").lines[0]
    assert told.startswith("3 entities stored in Readings, ")
    ended = tools.run("import", FILE, "--from-account", "other", "--quiet", "--json")
    assert [orjson.loads(line)["table"] for line in ended.lines] == ["Weather"]
    assert tools.all_of("Weather") == [entity("JFK", "1", temp=4.5)]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--from-account", "nobody"],
            "FILE has no tables of the account nobody. It has those of devstoreaccount1, other: --from-account names "
            "one.",
        ),
        (["Nothing"], "FILE has no table Nothing of the account devstoreaccount1."),
        (
            ["weather"],
            "FILE has no table weather of the account devstoreaccount1. Account other has it: --from-account other.",
        ),
    ],
)
def test_what_the_file_does_not_have(tools: DataTools, words: list[str], sentence: str) -> None:
    ended = tools.run("import", FILE, *words, status=2)
    assert ended.stderr == f"tablestone: {sentence.replace('FILE', str(FILE))}\n"


def test_rejected_rows_go_to_a_file_for_each_table(
    empty_account: DataTools, tmp_path: Path
) -> None:
    tools = empty_account
    copy = tmp_path / "copy.json"
    copy.write_bytes(FILE.read_bytes())
    ended = tools.run("import", copy, "--types", "a=Guid", "--quiet", status=1)
    assert f"1 row rejected, with the reason in {copy}.rejects.jsonl.Readings." in ended.lines
    (rejected,) = Path(f"{copy}.rejects.jsonl.Readings").read_bytes().splitlines()
    assert orjson.loads(rejected)["reason"] == "a is 1, not of type Guid"


def test_the_same_command_continues_with_the_next_table(
    empty_account: DataTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table that was stored whole is not stored again, which would be a conflict."""
    tools = empty_account
    create = TableEndpoint.create_table

    def fail_for_the_second(endpoint: TableEndpoint, name: str) -> bool:
        if name == "Empty":
            raise TransferFailed("The network is gone.")
        return create(endpoint, name)

    with monkeypatch.context() as patch:
        patch.setattr(TableEndpoint, "create_table", fail_for_the_second)
        failed = tools.run("import", FILE, "--quiet", status=1)
    assert (failed.stdout, failed.stderr) == ("", "tablestone: The network is gone.\n")
    stored = tools.all_of("Readings")
    told = tools.run("import", FILE, "--quiet").lines
    assert [line for line in told if "stored in" in line] == [
        "3 entities stored in Readings, 742 B.",
        "0 entities stored in Empty, 0 B.",
    ]
    assert tools.all_of("Readings") == stored


def test_a_file_that_is_cut_off_and_one_that_needs_a_table(
    tools: DataTools, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.json"
    cut.write_bytes(FILE.read_bytes()[:3000])
    assert " is not a whole file of Azurite: " in tools.run("import", cut, status=2).stderr
    lines = tools.write_lines("a.jsonl", [MERGED])
    assert tools.run("import", lines, status=2).stderr == (
        "tablestone: Missing argument 'TABLE'.\n"
        "Usage: tablestone import [OPTIONS] FILE [TABLE] (`tablestone import --help` says more)\n"
    )


def test_a_directory_is_no_file(tools: DataTools) -> None:
    refused = tools.run("import", FILE.parent, status=2).stderr
    assert refused == (
        f"tablestone: {FILE.parent} is a directory: name a file, such as Azurite's "
        f"{FILE.parent}/__azurite_db_table__.json.\n"
    )
