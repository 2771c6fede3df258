"""The options and reports that the data tools share, and the question before something is deleted."""

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from operator import attrgetter
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from tablestone.configuration import DEVELOPMENT_ACCOUNT_NAME
from tablestone.extras import needs
from tablestone.model.filter_tree import property_names
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.query.filter_parser import parse_filter
from tablestone.tools.client import AGENT, Query, TableEndpoint
from tablestone.tools.connection import (
    CERTIFICATES_VARIABLE,
    CONNECTION_STRING_VARIABLE,
    Connection,
    GivenConnection,
    open_profiles,
    resolve,
)
from tablestone.tools.errors import ServiceError, TransferFailed, TransferRefused, Unreachable
from tablestone.tools.exporting import OUTPUTS, default_output
from tablestone.tools.formats.reading_file import KINDS
from tablestone.tools.formats.rows import Reading, parse_types
from tablestone.tools.queries import TableReader, first_types, mistyped
from tablestone.tools.resume_journal import Journal
from tablestone.tools.writing import OnConflict

Command = Callable[..., Any]


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator; the help lists them in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


format_option = click.option(
    "--format",
    "kind",
    type=click.Choice(KINDS),
    metavar="FORM",
    help="jsonl, json, csv or parquet, else by the name.",
)
with_reading = together(
    format_option,
    click.option(
        "--partition-key",
        metavar="TEMPLATE",
        help="Column or '{a}-{b:02}'.  [default: PartitionKey]",
    ),
    click.option("--row-key", metavar="TEMPLATE", help="In the same form.  [default: RowKey]"),
    click.option(
        "--types",
        metavar="NAME=TYPE,...",
        multiple=True,
        help="Types of columns; else CSV is String.",
    ),
    click.option("--null", "nulls", multiple=True, help="A cell with this text counts as empty."),
    click.option("--drop", metavar="NAMES", multiple=True, help="Do not store these columns."),
    click.option("--drop-keys", is_flag=True, help="Do not store the keys' columns."),
    click.option(
        "--delimiter",
        metavar="CHARACTER",
        callback=lambda _context, _option, text: _delimiter(text),
        help="Delimiter of CSV.  [default: , ; | or tab]",
    ),
    click.option("--encoding", metavar="NAME", default="utf-8", help="Encoding of CSV."),
)
"""How to read a file: the command gets `kind`, and passes the other options to `reading_of`."""


def _delimiter(text: str | None) -> str | None:
    if text in ("tab", "\\t"):
        return "\t"
    if text is not None and (len(text) != 1 or not text.isascii() or text in '"\r\n'):
        raise TransferRefused(f"--delimiter must be one character, not {text!r}.")
    return text


def reading_of(given: Mapping[str, Any]) -> Reading:
    """How to read the file, from the options; `TransferRefused` for types that do not exist."""
    return Reading(
        partition_key=PARTITION_KEY if given["partition_key"] is None else given["partition_key"],
        row_key=ROW_KEY if given["row_key"] is None else given["row_key"],
        types=parse_types(given["types"]),
        nulls=frozenset(given["nulls"]),
        drop=frozenset(name for text in given["drop"] for name in text.split(",")),
        drop_keys=given["drop_keys"],
        delimiter=given["delimiter"],
        encoding=given["encoding"],
    )


PARALLEL_MAX = 10
"""Connections that the SDK's transport keeps open."""

ca_file_option = click.option(
    "--ca-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    # The SDK, logins to Entra ID and requests look there.
    callback=lambda _context, _option, file: (
        file and os.environ.update({CERTIFICATES_VARIABLE: file})
    ),
    expose_value=False,
    help="Trust these certificates (PEM).",
)
_connection_options = together(
    click.option(
        "--connection-string",
        help=f"Connection string, or @FILE that holds one.  [env: {CONNECTION_STRING_VARIABLE}]",
    ),
    click.option(
        "--account-url", metavar="URL", help="Account URL; without --sas, Entra signs in."
    ),
    click.option("--sas", help="Signature (SAS), or @FILE that holds one."),
    click.option("--profile", metavar="NAME", help="A connection of `tablestone profile add`."),
    ca_file_option,
)
_CONNECTION_PARAMETERS = ("connection_string", "account_url", "sas", "profile")


def with_endpoint(command: Command, agent: str = AGENT) -> Command:
    """Connection options. The command gets the open endpoint first, by default the Tablestone on this machine."""

    @functools.wraps(command)
    def run(words: GivenConnection, **given: Any) -> Any:
        with opened(connection_for(words), agent) as endpoint:
            return command(endpoint, **given)

    return with_connection(run)


as_program: Final = functools.partial(with_endpoint, agent="tablestone")
"""`with_endpoint` for a command that does a program's work: insight does not count its requests apart."""


def with_connection(command: Command) -> Command:
    """The options of a connection as the command's first argument: it opens an endpoint if it needs one."""

    @_connection_options
    @functools.wraps(command)
    def run(**given: Any) -> Any:
        words = GivenConnection(**{name: given.pop(name) for name in _CONNECTION_PARAMETERS})
        return command(words, **given)

    return run


def connection_for(words: GivenConnection) -> Connection:
    """The connection that options, environment and profiles name."""
    profiles = open_profiles(os.environ) if words.profile is not None else {}
    return resolve(words, os.environ, profiles)


@contextmanager
def opened(connection: Connection, agent: str = AGENT) -> Iterator[TableEndpoint]:
    """An open endpoint. Its errors become `TransferFailed`. `agent` begins the User-Agent."""
    try:
        with TableEndpoint(connection, agent=agent) as endpoint:
            yield endpoint
    except ServiceError as error:
        raise TransferFailed(f"{connection.url} answers {error}") from error
    except Unreachable as error:
        raise TransferFailed(f"{connection.url} {error.verb}: {error}") from None


