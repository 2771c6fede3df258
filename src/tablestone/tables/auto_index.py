"""Indexes that a server makes and drops by itself (`serve --auto-index`).

Each worker counts filters that scan, in memory that all processes share. The one that leads adds them up, and asks for
an index when a filter keeps scanning; `table_work` makes it. Hourly it stores what each such index was good for, and
drops one that is not used or costs more than it saves. What a user made or adopted is never dropped here.
"""

import asyncio
import logging
import os
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from tablestone.advice.filter_shape import shape_key
from tablestone.clock import TICKS_PER_SECOND, monotonic_seconds
from tablestone.engines.contract import Engine, EngineUnavailable, OutcomeUnknown
from tablestone.model.entity_json import read_raw, typed_property
from tablestone.model.errors import StorageError
from tablestone.model.filter_tree import FilterNode, print_filter, property_names
from tablestone.model.keys import PARTITION_KEY
from tablestone.model.operations import (
    DeleteEntity,
    EntitiesPage,
    EntityGroupTransaction,
    EntityWrite,
    QueryEntities,
)
from tablestone.query.filter_parser import parse_filter
from tablestone.query.index_plan import access_paths_of, index_key_of, properties_by_index
from tablestone.query.plan import PlanKind, plan_query
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.catalog import Catalog, TableRecord, every_table, scan_in_steps
from tablestone.tables.index_building import (
    IndexRefused,
    IndexWork,
    automatic_indexes,
    may_make_automatic,
)
from tablestone.tables.indexes import Automatic, Index, IndexState
from tablestone.telemetry.request_record import RequestRecord
from tablestone.telemetry.worker_reports import WorkerReport, WorkerReports

log = logging.getLogger(__name__)

EXAMINED_MIN: Final = 10_000
"""A query scans if it examines more entities than this, for fewer than one in `EXAMINED_FOR_ONE`."""
EXAMINED_FOR_ONE: Final = 100
SCANS: Final = 20
"""So many scans of one filter within `WITHIN_SECONDS` get it an index."""
WITHIN_SECONDS: Final = 600.0
FILTERS_MAX: Final = 64
"""Filters that a worker counts."""
FILTER_LENGTH_MAX: Final = 2_000
LOOK_SECONDS: Final = 5.0
TABLES_PER_STEP: Final = 500
SAMPLE_ENTITIES: Final = 20_000
"""Entities in which conditions are counted, to find the property that leaves the fewest."""
LEFT_PART: Final = 10
"""An index that leaves more than one entity in ten gains little, and queries would not use it."""
HOUR_SECONDS: Final = 3600.0
IDLE_HOURS: Final = 7 * 24
HOURS_OF_DAY: Final = 24
BARRED_TICKS: Final = 7 * 86_400 * TICKS_PER_SECOND
"""How long a dropped index is not made again."""


_Filter = tuple[str, str, str]
"""An account, a table's name in lower case, and the shape of a filter: filters of one shape differ in their values."""


