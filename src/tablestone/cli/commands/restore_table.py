"""`tablestone restore --archive --table`: write one table of an archive into a running server."""

import asyncio
import os
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tablestone.archive.going_back import MomentRefused
from tablestone.cli.commands.restore_archive import (
    absolute,
    fill,
    keys_of,
    parse_moment,
    reading,
    told,
)
from tablestone.cli.data_options import opened
from tablestone.cli.local_directory import SCHEME
from tablestone.cli.options import BrokenOption, parse_tables
from tablestone.clock import system_clock
from tablestone.engines.kind import EncryptionKey, EngineUrl
from tablestone.engines.registry import open_engine
from tablestone.model.entity_json import read_raw
from tablestone.tables.catalog import every_table, scan_in_steps
from tablestone.tables.storage_keys import table_range
from tablestone.tools import odata
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import open_profiles, parse_place
from tablestone.tools.copying import refusal_of
from tablestone.tools.formats.rows import Row
from tablestone.tools.progress import progress_for, shown_entities
from tablestone.tools.writing import OnConflict, TableWriter

WRITES_AT_ONCE: Final = 4


def restore_table(
    url: str,
    archive_keys: tuple[str, ...],
    life: str | None,
    to: str | None,
    names: tuple[str, str, str],
    *,
    quiet: bool,
) -> None:
    """Write one table of an archive into a running server, as a new table."""
    table, into, new_name = names
    try:
        is_one = len(parse_tables(new_name)) == 1
    except BrokenOption as broken:
        raise BrokenOption(f"--as {broken}") from None
    if not is_one:
        raise BrokenOption("--as is the name of one table.")
    keys = keys_of(archive_keys)
    moment = parse_moment(to)
    connection = parse_place(into, open_profiles(os.environ))
    with (
        reading(url),
        TemporaryDirectory(prefix="tablestone-restore-") as made,
        closing(progress_for("restore", quiet=quiet, counted="steps")) as progress,
        opened(connection) as endpoint,
    ):
        directory = Path(made) / "data"
        key = keys[0] if keys else None
        filled = asyncio.run(
            fill(absolute(url), keys, directory, key, life, moment, told(progress))
        )
        written = asyncio.run(_send(directory, key, connection.account, table, endpoint, new_name))
    print(
        f"{new_name}: the table {table} of account {connection.account} from {url}, {filled.in_words}: "
        f"{shown_entities(written)}, with new Timestamps"
    )


async def _send(
    directory: Path,
    key: EncryptionKey | None,
    account: str,
    table: str,
    endpoint: TableEndpoint,
    new_name: str,
) -> int:
    """Send the entities of a table to a new one; returns their number."""
    engine = open_engine(
        str(EngineUrl(SCHEME, str(directory))), system_clock, read_only=True, key=key
    )
    try:
        records = [
            record
            async for owner, record in every_table(engine)
            if owner == account and record.name.lower() == table.lower()
        ]
        if not records:
            raise MomentRefused(f"At that moment, the account {account} had no table {table}.")
        if not endpoint.create_table(new_name):
            raise BrokenOption(f"The table {new_name} exists already: give another name with --as.")
        writer = TableWriter(
            endpoint,
            new_name,
            OnConflict.FAIL,
            parallel=WRITES_AT_ONCE,
            reject=_refuse,
            resumed=True,
        )
        with closing(writer):
            async for rows in scan_in_steps(engine, table_range(records[0].table_id)):
                for row in rows:
                    raw = read_raw(row.value)
                    await asyncio.to_thread(
                        writer.add, Row(0, odata.key_of(raw), odata.body_of(raw))
                    )
            await asyncio.to_thread(writer.drain)
        return writer.tally.rows
    finally:
        await engine.close()


def _refuse(row: Row, reason: str) -> None:
    raise refusal_of(row.key, reason)
