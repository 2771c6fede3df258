"""The list of commands, and how each is loaded: its module is imported when the command runs, and not before.

Importing the whole server or the data tools takes longer than `--help` may. So the list has the one line that the help
shows of each command; a test compares the lines with those of the commands.
"""

from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from tablestone.cli.sigint import SigintEndsProcess
from tablestone.extras import needs
from tablestone.tools.errors import TransferRefused

TOOLS: Final = "tools"


class ListedCommand(NamedTuple):
    """A command: its name, its module in `cli.commands`, and what it does in a line.

    In the module, its name is `in_python`.
    """

    name: str
    module: str
    summary: str
    extra: str | None = None
    """The extra with the packages that it needs."""
    hidden: bool = False

    @property
    def in_python(self) -> str:
        """The name of the command as a variable; `import` is a keyword."""
        return "import_file" if self.name == "import" else self.name.replace("-", "_")


def _tool(name: str, module: str, summary: str, extra: str = TOOLS) -> ListedCommand:
    return ListedCommand(name, module, summary, extra)


SERVER_COMMANDS: Final = (
    ListedCommand("account", "account", "Create, list, change and delete stored accounts."),
    ListedCommand("azurite", "azurite", "Serve tables with the flags of Azurite."),
    ListedCommand("azurite-table", "azurite", "", hidden=True),
    ListedCommand("backup", "backup", "Copy the data into one file and check the copy."),
    ListedCommand("check", "check", "Verify a data directory."),
    ListedCommand(
        "cluster", "cluster", "Prepare, check, fill and look at an Apache Cassandra cluster."
    ),
    ListedCommand("compact", "maintenance", "Give free space back to the file system."),
    _tool("demo", "demo", "Try the explorer on sample data with a workload.", "explorer"),
    ListedCommand(
        "decrypt", "maintenance", "Write an encrypted data directory without encryption."
    ),
    ListedCommand("encrypt", "maintenance", "Encrypt a data directory with a key."),
    ListedCommand(
        "expiry",
        "expiry",
        "Let entities of a table expire: hide them at once, and remove them later.",
    ),
    ListedCommand("index", "index", "Make, list, check and drop indexes of tables."),
    _tool("insight", "insight", "Show hot partitions and scanning queries of a server."),
    ListedCommand("rekey", "maintenance", "Change the key of an encrypted data directory."),
    ListedCommand("restore", "backup", "Make a data directory from a backup."),
    ListedCommand(
        "role",
        "role",
        "Assign, list and remove the roles of users and services with bearer tokens.",
    ),
    ListedCommand("salvage", "salvage", "Write what can be read of a damaged data directory."),
    ListedCommand(
        "sas", "sas", "Print shared access signatures, for curl and for clients without a key."
    ),
    ListedCommand("serve", "serve", "Serve the Table service until SIGINT or SIGTERM."),
    ListedCommand("token", "token", "Print a bearer token that this server accepts."),
    ListedCommand("upgrade", "maintenance", "Bring a data directory to the newest format."),
)
DATA_TOOLS: Final = (
    _tool("tables", "tables", "List the tables of an account."),
    _tool("query", "query", "Show the entities that a filter finds."),
    _tool("count", "tables", "Count entities exactly."),
    _tool("partitions", "tables", "List the distinct PartitionKeys of a table."),
    _tool("get", "entity", "Show one entity."),
    _tool("put", "entity", "Write one entity, or replace it."),
    _tool("merge", "entity", "Change some properties of one entity."),
    _tool("delete-entity", "entity", "Delete one entity."),
    _tool("changes", "changes", "Show what was stored and deleted, in order."),
    _tool("import", "import_and_export", "Load a file into a table."),
    _tool("simulate-keys", "simulate_keys", "Try other keys on real data, before it moves."),
    _tool("export", "import_and_export", "Write a table into a file."),
    _tool("copy", "copy_and_diff", "Copy tables from one endpoint to another."),
    _tool("diff", "copy_and_diff", "Compare the tables of two endpoints, entity by entity."),
    _tool("delete", "delete", "Delete the entities that a filter finds."),
    _tool("clear", "delete", "Delete all entities of a table."),
    _tool("explore", "explore", "Explore the tables of an endpoint in a browser.", "explorer"),
    _tool("profile", "profile", "Store connections under names."),
    _tool("completion", "completion", "Print the completion script of a shell."),
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
                needs(f"`tablestone {command.name}`", str(error.name), command.extra)
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
    with SigintEndsProcess():
        module = import_module(f"tablestone.cli.commands.{command.module}")
    found: click.Command = getattr(module, command.in_python)
    return found
