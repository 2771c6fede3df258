"""`tablestone check`: reads a whole data directory and prints a sentence for each problem. Changes nothing."""

from __future__ import annotations

import os
from typing import Any

import click

from tablestone.cli.option_sources import read_configuration
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.options import CHECK_OPTIONS
from tablestone.cli.parameters import by_option_name, where, with_options
from tablestone.cli.soundness import problems_of
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.contract import EngineBroken
from tablestone.engines.registry import capabilities_of

FOUND_BROKEN = 1


@click.command()
@with_options(CHECK_OPTIONS)
def check(**given: Any) -> int:
    """Verify a data directory.

    Reads all data, changes nothing, and may run while a server uses the directory. Exit status: 0
    if the data is healthy, 1 if there are problems, 2 if it cannot be checked.
    """
    configuration = read_configuration(by_option_name(given), os.environ)
    if capabilities_of(configuration.engine).stored_in is StoredIn.PROCESS:
        raise BrokenOption(f"There is nothing to check: {configuration.engine} stores nothing.")
    try:
        broken = problems_of(configuration.engine, configuration.encryption_key)
    except EngineBroken as damaged:
        broken = [str(damaged)]
    for line in broken:
        print(line)
    place = where(configuration)
    found = {0: "healthy", 1: "1 problem"}.get(len(broken), f"{len(broken)} problems")
    print(f"{place}: {found}")
    return FOUND_BROKEN if broken else 0
