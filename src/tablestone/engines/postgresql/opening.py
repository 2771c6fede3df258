"""Opens the engine of a URL, and makes its tables. Importing this module imports the driver."""

from __future__ import annotations

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from tablestone.engines.contract import EngineRefused, NothingStored, StorageId
from tablestone.engines.postgresql.connections import DRIVER_ERRORS, connect, what_it_says
from tablestone.engines.postgresql.engine import PostgresqlEngine
from tablestone.engines.postgresql.schema import FORMAT, STATEMENTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from tablestone.clock import Clock
    from tablestone.engines.postgresql.address import DatabaseAddress

_HELD = """
SELECT count(c.oid) FROM pg_namespace AS n LEFT JOIN pg_class AS c ON c.relnamespace = n.oid
WHERE n.nspname = $1 GROUP BY n.oid
"""
"""How much a schema has: None if there is none, zero for one that was made for us."""
_STORAGE = "SELECT format, id FROM storage"


def open_postgresql(
    address: DatabaseAddress,
    clock: Clock,
    *,
    read_only: bool = False,
    storage: StorageId | None = None,
) -> PostgresqlEngine:
    """Open a schema, or make it; `EngineRefused` says why that fails."""
    found = _on_a_loop(
        _identity(address, writes=not read_only, may_make=not read_only and storage is None)
    )
    if storage is not None and found != storage:
        raise EngineRefused(
            f"The schema {address.schema} of {address.shown} is not the one that the server was started on."
        )
    return PostgresqlEngine(address, clock, found, read_only=read_only)


def identity_of(address: DatabaseAddress) -> StorageId:
    return _on_a_loop(_identity(address, writes=True, may_make=True))


def _on_a_loop(looks: Coroutine[Any, Any, StorageId]) -> StorageId:
    """The caller may run on a loop, which `open` cannot wait for. The thread is gone afterwards."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, looks).result()


async def _identity(address: DatabaseAddress, *, writes: bool, may_make: bool) -> StorageId:
    async with _opened(address, writes=writes) as driver:
        if not await driver.fetchval(_HELD, address.schema):
            if not may_make:
                raise NothingStored(f"{address.shown} has no schema {address.schema} yet.")
            await _make(driver, address.schema)
        try:
            row = await driver.fetchrow(_STORAGE)
        except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError):
            raise EngineRefused(
                f"The schema {address.schema} of {address.shown} is another program's: choose one with schema=NAME."
            ) from None
        if row is None or row["format"] != FORMAT:
            held = "none" if row is None else row["format"]
            raise EngineRefused(
                f"The schema {address.schema} of {address.shown} has the format {held}, and this Tablestone reads "
                f"{FORMAT}."
            )
        return StorageId(row["id"])


async def _make(driver: asyncpg.Connection[Any], schema: str) -> None:
    """Make the schema, unless another process has made it meanwhile."""
    async with driver.transaction():
        await driver.execute("SELECT pg_advisory_xact_lock(hashtext('tablestone'))")
        held = await driver.fetchval(_HELD, schema)
        if held:
            return
        if held is None:
            await driver.execute(f'CREATE SCHEMA "{schema}"')
        await driver.execute(STATEMENTS)
        await driver.execute(
            "INSERT INTO storage (format, id) VALUES ($1, $2)", FORMAT, secrets.token_bytes(16)
        )


@asynccontextmanager
async def _opened(
    address: DatabaseAddress, *, writes: bool
) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection; what fails is an `EngineRefused`."""
    try:
        driver = await connect(address, writes=writes)
        try:
            yield driver
        finally:
            driver.terminate()
    except DRIVER_ERRORS as error:
        raise EngineRefused(f"{address.shown} cannot be used: {what_it_says(error)}.") from error
