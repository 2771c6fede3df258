"""The size of a table: its entities and their bytes, found by reading all of it.

No endpoint tells either number over the protocol. The bytes are those of the service's documented formula, by which it
bills and limits an entity; the number of bytes on an endpoint's disk is another one. Knows entities; does not know how
a size is shown.
"""

from __future__ import annotations

from typing import NamedTuple

from tablestone.model.entity import entity_size
from tablestone.transfer import odata
from tablestone.transfer.progress import Progress, Reached
from tablestone.transfer.reading import TableReader
from tablestone.transfer.wire import Query


class TableSize(NamedTuple):
    """How much a table holds. `bytes` is by the documented formula, without Timestamps."""

    table: str
    entities: int
    bytes: int


def size_of(reader: TableReader, table: str, progress: Progress) -> TableSize:
    """Read a table and add up; `TransferFailed` if it is deleted during that."""
    entities = size = 0
    for page in reader.pages(Query(table)):
        for raw in page.entities:
            size += entity_size(*odata.read_entity(raw))
        entities += len(page.entities)
        progress.update(Reached(entities, size))
    return TableSize(table, entities, size)
