"""The data directory that a command works on, its progress in bytes, and a sentence if a file is denied."""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from tablestone.cli.option_sources import read_configuration
from tablestone.cli.options import BrokenOption
from tablestone.clock import system_clock
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.contract import Engine
from tablestone.engines.kind import EncryptionKey, EngineUrl
from tablestone.engines.registry import capabilities_of
from tablestone.engines.sqlite.data_directory import NO_ROOM
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog, every_table
from tablestone.tables.expiry_counts import COUNTS_SECRET
from tablestone.tables.metadata import DocumentKind, Documents
from tablestone.tables.storage_keys import fresh_table_id
from tablestone.tools.progress import Reached, progress_for

DENIALS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class BackupFailed(Exception):
    """A backup, or another command that writes a whole directory, began and failed; the text is one sentence or two."""


@contextmanager
def explaining_denial(undone: str) -> Iterator[None]:
    """Turn a denied file into a `BrokenOption`, which begins with `undone`: what was not done."""
    try:
        yield
    except OSError as error:
        if error.errno not in DENIALS or error.filename is None:
            raise
        place = Path(os.fsdecode(error.filename)).absolute()
        raise BrokenOption(f"{undone}: {_denial(place)} ({error.strerror}).") from None


@contextmanager
def explaining_failure(undone: str, place: Path) -> Iterator[None]:
    """Turn a denied file into a `BrokenOption`, and any other failure to write `place` into a `BackupFailed`."""
    try:
        with explaining_denial(undone):
            yield
    except OSError as error:
        raise BackupFailed(f"{undone}: {reason_of(error, place)}.") from None


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
    """The data directory and its key. `on_servers` is the advice for an engine that keeps rows in other servers."""
    configuration = read_configuration(given, os.environ)
    engine = EngineUrl.parse(configuration.engine)
    stored_in = capabilities_of(configuration.engine).stored_in
    if stored_in is StoredIn.PROCESS:
        raise BrokenOption(f"The engine {engine.scheme} stores nothing: there is no directory.")
    if stored_in is StoredIn.SERVERS:
        raise BrokenOption(f"The engine {engine.scheme} has no data directory. {on_servers}")
    if engine.scheme != SCHEME or configuration.data_directory is None:
        raise BrokenOption(f"This needs a directory of SQLite, and the engine is {engine.scheme}.")
    return LocalDirectory(configuration.data_directory, configuration.encryption_key)


ByteProgress = Callable[[int, int], None]
"""Gets the bytes that are done and the bytes of the whole."""


@contextmanager
def byte_progress(title: str, *, quiet: bool) -> Iterator[ByteProgress]:
    """Show the progress of one command in bytes. `title` says what is done, as `backup`."""
    with closing(progress_for(title, quiet=quiet, counted="")) as progress:
        yield lambda done, whole: progress.update(Reached(0, done, position=done, length=whole))


async def suspend_expiry(engine: Engine) -> list[tuple[str, str]]:
    """Suspend the expiry policies that act after a restore, and close the engine; returns accounts and tables.

    What was counted before is not good for this data: the tokens lose their secret.
    """
    catalog = Catalog(engine, system_clock, fresh_table_id)
    try:
        found = [
            (account, table.name)
            async for account, table in every_table(engine)
            if table.acting_expiry is not None
        ]
        for account, name in found:
            await catalog.change_expiry(
                Named(account), name, lambda old: old and replace(old, suspended=True)
            )
        documents = Documents(engine)
        await documents.change(DocumentKind.SECRETS, COUNTS_SECRET, lambda _members: None)
    finally:
        await engine.close()
    return found


def tell_rules(rules: list[str]) -> None:
    """Name the rules of accounts that came with the data."""
    if rules:
        print("Rules of accounts, which act at once:", *rules, sep="\n  ")
