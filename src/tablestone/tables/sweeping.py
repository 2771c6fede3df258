"""Sweeping one deleted table: where it has come to, which server does it, and how many partitions at a time.

Servers that share storage over a network claim a table before they sweep it. A claim is a note with a time in the
table's row of the catalog; it ends by itself, so the tables of a server that dies are swept by others. Clocks that
differ make two servers sweep the same table, which does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final, Protocol

import orjson

from tablestone.clock import TICKS_PER_SECOND, Clock
from tablestone.engines.contract import (
    ANY,
    DELETE,
    Change,
    Committed,
    Engine,
    Key,
    KeyRange,
    Put,
    StoredRow,
    WriteSet,
)
from tablestone.tables import storage_keys

CLAIM_SECONDS: Final = 20
"""A server that sweeps a table renews its claim when half of this time has passed."""
PARTITIONS_AT_ONCE: Final = 8
"""Partitions of a deleted table that are removed at a time, where a commit waits for a network."""


POSTPONED_SECONDS: Final = 600
"""The time until a table is looked at again whose rows the nodes refused to read."""

ENDED_MAX: Final = 65_536
"""Swept tables that a server remembers: another server may remove a table's note, and does not say so."""

Claim = tuple[str, int]
"""The server that sweeps a table, and the time in ticks until which others leave the table alone."""


class DeletedTable(Protocol):
    """A deleted table, as the catalog notes it."""

    @property
    def name(self) -> str: ...
    @property
    def table_id(self) -> bytes: ...
    @property
    def ticks(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def claim(self) -> Claim | None: ...


class Sweeping:
    """The deleted tables that one server sweeps. `fresh_id` gives bytes that no other server has."""

    def __init__(self, engine: Engine, clock: Clock, fresh_id: Callable[[], bytes]) -> None:
        self._engine = engine
        self._clock = clock
        self._fresh_id = fresh_id
        self._name = ""
        self._at_once = PARTITIONS_AT_ONCE if engine.capabilities.waits else 1
        self._reached: dict[bytes, Key] = {}
        self._ended: dict[bytes, None] = {}
        """The tables that were swept, the first to end first."""
        self._postponed: dict[bytes, int] = {}
        self.removed_rows = 0

    async def may_look(self, note: Key, record: DeletedTable, *, is_old: bool) -> int | None:
        """The version of the table's note if this server is to sweep the table now, else None.

        A table that it has swept waits until it `is_old`. To look again and again would be to read the places of all
        removed rows again and again.
        """
        if record.table_id in self._ended and not is_old:
            return None
        now = self._clock()
        if self._postponed.get(record.table_id, 0) > now:
            return None
        self._name = self._name or self._fresh_id().hex()
        name, until = record.claim or ("", 0)
        if name == self._name and until - now > CLAIM_SECONDS * TICKS_PER_SECOND // 2:
            return record.version
        if name != self._name and until > now:
            return None
        claim = (self._name, now + CLAIM_SECONDS * TICKS_PER_SECOND)
        change = Change(note.row, record.version, Put(_claimed(record, claim)))
        outcome = await self._engine.commit(WriteSet(note.partition, (change,)))
        return outcome.versions[0] if isinstance(outcome, Committed) else None

    def rest_of(self, table_id: bytes) -> KeyRange:
        """The rows of the table that were not removed yet, as far as this server knows."""
        whole = storage_keys.table_range(table_id)
        reached = self._reached.get(table_id)
        if reached is None:
            return whole
        return KeyRange(Key(reached.partition, reached.row + b"\0"), whole.end)

    async def remove(self, rows: Sequence[StoredRow]) -> None:
        """Remove rows of one table, which were read in order."""
        groups = [
            WriteSet(partition, [Change(row.row, ANY, DELETE) for row in group])
            for partition, group in groupby(rows, key=lambda row: row.partition)
        ]
        for first in range(0, len(groups), self._at_once):
            some = groups[first : first + self._at_once]
            if len(some) == 1:
                await self._engine.commit(some[0])
            else:
                await asyncio.gather(*(self._engine.commit(group) for group in some))
        self.removed_rows += len(rows)
        last = rows[-1]
        table_id = last.partition[1 : 1 + storage_keys.TABLE_ID_LENGTH]
        self._reached[table_id] = Key(last.partition, last.row)
        self._ended.pop(table_id, None)

    def has_ended(self, table_id: bytes) -> bool:
        """There is no row behind the place that was reached; whether that was the start, so that there is none at all.

        The next look begins from the start.
        """
        self._ended[table_id] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        return self._reached.pop(table_id, None) is None

    def postpone(self, table_id: bytes) -> None:
        """The nodes refuse to read the table: there are other tables to sweep."""
        now = self._clock()
        self._postponed = {each: until for each, until in self._postponed.items() if until > now}
        self._postponed[table_id] = now + POSTPONED_SECONDS * TICKS_PER_SECOND

    def forget(self, table_id: bytes) -> None:
        """The note of the table is removed."""
        self._ended.pop(table_id, None)


def _claimed(record: DeletedTable, claim: Claim) -> Callable[[int], bytes]:
    """The row of a deleted table with a claim; the time of its deletion stays."""

    def render(version: int) -> bytes:
        return orjson.dumps(
            {
                "name": record.name,
                "id": record.table_id.hex(),
                "ticks": record.ticks,
                "version": version,
                "claim": claim,
            }
        )

    return render