class QueryCounts:
    """What one worker counts: scans by filter, and for each automatic index its uses and the entries written."""

    def __init__(self, reports: WorkerReports, worker: int) -> None:
        self._reports = reports
        self._worker = worker
        self._scans: dict[_Filter, tuple[deque[float], list[Any]]] = {}
        self._counts: Counter[str] = Counter()
        """Uses, entities examined in them, and entries written, each under `key_of` an index."""
        self._automatic: dict[str, list[str]] = {}
        """The properties with an automatic index by account and table, as the worker that leads says."""

    def note(self, record: RequestRecord) -> None:
        """Count a request that was answered. Queries of our own tools do not count, and of a query its first page."""
        asked, page = record.operation, record.result
        if record.failure is not None or record.from_tools:
            return
        if isinstance(asked, QueryEntities) and isinstance(page, EntitiesPage):
            if page.plan == PlanKind.INDEX.value:
                for name in self._names(record, page.indexed):
                    self._counts[f"{name}/uses"] += 1
                    self._counts[f"{name}/read"] += page.rows_read
            elif asked.token is None and page.rows_read > max(
                EXAMINED_MIN, EXAMINED_FOR_ONE * page.found
            ):
                self._note_scan(record.account, asked, page.rows_read)
        elif isinstance(asked, EntityGroupTransaction):
            self._note_writes(record, asked.writes)
        elif isinstance(asked, EntityWrite):
            self._note_writes(record, (asked,))

    def _note_scan(self, account: str, query: QueryEntities, examined: int) -> None:
        text = "" if query.filter is None else print_filter(query.filter)
        shape = str(shape_key(query.filter))
        key = (account, query.table.lower(), shape)
        if not text or len(text) > FILTER_LENGTH_MAX:
            return
        if key not in self._scans and len(self._scans) >= FILTERS_MAX:
            del self._scans[min(self._scans, key=lambda each: self._scans[each][0][-1])]
        times, _ = self._scans.get(key, (deque[float](maxlen=SCANS), []))
        times.append(monotonic_seconds())
        self._scans[key] = times, [*key, text, examined]

    def _note_writes(self, record: RequestRecord, writes: Iterable[EntityWrite]) -> None:
        """An upper bound: an update that keeps the value writes no entry."""
        for write in writes:
            named = None if isinstance(write, DeleteEntity) else write.entity.members
            for name in self._names(record, named):
                self._counts[f"{name}/wrote"] += 1

    def _names(self, record: RequestRecord, names: Iterable[str] | None) -> list[str]:
        """The keys of those automatic indexes of the table that are on one of the properties; None: of all."""
        if not self._automatic:
            return []
        table = f"{record.account}/{record.table.lower()}"
        indexed = self._automatic.get(table, ())
        return [f"{table}/{name}" for name in indexed if names is None or name in names]

    def report(self) -> None:
        now = monotonic_seconds()
        scans = [[*scan, list(times)] for times, scan in self._scans.values()]
        content = {"scans": scans, "counts": self._counts}
        self._reports.leave(self._worker, WorkerReport(os.getpid(), now, content))
        told = self._reports.newest(self._reports.workers - 1)
        self._automatic = {} if told is None else told.content

    async def run(self) -> None:
        while True:
            self.report()
            await asyncio.sleep(1)


