"""Opens the engine of a URL, and makes its schema. Importing this module imports the driver."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import asyncpg

from tablestone.clock import system_clock
from tablestone.engines.contract import EngineRefused, EngineUnavailable, StorageId
from tablestone.engines.postgresql.checks import (
    NO_STANDBY,
    Examination,
    examine,
    lock_alone,
    require_loaded,
    require_own,
    require_storage,
)
from tablestone.engines.postgresql.connections import (
    CONNECT_SECONDS_MAX,
    DRIVER_ERRORS,
    STATEMENT_SECONDS_MAX,
    connect,
    what_it_says,
)
from tablestone.engines.postgresql.engine import PostgresqlEngine
from tablestone.engines.postgresql.schema import FORMAT, GRANTED, GRANTS, ROLE, STATEMENTS, STEPS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping

    from tablestone.clock import Clock
    from tablestone.engines.postgresql.address import DatabaseAddress

log = logging.getLogger(__name__)

Found = TypeVar("Found")

_HELD = """
SELECT count(c.oid) FROM pg_namespace AS n LEFT JOIN pg_class AS c ON c.relnamespace = n.oid
WHERE n.nspname = $1 GROUP BY n.oid
"""
"""How much a schema has: None if there is none, zero for one that was made for us."""


def open_postgresql(
    address: DatabaseAddress,
    clock: Clock,
    *,
    read_only: bool = False,
    warns: bool = False,
    storage: StorageId | None = None,
    is_alone: bool = False,
) -> PostgresqlEngine:
    """Open a schema, or make it; `EngineRefused` says why that fails.

    `warns` logs what may lose data. `is_alone` is for a program that keeps servers out (`held_alone`).
    """
    found, examination = _on_a_loop(
        _identity(address, storage, writes=not read_only, is_alone=is_alone)
    )
    engine = PostgresqlEngine(address, clock, found, read_only=read_only, is_alone=is_alone)
    engine.logs_warnings = warns
    engine.note(examination)
    return engine


def identity_of(address: DatabaseAddress) -> StorageId:
    """The id of a schema that a server can use; logs the warnings of its start."""
    found, examination = _on_a_loop(_identity(address, None, writes=True))
    for warning in examination.warnings(system_clock):
        log.warning("%s", warning)
    return found


def initialize(
    address: DatabaseAddress, role: str | None = None, steps: Mapping[int, str] = STEPS
) -> tuple[bool, list[str]]:
    """Make the schema, or upgrade an older one, and give a role the rights of a server.

    Returns whether it was made, and the warnings of a server's start. `EngineRefused`, before anything changes, if it
    is another program's or a newer version's.
    """
    return _on_a_loop(_initialize(address, role, steps))


class Alone(NamedTuple):
    """No server uses the storage while the driver's connection lives, because that has the lock."""

    storage: StorageId
    driver: asyncpg.Connection[Any]
    address: DatabaseAddress

    async def ends(self, statement: str = "SELECT") -> None:
        """Run a statement at the end; `EngineUnavailable` if another program may have come in meanwhile."""
        try:
            await require_storage(self.driver, self.address, self.storage, is_alone=True)
            await self.driver.execute(statement)
        except (*DRIVER_ERRORS, EngineRefused) as error:
            raise EngineUnavailable(
                f"Another program may have used the schema {self.address.schema} meanwhile, so nothing counts: stop "
                f"every server, and repeat the command ({what_it_says(error)})."
            ) from error


@asynccontextmanager
async def held_alone(address: DatabaseAddress, *, is_loading: bool = False) -> AsyncIterator[Alone]:
    """Keep servers out of a schema while the block runs; the block opens it as one that `is_alone`.

    `EngineRefused` if a server is connected or a load has not ended. Before its result counts, the block makes sure of
    it (`Alone.ends`).
    """
    with _refusing(address):
        driver = await connect(address, writes=True)
    try:
        with _refusing(address):
            storage = await require_storage(driver, address, is_alone=True)
            if not is_loading:
                require_loaded(await require_own(driver, address), address)
            await lock_alone(driver, address, storage)
        yield Alone(storage, driver, address)
    finally:
        driver.terminate()


