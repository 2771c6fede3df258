"""The directories of the user who runs a command, where the system has them. Imports nothing of ours."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

APPLICATION = "tablestone"


class UserDirectory(Enum):
    """A kind of directory, by the name of its function in platformdirs."""

    DATA = "user_data_path"
    CACHE = "user_cache_path"
    CONFIGURATION = "user_config_path"
    STATE = "user_state_path"


class NoHomeDirectory(Exception):
    """The user has no home directory, as the user of a container often has none."""

    def __init__(self) -> None:
        super().__init__("This user has no home directory")


def user_directory(kind: UserDirectory) -> Path:
    """The directory of Tablestone, which may not exist; `NoHomeDirectory` if the user has no place for it."""
    import platformdirs  # noqa: PLC0415 - only a command without an option for its directory needs it

    try:
        directory: Path = getattr(platformdirs, kind.value)(APPLICATION, appauthor=False)
    except (RuntimeError, KeyError):
        raise NoHomeDirectory from None
    if not directory.is_absolute():
        raise NoHomeDirectory
    return directory
