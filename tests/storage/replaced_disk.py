"""Opens SQLite's connections on a test's VFS instead of the system's own."""

from collections.abc import Iterator
from contextlib import contextmanager

import apsw


@contextmanager
def connections_on(vfs: apsw.VFS, name: str) -> Iterator[None]:
    """Open every connection of the block on `vfs`, registered as `name` until its end."""
    connection_before = apsw.Connection

    class Connection(connection_before):  # type: ignore[misc, valid-type]
        def __init__(self, path: str, flags: int = 0) -> None:
            flags = flags or apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
            super().__init__(path, flags, vfs=name)

    apsw.Connection = Connection  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        apsw.Connection = connection_before  # type: ignore[misc]
        vfs.unregister()
