"""Making, checking and dropping indexes, beside servers that use the table.

From the commit that stores an index on, every write of an entity writes its entries too: a write that was decided
before is decided again (`WriteSet.relies_on`). So one pass over the table is enough, and an index is ready when it
ends. Each step is a commit; a pass that is killed goes on when the same is asked for again.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, monotonic_seconds
from tablestone.engines.capabilities import Capabilities
from tablestone.engines.contract import (
    ANY,
    OUTDATED,
    Change,
    Engine,
    EngineUnavailable,
    Entry,
    Key,
    KeyRange,
    OutcomeUnknown,
    Reindex,
    Snapshot,
    WriteSet,
)
from tablestone.model.entity import require_property_name
from tablestone.model.entity_json import key_of, read_raw
from tablestone.model.errors import StorageError
from tablestone.model.keys import PARTITION_KEY, EntityKey
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.catalog import (
    Catalog,
    TableRecord,
    every_table,
    read_record,
    relied_rows,
    scan_in_steps,
)
from tablestone.tables.indexes import (
    FORBIDDEN,
    INDEX_KEY,
    LAST_MEMBER,
    MEMBER,
    Automatic,
    Index,
    IndexState,
    all_entries,
    entries_function,
    has_state_entry,
    index_head,
    states_of,
)

ROWS_PER_STEP: Final = 500
CLAIM_SECONDS: Final = 20
"""Seconds for which a claim keeps other processes out. Its holder renews it when half of them have passed."""
CLOCKS_APART_SECONDS: Final = 60
"""A claim is so much longer if servers on several machines share the storage: their clocks differ."""

TAKEN_UP_SECONDS: Final = 10.0
"""Seconds in which a server should begin what a command has asked for; it may be busy, or of an earlier release."""
POLL_SECONDS: Final = 0.2
AUTOMATIC_MAX: Final = 4
"""Indexes of a table that a server makes by itself."""
FOREVER: Final = 0
"""The server never makes such an index again by itself."""

Progress = Callable[[int], None]
"""Takes the number of entities that are done."""


class IndexRefused(Exception):
    """An index cannot be made, checked or dropped; the text is one sentence. `code` is the error over the wire."""

    def __init__(self, text: str, code: str = "IndexAlreadyExists") -> None:
        super().__init__(text)
        self.code = code


class IndexGone(IndexRefused):
    """The index or its table was dropped during the work, or another process has taken the work over."""


class Checked(NamedTuple):
    """The result of a check: entities of the table, entries that were missing, and entries that no entity has."""

    entities: int
    missing: int
    stale: int


class IndexWork:
    """One process makes, checks or drops an index of a table. Each raises `IndexRefused` or `TableNotFound`."""

    def __init__(
        self, catalog: Catalog, owner: Owner, table: str, name: str, *, rests: bool = False
    ) -> None:
        """`rests`: requests of this process go on meanwhile, so rest after each step as long as it took."""
        require_keeps_entries(catalog.engine.capabilities)
        self._engine = catalog.engine
        self._catalog = catalog
        self._owner = owner
        self._table = table
        self._name = name
        self._rests = rests
        self._process = catalog.fresh_id().hex()
        self._claimed_at = 0
        is_on_servers = self._engine.capabilities.shares_over_network
        self._claim_seconds = CLAIM_SECONDS + (CLOCKS_APART_SECONDS if is_on_servers else 0)
        self._barred_until: int | None = None
        """Until when the server makes no such index by itself, if this drops it; None: as somebody else said."""

    @property
    def is_served(self) -> bool:
        """Whether a server that uses the same storage may do the work."""
        return getattr(self._engine, "is_served", False)

    async def ask(self, *, within_partition: bool = False) -> None:
        """Store that the index is to be made: a server makes it, or `create`. An automatic one is adopted."""
        await self._store(await self._wanted(within_partition=within_partition))

    async def ask_automatic(self, scanned: int) -> None:
        """Store that the server makes the index by itself: queries examine `scanned` entities without it."""

        def decide(record: TableRecord) -> Index:
            if not may_make_automatic(record, self._name, self._catalog.clock()):
                raise IndexRefused(f"{record.name} gets no automatic index on {self._name}.")
            return replace(_new(record, self._name), automatic=Automatic(scanned))

        await self._store(decide)

    async def note_use(self, automatic: Automatic) -> None:
        """Store what an automatic index was good for, unless a user has adopted it."""
        await self._store(lambda record: replace(self._automatic(record), automatic=automatic))

    def _automatic(self, record: TableRecord) -> Index:
        index = _index(record, self._name)
        if index not in automatic_indexes(record):
            raise IndexGone(f"The index on {self._name} is not the server's own any more.")
        return index

    async def ask_to_drop(self, *, barred_until: int = FOREVER) -> None:
        """Store that the index is to be dropped; a build of it ends.

        `barred_until`: the server drops an automatic one by itself, and makes none until then.
        """
        self._barred_until = barred_until

        def decide(record: TableRecord) -> Index:
            if barred_until != FOREVER:
                self._automatic(record)
            present, dropped = _found(record, self._name), self._dropping(record)
            is_new = present is None or present.state is not IndexState.DROPPING
            return replace(dropped, claim=None) if is_new else dropped

        await self._store(decide)

    async def create(
        self, *, within_partition: bool = False, progress: Progress = lambda _entities: None
    ) -> int:
        """Make the index, or go on with that; returns the number of entities that were read for it."""
        decide = await self._wanted(within_partition=within_partition)
        return await self._work(decide, progress)

    async def drop(self) -> None:
        """Drop the index, or go on with that."""
        self._barred_until = FOREVER
        await self._work(self._dropping)

    async def go_on(self) -> None:
        """Go on with an index that is building or dropping, whoever asked for that."""
        known = await self._known()

        def decide(record: TableRecord) -> Index:
            index = _index(record, self._name)
            if not is_unclaimed(index, self._catalog.clock()):
                raise IndexGone(f"The index on {self._name} is in other hands.")
            self._require_room(index)
            return _as_known(index, known)

        await self._work(decide)

    async def _known(self) -> dict[str, Index]:
        table = await self._catalog.require(self._owner, self._table)
        return {each.property: each for each in await indexes_of(self._engine, table)}

    async def _wanted(self, *, within_partition: bool) -> Callable[[TableRecord], Index]:
        """The index that a user wants: a new one, or one that is building, or an automatic one, which is adopted."""
        name = self._name
        require_indexable(name)
        known = await self._known()

        def decide(record: TableRecord) -> Index:
            index = _found(record, name)
            if index is None:
                return replace(_new(record, name), within_partition=within_partition)
            if index.state is IndexState.DROPPING:
                raise IndexRefused(
                    f"The index on {name} is being dropped: wait until it is gone, or drop it again."
                )
            if index.within_partition != within_partition:
                kind = "within its partitions" if index.within_partition else "over all partitions"
                raise IndexRefused(f"{record.name} has an index on {name} {kind}: drop it first.")
            found = known.get(name, index)
            if index.state is not IndexState.BUILDING and index.automatic is None:
                broken = ", which is broken: check it" * (found.state is IndexState.BROKEN)
                raise IndexRefused(f"{record.name} already has an index on {name}{broken}.")
            return replace(_as_known(index, known), automatic=None)

        return decide

    def _dropping(self, record: TableRecord) -> Index:
        index = _found(record, self._name)
        if index is None:
            raise IndexRefused(f"{record.name} has no index on {self._name}.", "IndexNotFound")
        return replace(index, state=IndexState.DROPPING, reached=None)

    async def _work(
        self, decide: Callable[[TableRecord], Index], progress: Progress = lambda _entities: None
    ) -> int:
        """Make or drop the index, as its state says; returns the number of entities that were read."""
        entities = 0
        async with self._claimed(decide) as (record, index):
            began = monotonic_seconds()
            if index.state is IndexState.DROPPING:
                while await remove_entries(self._engine, index_head(record.table_id, index.number)):
                    await self._claim_again()
                    began = await self._rest(began)
                await self._change(lambda _old: None)
            elif index.state is IndexState.BUILDING:
                before = 0
                rest = storage_keys.table_range(record.table_id)
                if index.reached is not None:
                    reached = storage_keys.entity_place(record.table_id, EntityKey(*index.reached))
                    rest = KeyRange(reached, rest.end)
                    before = index.entities - 1  # the one at `reached` is read again
                async for rows in scan_in_steps(self._engine, rest, ROWS_PER_STEP):
                    self._require_room(index)
                    keys = [Key(row.partition, row.row) for row in rows]
                    await self._reindex(record, dict.fromkeys(keys, ()))
                    entities += len(rows)
                    progress(entities)
                    await self._claim_again(storage_keys.entity_key(keys[-1]), before + entities)
                    began = await self._rest(began)
                await self._change(lambda old: _ready(replace(old, entities=before + entities)))
            else:  # an automatic one, adopted
                await self._change(lambda old: replace(old, claim=None))
        return entities

    def _require_room(self, index: Index) -> None:
        """Leave the build of an automatic index while the disk is nearly full: nobody has asked for it."""
        is_build = index.automatic is not None and index.state is IndexState.BUILDING
        if is_build and getattr(self._engine, "is_nearly_full", False):
            raise IndexRefused(
                f"The automatic index on {self._name} waits: the disk is nearly full."
            )

    async def _rest(self, began: float) -> float:
        """Let requests of this process run, if it `rests`; returns when the next step begins."""
        if self._rests:
            await asyncio.sleep(monotonic_seconds() - began)
        return monotonic_seconds()

    async def is_done_by_server(self, progress: Progress = lambda _entities: None) -> bool:
        """Wait while a server makes or drops the index, or another one before it; False if none takes it up for some
        seconds.
        """
        since = monotonic_seconds()
        while True:
            record = await self._catalog.require(self._owner, self._table)
            index = _found(record, self._name)
            if index is None or index.state in (IndexState.READY, IndexState.BROKEN):
                return True
            if not is_unclaimed(index, self._catalog.clock()):
                since = monotonic_seconds()
                progress(index.entities)
            elif monotonic_seconds() > since + TAKEN_UP_SECONDS:
                if not await self._is_busy():
                    return False
                since = monotonic_seconds()
            await asyncio.sleep(POLL_SECONDS)

    async def _is_busy(self) -> bool:
        """Whether somebody makes or drops another index of the storage: a server does one after the other."""
        now = self._catalog.clock()
        async for _account, table in every_table(self._engine):
            for index in table.indexes:
                is_under_way = index.state in (IndexState.BUILDING, IndexState.DROPPING)
                if is_under_way and not is_unclaimed(index, now):
                    return True
        return False

    async def made(self) -> tuple[int, bool]:
        """The entities that were read for the index, and whether none has an entry: its name may be a typing error."""
        record = await self._catalog.require(self._owner, self._table)
        index = _index(record, self._name)
        return index.entities, await is_empty(self._engine, record, index)

    async def check(self, progress: Progress = lambda _entities: None) -> Checked:
        """Compare the index with the entities, and repair it."""

        def decide(record: TableRecord) -> Index:
            index = _found(record, self._name)
            if index is None:
                raise IndexRefused(f"{record.name} has no index on {self._name}.", "IndexNotFound")
            if index.state in (IndexState.BUILDING, IndexState.DROPPING):
                raise IndexRefused(
                    f"The index on {self._name} is {index.state.value}: it cannot be checked."
                )
            return replace(index, state=states.get(self._name, index.state))

        table = await self._catalog.require(self._owner, self._table)
        states = {each.property: each.state for each in await indexes_of(self._engine, table)}
        async with self._claimed(decide) as (record, index):
            is_broken = False
            found = Checked(0, 0, 0)
            async for wrong, found in wrong_entries(self._engine, record.table_id, index):
                if found.missing and not is_broken:  # no query uses it until it is right
                    is_broken = True
                    await self._change(lambda old: replace(old, state=IndexState.BROKEN))
                await self._reindex(record, wrong)
                await self._claim_again()
                progress(found.entities)
            await self._change(_ready)
            return found

    async def _reindex(self, record: TableRecord, stale_of: Mapping[Key, Sequence[bytes]]) -> None:
        """Give rows the entries of their values, and take the stale ones away, while the index is there."""
        left = _reindexing(stale_of)
        while left:
            generation = self._engine.generation
            present = await self._catalog.find(self._owner, record.name)
            if present is None or present.table_id != record.table_id:
                raise IndexGone(f"The table {record.name} was deleted.")
            index = _index(present, self._name)
            self._require_claim(index)
            entries_of = entries_function(record.table_id, (index,))
            relies_on = relied_rows(self._engine, self._owner, present, generation)
            commits = [
                self._engine.commit(each._replace(entries_of=entries_of, relies_on=relies_on))
                for each in left
            ]
            outcomes = await asyncio.gather(*commits)
            left = [each for each, end in zip(left, outcomes, strict=True) if end == OUTDATED]
            await asyncio.sleep(0)

    @asynccontextmanager
    async def _claimed(
        self, decide: Callable[[TableRecord], Index]
    ) -> AsyncIterator[tuple[TableRecord, Index]]:
        """Store the index that `decide` returns with a claim of this process; yields the table and the index.

        If the work fails, as on a full disk, the claim ends, and any process may go on at once.
        """

        def claimed(record: TableRecord) -> Index:
            index = decide(record)
            if index.claim is not None and index.claim[0] != self._process:
                rest = (index.claim[1] - self._catalog.clock()) / TICKS_PER_SECOND
                if rest > 0:
                    raise IndexRefused(
                        f"Another process works on the index on {self._name}, or stopped less than "
                        f"{self._claim_seconds} s ago."
                    )
            return replace(index, claim=self._fresh_claim())

        claiming = asyncio.ensure_future(self._store(claimed))
        try:
            await asyncio.shield(claiming)
            record = await self._catalog.require(self._owner, self._table)
            yield record, _index(record, self._name)
        except BaseException:
            with suppress(EngineUnavailable, OutcomeUnknown, IndexRefused, StorageError):
                await claiming  # it may have been stored when Ctrl-C came
                await self._change(lambda old: replace(old, claim=None))
            raise

    def _fresh_claim(self) -> tuple[str, int]:
        self._claimed_at = self._catalog.clock()
        return self._process, self._claimed_at + self._claim_seconds * TICKS_PER_SECOND

    async def _claim_again(self, reached: tuple[str, str] | None = None, entities: int = 0) -> None:
        """Renew the claim in time, and store how far the work is. `IndexGone` if another process has taken it over."""
        if self._catalog.clock() - self._claimed_at > CLAIM_SECONDS * TICKS_PER_SECOND // 2:
            claim = self._fresh_claim()
            await self._change(
                lambda old: replace(old, claim=claim, reached=reached, entities=entities)
            )

    def _require_claim(self, index: Index) -> None:
        if index.claim is None or index.claim[0] != self._process:
            raise IndexGone(f"Another process works on the index on {self._name} now.")

    async def _change(self, change: Callable[[Index], Index | None]) -> None:
        """Change the index under this process's claim; None removes it."""

        def changed(record: TableRecord) -> Index | None:
            index = _index(record, self._name)
            self._require_claim(index)
            return change(index)

        await self._store(changed)

    async def _store(self, decide: Callable[[TableRecord], Index | None]) -> None:
        """Store the index that `decide` returns, or remove it."""

        def members(record: TableRecord) -> Mapping[str, Any]:
            index = decide(record)
            by_name = {each.property: each for each in record.indexes}
            before = by_name.get(self._name)
            barred = dict(record.members.get(FORBIDDEN, {}))
            if index is not None:
                if before is None:
                    by_name = _with_room(record.name, by_name)
                by_name[self._name] = index
                if index.state is IndexState.DROPPING and self._barred_until is not None:
                    barred[self._name] = self._barred_until
            last = max(
                [record.members.get(LAST_MEMBER, 0), *(each.number for each in by_name.values())]
            )
            kept = [each.to_json() for name, each in by_name.items() if index or name != self._name]
            return {MEMBER: kept or None, LAST_MEMBER: last, FORBIDDEN: barred or None}

        await self._catalog.change_members(self._owner, self._table, members)


