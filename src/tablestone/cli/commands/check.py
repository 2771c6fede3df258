"""`tablestone check`: print every problem of stored data, a sentence each. Changes nothing.

If the files of a data directory are damaged, the sentences say what of its tables can still be read.
"""

import asyncio
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from tablestone.accounts.stored_accounts import DOCUMENT_READERS
from tablestone.cli.local_directory import SCHEME
from tablestone.cli.option_sources import read_configuration, where
from tablestone.cli.options import CHECK_OPTIONS, BrokenOption, with_options
from tablestone.clock import system_clock
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.contract import Engine, EngineBroken
from tablestone.engines.kind import EncryptionKey, EngineUrl
from tablestone.engines.registry import capabilities_of, open_engine
from tablestone.engines.sqlite.salvage import LOG_DAMAGED, damaged_storage
from tablestone.tables.integrity import LostEntity, Salvaged, SalvagedTable, check_rows, salvage
from tablestone.tools.progress import shown_count, shown_entities

NOTHING_READABLE: Final = (
    "the database is so damaged that nothing in it can be recognized: restore a backup"
)
KEYS_SHOWN: Final = 5
"""Lost entities of a table that a line names."""
PAGES_SHOWN: Final = 10
"""Damaged pages whose numbers a summary has. The first page has the number 1, as in SQLite."""


def losses(salvaged: Salvaged) -> list[str]:
    """The losses, a sentence each: one for each table that lost entities, then the rest."""
    lines = [
        f"{name_of(table)}: {shown_entities(table.entities)} can be read, {len(table.lost):,} cannot: "
        f"{keys_of(table.lost)}"
        for table in salvaged.tables
        if table.lost
    ]
    lines += [f"{words} cannot be read" for words in salvaged.other_losses]
    lines += [
        f"the name of the table with the id {table.table_id.hex()} cannot be read, "
        f"its {shown_entities(table.entities)} can"
        for table in salvaged.tables
        if table.name is None and table.entities
    ]
    if salvaged.storage.lost_writes:
        lines.append(
            "the write-ahead log is damaged: acknowledged writes that follow the damage are lost"
        )
    if not salvaged.storage.is_complete:
        lines.append("the index of the keys is damaged: lost entities may be missing in this list")
    return lines


def pages(salvaged: Salvaged) -> str:
    """The damaged pages, for a summary. If the index is damaged there may be more, which nothing refers to."""
    damaged = sorted(salvaged.storage.damaged_pages)
    summary = f"{_at_least(salvaged)}{len(damaged):,} of {salvaged.storage.pages:,} pages damaged"
    if not damaged:
        return summary
    numbers = ", ".join(map(str, damaged[:PAGES_SHOWN]))
    more = len(damaged) - PAGES_SHOWN
    word = "page" if len(damaged) == 1 else "pages"
    return f"{summary} ({word} {numbers}{f' and {more:,} more' if more > 0 else ''})"


def lost_entities(salvaged: Salvaged) -> str:
    """The number of lost entities for a summary; it may be unknown."""
    if not salvaged.storage.is_complete and not salvaged.lost:
        return "an unknown number of entities lost"
    return f"{_at_least(salvaged)}{shown_entities(salvaged.lost)} lost"


def _at_least(salvaged: Salvaged) -> str:
    return "" if salvaged.storage.is_complete else "at least "


def name_of(table: SalvagedTable) -> str:
    """A table for a person: its name and its account, or its id."""
    if table.name is None:
        return f"the table with the id {table.table_id.hex()}"
    return f"table {table.name} of account {table.account}"


def keys_of(lost: Sequence[LostEntity]) -> str:
    """The first keys of lost entities, and the number of the others."""
    shown = "; ".join(
        f"PartitionKey={each.partition_key!r}, RowKey={each.row_key!r} ({each.reason})"
        for each in lost[:KEYS_SHOWN]
    )
    more = len(lost) - KEYS_SHOWN
    return f"{shown}; and {more:,} more" if more > 0 else shown


def problems_of(
    engine_url: str, key: EncryptionKey | None = None, large: list[str] | None = None
) -> list[str]:
    """The problems found; `large` gets what `tell_large` tells.

    `EngineRefused` if it cannot be opened; `EngineBroken` if nothing in it can be recognized.
    """
    try:
        structure, rows = asyncio.run(_problems(engine_url, key, large))
    except EngineBroken:
        explained = _explained(engine_url, key)
        if explained is None:
            raise
        return explained
    if not structure:
        return rows
    if structure == [LOG_DAMAGED]:
        return structure
    return _explained(engine_url, key) or [NOTHING_READABLE]


def tell_large(large: Sequence[str]) -> None:
    """Name the entities that a server without --entity-size reads and does not write."""
    if large:
        more = f"; and {len(large) - KEYS_SHOWN:,} more" if len(large) > KEYS_SHOWN else ""
        print(
            f"{shown_entities(len(large))} of the size that only a server with --entity-size 2MiB writes: "
            f"{'; '.join(large[:KEYS_SHOWN])}{more}"
        )


async def _problems(
    engine_url: str, key: EncryptionKey | None, large: list[str] | None
) -> tuple[list[str], list[str]]:
    """The problems of the structure and, if it has none, those of the rows."""
    engine: Engine = open_engine(engine_url, system_clock, read_only=True, key=key)
    try:
        structure = await engine.check()
        return structure, [] if structure else await check_rows(engine, DOCUMENT_READERS, large)
    finally:
        await engine.close()


def _explained(engine_url: str, key: EncryptionKey | None) -> list[str] | None:
    """The damage of a data directory in words; None for other storage, and if no row can be found."""
    scheme, place = EngineUrl.parse(engine_url)
    if scheme != SCHEME or place is None:
        return None
    with damaged_storage(Path(place), key) as storage:
        salvaged = salvage(storage, lambda _table, _entity: None)
    if not salvaged.tables and not salvaged.other_losses:
        return None
    lines = losses(salvaged)
    if not lines:
        lines = ["the structure of the database is damaged, but every entity in it can be read"]
    command = f"tablestone salvage {shlex.quote(place)} OUT"
    return [*lines, f"{pages(salvaged)}: {command} writes every entity that can be read"]


@click.command()
@with_options(CHECK_OPTIONS)
def check(**given: Any) -> int:
    """Verify a data directory.

    Reads all data, changes nothing, and may run while a server uses the directory. Exit status: 0
    if the data is healthy, 1 if there are problems, 2 if it cannot be checked.
    """
    configuration = read_configuration(given, os.environ)
    if capabilities_of(configuration.engine).stored_in is StoredIn.PROCESS:
        raise BrokenOption(f"There is nothing to check: {configuration.engine} stores nothing.")
    large: list[str] = []
    try:
        broken = problems_of(configuration.engine, configuration.encryption_key, large)
    except EngineBroken as damaged:
        broken = [str(damaged)]
    for line in broken:
        print(line)
    tell_large(large)
    print(f"{where(configuration)}: {shown_count(len(broken), 'problem') if broken else 'healthy'}")
    return 1 if broken else 0
