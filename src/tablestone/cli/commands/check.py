"""`tablestone check`: reads a whole data directory and prints a sentence for each problem. Changes nothing."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import click

from tablestone.cli.option_sources import read_configuration
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.options import CHECK_OPTIONS
from tablestone.cli.parameters import by_option_name, where, with_options
from tablestone.clock import system_clock
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.contract import EngineBroken
from tablestone.engines.registry import capabilities_of, open_engine
from tablestone.identity.stored_documents import DOCUMENT_READERS
from tablestone.tables.integrity import check_rows

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
    broken = asyncio.run(_broken(configuration.engine))
    for line in broken:
        print(line)
    place = where(configuration)
    found = {0: "healthy", 1: "1 problem"}.get(len(broken), f"{len(broken)} problems")
    print(f"{place}: {found}")
    return FOUND_BROKEN if broken else 0


async def _broken(engine_url: str) -> list[str]:
    try:
        engine = open_engine(engine_url, system_clock, read_only=True)
    except EngineBroken as broken:
        return [str(broken)]
    try:
        return await engine.check() + await check_rows(engine, DOCUMENT_READERS)
    finally:
        await engine.close()
