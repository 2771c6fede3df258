"""The data directory of a run of kills: its path, and the key file if it is encrypted."""

from pathlib import Path
from typing import NamedTuple

from tablestone.cli.option_sources import key_in_file
from tablestone.engines.kind import EncryptionKey


class StoredPlace(NamedTuple):
    """A data directory; `key_file` is None if it is not encrypted."""

    path: Path
    key_file: Path | None = None

    @property
    def options(self) -> list[str]:
        """The options of a command that uses it."""
        return [f"--data={self.path}", *self.key_options]

    @property
    def key_options(self) -> list[str]:
        """The options without the path."""
        return [] if self.key_file is None else [f"--encryption-key-file={self.key_file}"]

    @property
    def key(self) -> EncryptionKey | None:
        return None if self.key_file is None else key_in_file(self.key_file)


def encrypted_place(directory: Path) -> StoredPlace:
    """An encrypted place below a directory, with a key of its own."""
    key_file = directory / "key"
    key_file.write_text("5e" * 32)
    return StoredPlace(directory / "data", key_file)
