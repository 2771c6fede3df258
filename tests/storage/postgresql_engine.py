"""The PostgreSQL engine for the contract's tests: many fresh engines in one schema, which takes long to make.

Each process of tests makes a schema of its own, and drops it at its end.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import math
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from storage.prefixed_engine import PrefixedEngine
from tablestone.engines.leases import Leases
from tablestone.engines.postgresql.address import DatabaseAddress, parse_address
from tablestone.engines.registry import open_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tablestone.clock import Clock

LEASE_SECONDS = 0.01
"""Every test that creates a table waits for a lease to end."""


class SchemaEngine(PrefixedEngine):
    """An engine in a range of partitions of its own. Its connections are its own too."""

    def __init__(self, url: str, clock: Clock, prefix: bytes, *, one_of_many: bool) -> None:
        from tablestone.engines.postgresql import checks  # noqa: PLC0415 - need the driver
        from tablestone.engines.postgresql.engine import PostgresqlEngine  # noqa: PLC0415

        checks.CLOCK_SECONDS_MAX = math.inf  # type: ignore[misc] # tests have clocks of their own
        _drop_at_the_end(url)
        engine = open_engine(url, clock)
        assert isinstance(engine, PostgresqlEngine)
        engine.leases = Leases(LEASE_SECONDS)
        self._is_one_of_many = one_of_many
        super().__init__(engine, prefix)

    async def check(self) -> list[str]:
        return [] if self._is_one_of_many else await self._engine.check()


@functools.cache
def _drop_at_the_end(url: str) -> None:
    atexit.register(lambda: asyncio.run(drop_schema(parse_address(url))))


@contextmanager
def made_schema(url: str) -> Iterator[str]:
    """The URL of a schema that the first server makes; it is dropped at the end."""
    url = url.replace("{fresh}", f"tests_{secrets.token_hex(6)}")
    yield url
    asyncio.run(drop_schema(parse_address(url)))


async def drop_schema(address: DatabaseAddress) -> None:
    from tablestone.engines.postgresql.connections import connect  # noqa: PLC0415 - needs the driver

    driver = await connect(address, writes=True)
    await driver.execute(f'DROP SCHEMA IF EXISTS "{address.schema}" CASCADE')
    await driver.close()
