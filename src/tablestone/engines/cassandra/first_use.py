"""Whether anything was ever written to a keyspace: a row of `about` says so, from the beginning and for ever.

A deletion hides what is written after it with an earlier timestamp, and no read shows that there was one. So `cluster
init` notes that the keyspace is new, and each program that opens it to write takes the note back first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tablestone.engines.cassandra.schema import ABOUT
from tablestone.engines.contract import EngineRefused

if TYPE_CHECKING:
    from tablestone.engines.cassandra.connection import Connection

_NAME: Final = "used"
_NO: Final = 0
_YES: Final = 1


def note_new(connection: Connection) -> None:
    """The tables have just been made; nothing happens if that, or more, was noted before."""
    connection.execute(
        f"INSERT INTO {ABOUT} (name, number) VALUES (%s, %s) IF NOT EXISTS", (_NAME, _NO)
    )


def note_use(connection: Connection) -> None:
    """The keyspace is about to be written to."""
    if _is_new(connection):
        connection.execute(
            f"UPDATE {ABOUT} SET number = %s WHERE name = %s IF number = %s", (_YES, _NAME, _NO)
        )


def require_new(connection: Connection) -> None:
    """Refuse a keyspace that may have been written to."""
    if not _is_new(connection):
        raise EngineRefused(
            f"The keyspace {connection.keyspace} was used before, and its deletions could hide what is loaded: "
            "drop it, and make it again with `tablestone cluster init`."
        )


def _is_new(connection: Connection) -> bool:
    rows = connection.execute(f"SELECT number FROM {ABOUT} WHERE name = %s", (_NAME,))
    return [tuple(row) for row in rows] == [(_NO,)]
