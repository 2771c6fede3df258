"""The names of the data tools and their modules: a module is imported when its command runs, and not before.

The tools need packages that a server does not need (the extra `tools`), and loading these takes too long for `--help`.
So the list of commands with their one-line help is here; a test compares the lines with those of the commands. The
server's own commands are loaded when one of them is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

import click

from tablestone.interrupts import EndsTheProcess
from tablestone.transfer.refusals import TransferRefused


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
    DataCommand("count", "count:count", "Count entities exactly."),
    DataCommand(
        "partitions", "partitions:partitions", "List the distinct PartitionKeys of a table."
    ),
    DataCommand("get", "entity:get", "Show one entity."),
    DataCommand("put", "entity:put", "Write one entity, or replace it."),
    DataCommand("merge", "entity:merge", "Change some properties of one entity."),
    DataCommand("delete-entity", "entity:delete_entity", "Delete one entity."),
    DataCommand("import", "import_file:import_file", "Load a file into a table."),
    DataCommand(
        "simulate-keys",
        "simulate_keys:simulate_keys",
        "Try other keys on real data, before it moves.",
    ),
    DataCommand("export", "export:export", "Write a table into a file."),
    DataCommand("copy", "copy_tables:copy_tables", "Copy tables from one endpoint to another."),
    DataCommand("diff", "diff:diff", "Compare the tables of two endpoints, entity by entity."),
    DataCommand("delete", "delete:delete", "Delete the entities that a filter finds."),
    DataCommand("clear", "delete:clear", "Delete all entities of a table."),
    DataCommand(
        "explore",
        "explore:explore",
        "Explore the tables of an endpoint in a browser.",
        extra="explorer",
    ),
    DataCommand("profile", "connection_profiles:profile", "Store connections under names."),
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

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._load_the_server()
        return [*super().list_commands(ctx), *_BY_NAME]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        data_command = _BY_NAME.get(cmd_name)
        if data_command is not None:
            return load(data_command)
        self._load_the_server()
        return super().get_command(ctx, cmd_name)

    def _load_the_server(self) -> None:
        with EndsTheProcess():
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
    """How the packages of the data tools are installed: without them, a tool cannot even print its help."""
    others = [
        f"'{_OWN_PACKAGE}[{each.extra}]' for {each.name}"
        for each in DATA_COMMANDS
        if each.extra != DATA_COMMANDS[0].extra
    ]
    own = f"pip install '{_OWN_PACKAGE}[{DATA_COMMANDS[0].extra}]'"
    return f"The packages of the data tools: {', and '.join([own, *others])}."


def load(command: DataCommand) -> click.Command:
    """The command itself; `TransferRefused` if the packages that it needs are not installed."""
    module, _, attribute = command.place.partition(":")
    try:
        with EndsTheProcess():
            loaded = import_module(f"{_OWN_PACKAGE}.cli.commands.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == _OWN_PACKAGE:
            raise
        raise TransferRefused(
            f"`tablestone {command.name}` needs {error.name}, which the extra has: "
            f"pip install 'tablestone[{command.extra}]'."
        ) from None
    found: click.Command = getattr(loaded, attribute)
    return found
