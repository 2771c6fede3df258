"""A probe of storage: one read and one write, which tell whether storage answers and takes writes.

The write replaces one row, a document without members that no one reads. So a probe flushes as any write does, and
leaves nothing behind but this row. Knows an engine, and nothing of the causes that it names.
"""

from __future__ import annotations

from typing import Final

import orjson

from tablestone.engines.contract import (
    ANY,
    Change,
    Engine,
    EngineDamaged,
    EngineUnavailable,
    OutcomeUnknown,
    Put,
    WriteSet,
)
from tablestone.tables import storage_keys
from tablestone.tables.documents import DocumentKind

PROBED: Final = "ready"
"""The name of the document that a probe writes."""


async def probe_storage(engine: Engine) -> str | None:
    """Read a row and write it again; None if both succeed, else a sentence that says why not."""
    place = storage_keys.document_place(DocumentKind.PROBE.value, PROBED)
    try:
        await engine.get(place)
        # Not an invalidating commit: no process keeps this row in memory.
        await engine.commit(WriteSet(place.partition, (Change(place.row, ANY, Put(_render)),)))
    except EngineDamaged as damaged:
        return str(damaged)
    except EngineUnavailable as refused:
        return refused.sentence
    except OutcomeUnknown as unknown:
        return f"Storage does not say whether it has written: {unknown}"
    return None


def _render(version: int) -> bytes:
    return orjson.dumps({"version": version, "members": {}})
