"""The Cassandra engine for the registry: capabilities, figures, and how to open it. Does not import the driver."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from tablestone.clock import Clock
from tablestone.engines.capabilities import Capabilities, StoredIn
from tablestone.engines.cassandra.cluster_url import FORM, SCHEME, parse_address
from tablestone.engines.contract import Engine, EngineRefused, EngineUnavailable, StorageId
from tablestone.engines.figures import Figure, FigureKind
from tablestone.engines.kind import CONTRACT, EncryptionKey, EngineKind, Opening
from tablestone.extras import needs

OPENING: Final = "tablestone.engines.cassandra.opening"
"""By name, because it imports this module."""
LEASE_SECONDS: Final = 0.25
"""A server asks five to eight times a second whether rows in use have changed; a change takes this much longer."""

CAPABILITIES: Final = Capabilities(
    stored_in=StoredIn.SERVERS,
    processes=True,
    hints=False,
    waits=True,
    snapshots_pass=True,
    leases=True,
    versions_outlive_rows=True,
)

REQUEST: Final = Figure(
    "cassandra_request_seconds",
    FigureKind.DISTRIBUTION,
    "Time of a statement or a batch, from its sending to its answer.",
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
FIGURES: Final = (
    REQUEST,
    Figure(
        "cassandra_request_failures",
        FigureKind.COUNTER,
        "Statements and batches that were not answered, or with an error.",
    ),
    Figure(
        "cassandra_commits_in_doubt",
        FigureKind.COUNTER,
        "Commits without an answer, whose outcome had to be found out.",
    ),
    Figure(
        "cassandra_commits_overtaken",
        FigureKind.COUNTER,
        "Attempts of a commit before which another server had written to the partition.",
    ),
    Figure("cassandra_nodes", FigureKind.GAUGE, "Nodes of the datacenter that the server asks."),
    Figure(
        "cassandra_nodes_up",
        FigureKind.GAUGE,
        "Nodes of that datacenter that the driver takes for running.",
    ),
)


def _open(
    place: str, clock: Clock, mode: Opening, storage: StorageId | None, _key: EncryptionKey | None
) -> Engine:
    require_driver()
    engine: Engine = import_module(OPENING).open_cassandra(
        parse_address(f"{SCHEME}:{place}"),
        clock,
        read_only=mode is Opening.READ_ONLY,
        warns=mode is Opening.SERVER,
        storage=storage,
    )
    return engine


@contextmanager
def _hold(place: str, _key: EncryptionKey | None) -> Iterator[StorageId]:
    """Another process asks for the keyspace's identity: the driver's threads would not survive a fork."""
    from concurrent.futures import BrokenExecutor, ProcessPoolExecutor  # noqa: PLC0415 - loads slowly
    from multiprocessing import get_context  # noqa: PLC0415

    require_driver()
    address, identity_of = parse_address(f"{SCHEME}:{place}"), import_module(OPENING).identity_of
    try:
        with ProcessPoolExecutor(1, get_context("fork")) as other:
            identity: StorageId = other.submit(identity_of, address).result()
    except EngineUnavailable as unavailable:
        raise EngineRefused(unavailable.sentence) from unavailable
    except BrokenExecutor as ended:
        raise EngineRefused("The cluster could not be asked.") from ended
    yield identity


def require_driver() -> None:
    """`EngineRefused` if the driver is not installed. Call it before the import of a module that needs it."""
    if find_spec("cassandra") is None:
        raise EngineRefused(
            needs("The engine cassandra", "the driver of Apache Cassandra", "cassandra")
        )


KIND: Final = EngineKind(CAPABILITIES, (FORM,), _open, _hold, FIGURES, CONTRACT)
