"""What a server is told before it starts: one frozen value.

Where it comes from (command line, environment, file, defaults) is the command line's business, `cli/configuration.py`.
It stands here because everything that is configured lives in this layer or below, and `server` may not import `cli`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

DEVELOPMENT_ACCOUNT_NAME = "devstoreaccount1"
DEVELOPMENT_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The well-known key that every SDK has built in for `UseDevelopmentStorage=true` (wire 1.1); no secret."""


@dataclass(frozen=True, slots=True)
class AccountKeys:
    """An account's name and its one or two keys, in base64 as they are handed out."""

    name: str
    keys: tuple[str, ...] = field(repr=False)


DEVELOPMENT_ACCOUNT = AccountKeys(DEVELOPMENT_ACCOUNT_NAME, (DEVELOPMENT_ACCOUNT_KEY,))


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything a server is told. `data_directory` is None when the engine keeps nothing on disk."""

    host: str
    port: int
    data_directory: Path | None
    engine: str
    accounts: tuple[AccountKeys, ...]
    log_level: str
