"""The reject file: rows that could not be stored, each with its number, the reason and its text, as JSON lines.

It is made with the first such row. A journal keeps its length, so that a run that goes on writes none twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import orjson

from tablestone.transfer.refusals import TransferFailed


class RejectFile:
    """Rejected rows, appended. `kept` is its length as an earlier run left it in its journal."""

    def __init__(self, path: Path, kept: int) -> None:
        self.path = path
        self.count = 0
        self._file: IO[bytes] | None = None
        with _failures_of(path):
            if kept and path.exists():
                self._file = path.open("r+b")
                self._file.truncate(min(kept, self._file.seek(0, os.SEEK_END)))
                self._file.seek(0, os.SEEK_END)
            elif not kept:
                path.unlink(missing_ok=True)

    def add(self, number: int, reason: str, text: str) -> None:
        """One row. `text` is how it was read."""
        with _failures_of(self.path):
            if self._file is None:
                self._file = self.path.open("wb")
            line = {"row": number, "reason": reason, "text": text}
            self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        self.count += 1

    def flush(self) -> int:
        """Everything is in the file; answers its length."""
        if self._file is None:
            return 0
        with _failures_of(self.path):
            self._file.flush()
            return self._file.tell()

    def close(self) -> None:
        if self._file is not None:
            # Rows that were not flushed are in no journal: a run that goes on writes them again.
            with suppress(OSError):
                self._file.close()


@contextmanager
def _failures_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TransferFailed(
            f"Rejected rows cannot be written to {path}: {error.strerror}. --rejects names another file."
        ) from None
