"""Backup files and the progress of commands that copy bytes: the names of backups, what is in one, and a bar."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TextIO

from tablestone.clock import monotonic_seconds
from tablestone.engines.contract import EngineRefused
from tablestone.tools.progress import shown_bytes

LINE_SECONDS: Final = 5.0
UPDATE_SECONDS: Final = 0.1


class ByteProgress:
    """The progress of one command. `title` says what is done, as `backup`."""

    def __init__(
        self,
        title: str,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._title = title
        self._quiet = quiet
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._told = clock()
        self._is_terminal = self._stream.isatty()
        self._has_line = False

    def __call__(self, done: int, whole: int) -> None:
        """So many bytes of so many are done."""
        now = self._clock()
        pause = UPDATE_SECONDS if self._is_terminal else LINE_SECONDS
        if self._quiet or now - self._told < pause:
            return
        self._told = now
        line = f"{self._title}: {shown_bytes(done)} of {shown_bytes(whole)}"
        if self._is_terminal:
            self._stream.write(f"\r\x1b[K{line}")
            self._has_line = True
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()

    def close(self) -> None:
        """Remove the line from the terminal."""
        if self._has_line:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._has_line = False


SUM_SUFFIX: Final = ".sha256"
STAGING_NAME: Final = ".tablestone-backup.partial"
CHUNK_BYTES: Final = 1024 * 1024
DATED: Final = re.compile(r"tablestone-\d{8}T\d{6}Z\.db", re.ASCII)
"""The name of a dated backup: tablestone-20130101T060000Z.db, in UTC. Names sort by time."""

Told = Callable[[int, int], None]


class BackupFailed(Exception):
    """A backup or a restore that began and failed; the text is one sentence or two."""


def dated_name(directory: Path, seconds: float) -> str:
    """The name of a backup at this time (Unix seconds), or at the first second after it without a backup."""
    moment = datetime.fromtimestamp(int(seconds), UTC)
    while (directory / (name := f"tablestone-{moment:%Y%m%dT%H%M%SZ}.db")).exists():
        moment += timedelta(seconds=1)
    return name


def dated_backups(directory: Path) -> list[Path]:
    """The dated backups of a directory, the oldest first."""
    return sorted(each for each in directory.iterdir() if DATED.fullmatch(each.name))


def remove_old(directory: Path, kept: int) -> list[Path]:
    """Remove all dated backups but the newest `kept`, with their sums; returns those that were removed."""
    old = dated_backups(directory)[:-kept]
    for path in old:
        path.unlink()
        sum_file(path).unlink(missing_ok=True)
    return old


def sum_file(backup: Path) -> Path:
    """The file with the sum of a backup."""
    return backup.with_name(backup.name + SUM_SUFFIX)


def write_sum(backup: Path, digest: str) -> None:
    """Write the sum of a backup beside it, and flush it."""
    line = f"{digest}  {backup.name}"
    if "\n" in line:  # as sha256sum writes such a name, and reads it
        line = "\\" + line.replace("\\", r"\\").replace("\n", r"\n")
    with sum_file(backup).open("w", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_sum(backup: Path) -> str | None:
    """The sum that is written beside a backup; None if there is none. `BackupFailed` if it cannot be read."""
    try:
        text = sum_file(backup).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (IsADirectoryError, ValueError):
        text = ""
    digest = text.partition(" ")[0].removeprefix("\\")
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise BackupFailed(f"{sum_file(backup)} holds no SHA-256: remove it, or put it back.")
    return digest


def sum_of(path: Path, told: Told, copy: Path | None = None) -> str:
    """The SHA-256 of a file in hexadecimal. With `copy`, the file is copied there while it is read."""
    whole = path.stat().st_size
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as file, nullcontext() if copy is None else copy.open("wb") as other:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            if other is not None:
                other.write(chunk)
            done += len(chunk)
            told(done, whole)
    return digest.hexdigest()


@contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """A directory for an unfinished backup, beside the finished ones. It is removed at the end of the block.

    `EngineRefused` if another backup into the same directory is under way.
    """
    place = directory / STAGING_NAME
    place.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(place, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EngineRefused(f"Another backup into {directory} is under way.") from None
        try:
            for left in place.iterdir():  # by a backup that was killed
                left.unlink()
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
    finally:
        os.close(lock)
