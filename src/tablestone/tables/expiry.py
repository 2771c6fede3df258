"""The rows of a table with an expiry policy, by their keys, without the expired ones: a read or a write sees these.

`TableService` uses them in place of the engine, and a table without a policy pays nothing. A query leaves out expired
entities as it leaves out those that do not match (`reads`). The sweeper (`expiry_sweeping`) removes their rows later.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, Clock
from tablestone.engines.contract import (
    ABSENT,
    Change,
    Committed,
    Conflict,
    Engine,
    Key,
    WriteSet,
    effect_of,
)
from tablestone.model.edm import DATE_TIME_MAX, format_date_time
from tablestone.model.entity_json import key_of, read_raw, version_of
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.tables import storage_keys
from tablestone.tables.cache_invalidation import one_more_conflict
from tablestone.tables.catalog import scan_in_steps


class LiveRows:
    """The engine's `get` and `commit` for the rows of a table with this policy."""

    def __init__(self, engine: Engine, policy: ExpiryPolicy, clock: Clock) -> None:
        self._engine = engine
        self._policy = policy
        self._clock = clock

    async def get(self, key: Key) -> bytes | None:
        value = await self._engine.get(key)
        if value is None or self._policy.has_ended(read_raw(value), self._clock()):
            return None
        return value

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        """Read the rows, decide as if expired ones were absent, and commit under the versions that were read.

        If one has changed by then, decide again. No version comes back, so `If-Match` then fails: with 412, or with 404
        if the entity has expired meanwhile.
        """
        conflicts = 0
        while True:
            decided = await self._decided(write_set)
            if isinstance(decided, Conflict):
                return decided
            outcome = await self._engine.commit(write_set._replace(changes=decided))
            if isinstance(outcome, Committed) or outcome.outdated:
                return outcome
            conflicts = one_more_conflict(conflicts, "an entity")

    async def _decided(self, write_set: WriteSet) -> list[Change] | Conflict:
        partition, changes, *_ = write_set
        values = await asyncio.gather(
            *(self._engine.get(Key(partition, change.row)) for change in changes)
        )
        now = self._clock()
        decided: list[Change] = []
        for index, (change, value) in enumerate(zip(changes, values, strict=True)):
            version = ABSENT if value is None else version_of(value)
            is_live = value is not None and not self._policy.has_ended(read_raw(value), now)
            seen = (version, value) if is_live else (ABSENT, None)
            effect = effect_of(change, index, *seen)
            if isinstance(effect, Conflict):
                return effect
            decided.append(Change(change.row, version, effect))
        return decided


SWEPT_TICKS: Final = 3600 * TICKS_PER_SECOND
"""How long an entity has expired when it is removed (`expiry_sweeping`)."""
SAMPLE: Final = 5


@dataclass
class Counted:
    """The entities of a table under a policy, suspended or not."""

    entities: int = 0
    hidden: int = 0
    """Those that it ends now."""
    removed: int = 0
    """Of these, those that the next sweep removes."""
    never: int = 0
    far: int = 0
    """Those that it ends past any DateTime."""
    sample: list[dict[str, str]] = field(default_factory=list)
    """The keys of the first hidden ones, and when they expired."""


async def count_ended(
    engine: Engine,
    table_id: bytes,
    policy: ExpiryPolicy,
    now: int,
    rest: Callable[[], Awaitable[None]] | None = None,
) -> Counted:
    """Count the entities that a policy ends at `now`. `rest` lets others run between two steps."""
    counted = Counted()
    every = storage_keys.table_range(table_id)
    async for rows in scan_in_steps(engine, every, limits.SWEEP_ROWS_PER_STEP):
        for row in rows:
            raw = read_raw(row.value)
            end = policy.end_of(raw)
            counted.entities += 1
            if end is None:
                counted.never += 1
                continue
            counted.far += end > DATE_TIME_MAX
            if end > now:
                continue
            counted.hidden += 1
            counted.removed += end <= now - SWEPT_TICKS
            if len(counted.sample) < SAMPLE:
                key = key_of(raw)
                named = {PARTITION_KEY: key.partition_key, ROW_KEY: key.row_key}
                counted.sample.append({**named, "expires": format_date_time(end)})
        if rest is not None:
            await rest()
    return counted
