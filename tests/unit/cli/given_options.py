"""The rows of the option tables: the values given in each source, and the expected configuration."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from tablestone.cli.option_sources import CommandLine, read_configuration
from tablestone.configuration import CertificateFiles, Configuration

KEY = "a2V5IG9uZQ=="
OTHER_KEY = "a2V5IHR3bw=="

BESIDE_FILE = Path("/beside/the/file")
"""In an expectation: the directory of the file."""
DEFAULT_DIRECTORY = platformdirs.user_data_path("tablestone", appauthor=False)


@dataclass(frozen=True)
class Given:
    """The three sources, and the expected part of the configuration."""

    expected: dict[str, Any]
    command_line: CommandLine = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    file: str | None = None


@dataclass(frozen=True)
class Refused:
    """The three sources, and the sentence that refuses them (FILE stands for the file's path)."""

    sentence: str
    command_line: CommandLine = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    file: str | None = None


def configuration_of(given: Given | Refused, tmp_path: Path) -> Configuration:
    environment = dict(given.environment)
    if given.file is not None:
        path = tmp_path / "tablestone.toml"
        path.write_text(given.file, encoding="utf-8")
        environment["TABLESTONE_CONFIG"] = str(path)
    typed = {name.replace("-", "_"): value for name, value in given.command_line.items()}
    return read_configuration(typed, environment)


def seen_from(directory: Path, value: Any) -> Any:
    """The expected values, once the directory of the file is known."""
    if isinstance(value, CertificateFiles):
        return CertificateFiles(
            seen_from(directory, value.certificate), seen_from(directory, value.key)
        )
    if isinstance(value, str | Path):
        return type(value)(str(value).replace(str(BESIDE_FILE), str(directory)))
    return value
