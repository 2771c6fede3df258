"""`tablestone serve`: runs the server and tells the person where it is once it answers."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import click

from tablestone import __version__
from tablestone.cli.configuration import read_configuration
from tablestone.cli.options import SERVER_OPTIONS
from tablestone.cli.parameters import by_option_name, where, with_options
from tablestone.server.configuration import DEVELOPMENT_ACCOUNT, AccountKeys, Configuration
from tablestone.server.run import serve as run_server


@click.command()
@with_options(SERVER_OPTIONS)
def serve(**given: Any) -> None:
    """Serve the Table service until SIGINT or SIGTERM."""
    configuration = read_configuration(by_option_name(given), os.environ)
    logging.basicConfig(
        stream=sys.stderr,
        level=configuration.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    run_server(
        configuration, lambda address: print(ready_lines(configuration, address), flush=True)
    )


def ready_lines(configuration: Configuration, address: str) -> str:
    """Where the data is, and what to paste into a program, for each account."""
    lines = [f"Tablestone {__version__}: data in {where(configuration.data_directory)}"]
    for account in configuration.accounts:
        endpoint = f"{address}/{account.name}"
        lines.append(f"Table endpoint: {endpoint}")
        lines.append(f"Connection string: {_connection_string(account, endpoint)}")
    return "\n".join(lines)


def _connection_string(account: AccountKeys, endpoint: str) -> str:
    # A key is a secret, but for the one that stands in every SDK.
    shown = account.keys[0] if account == DEVELOPMENT_ACCOUNT else f"<key of {account.name}>"
    return (
        f"DefaultEndpointsProtocol=http;AccountName={account.name};"
        f"AccountKey={shown};TableEndpoint={endpoint};"
    )
