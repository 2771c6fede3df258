"""`tablestone postgresql`: work on a schema. What needs the driver is imported when a command runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from tablestone.cli import options, storage_move
from tablestone.clock import system_clock
from tablestone.engines.contract import Engine, StorageId
from tablestone.engines.postgresql.address import FORM, SCHEME, DatabaseAddress, parse_address
from tablestone.engines.postgresql.kind import require_driver
from tablestone.tables.index_building import entries_of_storage
from tablestone.tables.storage_migration import is_empty

DATABASE_OPTIONS = storage_move.engine_option("database", FORM)


def database_address(given: dict[str, Any]) -> DatabaseAddress:
    return parse_address(storage_move.engine_url(given, SCHEME, "database", FORM))


@click.group()
def postgresql() -> None:
    """Prepare and fill a schema of a PostgreSQL database.

    Servers on any number of machines can keep their tables in one schema, and act as one.
    """


@postgresql.command(
    epilog="Example: tablestone postgresql init --grant-to tablestone "
    "--engine 'postgresql://owner@db.example.com/tables'"
)
@options.with_options(DATABASE_OPTIONS)
@click.option(
    "--grant-to", "role", metavar="ROLE", help="The role of the servers gets the rights it needs."
)
def init(role: str | None, **given: Any) -> int:
    """Create the schema and its tables.

    It belongs to the role in the engine's URL. A schema that exists does not change, except
    that one of an older format is brought to the present one, while no server uses it.

    Prints what may lose data, such as fsync = off. Exit status: 0, or 2 if it was refused.
    """
    address = database_address(given)
    require_driver()
    from tablestone.engines.postgresql.opening import initialize  # noqa: PLC0415 - needs the driver

    made, warnings = initialize(address, role)
    print(f"Schema {address.schema}: {'made' if made else 'exists already'}.")
    if role is not None:
        print(f"The role {role} has the rights of a server.")
    for warning in warnings:
        print(f"warning: {warning}")
    print("A server can use it.")
    return 0


@postgresql.command(
    epilog="Example: tablestone postgresql load --from ./data "
    "--engine 'postgresql://owner@db.example.com/tables'"
)
@storage_move.moving(*storage_move.FROM, DATABASE_OPTIONS)
def load(directory: Path, encryption_key_file: str | None, *, quiet: bool, **given: Any) -> int:
    """Bring a data directory into a schema.

    Accounts, policies, service properties, roles, tables with their indexes, and entities come with
    their versions, so ETags stay good. The schema must be new (`tablestone postgresql init`) and
    belong to the role in the engine's URL. No server can use it until everything was compared.
    After an interruption, the same command continues.

    Exit status: 0 if both hold the same, 1 if not or if it failed, 2 if it could not begin.
    """
    address = database_address(given)

    @asynccontextmanager
    async def target(
        storage: StorageId, _source: Engine
    ) -> AsyncIterator[tuple[Engine, storage_move.Filling]]:
        require_driver()
        from tablestone.engines.postgresql.loading import Load  # noqa: PLC0415 - need the driver
        from tablestone.engines.postgresql.opening import held_alone, open_postgresql  # noqa: PLC0415

        async with held_alone(address, is_loading=True) as alone:
            engine = open_postgresql(address, system_clock, read_only=True, is_alone=True)
            entries = partial(entries_of_storage, engine)
            filled = Load(address, alone.storage, entries, alone.ends)
            try:
                await filled.begin(storage, is_empty=await is_empty(engine))
                yield engine, filled
            finally:
                await filled.close()
                await engine.close()

    name = f"schema {address.schema}"
    return storage_move.load(directory, encryption_key_file, target, name, quiet=quiet)


@postgresql.command(
    epilog="Example: tablestone postgresql unload --to ./data "
    "--engine 'postgresql://owner@db.example.com/tables'"
)
@storage_move.moving(*storage_move.TO, DATABASE_OPTIONS)
def unload(directory: Path, encryption_key_file: str | None, *, quiet: bool, **given: Any) -> int:
    """Bring the content of a schema into a new data directory.

    Everything comes with its versions, so ETags stay good. Stop every server first. DIR appears
    when everything was compared. After an interruption, the same command continues.

    Exit status: 0 if both hold the same, 1 if not or if it failed, 2 if it could not begin.
    """
    address = database_address(given)
    require_driver()
    from tablestone.engines.postgresql.opening import held_alone, open_postgresql  # noqa: PLC0415

    @asynccontextmanager
    async def source() -> AsyncIterator[tuple[Engine, StorageId]]:
        async with held_alone(address) as alone:
            engine = open_postgresql(address, system_clock, read_only=True, is_alone=True)
            try:
                yield engine, alone.storage
                await alone.ends()
            finally:
                await engine.close()

    name = f"schema {address.schema}"
    return storage_move.unload(directory, encryption_key_file, source, name, quiet=quiet)
