"""Standard output that cannot be written, told apart from every other failure of the operating system.

A full device, or a reader that has gone, is no fault of the program: `main` ends for it without a traceback. Knows
nothing of what is printed, or by whom: click prints some of it.
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

    `reader_has_gone` where it was a pipe, as behind `| head`: that reader wants no more, and nobody need be told.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"Standard output cannot be written: {error.strerror}.")
        self.reader_has_gone = error.errno == errno.EPIPE


class _Output(io.FileIO):
    """Not an `OSError`, which click would take for its own, and which might have come from anywhere."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputFailed(error) from None


def prepare_streams() -> None:
    """From here on what cannot be printed is `OutputFailed`.

    Whoever starts a service may leave it no standard output: then what is written there goes nowhere.
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
    """What is left to be written goes nowhere: the interpreter tries it once more at its end, and tells of that."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STANDARD_OUTPUT)
    os.close(nowhere)
