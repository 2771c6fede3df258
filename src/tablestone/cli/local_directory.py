"""The data directory of a command that works on its files, and the refusal for engines that have none.

Knows the options of a command; opens nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tablestone.cli.option_sources import read_configuration
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.parameters import by_option_name
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.encryption_key import EncryptionKey
from tablestone.engines.engine_url import EngineUrl
from tablestone.engines.registry import capabilities_of

SCHEME: Final = "sqlite"


class LocalDirectory(NamedTuple):
    """A data directory, and the key that encrypts it, if one does."""

    path: Path
    key: EncryptionKey | None


def local_directory(given: Mapping[str, Any], on_servers: str) -> LocalDirectory:
    """The data directory that the options name, and its key.

    `on_servers` says, as a sentence, what does the same for an engine that keeps its rows in other servers.
    """
    configuration = read_configuration(by_option_name(dict(given)), os.environ)
    engine = EngineUrl.parse(configuration.engine)
    stored_in = capabilities_of(configuration.engine).stored_in
    if stored_in is StoredIn.PROCESS:
        raise BrokenOption(f"The engine {engine.scheme} stores nothing: there is no directory.")
    if stored_in is StoredIn.SERVERS:
        raise BrokenOption(f"The engine {engine.scheme} has no data directory. {on_servers}")
    if engine.scheme != SCHEME or configuration.data_directory is None:
        raise BrokenOption(f"The engine {engine.scheme} has a directory of another kind.")
    return LocalDirectory(configuration.data_directory, configuration.encryption_key)
