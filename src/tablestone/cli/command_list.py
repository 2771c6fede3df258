"""The list of commands, and how each is loaded: its module is imported when the command runs, and not before.

Importing the whole server or the data tools takes longer than `--help` may. So the list has the one line that the help
shows of each command; a test compares the lines with those of the commands.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from tablestone.cli.sigint import SigintEndsProcess
from tablestone.tools.errors import TransferRefused

TOOLS: Final = "tools"


class ListedCommand(NamedTuple):
    """A command: its name, `module:attribute` below `cli.commands`, and what it does in a line."""

    name: str
    place: str
    summary: str
    extra: str | None = None
    """The extra with the packages that it needs."""
    hidden: bool = False


SERVER_COMMANDS: Final = (
    ListedCommand("account", "account:account", "Create, list, change and delete stored accounts."),
    ListedCommand("azurite", "azurite:azurite", "Serve tables with the flags of Azurite."),
    ListedCommand("azurite-table", "azurite:azurite_table", "", hidden=True),
    ListedCommand("backup", "backup:backup", "Copy the data into one file and check the copy."),
    ListedCommand("check", "check:check", "Verify a data directory."),
    ListedCommand(
        "cluster",
        "cluster:cluster",
        "Prepare, check, fill and look at an Apache Cassandra cluster.",
    ),
    ListedCommand("compact", "maintenance:compact", "Give free space back to the file system."),
    ListedCommand(
        "decrypt", "maintenance:decrypt", "Write an encrypted data directory without encryption."
    ),
    ListedCommand("encrypt", "maintenance:encrypt", "Encrypt a data directory with a key."),
    ListedCommand(
        "insight",
        "insight:insight",
        "Show hot partitions and scanning queries of a server.",
        TOOLS,
    ),
    ListedCommand("rekey", "maintenance:rekey", "Change the key of an encrypted data directory."),
    ListedCommand("restore", "backup:restore", "Make a data directory from a backup."),
    ListedCommand(
        "role",
        "role:role",
        "Assign, list and remove the roles of users and services with bearer tokens.",
    ),
    ListedCommand(
        "salvage", "salvage:salvage", "Write what can be read of a damaged data directory."
    ),
    ListedCommand(
        "sas", "sas:sas", "Print shared access signatures, for curl and for clients without a key."
    ),
    ListedCommand("serve", "serve:serve", "Serve the Table service until SIGINT or SIGTERM."),
    ListedCommand("token", "token:token", "Print a bearer token that this server accepts."),
    ListedCommand("upgrade", "maintenance:upgrade", "Bring a data directory to the newest format."),
)
DATA_TOOLS: Final = (
    ListedCommand("tables", "tables:tables", "List the tables of an account.", TOOLS),
    ListedCommand("query", "query:query", "Show the entities that a filter finds.", TOOLS),
    ListedCommand("count", "tables:count", "Count entities exactly.", TOOLS),
    ListedCommand(
        "partitions", "tables:partitions", "List the distinct PartitionKeys of a table.", TOOLS
    ),
    ListedCommand("get", "entity:get", "Show one entity.", TOOLS),
    ListedCommand("put", "entity:put", "Write one entity, or replace it.", TOOLS),
    ListedCommand("merge", "entity:merge", "Change some properties of one entity.", TOOLS),
    ListedCommand("delete-entity", "entity:delete_entity", "Delete one entity.", TOOLS),
    ListedCommand("import", "import_and_export:import_file", "Load a file into a table.", TOOLS),
    ListedCommand(
        "simulate-keys",
        "simulate_keys:simulate_keys",
        "Try other keys on real data, before it moves.",
        TOOLS,
    ),
    ListedCommand("export", "import_and_export:export", "Write a table into a file.", TOOLS),
    ListedCommand(
        "copy", "copy_and_diff:copy_tables", "Copy tables from one endpoint to another.", TOOLS
    ),
    ListedCommand(
        "diff",
        "copy_and_diff:diff",
        "Compare the tables of two endpoints, entity by entity.",
        TOOLS,
    ),
    ListedCommand("delete", "delete:delete", "Delete the entities that a filter finds.", TOOLS),
    ListedCommand("clear", "delete:clear", "Delete all entities of a table.", TOOLS),
    ListedCommand(
        "explore",
        "explore:explore",
        "Explore the tables of an endpoint in a browser.",
        "explorer",
    ),
    ListedCommand("profile", "profile:profile", "Store connections under names.", TOOLS),
    ListedCommand(
        "completion", "completion:completion", "Print the completion script of a shell.", TOOLS
    ),
)
COMMANDS: Final = {command.name: command for command in (*SERVER_COMMANDS, *DATA_TOOLS)}


class Commands(click.Group):
    """All commands, loaded by name."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. It imports the packages of its extra when it needs them."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            command = COMMANDS.get(ctx.invoked_subcommand or "")
            is_own = (error.name or "").partition(".")[0] == "tablestone"
            if command is None or command.extra is None or is_own:
                raise
            raise TransferRefused(
                f"`tablestone {command.name}` needs {error.name}: "
                f"install Tablestone with its extra '{command.extra}'."
            ) from None

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = COMMANDS.get(cmd_name)
        if command is None:
            # click suggests one of these names.
            self.commands = {name: click.Command(name) for name in COMMANDS}
            return None
        return load(command)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Two lists of commands, without loading any."""
        for title, listed in (
            ("The server", SERVER_COMMANDS),
            ("The data tools, for any Azure Tables endpoint", DATA_TOOLS),
        ):
            with formatter.section(title):
                formatter.write_dl(
                    [(each.name, each.summary) for each in listed if not each.hidden]
                )
        others = [f"'{each.extra}' for {each.name}" for each in DATA_TOOLS if each.extra != TOOLS]
        extras = ", and ".join([f"'{TOOLS}'", *others])
        formatter.write_paragraph()
        formatter.write_text(f"The data tools need the packages of Tablestone's extra {extras}.")


def load(command: ListedCommand) -> click.Command:
    """The command itself."""
    module, _, attribute = command.place.partition(":")
    with SigintEndsProcess():
        loaded = import_module(f"tablestone.cli.commands.{module}")
    found: click.Command = getattr(loaded, attribute)
    return found
