"""The reject file: rows that could not be stored, each with its number, the reason and its text, as JSON lines.

It is made with the first such row. A journal keeps its length, so that a run that goes on writes none twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

import orjson


class RejectFile:
    """Rejected rows, appended. `kept` is its length as an earlier run left it in its journal."""

    def __init__(self, path: Path, kept: int) -> None:
        self.path = path
        self.count = 0
        self._file: IO[bytes] | None = None
        if kept:
            self._file = path.open("r+b")
            self._file.truncate(kept)
            self._file.seek(kept)
        else:
            path.unlink(missing_ok=True)

    def add(self, number: int, reason: str, text: str) -> None:
        """One row. `text` is how it was read."""
        if self._file is None:
            self._file = self.path.open("wb")
        line = {"row": number, "reason": reason, "text": text}
        self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        self.count += 1

    def flush(self) -> int:
        """Everything is in the file; answers its length."""
        if self._file is None:
            return 0
        self._file.flush()
        return self._file.tell()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
