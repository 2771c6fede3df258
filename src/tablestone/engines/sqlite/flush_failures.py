"""The error for a write set that is not committed: does the client know that nothing is stored?

It knows SQLite's errors, and no connection and no group: `group_commit` reports to it what happens.
"""

from __future__ import annotations

import apsw

from tablestone.engines.contract import EngineUnavailable, OutcomeUnknown
from tablestone.engines.sqlite.reader import unavailable


class FlushFailures:
    """Remembers whether a flush failed and no commit has succeeded since.

    After a flush that failed, the log has a commit that is not undone in the file: a crash before the next commit,
    which overwrites it, brings it back.
    """

    def __init__(self) -> None:
        self._has_failed = False

    def note(self, error: Exception) -> None:
        """Take notice of the error that ended a group."""
        if getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_FSYNC:
            self._has_failed = True

    def committed(self) -> None:
        self._has_failed = False

    def failure(self, error: apsw.Error) -> EngineUnavailable | OutcomeUnknown:
        """The error for a write set of a group that SQLite refused."""
        if self._has_failed:
            return OutcomeUnknown(f"Storage could not flush: {error}.")
        refused = unavailable("write", error)
        refused.__cause__ = error
        return refused
