"""Which engine a storage URL means: `memory:` or `sqlite:DIRECTORY`. Knows the schemes and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tablestone.engines.contract import EngineRefused
from tablestone.engines.memory import MemoryEngine
from tablestone.engines.sqlite import SqliteEngine

if TYPE_CHECKING:
    from tablestone.clock import Clock
    from tablestone.engines.contract import Engine


def open_engine(url: str, clock: Clock, *, read_only: bool = False) -> Engine:
    """The engine behind `url`, ready for use; `EngineRefused` says why there is none.

    A `read_only` engine does not create, change or lock anything, and so can look at a data directory
    that a running server holds; its commits raise `EngineUnavailable`.
    """
    scheme, colon, rest = url.partition(":")
    if scheme == "memory" and colon and not rest:
        return MemoryEngine(clock)
    if scheme == "sqlite" and rest:
        return SqliteEngine(Path(rest), clock, read_only=read_only)
    raise EngineRefused(
        f"The engine {url!r} is not known: use memory: or sqlite: followed by a data directory."
    )
