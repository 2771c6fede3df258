"""SIGKILL at one exact moment of an import, an export or a copy: the same command, run again, completes it.

A moment is before or after one call of a function. The last moments are between the end of the work and the printed
report: what is stored then must not look like somebody else's work.
"""

import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from conftest import StartServer
from server_process import clean_environment
from tools.data_tools import DataTools, entity

pytestmark = [pytest.mark.crash, pytest.mark.slow]

PROGRAM = """
import os, signal, sys
from importlib import import_module
from tablestone.cli.main import main
from tablestone.tools import copying, exporting, importing

importing.WINDOW_ROWS = 500
exporting.PAGES_PER_CHECKPOINT = copying.PAGES_PER_CHECKPOINT = 1
module, place, number, is_after = {moment!r}
*owners, name = place.split(".")
owner = import_module(module)
for each in owners:
    owner = getattr(owner, each)
real = getattr(owner, name)
calls = 0

def dying(*arguments, **named):
    global calls
    calls += 1
    is_this = calls == number
    if is_this and not is_after:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = real(*arguments, **named)
    if is_this:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

setattr(owner, name, dying)
sys.exit(main({arguments!r}))
"""


class KillMoment(NamedTuple):
    """The call of a function with this number, and whether the process dies after it or before."""

    module: str
    place: str
    number: int
    is_after: bool


def before(module: str, place: str, number: int = 1) -> KillMoment:
    return KillMoment(f"tablestone.{module}", place, number, is_after=False)


def after(module: str, place: str, number: int = 1) -> KillMoment:
    return KillMoment(f"tablestone.{module}", place, number, is_after=True)


def kill_at(tools: DataTools, moment: KillMoment, *arguments: str) -> None:
    """Run the command in its own process, which must die at that moment."""
    program = PROGRAM.format(moment=tuple(moment), arguments=list(arguments))
    ended = subprocess.run(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment() | tools.environment(),
    )
    assert ended.returncode == -signal.SIGKILL, ended


def names(moment: KillMoment | str) -> str:
    if isinstance(moment, str):
        return moment
    side = "after" if moment.is_after else "before"
    return f"{side} {moment.place} {moment.number}"


def journals_of(tools: DataTools) -> list[Path]:
    return list((tools.directory / "journals").iterdir())


ENTITIES = [entity(f"p{n // 700}", f"{n:05}", n=n) for n in range(1600)]

IMPORT_MOMENTS = [
    after("tools.client", "TableEndpoint.create_table"),
    before("tools.resume_journal", "Journal.save"),
    before("tools.client", "TableEndpoint.transact"),
    after("tools.client", "TableEndpoint.transact"),
    before("tools.resume_journal", "Journal.save", 2),
    after("tools.resume_journal", "Journal.save", 2),
    after("tools.client", "TableEndpoint.transact", 12),
    before("cli.data_options", "print_report"),
    after("cli.data_options", "print_report"),
]


@pytest.mark.parametrize("moment", IMPORT_MOMENTS, ids=names)
def test_an_import_is_completed(tools: DataTools, table: str, moment: KillMoment) -> None:
    """Under the strictest rule for conflicts, a row of the killed run is not one."""
    path = tools.write_lines("a.jsonl", ENTITIES)
    command = ("import", str(path), table, "--on-conflict", "fail", "--quiet")
    kill_at(tools, moment, *command)
    assert tools.run(*command).stdout.startswith("1,600 entities stored in ")
    assert tools.all_of(table) == ENTITIES
    assert journals_of(tools) == []


EXPORT_MOMENTS = [
    ("b.jsonl.gz", after("tools.resume_journal", "Journal.save")),
    ("b.jsonl.gz", before("tools.exporting", "Path.replace", 4)),
    ("b.jsonl.gz", after("tools.exporting", "Path.replace", 4)),
    ("b.jsonl.gz", before("cli.data_options", "print_report")),
    ("b.csv", before("tools.exporting", "convert")),
    ("b.csv", before("tools.exporting", "Path.replace", 4)),
    ("b.csv", after("tools.exporting", "Path.replace", 4)),
    ("b.csv", after("cli.data_options", "print_report")),
]


@pytest.mark.parametrize(("name", "moment"), EXPORT_MOMENTS, ids=names)
def test_an_export_is_completed(
    tools: DataTools, table: str, moment: KillMoment, name: str
) -> None:
    """The command recognises the file that the killed run completed; `--overwrite` is not necessary."""
    tools.run("import", tools.write_lines("a.jsonl", ENTITIES), table, "--quiet")
    target = tools.directory / name
    command = ("export", table, str(target), "--quiet")
    kill_at(tools, moment, *command)
    assert tools.run(*command).stdout.startswith(f"1,600 entities written to {target}, ")
    assert sorted(path.name for path in tools.directory.glob("b.*")) == [name]
    assert journals_of(tools) == []
    tools.run("clear", table, "--yes", "--quiet")
    tools.run("import", target, table, "--quiet")
    assert tools.all_of(table) == ENTITIES
    assert tools.run(*command, status=2).stderr.endswith("--overwrite replaces it.\n")


COPY_MOMENTS = [
    after("tools.client", "TableEndpoint.transact"),
    before("tools.resume_journal", "Journal.save", 2),
    before("cli.commands.copy_and_diff", "data_options.print_report"),
]


@pytest.mark.parametrize("moment", COPY_MOMENTS, ids=names)
def test_a_copy_is_completed(
    tools: DataTools, table: str, private_server: StartServer, tmp_path: Path, moment: KillMoment
) -> None:
    target = private_server(tmp_path / "target")
    tools.run("import", tools.write_lines("a.jsonl", ENTITIES), table, "--quiet")
    places = []
    for name, text in (("from", tools.connection_string), ("to", target.connection_string)):
        (tools.directory / name).write_text(text)
        places.append(f"@{tools.directory / name}")
    command = ("copy", "--from", places[0], "--to", places[1], table, "--quiet")
    kill_at(tools, moment, *command)
    told = tools.run(*command).lines
    assert "  Verified: 1,600 entities on both sides, and they are equal." in told
    assert journals_of(tools) == []


def test_an_import_that_printed_its_report_is_over(tools: DataTools, table: str) -> None:
    """The same file, loaded again, is a new import: its rows are conflicts."""
    path = tools.write_lines("a.jsonl", ENTITIES)
    command = ("import", str(path), table, "--quiet")
    kill_at(tools, after("cli.data_options", "end_with_report"), *command)
    assert "is in " in tools.run(*command, status=1).stderr
