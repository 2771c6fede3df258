"""The names of the data tools and their modules: a module is imported when its command runs, and not before.

The tools need packages that a server does not need (the extra `tools`), and loading these takes too long for `--help`.
So the list of commands with their one-line help is here; a test compares the lines with those of the commands. The
server's own commands are loaded when one of them is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from tablestone.cli.help_without_extra import asks_for_help, loaded_for_help
from tablestone.cli.sigint import SigintEndsProcess
from tablestone.tools.refusals import TransferRefused


class DataCommand(NamedTuple):
    """A command: its name, `module:attribute` below `cli.commands`, and what it does in a line.

    `is_of_server`: it is listed with the commands of the server, because no other endpoint has what it shows.
    """

    name: str
    place: str
    summary: str
    extra: str = "tools"
    """The extra with the packages that it needs."""
    is_of_server: bool = False


DATA_COMMANDS: Final = (
    DataCommand("tables", "tables:tables", "List the tables of an account."),
    DataCommand("query", "query:query", "Show the entities that a filter finds."),
    DataCommand("count", "tables:count", "Count entities exactly."),
    DataCommand("partitions", "tables:partitions", "List the distinct PartitionKeys of a table."),
    DataCommand("get", "entity:get", "Show one entity."),
    DataCommand("put", "entity:put", "Write one entity, or replace it."),
    DataCommand("merge", "entity:merge", "Change some properties of one entity."),
    DataCommand("delete-entity", "entity:delete_entity", "Delete one entity."),
    DataCommand("import", "import_and_export:import_file", "Load a file into a table."),
    DataCommand(
        "simulate-keys",
        "simulate_keys:simulate_keys",
        "Try other keys on real data, before it moves.",
    ),
    DataCommand("export", "import_and_export:export", "Write a table into a file."),
    DataCommand("copy", "copy_and_diff:copy_tables", "Copy tables from one endpoint to another."),
    DataCommand(
        "diff", "copy_and_diff:diff", "Compare the tables of two endpoints, entity by entity."
    ),
    DataCommand("delete", "delete:delete", "Delete the entities that a filter finds."),
    DataCommand("clear", "delete:clear", "Delete all entities of a table."),
    DataCommand(
        "explore",
        "explore:explore",
        "Explore the tables of an endpoint in a browser.",
        extra="explorer",
    ),
    DataCommand("profile", "profile:profile", "Store connections under names."),
    DataCommand(
        "insight",
        "insight:insight",
        "Show hot partitions and scanning queries of a server.",
        is_of_server=True,
    ),
    DataCommand("completion", "completion:completion", "Print the completion script of a shell."),
)
_BY_NAME: Final = {command.name: command for command in DATA_COMMANDS}
_OWN_PACKAGE: Final = "tablestone"
SERVER_COMMANDS: Final = "tablestone.cli.server_commands"
"""The module with the server's commands."""


class Commands(click.Group):
    """The commands of the server, and the data tools, which are loaded by name."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A package that is imported as late as here may be missing too."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            command = _BY_NAME.get(ctx.invoked_subcommand or "")
            if command is None or _is_own(error):
                raise
            raise TransferRefused(_refusal(command, error)) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._load_the_server()
        return [*super().list_commands(ctx), *_BY_NAME]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of a line. If only its help is asked for, its packages need not be installed."""
        data_command = _BY_NAME.get(args[0])
        if data_command is not None and asks_for_help(args):
            return data_command.name, load(data_command, for_help=True), args[1:]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        data_command = _BY_NAME.get(cmd_name)
        if data_command is not None:
            return load(data_command)
        self._load_the_server()
        return super().get_command(ctx, cmd_name)

    def _load_the_server(self) -> None:
        with SigintEndsProcess():
            loaded = import_module(SERVER_COMMANDS)
        for command in loaded.COMMANDS:
            self.add_command(command)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Two lists of commands; the modules of the second list are not imported."""
        self._load_the_server()
        own = {
            name: command.get_short_help_str(limit=80)
            for name, command in self.commands.items()
            if not command.hidden
        }
        own |= {each.name: each.summary for each in DATA_COMMANDS if each.is_of_server}
        with formatter.section("The server"):
            formatter.write_dl(sorted(own.items()))
        with formatter.section("The data tools, for any Azure Tables endpoint"):
            formatter.write_dl(
                [(each.name, each.summary) for each in DATA_COMMANDS if not each.is_of_server]
            )
        formatter.write_paragraph()
        formatter.write_text(_packages())


def _packages() -> str:
    """How the packages of the data tools are installed."""
    others = [
        f"'{each.extra}' for {each.name}"
        for each in DATA_COMMANDS
        if each.extra != DATA_COMMANDS[0].extra
    ]
    extras = ", and ".join([f"'{DATA_COMMANDS[0].extra}'", *others])
    return f"The data tools need the packages of Tablestone's extra {extras}."


def load(command: DataCommand, *, for_help: bool = False) -> click.Command:
    """The command itself; `TransferRefused` if the packages that it needs are not installed.

    With `for_help`, the command without its packages prints its help, and refuses everything else.
    """
    try:
        return _imported(command)
    except ModuleNotFoundError as error:
        if _is_own(error):
            raise
        refusal = _refusal(command, error)
    if not for_help:
        raise TransferRefused(refusal)
    return loaded_for_help(lambda: _imported(command), _OWN_PACKAGE, refusal)


def _is_own(error: ModuleNotFoundError) -> bool:
    return (error.name or "").partition(".")[0] == _OWN_PACKAGE


def _refusal(command: DataCommand, error: ModuleNotFoundError) -> str:
    return (
        f"`tablestone {command.name}` needs {error.name}: "
        f"install Tablestone with its extra '{command.extra}'."
    )


def _imported(command: DataCommand) -> click.Command:
    module, _, attribute = command.place.partition(":")
    with SigintEndsProcess():
        loaded = import_module(f"{_OWN_PACKAGE}.cli.commands.{module}")
    found: click.Command = getattr(loaded, attribute)
    return found
