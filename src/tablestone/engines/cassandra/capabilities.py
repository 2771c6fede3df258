"""What the engine on a Cassandra cluster can do, and its figures for the admin address."""

from __future__ import annotations

from typing import Final

from tablestone.engines.capabilities import Caching, Capabilities, Snapshots, StoredIn
from tablestone.engines.figures import Figure, FigureKind

LEASE_SECONDS: Final = 0.25
"""A server asks five to eight times a second whether accounts and tables in use have changed; a change takes this much
longer."""

CAPABILITIES: Final = Capabilities(
    stored_in=StoredIn.SERVERS,
    processes=True,
    hints=False,
    snapshots=Snapshots.PASSING,
    waits=True,
    caching=Caching.FOR_A_LEASE,
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
