"""Plain, gzip and Zstandard files, by the end of their name; `-` is a standard stream.

Appends data as a further member or frame, which both formats allow, so that a file can be truncated to the length in a
journal and continued.
"""

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from tablestone.tools.errors import TransferFailed, refusing_unreadable

STANDARD_STREAM: Final = "-"
COMPRESSIONS: Final = (".gz", ".zst")
BUFFER_BYTES: Final = 1024 * 1024
LEVEL_GZIP: Final = 6
LEVEL_ZSTANDARD: Final = 3
BinaryFile = io.BufferedIOBase | IO[bytes]
Item = TypeVar("Item")


@dataclass
class ReadPosition:
    """How far a file is read, and its `size`, in bytes; in rows for Parquet. 0 and None if unknown."""

    read: int = 0
    size: int | None = None
    is_page: bool = False
    """Whether the file says that it is one page of a longer list."""
    has_header: bool = False
    """Whether row 1 is the header, as in a spreadsheet."""
    _handed_on: int | None = None

    @property
    def position(self) -> int:
        """How far the rows have come that were handed on: a reader may read a small file at once."""
        return self.read if self._handed_on is None else self._handed_on

    def hand_on(self, items: Sequence[Item]) -> Iterator[Item]:
        """Hand on the items that were made from what was read since the last call, one by one."""
        start = self._handed_on or 0
        read = self.read - start
        for number, item in enumerate(items):
            self._handed_on = start + read * number // len(items)
            yield item
        self._handed_on = start + read


class _Counted(io.RawIOBase):
    """A file that updates a position as it is read."""

    def __init__(self, file: io.FileIO, position: ReadPosition) -> None:
        self._file, self._position = file, position
        position.size = os.fstat(file.fileno()).st_size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self._file.readinto(buffer)
        self._position.read += count
        return count


def split_name(path: str) -> tuple[str, str]:
    """The suffixes of the format and of the compression; either may be empty."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    return (suffixes[-1] if suffixes else ""), compression


@contextmanager
def open_for_reading(path: str, position: ReadPosition) -> Iterator[BinaryFile]:
    """Open a file for decompressed reading. Failures become `TransferFailed`."""
    _, compression = split_name(path)
    with _failures_of(path):
        if path == STANDARD_STREAM:
            yield sys.stdin.buffer
            return
        with refusing_unreadable(path):
            raw = Path(path).open("rb", buffering=0)  # noqa: SIM115 - damaged content is another error
        with raw, io.BufferedReader(_Counted(raw, position), BUFFER_BYTES) as file:
            if compression == ".gz":
                with gzip.open(file) as plain:
                    yield plain
            elif compression == ".zst" and file.peek(1):  # an empty export has no frame
                with _zstd().open(file) as plain:
                    yield plain
            else:
                yield file


def _zstd() -> Any:
    """Python's own module, or its backport for an older Python; loaded for files that need it."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


@contextmanager
def _failures_of(path: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TransferFailed(f"{path} is damaged or not whole: {error}.") from None
    except OSError as error:
        raise TransferFailed(f"{path} cannot be read: {error.strerror or error}.") from None
    except Exception as error:
        if type(error).__name__ == "ZstdError":  # of a module that may not be loaded
            raise TransferFailed(f"{path} is damaged or not whole: {error}.") from None
        raise


class CompressedAppender:
    """Appends to a file. Each `finish` ends a member or frame, up to which the file can be read."""

    def __init__(self, file: IO[bytes], compression: str) -> None:
        self._file = file
        self._compression = compression
        self._pending: list[bytes] = []

    def write(self, text: bytes) -> None:
        self._pending.append(text)

    def finish(self) -> None:
        """Write what is pending as a member of its own."""
        if not self._pending:
            return
        content = b"".join(self._pending)
        self._pending.clear()
        if self._compression == ".gz":
            content = gzip.compress(content, LEVEL_GZIP, mtime=0)
        elif self._compression == ".zst":
            content = _zstd().compress(content, LEVEL_ZSTANDARD)
        self._file.write(content)
        self._file.flush()