def require_keeps_entries(capabilities: Capabilities) -> None:
    """Raise `IndexRefused` if an engine cannot keep an entry in the commit of its entity."""
    if not capabilities.keeps_entries:
        raise IndexRefused(
            "This engine keeps no indexes, which a commit would have to change together with its partition: "
            "write a second table with the property as its key, as on Azure."
        )


def require_indexable(name: str) -> None:
    """Raise `IndexRefused` if no index on the property is possible."""
    if name in (PARTITION_KEY, "Timestamp") or name.startswith("odata."):
        raise IndexRefused(
            f"An index on {name} is not possible: index another property, or RowKey.",
            "InvalidInput",
        )
    try:
        require_property_name(name)
    except StorageError:
        raise IndexRefused(f"{name!r} cannot be the name of a property.", "InvalidInput") from None


def _found(record: TableRecord, name: str) -> Index | None:
    return next((each for each in record.indexes if each.property == name), None)


def _index(record: TableRecord, name: str) -> Index:
    index = _found(record, name)
    if index is None:
        raise IndexGone(f"The index on {name} of {record.name} was dropped.")
    return index


def _new(record: TableRecord, name: str) -> Index:
    return Index(name, record.members.get(LAST_MEMBER, 0) + 1, False, IndexState.BUILDING)


