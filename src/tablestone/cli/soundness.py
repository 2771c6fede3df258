"""Verification of storage for commands: all findings, a sentence each. Changes nothing.

If the files of a data directory are damaged, the findings say what of the tables can still be read.
"""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

from tablestone.accounts.stored_accounts import DOCUMENT_READERS
from tablestone.cli import damage_in_words
from tablestone.cli.local_directory import SCHEME
from tablestone.clock import system_clock
from tablestone.engines.contract import Engine, EngineBroken
from tablestone.engines.encryption_key import EncryptionKey
from tablestone.engines.engine_url import EngineUrl
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.salvage import LOG_DAMAGED, damaged_storage
from tablestone.tables.integrity import check_rows
from tablestone.tables.salvage import salvage


def problems_of(engine_url: str, key: EncryptionKey | None = None) -> list[str]:
    """The problems of the storage, which `key` encrypts, if it is given.

    `EngineRefused` if it cannot be opened; `EngineBroken` if it is so damaged that nothing in it can be recognized.
    """
    try:
        found = asyncio.run(_problems(engine_url, key))
    except EngineBroken:
        explained = _explained(engine_url, key)
        if explained is None:
            raise
        return explained
    if not found.structure:
        return found.rows
    if found.structure == [LOG_DAMAGED]:
        return found.structure
    return _explained(engine_url, key) or [damage_in_words.NOTHING_READABLE]


class _Found:
    """The findings about the structure of storage and, if it has none, about the rows."""

    def __init__(self) -> None:
        self.structure: list[str] = []
        self.rows: list[str] = []


async def _problems(engine_url: str, key: EncryptionKey | None) -> _Found:
    engine: Engine = open_engine(engine_url, system_clock, read_only=True, key=key)
    found = _Found()
    try:
        found.structure = await engine.check()
        if not found.structure:
            found.rows = await check_rows(engine, DOCUMENT_READERS)
    finally:
        await engine.close()
    return found


def _explained(engine_url: str, key: EncryptionKey | None) -> list[str] | None:
    """The damage of a data directory in words; None for other storage, and if no row can be found."""
    scheme, place = EngineUrl.parse(engine_url)
    if scheme != SCHEME or place is None:
        return None
    with damaged_storage(Path(place), key) as storage:
        salvaged = salvage(storage, lambda _table, _entity: None)
    if not salvaged.tables and not salvaged.other_losses:
        return None
    return [
        *damage_in_words.sentences(salvaged),
        f"{damage_in_words.pages(salvaged)}: tablestone salvage {shlex.quote(place)} OUT writes every entity that can "
        "be read",
    ]