class AutoIndex:
    """What the worker that leads does. `reports` has a report of each worker, and then its own."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        find_owner: Callable[[str], Awaitable[Owner | None]],
        reports: WorkerReports,
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._find_owner = find_owner
        self._reports = reports
        self._hour_began = monotonic_seconds()
        self._before: dict[int, tuple[int, Counter[str]]] = {}
        """The process and the counts of each worker at the last hour."""
        self._looked_at: dict[_Filter, float] = {}
        """When a filter was looked at; it is not looked at again soon."""
        self._counts_of_hour()  # if this replaces a worker that led, the others have counted for longer

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except (EngineUnavailable, OutcomeUnknown) as error:
                log.warning("automatic indexes wait: %s", error)
            except Exception:
                log.exception("looking for automatic indexes failed")
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Ask for indexes on filters that keep scanning; after an hour, note and drop."""
        tables: list[tuple[str, TableRecord, list[Index]]] = []
        seen = 0
        async for account, table in every_table(self._engine):
            seen += 1
            if seen % TABLES_PER_STEP == 0:
                await asyncio.sleep(0.01)  # let requests run
            if automatic := automatic_indexes(table):
                tables.append((account, table, automatic))
        told = {
            f"{account}/{table.name.lower()}": [each.property for each in automatic]
            for account, table, automatic in tables
        }
        leader = self._reports.workers - 1
        now = monotonic_seconds()
        self._reports.leave(leader, WorkerReport(os.getpid(), now, told))
        for key, text, examined in self._scanning(now):
            if self._looked_at.get(key, -WITHIN_SECONDS) <= now - WITHIN_SECONDS:
                self._looked_at[key] = now
                tree = parse_filter(text, extended=True)
                if tree is not None:
                    await self._make(*key[:2], tree, examined)
        if now >= self._hour_began + HOUR_SECONDS:
            self._hour_began = now
            counts = self._counts_of_hour()
            for account, table, automatic in tables:
                for index in automatic:
                    if index.state is IndexState.READY:
                        await self._note_hour(account, table, index, counts)

    def _scanning(self, now: float) -> list[tuple[_Filter, str, int]]:
        """The filters that scanned often enough in all workers together."""
        scans: Counter[_Filter] = Counter()
        newest: dict[_Filter, tuple[str, int]] = {}
        for worker in range(self._reports.workers - 1):
            report = self._reports.newest(worker)
            for account, table, shape, text, examined, times in (
                () if report is None else report.content["scans"]
            ):
                key = account, table, shape
                scans[key] += sum(each > now - WITHIN_SECONDS for each in times)
                newest[key] = text, examined
        return [(key, *newest[key]) for key, found in scans.items() if found >= SCANS]

    async def _make(self, account: str, name: str, tree: FilterNode, examined: int) -> None:
        owner = await self._find_owner(account)
        table = None if owner is None else await self._catalog.find(owner, name)
        if owner is None or table is None or getattr(self._engine, "is_nearly_full", False):
            return
        best = await self._best(table, tree)
        if best is None:
            return
        with suppress(IndexRefused, StorageError):
            await IndexWork(self._catalog, owner, name, best).ask_automatic(examined)
            log.info(
                "makes an index on %s of %s/%s by itself: a filter examined %s entities, %d times or more in "
                "%d minutes",
                *(best, account, table.name, f"{examined:,}", SCANS, WITHIN_SECONDS // 60),
            )

    async def _best(self, table: TableRecord, tree: FilterNode) -> str | None:
        """The property whose condition alone leaves the fewest entities; None if no index helps."""
        plan, now = plan_query(tree), self._catalog.clock()
        there = {
            each.property: each.within_partition
            for each in table.indexes
            if each.state in (IndexState.READY, IndexState.BUILDING)
        }
        names = [
            name
            for name in property_names(tree) - {PARTITION_KEY, "Timestamp"}
            if may_make_automatic(table, name, now) and properties_by_index(plan, {name: False})
        ]
        if plan.residual is None or not names or properties_by_index(plan, there):
            return None
        residual = plan.residual
        intervals = {name: access_paths_of(residual, (name,))[0][name] for name in names}
        left = dict.fromkeys(sorted(names), 0)
        entities = 0
        began = monotonic_seconds()
        async for rows in scan_in_steps(self._engine, storage_keys.table_range(table.table_id)):
            for row in rows:
                raw = read_raw(row.value)
                for name in left:
                    value = typed_property(raw, name)
                    key = b"" if value is None else index_key_of(value)
                    left[name] += any(start <= key < end for start, end in intervals[name])
            entities += len(rows)
            if entities >= SAMPLE_ENTITIES:
                break
            await asyncio.sleep(monotonic_seconds() - began)
            began = monotonic_seconds()
        best = min(left, key=lambda name: left[name])
        return best if left[best] * LEFT_PART <= entities else None

    def _counts_of_hour(self) -> Counter[str]:
        """What all workers counted since the last hour. A worker that replaced another began again."""
        whole: Counter[str] = Counter()
        for worker in range(self._reports.workers - 1):
            report = self._reports.newest(worker)
            if report is None:
                continue
            counts = Counter(report.content["counts"])
            process, before = self._before.get(worker, (0, Counter[str]()))
            whole += counts - before if process == report.process else counts
            self._before[worker] = report.process, counts
        return whole

    async def _note_hour(
        self, account: str, table: TableRecord, index: Index, counts: Counter[str]
    ) -> None:
        owner, old = await self._find_owner(account), index.automatic
        if owner is None or old is None:
            return
        key = f"{account}/{table.name.lower()}/{index.property}"
        uses, read, wrote = (counts[f"{key}/{what}"] for what in ("uses", "read", "wrote"))
        idle = 0 if uses else old.idle + 1
        saved = old.saved + max(0, uses * old.scanned - read)
        new = Automatic(old.scanned, idle, old.hours + 1, old.wrote + wrote, saved)
        is_day = new.hours >= HOURS_OF_DAY
        costs = is_day and new.wrote > new.saved
        work = IndexWork(self._catalog, owner, table.name, index.property)
        with suppress(IndexRefused, StorageError):
            if not costs and new.idle < IDLE_HOURS:
                await work.note_use(new._replace(hours=0, wrote=0, saved=0) if is_day else new)
                return
            await work.ask_to_drop(barred_until=self._catalog.clock() + BARRED_TICKS)
            why = "it was not used for 7 days"
            if costs:
                why = f"in a day it wrote {new.wrote:,} entries and saved {new.saved:,} examined entities"
            log.info(
                "drops the automatic index on %s of %s/%s: %s",
                *(index.property, account, table.name, why),
            )
