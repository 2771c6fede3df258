"""Commands start without the packages that only the tools need; the help of each command; completion in a shell."""

import subprocess
import sys
from collections.abc import Collection

import click
import pytest

from server_process import clean_environment
from tablestone.cli.command_list import COMMANDS, ListedCommand, load
from tablestone.extras import pip_install
from tools.data_tools import DataTools

OF_THE_TOOLS = {
    "azure",
    "backports",
    "keyring",
    "pyarrow",
    "requests",
    "rich",
    "setproctitle",
    "yaml",
}
WITH_EXTRA = [command for command in COMMANDS.values() if command.extra]
SCREEN_COLUMNS, SCREEN_LINES = 80, 40
"""A small terminal window. click leaves two columns free."""
IMPORTED = """
import sys
from tablestone.cli.main import main
try:
    main({arguments})
except SystemExit:
    pass
print(sorted({{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""


def imported_by(*arguments: str) -> set[str]:
    """The packages that a command line imports."""
    program = IMPORTED.format(arguments=list(arguments))
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=clean_environment(),
    )
    return set(eval(ended.stderr.splitlines()[-1]))  # noqa: S307 - a list that the program above prints


@pytest.mark.parametrize(
    "arguments", [("--help",), ("serve", "--help"), ("--version",), ("check", "--help")]
)
def test_the_server_and_the_list_of_commands_load_no_package_of_the_tools(
    arguments: tuple[str, ...],
) -> None:
    assert imported_by(*arguments) & OF_THE_TOOLS == set()


def test_a_query_loads_no_package_of_the_formats() -> None:
    assert (
        imported_by("query", "--help")
        & {*("keyring", "numpy", "pyarrow", "requests", "rich", "yaml", "backports")}
        == set()
    )


@pytest.mark.parametrize("command", ["count", "import", "copy"])
def test_a_data_tool_loads_no_package_of_the_server(command: str) -> None:
    of_the_server = {"apsw", "cryptography", "httptools", "jwt", "uvloop"}
    assert imported_by(command, "--help") & of_the_server == set()


def test_without_its_packages_a_tool_says_which_extra_has_them() -> None:
    program = "import sys; sys.modules['azure'] = None; sys.modules['azure.core'] = None\n"
    program += "from tablestone.cli.main import main; sys.exit(main(['count', 'Weather']))"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert pip_install("tools") in ended.stderr
    assert "Traceback" not in ended.stderr


WITHOUT_THE_EXTRAS = """
import sys
from importlib.machinery import PathFinder

class Base(PathFinder):
    '''Finds what a base installation has.'''
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {missing} else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [each for each in sys.meta_path if each is not PathFinder] + [Base]
from tablestone.cli.main import main
for command in {commands}:
    status = main(command)
sys.exit(status)
"""
OF_THE_EXTRAS = OF_THE_TOOLS | {"starlette", "jinja2", "python_multipart"}


def without_the_extras(
    *commands: list[str], missing: Collection[str] = OF_THE_EXTRAS
) -> subprocess.CompletedProcess[str]:
    """Runs command lines in one process that does not find these packages; exits with the status of the last one."""
    program = WITHOUT_THE_EXTRAS.format(missing=set(missing), commands=commands)
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment() | {"COLUMNS": "80"},
    )


def test_help_needs_no_extra(tools: DataTools) -> None:
    """The help of each tool and of its commands is the same without its packages."""
    lines = [[command.name, "--help"] for command in WITH_EXTRA] + [["profile", "add", "-h"]]
    ended = without_the_extras(*lines)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count("Usage: tablestone ") == len(lines)
    for line in (["explore", "--help"], ["import", "--help"], ["profile", "add", "--help"]):
        assert tools.run(*line).stdout in ended.stdout


@pytest.mark.parametrize(
    ("line", "extra", "missing"),
    [
        (["explore", "--no-browser"], "explorer", OF_THE_EXTRAS),
        # With the tools, but without the explorer.
        (["explore", "--no-browser"], "explorer", {"starlette"}),
        (["demo", "--no-browser"], "explorer", OF_THE_EXTRAS),
        (["demo", "--no-browser"], "explorer", {"starlette"}),
        (["demo", "--no-browser"], "explorer", {"jinja2"}),
        (["count", "Weather"], "tools", OF_THE_EXTRAS),
        # Here --help is the value of an option.
        (["count", "Weather", "--filter", "--help"], "tools", OF_THE_EXTRAS),
    ],
)
def test_without_its_packages_a_tool_does_nothing(
    line: list[str], extra: str, missing: set[str]
) -> None:
    ended = without_the_extras(line, missing=missing)
    assert ended.returncode == 2
    assert pip_install(extra) in ended.stderr
    assert f"`tablestone {line[0]}` needs " in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)
def test_the_list_of_commands_says_what_each_says_itself(command: ListedCommand) -> None:
    loaded = load(command)
    assert (loaded.name, loaded.hidden) == (command.name, command.hidden)
    if not command.hidden:
        assert loaded.get_short_help_str(limit=100) == command.summary


def every_command() -> list[tuple[str, click.Command]]:
    found = []
    for data_command in WITH_EXTRA:
        command = load(data_command)
        found.append((data_command.name, command))
        if isinstance(command, click.Group):
            found += [
                (f"{data_command.name} {name}", inner) for name, inner in command.commands.items()
            ]
    return found


@pytest.mark.parametrize(("name", "command"), every_command(), ids=str)
def test_a_help_fits_a_screen_and_has_an_example(name: str, command: click.Command) -> None:
    with click.Context(
        command, info_name=f"tablestone {name}", terminal_width=SCREEN_COLUMNS - 2
    ) as context:
        text = command.get_help(context)
    assert len(text.splitlines()) <= SCREEN_LINES
    assert f"Example: tablestone {name}" in " ".join(text.split())


def test_every_command_is_in_the_help(tools: DataTools) -> None:
    told = tools.run("--help").stdout
    assert all(f"  {command.name} " in told for command in COMMANDS.values() if not command.hidden)
    assert all(f"'{command.extra}'" in told for command in COMMANDS.values() if command.extra)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(tools: DataTools, shell: str) -> None:
    assert "_TABLESTONE_COMPLETE" in tools.run("completion", shell).stdout


def test_commands_and_tables_are_completed(tools: DataTools, table: str) -> None:
    assert tools.complete("tablestone par") == ["partitions"]
    tools.run("tables", "--create", table)
    assert table in tools.complete(f"tablestone query {table[:3]}")
    tools.connection_string = "AccountName=x"
    assert tools.complete("tablestone query t") == []
