"""The figures of the SQLite engine by name: constants, whose values `sqlite_measures` finds."""

from __future__ import annotations

from typing import Final

from tablestone.engines.figures import Figure, FigureKind

COMMIT_GROUP: Final = Figure(
    "sqlite_commit_group_write_sets",
    FigureKind.DISTRIBUTION,
    "Write sets that shared one commit and its flush.",
    (1, 2, 4, 8, 16, 32, 64, 128),
)
FLUSH: Final = Figure(
    "sqlite_commit_flush_seconds",
    FigureKind.DISTRIBUTION,
    "Time of a commit with its flush; of a group of inserts also of the statement.",
    (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
FIGURES: Final = (
    COMMIT_GROUP,
    FLUSH,
    Figure(
        "sqlite_commit_lock_wait_seconds",
        FigureKind.COUNTER,
        "Time for which commits of a process waited for another process.",
    ),
    Figure(
        "sqlite_checkpoints", FigureKind.COUNTER, "Copies of the log into the database that ended."
    ),
    Figure(
        "sqlite_checkpoint_seconds",
        FigureKind.COUNTER,
        "Time of those copies during which no process could commit.",
    ),
    Figure(
        "sqlite_page_cache_hits", FigureKind.COUNTER, "Pages that reads found in the page cache."
    ),
    Figure("sqlite_page_cache_misses", FigureKind.COUNTER, "Pages that reads took from the files."),
    Figure("sqlite_wal_bytes", FigureKind.GAUGE, "Length of the write-ahead log's file."),
    Figure("sqlite_database_bytes", FigureKind.GAUGE, "Length of the database, free pages too."),
    Figure(
        "sqlite_free_bytes",
        FigureKind.GAUGE,
        "Free pages of the database: new rows use them before the file grows.",
    ),
)
