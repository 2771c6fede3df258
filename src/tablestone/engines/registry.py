"""Which engine a storage URL means: `memory:` or `sqlite:DIRECTORY`. Knows the schemes and nothing else."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tablestone.engines.contract import EngineRefused
from tablestone.engines.memory import MemoryEngine
from tablestone.engines.sqlite import SqliteEngine
from tablestone.engines.sqlite_directory import DataDirectory, Opening

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tablestone.clock import Clock
    from tablestone.engines.contract import Engine, StorageId


def open_engine(
    url: str,
    clock: Clock,
    *,
    read_only: bool = False,
    shared: bool = False,
    storage: StorageId | None = None,
) -> Engine:
    """The engine behind `url`, ready for use; `EngineRefused` says why there is none.

    A `read_only` engine does not create, change or lock anything, and so can look at a data directory
    that a running server holds; its commits raise `EngineUnavailable`. A `shared` one reads and commits beside
    the processes of a running server, or without one. Without either it is the server's, and keeps other servers out.
    With `storage` it is what `held_for_processes` gave, or refused, though there be other data now in its place.
    """
    if (path := _directory(url)) is None:
        return MemoryEngine(clock)
    opening = Opening.SHARED if shared else Opening.SERVER
    return SqliteEngine(path, clock, Opening.READ_ONLY if read_only else opening, storage)


@contextmanager
def held_for_processes(url: str) -> Iterator[StorageId]:
    """Holds the storage of `url` for a server of several processes and prepares it; each of them opens it as shared,
    and no other server can have it until all of them have ended. Nothing is open in the block: it may fork.
    """
    if (path := _directory(url)) is None:
        raise EngineRefused(
            f"The engine {url} keeps its rows in the memory of one process: it cannot have several."
        )
    directory = DataDirectory(path, Opening.SERVER)
    try:
        yield directory.storage
    finally:
        directory.release()


def _directory(url: str) -> Path | None:
    """The data directory that `url` names, None where rows are kept in memory."""
    scheme, colon, rest = url.partition(":")
    if scheme == "memory" and colon and not rest:
        return None
    if scheme == "sqlite" and rest:
        return Path(rest)
    raise EngineRefused(
        f"The engine {url!r} is not known: use memory: or sqlite: followed by a data directory."
    )
