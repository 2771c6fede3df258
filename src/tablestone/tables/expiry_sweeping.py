"""Sweeping expired entities: one process of a server deletes them in small steps, each under the version that it read.

Nobody sees an expired entity any more (`expiry`), so there is no hurry: the sweeper begins an hour after its start,
takes what expired an hour ago, and stands still while the clock is in doubt. Where servers share storage over a
network, one of them holds a lease. Two that sweep at once do no harm.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import InitVar, dataclass
from itertools import groupby
from typing import Final

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, Clock, Moment
from tablestone.cooperative_scheduling import Seconds
from tablestone.engines import contract, request_time
from tablestone.model.entity_json import read_raw
from tablestone.model.errors import StorageError
from tablestone.model.expiry import ExpiryPolicy
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.catalog import (
    SWEEPING_SECONDS,
    Catalog,
    TableRecord,
    every_table,
    note_about,
    relied_rows,
    scan_in_steps,
)
from tablestone.tables.change_notes import CommitKind
from tablestone.tables.expiry import SWEPT_TICKS
from tablestone.tables.metadata import DocumentKind, document_renderer, read_document

log = logging.getLogger(__name__)

MARGIN_SECONDS: Final = SWEPT_TICKS // TICKS_PER_SECOND
"""The time from the start to the first sweep, and from the expiry of an entity to its deletion; and how far the clock
may jump. Clocks of servers that share storage differ by less."""
PAUSE_SECONDS: Final = 60.0
"""Seconds between two passes through all tables, and between two messages that a pass failed."""
REST: Final = 4
"""After each step, the sweeper rests this many times as long as the step took."""
AT_ONCE: Final = 50
"""Commits at a time, which share a flush. Where a commit waits for a network, `AT_ONCE_REMOTE`."""
AT_ONCE_REMOTE: Final = 8
LEASE_SECONDS: Final = 150
"""A lease is free when it was not renewed for this time. Its holder renews it when a fifth has passed."""

CLOCK_JUMPED: Final = (
    "The clock has jumped by more than an hour since the server started, so expired entities are hidden and not swept. "
    "Set the clock right, and start the server again if this stays."
)
CLOCK_IS_BACK: Final = "The clock is back: expired entities are swept again."


@dataclass
class ExpirySweeper:
    """Sweeps one engine. `seconds` never steps back and counts sleep. `began` is the start of the server."""

    engine: contract.Engine
    catalog: Catalog
    find_owner: Callable[[str], Awaitable[Owner | None]]
    clock: Clock
    seconds: Seconds
    name: str
    began: InitVar[Moment | None] = None

    def __post_init__(self, began: Moment | None) -> None:
        began = Moment(self.clock(), self.seconds()) if began is None else began
        self._began = began.elapsed
        self._offset = _offset(began)
        self._at_once = AT_ONCE_REMOTE if self.engine.capabilities.waits else AT_ONCE
        self._lease = -1, 0.0
        """The version of the lease's row that was seen last, and when it was seen first."""
        self.swept = 0
        """The expired entities that this process has deleted."""
        self.is_suspended = False
        """Whether the clock has jumped, so that nothing is swept."""

    async def run(self) -> None:
        while True:
            try:
                if await self.may_sweep():
                    await self._pass()
            except (contract.EngineUnavailable, contract.OutcomeUnknown) as error:
                log.warning("sweeping expired entities waits: %s", error)
            except Exception:
                log.exception("sweeping expired entities failed")
            await asyncio.sleep(PAUSE_SECONDS)

    async def _pass(self) -> None:
        async with aclosing(self.steps(MARGIN_SECONDS * TICKS_PER_SECOND)) as steps:
            began = self.seconds()
            async for _ in steps:
                await asyncio.sleep(REST * (self.seconds() - began))
                if not await self.may_sweep():
                    return
                began = self.seconds()

    async def steps(self, margin: int) -> AsyncGenerator[None, None]:
        """Delete what expired `margin` ticks ago or earlier in all tables, a step at a time."""
        async for account, table in every_table(self.engine):
            owner = None if table.acting_expiry is None else await self.find_owner(account)
            if owner is None:
                continue
            every = storage_keys.table_range(table.table_id)
            async for rows in scan_in_steps(self.engine, every, limits.SWEEP_ROWS_PER_STEP):
                present, now = await self._present(owner, table), self._trusted_now()
                if present is None or present.acting_expiry is None or now is None:
                    break
                policy, before = present.acting_expiry, now - margin
                ended = [row for row in rows if policy.has_ended(read_raw(row.value), before)]
                # A task of its own: its time is limited.
                await asyncio.create_task(self._delete(owner, table, policy, ended))
                yield

    def _trusted_now(self) -> int | None:
        """The wall clock in ticks; None while it has jumped."""
        now = Moment(self.clock(), self.seconds())
        jumped = abs(_offset(now) - self._offset) > MARGIN_SECONDS * TICKS_PER_SECOND
        if jumped is not self.is_suspended:
            self.is_suspended = jumped
            log.warning("%s", CLOCK_JUMPED if jumped else CLOCK_IS_BACK)
        return None if jumped else now.ticks

    async def may_sweep(self) -> bool:
        """Whether this server sweeps now: it is old enough, trusts its clock, and holds the lease if there is one."""
        if self._trusted_now() is None or self.seconds() < self._began + MARGIN_SECONDS:
            return False
        return not self.engine.capabilities.shares_over_network or await self._has_lease()

    async def _has_lease(self) -> bool:
        """Whether this server holds the lease of those that share the storage; takes it if it is free.

        It is free if its row did not change for `LEASE_SECONDS` of this server's own clock, whatever other clocks show.
        """
        place = storage_keys.document_place(DocumentKind.LEASES.value, "expiry")
        stored = await self.engine.get(place)
        version, members = (contract.ABSENT, {}) if stored is None else read_document(stored)
        now = self.seconds()
        if self._lease[0] != version:
            self._lease = version, now
        waited = now - self._lease[1]
        is_mine = members.get("holder") == self.name
        if is_mine and waited < LEASE_SECONDS / 5:
            return True
        if not is_mine and stored is not None and waited < LEASE_SECONDS:
            return False
        put = contract.Put(document_renderer({"holder": self.name}))
        change = contract.Change(place.row, version, put)
        outcome = await self.engine.commit(contract.WriteSet(place.partition, (change,)))
        if isinstance(outcome, contract.Committed):
            self._lease = outcome.versions[0], now
        return isinstance(outcome, contract.Committed)

    async def _present(self, owner: Owner, table: TableRecord) -> TableRecord | None:
        """The table as it is now; None if it was deleted."""
        try:
            found = await self.catalog.find(owner, table.name)
        except StorageError:  # the account was deleted
            return None
        return None if found is None or found.table_id != table.table_id else found

    async def _delete(
        self,
        owner: Owner,
        table: TableRecord,
        policy: ExpiryPolicy,
        rows: Sequence[contract.StoredRow],
    ) -> None:
        note = note_about(CommitKind.EXPIRED, owner, table)
        groups: list[contract.WriteSet] = []
        for partition, group in groupby(rows, key=lambda row: row.partition):
            changes = [contract.Change(row.row, row.version, contract.DELETE) for row in group]
            for first in range(0, len(changes), limits.CHANGE_SET_OPERATIONS_MAX):
                some = changes[first : first + limits.CHANGE_SET_OPERATIONS_MAX]
                groups.append(contract.WriteSet(partition, some, note=note))
        for first in range(0, len(groups), self._at_once):
            request_time.begin(SWEEPING_SECONDS / 2)
            generation = self.engine.generation
            present = await self._present(owner, table)
            if present is None or present.acting_expiry != policy:
                return  # it was changed meanwhile
            relies_on = relied_rows(self.engine, owner, present, generation)
            deleting = [
                self._commit(each._replace(entries_of=present.entries_of, relies_on=relies_on))
                for each in groups[first : first + self._at_once]
            ]
            self.swept += sum(await asyncio.gather(*deleting))

    async def _commit(self, write_set: contract.WriteSet) -> int:
        """Delete the entities that have their version still; returns their number."""
        changes = list(write_set.changes)
        while changes:
            outcome = await self.engine.commit(write_set._replace(changes=changes))
            if isinstance(outcome, contract.Committed):
                break
            if outcome.outdated:
                return 0  # the next pass takes them
            del changes[outcome.index]  # it was renewed
        return len(changes)


def _offset(moment: Moment) -> int:
    """The wall clock in ticks, less the time that has passed by the clock that never steps back."""
    return moment.ticks - int(moment.elapsed * TICKS_PER_SECOND)
