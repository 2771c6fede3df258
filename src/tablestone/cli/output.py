"""Failures of standard output, which differ from all other failures of the operating system.

A full device, or a reader that has ended, is not a fault of the program: `main` ends without a traceback. Does not know
the text that is printed, or which code prints it: click prints some of it.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STANDARD_OUTPUT: Final = 1


class OutputFailed(Exception):
    """Standard output cannot be written; the text is one sentence.

    `reader_has_gone` if it is a pipe whose reader has ended, as with `| head`: then no message is necessary.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"Standard output cannot be written: {error.strerror}.")
        self.reader_has_gone = error.errno == errno.EPIPE


class _Output(io.FileIO):
    """Standard output that raises `OutputFailed`, not `OSError`: click catches that, and it can have other causes."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputFailed(error) from None


def prepare_streams() -> None:
    """Make every failure of standard output an `OutputFailed`.

    If the program was started without standard output or standard error, text for them is discarded.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for good
    own = sys.__stdout__
    if isinstance(own, io.TextIOWrapper) and sys.stdout is own:
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Output(STANDARD_OUTPUT, "w", closefd=False)),
            encoding=own.encoding,
            errors=own.errors,
            line_buffering=own.line_buffering or own.write_through,
        )


def discard_output() -> None:
    """Discard the output that is left; otherwise the interpreter writes it at its end and prints another error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STANDARD_OUTPUT)
    os.close(nowhere)