def _as_known(index: Index, known: Mapping[str, Index]) -> Index:
    """The index as `indexes_of` knows it: a build begins again if storage came without its entries."""
    found = known.get(index.property)
    is_known = found is not None and found.reached is not None and found.number == index.number
    return replace(index, reached=index.reached if is_known else None)


def _with_room(table: str, indexes: Mapping[str, Index]) -> dict[str, Index]:
    """The indexes with room for one more. If there are too many, the automatic one that is idle longest gives way."""
    idle_hours = {
        each: each.automatic.idle
        for each in indexes.values()
        if each.automatic is not None and each.state is not IndexState.DROPPING
    }
    going = sum(each.automatic is not None and each not in idle_hours for each in indexes.values())
    if len(indexes) - going < limits.INDEXES_MAX:
        return dict(indexes)
    if not idle_hours:
        raise IndexRefused(
            f"{table} has {limits.INDEXES_MAX} indexes: more are not possible.", "TooManyIndexes"
        )
    least = max(idle_hours, key=lambda each: idle_hours[each])
    gone = replace(least, state=IndexState.DROPPING, reached=None, claim=None)
    return {**indexes, least.property: gone}


def automatic_indexes(record: TableRecord) -> list[Index]:
    """The indexes that a server made by itself, and that are not going."""
    return [
        each
        for each in record.indexes
        if each.automatic is not None and each.state is not IndexState.DROPPING
    ]


