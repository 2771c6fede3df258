"""The figures of the Cassandra engine, by name. Needs no driver, so that a server can tell of them without one."""

from __future__ import annotations

from typing import Final

from tablestone.engines.figures import Figure, FigureKind

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
