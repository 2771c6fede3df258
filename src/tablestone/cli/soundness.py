"""Verification of storage for commands: all findings, a sentence each. Changes nothing."""

from __future__ import annotations

import asyncio

from tablestone.clock import system_clock
from tablestone.engines.registry import open_engine
from tablestone.identity.stored_documents import DOCUMENT_READERS
from tablestone.tables.integrity import check_rows


def problems_of(engine_url: str) -> list[str]:
    """The problems of the storage; `EngineRefused` if it cannot be opened (`EngineBroken` if it is damaged)."""
    return asyncio.run(_problems(engine_url))


async def _problems(engine_url: str) -> list[str]:
    engine = open_engine(engine_url, system_clock, read_only=True)
    try:
        return await engine.check() + await check_rows(engine, DOCUMENT_READERS)
    finally:
        await engine.close()
