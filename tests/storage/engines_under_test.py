"""Engines for tests, by their URLs: `engine_for` opens empty storage of any scheme that the registry knows.

ENGINE_UNDER_TEST names the engine on which the contract, the wire cases and the models run. In its URL, `{fresh}`
stands for storage that does not exist yet: a path for an engine with a directory, else a name. A scheme alone means
such storage too: `sqlite` is `sqlite:{fresh}`.
"""

from __future__ import annotations

import functools
import os
import secrets
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from storage.slow_engine import LEASE_SECONDS, RememberingMemory, SlowEngine
from storage.two_engines import TwoEngines
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.contract import EngineRefused
from tablestone.engines.kind import EngineUrl
from tablestone.engines.leases import Leases
from tablestone.engines.memory import MemoryEngine
from tablestone.engines.registry import kind_of, open_engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestone.clock import Clock
    from tablestone.engines.capabilities import Capabilities
    from tablestone.engines.contract import Engine

URL = os.environ.get("ENGINE_UNDER_TEST")
"""The engine's URL; None: the contract runs on the engines of every machine, all else in memory."""
FRESH = "{fresh}"
SCHEMA = f"test_{secrets.token_hex(8)}"
"""The schema that the tests of this process share on PostgreSQL."""
SHARED = None if URL is None else URL.replace(FRESH, SCHEMA)
"""The URL for servers that share storage with others."""


def engine_for(url: str, clock: Clock, servers: int = 1, **how: Any) -> Engine:
    """The engine of empty storage, which this many servers have open: calls alternate between them."""
    engines = engines_for(url, clock, servers, **how)
    return engines[0] if servers == 1 else TwoEngines(engines)


def engines_for(
    url: str, clock: Clock, servers: int, directory: str | None = None, *, one_of_many: bool = False
) -> list[Engine]:
    """The engines of this many servers, on the same empty storage; in `directory`, or in one of this process.

    To make a keyspace or a schema takes long, so there each test gets partitions of its own in one. On a cluster, one
    of many engines of this process shares its connection with the others, and is never closed.
    """
    scheme = EngineUrl.parse(url).scheme
    if scheme == "cassandra":
        from storage.cluster_engine import ClusterEngine  # noqa: PLC0415 - reads the URL from here

        prefix = b"test " + secrets.token_bytes(8)
        return [ClusterEngine(clock, prefix, shares_connection=one_of_many) for _ in range(servers)]
    if scheme == "postgresql":
        from storage.postgresql_engine import SchemaEngine  # noqa: PLC0415 - needs the driver

        prefix = b"test " + secrets.token_bytes(8)
        url = url.replace(FRESH, SCHEMA)
        return [SchemaEngine(url, clock, prefix, one_of_many=one_of_many) for _ in range(servers)]
    stored_in = kind_of(scheme).capabilities.stored_in
    if url == scheme:
        url += ":" if stored_in is StoredIn.PROCESS else f":{FRESH}"
    name = f"test_{secrets.token_hex(8)}"
    if stored_in is StoredIn.DIRECTORY:
        name = f"{directory or _directory().name}/{name}"
    url = url.replace(FRESH, name)
    return [open_engine(url, clock, shared=servers > 1) for _ in range(servers)]


@functools.cache
def _directory() -> TemporaryDirectory[str]:
    """Removed at the end of the process."""
    return TemporaryDirectory(prefix="engines-under-test-")


SLOW: dict[str, Callable[[Clock], Engine]] = {
    "slow": lambda clock: SlowEngine(
        RememberingMemory(clock), Random(5), leases=Leases(LEASE_SECONDS), decides_first=True
    ),
    "slow, without leases": lambda clock: SlowEngine(MemoryEngine(clock), Random(6), passes=True),
}
"""The memory engine at the far end of a network, with all capabilities or with few."""


def _storages(url: str) -> dict[str, tuple[str, int]]:
    """The engine of one server, and that of two if several processes may share the storage."""
    scheme, place = EngineUrl.parse(url)
    is_in_process = kind_of(scheme).capabilities.stored_in is StoredIn.PROCESS
    if not (place is None or is_in_process or FRESH in url or scheme == "cassandra"):
        raise EngineRefused(f"{url} needs {FRESH}, since each test has storage of its own.")
    one = {scheme: (url, 1)}
    several = kind_of(scheme).capabilities.processes
    return one | {f"two on {scheme}": (url, 2)} if several else one


try:
    STORAGES = _storages("memory") | _storages("sqlite") if URL is None else _storages(URL)
except EngineRefused as refused:
    raise SystemExit(f"ENGINE_UNDER_TEST: {refused}") from None
"""URLs and numbers of servers by the names that tests show."""
ENGINES = [*STORAGES, *(SLOW if URL is None else ())]


def named(name: str, clock: Clock, directory: str | None = None) -> Engine:
    """One of `ENGINES`."""
    if name in SLOW:
        return SLOW[name](clock)
    url, servers = STORAGES[name]
    return engine_for(url, clock, servers, directory=directory)


def on_engines_that(
    can: Callable[[Capabilities], bool], servers_max: int = 2
) -> pytest.MarkDecorator:
    """The mark of a test for those of `ENGINES` whose capabilities are such."""

    def fits(name: str) -> bool:
        if name in SLOW:
            return can(SLOW[name](int).capabilities)
        url, servers = STORAGES[name]
        return servers <= servers_max and can(kind_of(EngineUrl.parse(url).scheme).capabilities)

    return pytest.mark.parametrize(
        "opened", [name for name in ENGINES if fits(name)], indirect=True
    )
