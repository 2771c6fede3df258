"""The files of a data directory that are not as they were written: the log by its sums, encrypted pages by their tags.

SQLite reads only the pages that a statement needs, and compares the sums of the log only when it opens it. This reads
all of both, without SQLite, beside any other process. Knows pages; knows no row.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

import apsw

from tablestone.engines.sqlite.data_directory import DataDirectory
from tablestone.engines.sqlite.log_recovery import counted_frames
from tablestone.engines.sqlite.stored_pages import StoredPages

SHOWN_MAX: Final = 100
"""Pages that are named."""
LOOKS: Final = 5
"""Looks at the log, because another process may write it from its beginning again during a look."""
LOG_DAMAGED: Final = (
    "the write-ahead log is damaged: acknowledged writes that follow the damage are lost. "
    "Restore a backup if they matter"
)


def altered_files(directory: DataDirectory) -> list[str]:
    """A sentence for each page that is not as it was written, and one for the log. `apsw.Error`, `OSError`."""
    with (
        closing(directory.connect_snapshot()) as moment,
        closing(directory.connect_snapshot()) as other,
    ):
        # A read transaction: until it ends, pages that are not in the log do not change.
        moment.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()
        if all(_log_is_damaged(directory, other) for _look in range(LOOKS)):
            return [LOG_DAMAGED]
        with closing(StoredPages(directory.path, directory.key)) as pages:
            altered = pages.altered()
    sentences = [f"page {number} was altered since it was written" for number in altered]
    more = len(altered) - SHOWN_MAX
    return [*sentences[:SHOWN_MAX], f"and {more:,} more pages"] if more > 0 else sentences


def _log_is_damaged(directory: DataDirectory, connection: apsw.Connection) -> bool:
    """Whether frames that SQLite counts are damaged in the file, or commits follow a frame that is."""
    counted = counted_frames(connection)
    with closing(StoredPages(directory.path)) as pages:
        log = pages.log
    return log.lost_commits or log.frames < min(counted, counted_frames(connection))
