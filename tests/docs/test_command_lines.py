"""The long test programs refuse a run that would test nothing, or lacks a package, in one sentence."""

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from stress.histories.checker import NoChecker
from stress.histories.planted_server import ON_CLUSTER, ON_ONE_MACHINE
from stress.simulation.planted_bugs import BUGS as SIMULATED_BUGS

TESTS = Path(__file__).parents[1]
RELIABILITY = TESTS.parent / "docs" / "reliability.md"
TOOLS = {
    path.parent.name: ".".join(path.parent.relative_to(TESTS).parts)
    for path in sorted(TESTS.glob("*/*/__main__.py"))
}
CLUSTER = ("cassandra", "--engine=cassandra://127.0.0.1/tables")

COUNTS = [
    ("histories", "embedded", "--operations"),
    ("histories", "embedded", "--clients"),
    ("histories", "embedded", "--workers"),
    ("simulation", "--seeds"),
    ("simulation", "--processes"),
    ("crash", "--kills"),
    ("power_loss", "--points"),
    ("property", "--steps"),
    ("clock_steps", "--steps"),
    ("archive", "--steps"),
    ("fuzz", "parsers", "--inputs"),
]
MEASURES = [("soak", "--minutes"), ("soak", "--rate")]
REFUSED = [
    *((*row, value, "is not a whole number from 1 on") for row in COUNTS for value in ("0", "-4")),
    *((*row, value, "is not a number above 0") for row in MEASURES for value in ("0", "-1", "inf")),
    ("pattern_kills", "--seconds", "0", "is not a number above 0"),
    ("pattern_kills", "--clients", "0", "is not a whole number from 1 on"),
    ("crash", "--kills", "many", "is not a whole number from 1 on"),
    ("soak", "--minutes", "0.01", "compares nothing"),
    ("histories", "cassandra", "--engine", "sqlite:data", "is not the URL of a cluster"),
    ("simulation", "--bug", "a blind retry", "invalid choice"),
    ("histories", "embedded", "--bug", "blind retry", "invalid choice"),
    ("cluster", "faults", "--bug", "x", "invalid choice"),
]
PLANTED = {
    ("histories", "embedded"): "planted_server:ON_ONE_MACHINE",
    ("histories", "cassandra"): "planted_server:ON_CLUSTER",
    ("cluster", "faults"): "planted_server:ON_CLUSTER",
    ("simulation",): "planted_bugs:BUGS",
    ("crash",): "planted:BUGS",
    ("power_loss",): "planted:BUGS",
    ("soak",): "leaking_server:LEAKS",
}


def tool(name: str) -> ModuleType:
    return import_module(f"tests.{TOOLS[name]}.__main__")


@pytest.mark.parametrize("row", REFUSED, ids=" ".join)
def test_what_makes_no_sense_is_refused(
    row: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    name, *arguments, sentence = row
    if len(arguments) > 1:  # a value that begins with a dash would be read as an option
        arguments[-2:] = [f"{arguments[-2]}={arguments[-1]}"]
    with pytest.raises(SystemExit) as ended:
        tool(name).main(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("name", TOOLS)
def test_each_tool_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        tool(name).main(["--help"])
    assert ended.value.code == 0
    assert f"python -m tests.{TOOLS[name]}" in capsys.readouterr().out


@pytest.mark.parametrize("command", PLANTED, ids=" ".join)
def test_the_help_lists_the_planted_bugs(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    name, *arguments = command
    with pytest.raises(SystemExit):
        tool(name).main([*arguments, "--help"])
    told = " ".join(capsys.readouterr().out.split())
    module, _, variable = PLANTED[command].partition(":")
    package = TOOLS["histories" if module == "planted_server" else name]
    bugs = getattr(import_module(f"{package}.{module}"), variable)
    assert bugs
    assert not [bug for bug in bugs if f"'{bug}'" not in told]


def test_the_document_has_the_names_of_the_planted_bugs() -> None:
    """A reader plants a bug from the table with `--bug`."""
    rows = re.findall(r"^\| `([^`|]+)` \|(.*)\|$", RELIABILITY.read_text(), re.MULTILINE)
    table = {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}
    on_one, on_cluster, in_faults, simulated = (
        {name for name, cells in table.items() if len(cells) == 4 and cells[column] == "yes"}
        for column in range(4)
    )
    assert on_one == set(ON_ONE_MACHINE)
    assert on_cluster | in_faults == set(ON_CLUSTER)
    assert simulated == set(SIMULATED_BUGS)


@pytest.mark.parametrize(
    ("name", "arguments", "check"),
    [
        ("property", ["--engine", "simulated cluster"], "missing_driver"),
        ("simulation", [], "missing_driver"),
        ("histories", CLUSTER, "missing_driver"),
        ("cluster", ["faults"], "missing_driver"),
        ("supply_chain", [], "missing_auditor"),
    ],
)
def test_a_package_that_is_missing(
    name: str,
    arguments: list[str],
    check: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = tool(name)
    monkeypatch.setattr(module, check, lambda: "no package: pip install 'it'")
    if name == "histories":
        monkeypatch.setattr(module, "build", lambda: None)
    assert module.main(arguments) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "no package: pip install 'it'.\n")


@pytest.mark.parametrize("arguments", [["embedded"], [*CLUSTER], ["judge", "histories.jsonl"]])
def test_histories_without_a_checker(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the run, which would be wasted."""

    def build() -> None:
        raise NoChecker("no Go")

    monkeypatch.setattr(tool("histories"), "build", build)
    assert tool("histories").main(arguments) == 2
    assert capsys.readouterr().err == "no Go.\n"


def test_a_file_of_histories_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool("histories"), "build", lambda: None)
    missing = tmp_path / "missing"
    assert tool("histories").main(["judge", str(missing)]) == 2
    assert capsys.readouterr().err == f"{missing} cannot be read: No such file or directory.\n"