def may_make_automatic(record: TableRecord, name: str, now: int) -> bool:
    """Whether a server may make an index on this property by itself."""
    until = record.members.get(FORBIDDEN, {}).get(name, now)
    return (
        _found(record, name) is None
        and len(automatic_indexes(record)) < AUTOMATIC_MAX
        and len(record.indexes) < limits.INDEXES_MAX
        and until != FOREVER
        and until <= now
    )


def _ready(index: Index) -> Index:
    return replace(index, state=IndexState.READY, claim=None, reached=None)


@asynccontextmanager
async def _snapshot(engine: Engine) -> AsyncIterator[Snapshot]:
    snapshot = await engine.snapshot()
    try:
        yield snapshot
    finally:
        await snapshot.close()


def is_unclaimed(index: Index, now: int) -> bool:
    """Whether somebody should go on with an index: nobody works on it."""
    is_under_way = index.state in (IndexState.BUILDING, IndexState.DROPPING)
    return is_under_way and (index.claim is None or index.claim[1] <= now)


async def is_empty(engine: Engine, table: TableRecord, index: Index) -> bool:
    """Whether no entity has the property of an index that is ready."""
    index_keys = index_head(table.table_id, index.number) + INDEX_KEY
    async with _snapshot(engine) as snapshot:
        found = await snapshot.entries(*all_entries(index_keys), entries_max=1)
    return index.state is IndexState.READY and not found


