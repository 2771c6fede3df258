"""Refuses a write-ahead log whose damage would cost acknowledged writes, before SQLite goes on without them.

When a process opens a database that no process has open, SQLite reads the log up to the first damaged frame and
continues there, so the commits behind it are overwritten. Knows no page and no row.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import apsw

from tablestone.engines.contract import EngineBroken
from tablestone.engines.sqlite.stored_log import loses_commits


def counted_frames(connection: apsw.Connection) -> int:
    """The frames of the log that SQLite reads, as it keeps their number in memory; -1 if nothing tells it."""
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    try:
        frames, _copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    except apsw.ReadOnlyError:  # the log of a killed server, on a medium that cannot be written
        return -1
    return frames


def require_whole_log(connection: apsw.Connection, log: Path) -> None:
    """Raise `EngineBroken` if flushed commits follow the end that SQLite has found, and leave the log as it is.

    The caller holds the commit lock. This takes some milliseconds for a log of 32 MiB.
    """
    frames = counted_frames(connection)
    try:
        is_whole = frames < 0 or not loses_commits(log, connection.pragma("page_size"), frames)
    except FileNotFoundError:
        return
    if is_whole:
        return
    # Closing the last connection would copy the log up to the damage, and remove it.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    raise EngineBroken(
        f"{log} is damaged: acknowledged writes follow the damage, and would be lost. Restore a backup, "
        f"or save what can be read in a new directory: tablestone salvage {shlex.quote(str(log.parent))} OUT"
    )
