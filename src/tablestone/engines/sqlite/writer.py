"""Writing rows through one SQLite connection: it applies write sets to the connection's open transaction.

Every write set has its own outcome, which is decided by reads before anything of it is written. This module begins and
commits no transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tablestone.engines.contract import ABSENT, Committed, Conflict, Put, expectation_holds

if TYPE_CHECKING:
    import apsw

    from tablestone.engines.contract import WriteSet

VERSION_OF: Final = "SELECT version FROM stored_rows WHERE partition = ? AND row = ?"
PUT: Final = """
INSERT INTO stored_rows (partition, row, version, value) VALUES (?, ?, ?, ?)
ON CONFLICT (partition, row) DO UPDATE SET version = excluded.version, value = excluded.value
"""
INSERT: Final = """
INSERT INTO stored_rows (partition, row, version, value) VALUES (?, ?, ?, ?)
ON CONFLICT (partition, row) DO NOTHING
"""
DELETE_ROW: Final = "DELETE FROM stored_rows WHERE partition = ? AND row = ?"


class RowWriter:
    """Writes through one connection, on the caller's thread."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._execute = connection.cursor().execute
        self.now = 1
        """The time of the group that is applied. All its write sets share it, so the text of a version is made once."""

    def apply(self, write_set: WriteSet) -> Committed | Conflict:
        """Apply a whole write set to the open transaction, or nothing of it."""
        partition, now = write_set.partition, self.now
        if len(write_set.changes) == 1:
            ((row, expectation, mutation),) = write_set.changes
            if expectation == ABSENT and isinstance(mutation, Put):
                return self._insert(partition, row, now, mutation)
        versions = [0] * len(write_set.changes)
        puts: list[tuple[bytes, bytes, int, bytes]] = []
        deletes: list[tuple[bytes, bytes]] = []
        # A row that is created again in this group must not get a version that it had before.
        latest_deleted = ABSENT
        for index, (row, expectation, mutation) in enumerate(write_set.changes):
            version_found = self._execute(VERSION_OF, (partition, row)).get or ABSENT
            if not expectation_holds(expectation, version_found):
                return Conflict(index, version_found)
            if isinstance(mutation, Put):
                versions[index] = version = max(now, version_found + 1)
                puts.append((partition, row, version, mutation.render(version)))
            elif mutation is not None and version_found != ABSENT:
                deletes.append((partition, row))
                latest_deleted = max(latest_deleted, version_found)
        for put in puts:
            self._execute(PUT, put)
        for delete in deletes:
            self._execute(DELETE_ROW, delete)
        self.now = max(now, latest_deleted + 1)
        return Committed(versions)

    def _insert(self, partition: bytes, row: bytes, version: int, put: Put) -> Committed | Conflict:
        """Insert one row that must not exist; the statement itself checks that."""
        self._execute(INSERT, (partition, row, version, put.render(version)))
        if self._connection.changes():
            return Committed([version])
        return Conflict(0, self._execute(VERSION_OF, (partition, row)).get)
