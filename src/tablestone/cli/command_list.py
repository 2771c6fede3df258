"""The list of commands, and how each is loaded: its module is imported when the command runs, and not before.

Importing the whole server or the data tools takes longer than `--help` may. So the list has the one line that the help
shows of each command; a test compares the lines with those of the commands.
"""

from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from tablestone.extras import IS_FROZEN, needs
from tablestone.sigint import SigintEndsProcess
from tablestone.tools.errors import TransferRefused

TOOLS: Final = "tools"


class ListedCommand(NamedTuple):
    """A command: its name, and what it does in a line. In its module, its name is `in_python`."""

    name: str
    summary: str
    module: str | None = None
    """Its module in `cli.commands`, if that has another name."""
    extra: str | None = None
    """The extra with the packages that it needs."""
    hidden: bool = False

    @property
    def in_python(self) -> str:
        """The name of the command as a variable; `import` is a keyword."""
        return "import_file" if self.name == "import" else self.name.replace("-", "_")


def _tool(name: str, summary: str, module: str | None = None, extra: str = TOOLS) -> ListedCommand:
    return ListedCommand(name, summary, module, extra)


SERVER_COMMANDS: Final = (
    ListedCommand("account", "Create, list, change and delete stored accounts."),
    ListedCommand(
        "archive", "List the moments of an archive, check it, and prune it.", extra="archive"
    ),
    ListedCommand("azurite", "Serve tables with the flags of Azurite."),
    ListedCommand("azurite-table", "", "azurite", hidden=True),
    ListedCommand("backup", "Copy the data into one file and check the copy."),
    ListedCommand("check", "Verify a data directory."),
    ListedCommand("cluster", "Prepare, check, fill and look at an Apache Cassandra cluster."),
    ListedCommand("compact", "Give free space back to the file system.", "maintenance"),
    _tool("demo", "Try the explorer on sample data with a workload.", extra="explorer"),
    ListedCommand(
        "decrypt", "Write an encrypted data directory without encryption.", "maintenance"
    ),
    ListedCommand("encrypt", "Encrypt a data directory with a key.", "maintenance"),
    ListedCommand(
        "expiry", "Let entities of a table expire: hide them at once, and remove them later."
    ),
    ListedCommand("health", "Ask a running server whether it is ready."),
    ListedCommand("index", "Make, list, check and drop indexes of tables."),
    _tool("insight", "Show hot partitions and scanning queries of a server."),
    ListedCommand("postgresql", "Prepare and fill a schema of a PostgreSQL database."),
    ListedCommand("rekey", "Change the key of an encrypted data directory.", "maintenance"),
    ListedCommand("restore", "Make a data directory from a backup, or from an archive."),
    ListedCommand(
        "role", "Assign, list and remove the roles of users and services with bearer tokens."
    ),
    ListedCommand("salvage", "Write what can be read of a damaged data directory."),
    ListedCommand("sas", "Print shared access signatures, for curl and for clients without a key."),
    ListedCommand("serve", "Serve the Table service until SIGINT or SIGTERM."),
    ListedCommand("token", "Print a bearer token that this server accepts."),
    ListedCommand("upgrade", "Bring a data directory to the newest format.", "maintenance"),
)
DATA_TOOLS: Final = (
    _tool("tables", "List the tables of an account."),
    _tool("query", "Show the entities that a filter finds."),
    _tool("count", "Count entities exactly.", "tables"),
    _tool("partitions", "List the distinct PartitionKeys of a table.", "tables"),
    _tool("get", "Show one entity.", "entity"),
    _tool("put", "Write one entity, or replace it.", "entity"),
    _tool("merge", "Change some properties of one entity.", "entity"),
    _tool("delete-entity", "Delete one entity.", "entity"),
    _tool("changes", "Show what was stored and deleted, in order."),
    _tool("import", "Load a file into a table.", "import_and_export"),
    _tool("export", "Write a table into a file.", "import_and_export"),
    _tool("copy", "Copy tables from one endpoint to another.", "copy_and_diff"),
    _tool("diff", "Compare the tables of two endpoints, entity by entity.", "copy_and_diff"),
    _tool("delete", "Delete the entities that a filter finds."),
    _tool("clear", "Delete all entities of a table.", "delete"),
    _tool("explore", "Explore the tables of an endpoint in a browser.", extra="explorer"),
    _tool("profile", "Store connections under names."),
    _tool("completion", "Print the completion script of a shell."),
)
REMOVED: Final = {
    "simulate-keys": "`tablestone insight` names keys for the queries that a server has seen"
}
"""Commands that were removed, and what helps instead."""
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
            what = "Parquet" if error.name == "pyarrow" else f"`tablestone {command.name}`"
            raise TransferRefused(needs(what, str(error.name), command.extra)) from None

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = COMMANDS.get(cmd_name)
        if cmd_name in REMOVED:
            raise TransferRefused(f"`{cmd_name}` was removed. {REMOVED[cmd_name]}.")
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
        if IS_FROZEN:
            return
        others = [
            f"'{each.extra}' for {each.name}"
            for each in COMMANDS.values()
            if each.extra not in (None, TOOLS)
        ]
        extras = ", ".join([f"'{TOOLS}'", *others])
        formatter.write_paragraph()
        formatter.write_text(f"The data tools need the packages of Tablestone's extra {extras}.")


def load(command: ListedCommand) -> click.Command:
    with SigintEndsProcess():
        module = import_module(f"tablestone.cli.commands.{command.module or command.in_python}")
    found: click.Command = getattr(module, command.in_python)
    return found