async def indexes_of(engine: Engine, table: TableRecord) -> list[Index]:
    """The indexes of a table. One without the entry of its state is broken if it was ready, and else built anew."""
    if not table.indexes or not engine.capabilities.keeps_entries:
        return []
    found = []
    async with _snapshot(engine) as snapshot:
        for index in table.indexes:
            if not await has_state_entry(snapshot, table.table_id, index):
                is_ready = index.state is IndexState.READY
                state = IndexState.BROKEN if is_ready else index.state
                index = replace(index, state=state, reached=None)  # noqa: PLW2901
            found.append(index)
    return found


def _reindexing(stale_of: Mapping[Key, Sequence[bytes]]) -> list[WriteSet]:
    """The write sets that take stale entries away from rows, one for each partition."""
    groups: defaultdict[bytes, list[Change]] = defaultdict(list)
    for key, stale in stale_of.items():
        groups[key.partition].append(Change(key.row, ANY, Reindex(stale)))
    return [
        WriteSet(partition, changes, entries_of=lambda _value: ())
        for partition, changes in groups.items()
    ]


async def entries_of_storage(engine: Engine) -> AsyncIterator[list[Entry]]:
    """All entries that the indexes of all tables should have, for storage that came without them."""
    async for rows in scan_in_steps(engine, storage_keys.catalogs_after(b"")):
        for row in rows:
            if not storage_keys.is_table_row(row.row):
                continue
            record = read_record(row.value)
            entries_of = entries_function(record.table_id, record.indexes)
            if entries_of is None:
                continue
            yield [Entry(entry, row.partition, row.row) for entry in states_of(row.value)]
            async for entities in scan_in_steps(engine, storage_keys.table_range(record.table_id)):
                yield [
                    Entry(entry, each.partition, each.row)
                    for each in entities
                    for entry in entries_of(each.value)
                ]


