"""This kind of engine, as the registry knows it. The driver is imported when a cluster is opened, and not before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final

from tablestone.clock import Clock, system_clock
from tablestone.engines.cassandra.capabilities import CAPABILITIES, FIGURES
from tablestone.engines.cassandra.cluster_url import FORM, SCHEME, ClusterAddress, parse_address
from tablestone.engines.contract import Engine, EngineRefused, EngineUnavailable, StorageId
from tablestone.engines.kind import EngineKind, Opening

_IDENTIFIED: Final = b"i"
_REFUSED: Final = b"r"


def _open(place: str, clock: Clock, mode: Opening, storage: StorageId | None) -> Engine:
    engine: Engine = opening().open_cassandra(
        parse_address(f"{SCHEME}:{place}"),
        clock,
        read_only=mode is Opening.READ_ONLY,
        warns=mode is Opening.SERVER,
        storage=storage,
    )
    return engine


@contextmanager
def _hold(place: str) -> Iterator[StorageId]:
    """The keyspace's identity, asked for by a process of its own: threads of the driver would not survive a fork."""
    address = parse_address(f"{SCHEME}:{place}")
    module = opening()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.write(writer, _identify(module, address))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        told = answer.read()
    os.waitpid(child, 0)
    if not told.startswith(_IDENTIFIED):
        raise EngineRefused(told[1:].decode() or "The cluster could not be asked.")
    yield StorageId(told[1:])


def _identify(module: ModuleType, address: ClusterAddress) -> bytes:
    try:
        engine = module.open_cassandra(address, system_clock, read_only=True, warns=True)
        identity: bytes = module.storage_id(engine.connection)
    except EngineRefused as refusal:
        return _REFUSED + str(refusal).encode()
    except EngineUnavailable as unavailable:
        return _REFUSED + unavailable.sentence.encode()
    return _IDENTIFIED + identity


def opening() -> ModuleType:
    """The module that opens clusters, which needs the driver; `EngineRefused` where that is not installed."""
    try:
        from tablestone.engines.cassandra import opening as module  # noqa: PLC0415 - needs the driver
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != SCHEME:
            raise
        raise EngineRefused(
            "The engine cassandra needs the driver of Apache Cassandra: install Tablestone with its extra 'cassandra'."
        ) from error
    return module


KIND: Final = EngineKind(CAPABILITIES, (FORM,), _open, _hold, FIGURES)
