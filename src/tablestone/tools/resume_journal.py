"""The journal of a transfer: a small file that lets the same command continue after an interruption.

The name of the file is a hash of everything that identifies the transfer, which has no secret. The file is replaced
as a whole, so a process killed at any moment leaves the old state or the new one; a lock keeps a second process out.
It is removed after the report is printed: a transfer killed before that continues, and does not begin again.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

from tablestone.fsync import flush
from tablestone.tools.errors import TransferFailed, TransferRefused
from tablestone.user_directories import NoHomeDirectory, user_directory

DIRECTORY_VARIABLE: Final = "TABLESTONE_JOURNALS"
"""Names the directory of journals; the default is the user's state directory."""


class Journal:
    """The journal of one transfer. `state` is what was saved last; empty for a new transfer."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self._identity = dict(identity)
        self._lock_path = path.with_suffix(".lock")
        self._lock = _locked(self._lock_path)
        try:
            self.state: dict[str, Any] = self._read()
        except TransferRefused:
            self._lock.close()
            raise

    def save(self, state: Mapping[str, Any]) -> None:
        """Save the state, durably."""
        self.state = dict(state)
        fresh = self.path.with_suffix(".new")
        try:
            with fresh.open("w", encoding="utf-8") as file:
                json.dump({"transfer": self._identity, "state": self.state}, file)
                flush(file)
            fresh.replace(self.path)
        except OSError as error:
            raise TransferFailed(
                f"The journal {self.path} cannot be written: {error.strerror}. The same command continues."
            ) from None

    def finish(self) -> None:
        """Remove the journal: the transfer is done and its report printed."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        if not self._lock.closed:
            self._lock_path.unlink(missing_ok=True)
            self._lock.close()

    def _read(self) -> dict[str, Any]:
        try:
            read = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            raise TransferRefused(
                f"The journal {self.path} cannot be read: --restart begins again."
            ) from None
        if read.get("transfer") != self._identity:
            raise TransferRefused(f"The journal {self.path} is of another transfer.")
        state: dict[str, Any] = read["state"]
        return state


def _locked(path: Path) -> IO[str]:
    """The lock of a journal, held until it is closed. Its holder removes the file at the end: then try again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            lock = path.open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                raise TransferRefused(
                    "The same transfer runs in another process: wait for it, or stop it."
                ) from None
            if _is_still(path, lock):
                return lock
            lock.close()
    except OSError as error:
        raise TransferRefused(
            f"The journal cannot be kept in {path.parent}: {error.strerror}. {DIRECTORY_VARIABLE} names another "
            "directory."
        ) from None


def _is_still(path: Path, opened: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(opened.fileno()))
    except FileNotFoundError:
        return False


def open_journal(
    identity: Mapping[str, Any], environment: Mapping[str, str], *, restart: bool
) -> Journal:
    """Open the journal of a transfer. The identity is written to the file, so it must have no secret."""
    named = environment.get(DIRECTORY_VARIABLE)
    try:
        directory = Path(named) if named else user_directory("state") / "transfers"
    except NoHomeDirectory as none:
        raise TransferRefused(
            f"{none}: name a directory for journals with {DIRECTORY_VARIABLE}."
        ) from None
    text = json.dumps(identity, sort_keys=True)
    name = f"{identity.get('command')}-{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"
    path = directory / name
    if restart:
        path.unlink(missing_ok=True)
    return Journal(path, json.loads(text))
