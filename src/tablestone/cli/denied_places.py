"""Places of the file system that a command may not use, or that are full: a sentence that names the place.

Knows the errors of the operating system; does not know what a command wants of the place.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tablestone.cli.option_values import BrokenOption
from tablestone.engines.sqlite.disk_room import NO_ROOM

DENIALS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@contextmanager
def naming_denied_places(undone: str) -> Iterator[None]:
    """Make a denial by the operating system a `BrokenOption`: `undone`, which says what is not done, and the place."""
    try:
        yield
    except OSError as error:
        if error.errno not in DENIALS or error.filename is None:
            raise
        place = Path(os.fsdecode(error.filename)).absolute()
        raise BrokenOption(f"{undone}: {_denial(place)} ({error.strerror}).") from None


def reason_of(error: OSError, place: Path) -> str:
    """The reason of an error while `place` was written: a full disk by the nearest directory above it that is there."""
    if error.errno not in NO_ROOM:
        return error.strerror or str(error)
    return f"there is no room in {next(each for each in place.absolute().parents if each.is_dir())}"


def _denial(place: Path) -> str:
    """The denied use of the place, or of the nearest directory above it that can be seen."""
    there = next(each for each in (place, *place.parents) if os.path.lexists(each))
    if there.is_dir() and not os.access(there, os.X_OK):
        return f"{there} cannot be entered"
    if there == place and not os.access(there, os.R_OK):
        return f"{there} cannot be read"
    return f"{there} cannot be written"