server_option = click.option(
    "--connection-string",
    "server",
    metavar="STRING",
    help="Ask a server instead, with this connection string, or @FILE that holds one.",
)


@contextmanager
def opened_server(server: str, given: Mapping[str, Any]) -> Iterator[TableEndpoint]:
    """The server that `server_option` names; the options of a storage are refused beside it."""
    if named := [name for name, value in given.items() if value is not None]:
        raise TransferRefused(f"--connection-string names a server: leave out --{named[0]}.")
    try:
        with opened(connection_for(GivenConnection(server))) as endpoint:
            yield endpoint
    except ModuleNotFoundError as error:
        raise TransferRefused(needs("--connection-string", str(error.name), "tools")) from None


def complete_tables(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The names of tables, for a shell; none if the endpoint does not answer."""
    given = {name: ctx.params.get(name) for name in _CONNECTION_PARAMETERS}
    try:
        with opened(connection_for(GivenConnection(**given))) as endpoint:
            names = [name for name in endpoint.table_names() if name.startswith(incomplete)]
    except (TransferFailed, TransferRefused):
        return []
    return [CompletionItem(name) for name in names]


table_argument = click.argument("table", shell_complete=complete_tables)

filter_option = click.option(
    "--filter",
    "filter_text",
    metavar="FILTER",
    help="An OData filter in the syntax of the service.",
)
select_option = click.option(
    "--select",
    "names",
    metavar="NAMES",
    callback=lambda _context, _option, text: tuple(
        name.strip() for name in (text or "").split(",") if name.strip()
    ),
    help="Only these properties, separated by commas.",
)
output_option = click.option(
    "--output",
    type=click.Choice(OUTPUTS),
    default=default_output,
    show_default=False,
    help="[default: table on a terminal, else jsonl]",
)
on_conflict_option = click.option(
    "--on-conflict",
    type=click.Choice([each.value for each in OnConflict]),
    metavar="WHAT",
    default=OnConflict.FAIL.value,
    help="fail, skip, replace or merge an entity that exists already.",
)
account_option = click.option(
    "--account",
    "account_name",
    metavar="NAME",
    default=DEVELOPMENT_ACCOUNT_NAME,
    help="The account.",
)
parallel_option = click.option(
    "--parallel",
    type=click.IntRange(1, PARALLEL_MAX),
    default=4,
    metavar="N",
    help="Requests in flight.",
)
quiet_option = click.option("--quiet", is_flag=True, help="No progress on standard error.")
json_option = click.option("--json", "as_json", is_flag=True, help="The report at the end as JSON.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
restart_option = click.option(
    "--restart", is_flag=True, help="Begin again; do not continue an earlier run."
)


def require_consent(connection: Connection, what: str, *, yes: bool) -> None:
    """Ask before deleting; in Azure's clouds, for the account's name. `TransferRefused` without a terminal or a yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise TransferRefused(f"{what} of {connection.url} needs --yes without a terminal.")
    if connection.is_production:
        question = f"{what} of {connection.url}. Type the account's name to go on"
        agreed = click.prompt(question, err=True, default="") == connection.account
    else:
        agreed = click.confirm(f"{what} of {connection.url}?", err=True)
    if not agreed:
        raise TransferRefused("Nothing was deleted.")


def tell_of_absent(
    endpoint: TableEndpoint, query: Query, found: int, absent: Mapping[str, str] | None = None
) -> None:
    """Say on standard error which properties no entity had, with the option that names each: it may be a typing error.

    A property of --select may be rare, and so may one of a filter that found nothing: these are named only if the table
    has a property of almost the same name. One of the filter is also named if it has another type.
    """
    flags = dict(absent or {})
    tree = parse_filter(query.filter, extended=True) if query.filter and not found else None
    flags |= dict.fromkeys(sorted(property_names(tree)), "--filter")
    stored = first_types(TableReader(endpoint), query.table) if flags else {}
    by_letters = {name.lower(): name for name in stored}
    for name, flag in flags.items():
        near = [] if name in stored else get_close_matches(name.lower(), by_letters, n=1)
        if near or flag not in ("--select", "--filter"):
            hint = f" Did you mean {by_letters[near[0]]}?" if near else ""
            print(
                f"{flag} {name}: no entity that was read has this property.{hint}", file=sys.stderr
            )
    for sentence in mistyped(tree, stored, found=False):
        print(f"--filter {sentence}", file=sys.stderr)


def print_report(
    lines: list[str], members: dict[str, Any], *, as_json: bool, err: bool = False
) -> None:
    """Print the report of a transfer, for a person or as JSON: an enum by its value."""
    text = json.dumps(members, default=attrgetter("value")) if as_json else "\n".join(lines)
    print(text, file=sys.stderr if err else sys.stdout, flush=True)


def end_with_report(
    journal: Journal | None, lines: list[str], members: dict[str, Any], *, as_json: bool
) -> None:
    """Print the report, and only then end the journal: a transfer killed before its report continues."""
    try:
        print_report(lines, members, as_json=as_json)
    finally:
        if journal:
            journal.finish()


@contextmanager
def advising_after_interrupt(
    sentence: Callable[[], str] = lambda: "The same command continues.",
) -> Iterator[None]:
    """After Ctrl-C, print how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\ntablestone: Stopped. {sentence()}", file=sys.stderr)
        raise