def _on_a_loop(looks: Coroutine[Any, Any, Found]) -> Found:
    """Run it to its end; in a thread where the caller runs on a loop, which `open` cannot wait for.

    The supervisor forks afterwards, and has no loop. A thread that has ended for Python may still hold a lock of
    OpenSSL, which the driver uses: a worker would wait for it for ever.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(looks)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, looks).result()


async def _identity(
    address: DatabaseAddress, storage: StorageId | None, *, writes: bool, is_alone: bool = False
) -> tuple[StorageId, Examination]:
    async with _connected(address, writes=writes) as driver, asyncio.timeout(STATEMENT_SECONDS_MAX):
        examination = await examine(driver, address, CONNECT_SECONDS_MAX)
        if writes and storage is None and not is_alone:
            await _make(driver, address, examination)
        return await require_storage(driver, address, storage, is_alone=is_alone), examination


async def _initialize(
    address: DatabaseAddress, role: str | None, steps: Mapping[int, str]
) -> tuple[bool, list[str]]:
    async with _connected(address, writes=True) as driver:
        examination = await examine(driver, address, CONNECT_SECONDS_MAX)
        if role is not None and not await driver.fetchval(ROLE, role):
            raise EngineRefused(f"PostgreSQL has no role {role!r}: create the role first.")
        is_made = await _make(driver, address, examination)
        await _upgrade(driver, address, steps)
        await require_storage(driver, address, is_alone=True)
        warnings = examination.warnings(system_clock)
        if role is not None:
            _require_standby(examination)
            warnings += await _grant(driver, address.schema, role)
        return is_made, warnings


def _require_standby(examination: Examination) -> None:
    """`EngineRefused` if a commit would wait without an end."""
    if NO_STANDBY in examination.settings:
        raise EngineRefused(NO_STANDBY)


async def _make(
    driver: asyncpg.Connection[Any], address: DatabaseAddress, examination: Examination
) -> bool:
    """Make the schema, unless another process has made it meanwhile: False."""
    async with driver.transaction():
        await driver.execute("SELECT pg_advisory_xact_lock(hashtext('tablestone'))")
        held = await driver.fetchval(_HELD, address.schema)
        if held:
            return False
        _require_standby(examination)
        if held is None:
            try:
                await driver.execute(f'CREATE SCHEMA "{address.schema}"')
            except asyncpg.InsufficientPrivilegeError as error:
                raise EngineRefused(
                    f"{address.in_words} does not exist, and this role may not make it: run `tablestone postgresql "
                    "init --grant-to ROLE` as the owner of the database."
                ) from error
        await driver.execute(STATEMENTS)
        await driver.execute(
            "INSERT INTO storage (format, id) VALUES ($1, $2)", FORMAT, secrets.token_bytes(16)
        )
        return True


async def _upgrade(
    driver: asyncpg.Connection[Any], address: DatabaseAddress, steps: Mapping[int, str]
) -> None:
    """Upgrade a schema of an older format while no server is connected: each looks at the format when it connects."""
    row = await require_own(driver, address)
    older = range(row["format"], FORMAT)
    if not older:
        return
    if missing := [each for each in older if each not in steps]:
        raise EngineRefused(
            f"{address.in_words} has the format {missing[0]}, which cannot be upgraded."
        )
    await lock_alone(driver, address, StorageId(row["id"]))
    async with driver.transaction():
        for each in older:
            await driver.execute(steps[each])
        await driver.execute("UPDATE storage SET format = $1", FORMAT)


async def _grant(driver: asyncpg.Connection[Any], schema: str, role: str) -> list[str]:
    """Give a role what a server needs; a sentence if it cannot connect."""
    quoted = '"' + role.replace('"', '""') + '"'
    async with driver.transaction():
        await driver.execute(GRANTS.format(schema=f'"{schema}"', role=quoted))
        may_write, may_connect = await driver.fetchrow(GRANTED, role, schema)
        if not may_write:  # only a warning says so
            raise EngineRefused(
                f"The schema {schema} is another role's, which can give the rights."
            )
    sentence = (
        f"The role {role} cannot connect: the database's owner can GRANT CONNECT ON DATABASE."
    )
    return [sentence] * (not may_connect)


@asynccontextmanager
async def _connected(
    address: DatabaseAddress, *, writes: bool
) -> AsyncIterator[asyncpg.Connection[Any]]:
    with _refusing(address):
        driver = await connect(address, writes=writes)
        try:
            yield driver
        finally:
            driver.terminate()


@contextmanager
def _refusing(address: DatabaseAddress) -> Iterator[None]:
    """What the driver raises is an `EngineRefused`."""
    for name, value in address.libpq.items():
        if name != "sslmode" and not os.access(
            value, os.R_OK
        ):  # the driver does not say which file
            raise EngineRefused(f"The file of {name}={value} cannot be read.")
    named = address.libpq.get("passfile") or os.environ.get("PGPASSFILE") or "~/.pgpass"
    passwords = Path(named).expanduser()
    # The driver would ignore it, with a warning about its own source.
    if "PGPASSWORD" not in os.environ and passwords.is_file() and passwords.stat().st_mode & 0o077:
        raise EngineRefused(f"Others can read the passwords in {passwords}: chmod 600 {passwords}.")
    try:
        yield
    except DRIVER_ERRORS as error:
        raise EngineRefused(f"{address.shown} cannot be used: {what_it_says(error)}.") from error
