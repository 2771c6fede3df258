"""The directories of the user who runs a command, where the system has them. Imports nothing of ours."""

from pathlib import Path
from typing import Literal


class NoHomeDirectory(Exception):
    """The user has no home directory, as the user of a container often has none."""

    def __init__(self) -> None:
        super().__init__("This user has no home directory")


def user_directory(kind: Literal["data", "cache", "config", "state"]) -> Path:
    """The directory of Tablestone, which may not exist; `NoHomeDirectory` if the user has no place for it."""
    import platformdirs  # noqa: PLC0415 - only a command without an option for its directory needs it

    try:
        place = getattr(platformdirs, f"user_{kind}_path")
        directory: Path = place("tablestone", appauthor=False)
    except (RuntimeError, KeyError):
        raise NoHomeDirectory from None
    if not directory.is_absolute():
        raise NoHomeDirectory
    return directory
