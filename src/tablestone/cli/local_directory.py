"""The data directory that a command works on, its progress in bytes, and a sentence if a file is denied."""

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tablestone.cli.option_sources import read_configuration
from tablestone.cli.options import BrokenOption
from tablestone.clock import monotonic_seconds
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.kind import EncryptionKey, EngineUrl
from tablestone.engines.registry import capabilities_of
from tablestone.engines.sqlite.data_directory import NO_ROOM
from tablestone.tools.progress import shown_bytes

DENIALS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@contextmanager
def refusing_denied_places(undone: str) -> Iterator[None]:
    """Turn a denied file into a `BrokenOption`, which begins with `undone`: what was not done."""
    try:
        yield
    except OSError as error:
        if error.errno not in DENIALS or error.filename is None:
            raise
        place = Path(os.fsdecode(error.filename)).absolute()
        raise BrokenOption(f"{undone}: {_denial(place)} ({error.strerror}).") from None


def reason_of(error: OSError, place: Path) -> str:
    """Why `place` was not written. A full disk is named by the nearest existing directory above `place`."""
    if error.errno not in NO_ROOM:
        return error.strerror or str(error)
    return f"there is no room in {next(each for each in place.absolute().parents if each.is_dir())}"


def _denial(place: Path) -> str:
    """What is denied at the place, or at the nearest directory above it that exists."""
    there = next(each for each in (place, *place.parents) if os.path.lexists(each))
    if there.is_dir() and not os.access(there, os.X_OK):
        return f"{there} cannot be entered"
    if there == place and not os.access(there, os.R_OK):
        return f"{there} cannot be read"
    return f"{there} cannot be written"


SCHEME: Final = "sqlite"


class LocalDirectory(NamedTuple):
    """A data directory, and the key that encrypts it, if one does."""

    path: Path
    key: EncryptionKey | None


def local_directory(given: Mapping[str, Any], on_servers: str) -> LocalDirectory:
    """The data directory that the options name, and its key.

    `on_servers` says, as a sentence, what does the same for an engine that keeps its rows in other servers.
    """
    configuration = read_configuration(given, os.environ)
    engine = EngineUrl.parse(configuration.engine)
    stored_in = capabilities_of(configuration.engine).stored_in
    if stored_in is StoredIn.PROCESS:
        raise BrokenOption(f"The engine {engine.scheme} stores nothing: there is no directory.")
    if stored_in is StoredIn.SERVERS:
        raise BrokenOption(f"The engine {engine.scheme} has no data directory. {on_servers}")
    if engine.scheme != SCHEME or configuration.data_directory is None:
        raise BrokenOption(f"The engine {engine.scheme} has a directory of another kind.")
    return LocalDirectory(configuration.data_directory, configuration.encryption_key)


class BackupFailed(Exception):
    """A backup or a restore that began and failed; the text is one sentence or two."""


LINE_SECONDS: Final = 5.0
UPDATE_SECONDS: Final = 0.1
CLEARED: Final = "\r\x1b[K"
"""Clears the line of a terminal."""


class ByteProgress:
    """The progress of one command on standard error. `title` says what is done, as `backup`."""

    def __init__(self, title: str, *, quiet: bool) -> None:
        self._title = title
        self._quiet = quiet
        self._last_update = monotonic_seconds()
        self._is_terminal = sys.stderr.isatty()
        self._has_line = False

    def __call__(self, done: int, whole: int) -> None:
        """Show that `done` of `whole` bytes are done."""
        now = monotonic_seconds()
        pause = UPDATE_SECONDS if self._is_terminal else LINE_SECONDS
        if self._quiet or now - self._last_update < pause:
            return
        self._last_update = now
        line = f"{self._title}: {shown_bytes(done)} of {shown_bytes(whole)}"
        self._has_line = self._is_terminal
        before, end = (CLEARED, "") if self._is_terminal else ("", "\n")
        print(f"{before}{line}", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the line from the terminal."""
        if self._has_line:
            print(CLEARED, end="", file=sys.stderr, flush=True)
