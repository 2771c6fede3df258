"""The directories for a user's own files, where the system keeps them. Imports nothing of ours."""

from pathlib import Path
from typing import Literal


class NoHomeDirectory(Exception):
    """The user has no home directory, as in many containers."""

    def __init__(self) -> None:
        super().__init__("This user has no home directory")


def user_directory(kind: Literal["data", "cache", "config", "state"]) -> Path:
    """Tablestone's directory of this kind. It need not exist. Raises `NoHomeDirectory` if the user has none."""
    import platformdirs  # noqa: PLC0415 - only a command without an option for its directory needs it

    try:
        path_of = getattr(platformdirs, f"user_{kind}_path")
        directory: Path = path_of("tablestone", appauthor=False)
    except (RuntimeError, KeyError):
        raise NoHomeDirectory from None
    if not directory.is_absolute():
        raise NoHomeDirectory
    return directory