async def remove_entries(engine: Engine, prefix: bytes) -> bool:
    """Remove some entries that begin with the prefix, those of states too; False if there are none."""
    async with _snapshot(engine) as snapshot:
        entries = await snapshot.entries(*all_entries(prefix), entries_max=ROWS_PER_STEP)
    stale: defaultdict[Key, list[bytes]] = defaultdict(list)
    for entry, *key in entries:
        stale[Key(*key)].append(entry)
    await asyncio.gather(*map(engine.commit, _reindexing(stale)))
    await asyncio.sleep(0)  # let requests run
    return bool(entries)


async def wrong_entries(
    engine: Engine, table_id: bytes, index: Index
) -> AsyncIterator[tuple[Mapping[Key, Sequence[bytes]], Checked]]:
    """Piece by piece, rows with wrong entries (each with its stale ones; none if it lacks one), and the counts."""
    entries_of = entries_function(table_id, (replace(index, state=IndexState.READY),))
    assert entries_of is not None
    entities = missing = stale = 0
    rest = [storage_keys.table_range(table_id)]
    while rest:
        async with _snapshot(engine) as snapshot:
            rows = await snapshot.read(
                rest, rows_max=ROWS_PER_STEP, bytes_max=limits.PAGE_BYTES_MAX
            )
            lacking: dict[Key, Sequence[bytes]] = {}
            for value in rows.values:
                key = storage_keys.entity_place(table_id, key_of(read_raw(value)))
                for entry in entries_of(value):
                    end = Entry(entry, key.partition, key.row + b"\0")
                    if not await snapshot.entries(Entry(entry, *key), end, entries_max=1):
                        lacking[key] = ()
        entities += len(rows.values)
        missing += len(lacking)
        yield lacking, Checked(entities, missing, 0)
        rest = [] if rows.next_key is None else storage_keys.ranges_from(rest, rows.next_key)
    start, end = all_entries(index_head(table_id, index.number) + INDEX_KEY)
    while True:
        wrong: defaultdict[Key, list[bytes]] = defaultdict(list)
        async with _snapshot(engine) as snapshot:
            entries = await snapshot.entries(start, end, entries_max=ROWS_PER_STEP)
            for entry, *place in entries:  # of a row that is missing, or has another value
                point = [KeyRange.of_row(*place)]
                values = (await snapshot.read(point, rows_max=1, bytes_max=1)).values
                if not values or entry not in entries_of(values[0]):
                    wrong[Key(*place)].append(entry)
                    stale += 1
        if not entries:
            return
        yield wrong, Checked(entities, missing, stale)
        start = entries[-1]._replace(row=entries[-1].row + b"\0")
