"""The PostgreSQL engine for the registry: capabilities, figures, and how to open it. Does not import the driver."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tablestone.engines.capabilities import Capabilities, StoredIn
from tablestone.engines.contract import EngineRefused
from tablestone.engines.figures import Figure, FigureKind
from tablestone.engines.kind import CONTRACT, EngineKind, Opening
from tablestone.engines.postgresql.address import FORM, SCHEME, parse_address
from tablestone.extras import needs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tablestone.clock import Clock
    from tablestone.engines.contract import Engine, StorageId
    from tablestone.engines.kind import EncryptionKey

OPENING: Final = "tablestone.engines.postgresql.opening"
"""By name, because it imports the driver."""
LEASE_SECONDS: Final = 0.25
"""As on Cassandra (decision 8): a server asks this often whether catalogue rows in use have changed."""

CAPABILITIES: Final = Capabilities(
    stored_in=StoredIn.SERVERS,
    processes=True,
    hints=True,
    waits=True,
    leases=True,
    versions_outlive_rows=True,
    checks_relied_rows=True,
    keeps_entries=True,
    reads_backwards=True,
)

REQUEST: Final = Figure(
    "postgresql_request_seconds",
    FigureKind.DISTRIBUTION,
    "Time of a statement or a commit, from its sending to its answer.",
    (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
FIGURES: Final = (
    REQUEST,
    Figure(
        "postgresql_wait_seconds",
        FigureKind.COUNTER,
        "Time that requests waited for a free connection.",
    ),
    Figure(
        "postgresql_lock_wait_seconds",
        FigureKind.COUNTER,
        "Time that commits waited for others to the same partition, here and in PostgreSQL.",
    ),
    Figure("postgresql_connects", FigureKind.COUNTER, "Connections that were made."),
    Figure(
        "postgresql_commits_repeated",
        FigureKind.COUNTER,
        "Commits that began again, because another one had changed the rows meanwhile.",
    ),
    Figure(
        "postgresql_commits_in_doubt",
        FigureKind.COUNTER,
        "Commits without an answer, whose outcome had to be found out.",
    ),
)


def _open(
    place: str, clock: Clock, mode: Opening, storage: StorageId | None, _key: EncryptionKey | None
) -> Engine:
    require_driver()
    engine: Engine = import_module(OPENING).open_postgresql(
        parse_address(f"{SCHEME}:{place}"),
        clock,
        read_only=mode is Opening.READ_ONLY,
        warns=mode is Opening.SERVER,
        storage=storage,
    )
    return engine


@contextmanager
def _hold(place: str, _key: EncryptionKey | None) -> Iterator[StorageId]:
    require_driver()
    identity: StorageId = import_module(OPENING).identity_of(parse_address(f"{SCHEME}:{place}"))
    yield identity


def require_driver() -> None:
    """`EngineRefused` if the driver is not installed. Call it before the import of a module that needs it."""
    if find_spec("asyncpg") is None:
        raise EngineRefused(needs("The engine postgresql", "the driver asyncpg", "postgresql"))


KIND: Final = EngineKind(CAPABILITIES, (FORM,), _open, _hold, FIGURES, CONTRACT)
