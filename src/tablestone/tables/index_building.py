"""Making, checking and dropping indexes, beside servers that use the table.

From the commit that stores an index on, every write of an entity writes its entries too: a write that was decided
before is decided again (`WriteSet.decided_under`). So one pass over the table is enough, and an index is ready when it
ends. Each step is a commit; a pass that is killed is continued by whoever asks for the same again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, Clock
from tablestone.engines.capabilities import Capabilities
from tablestone.engines.contract import (
    ANY,
    OUTDATED,
    Change,
    Engine,
    EngineUnavailable,
    Entry,
    IndexedSnapshot,
    Key,
    KeyRange,
    OutcomeUnknown,
    Reindex,
    WriteSet,
    generation_to_rely_on,
)
from tablestone.model.entity import require_property_name
from tablestone.model.entity_json import key_of, read_raw
from tablestone.model.errors import StorageError
from tablestone.model.keys import PARTITION_KEY, EntityKey
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.catalog import Catalog, TableRecord
from tablestone.tables.indexes import (
    INDEXES_MAX,
    LAST_MEMBER,
    MEMBER,
    EntriesOf,
    Index,
    IndexState,
    all_entries,
    entries_function,
    index_head,
    mark_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROWS_PER_STEP: Final = 500
CLAIM_SECONDS: Final = 20
"""Seconds for which nobody else continues the work of a process. It says so again when half of them have passed."""

Progress = Callable[[int], None]
"""Takes the number of entities that are done."""


class IndexRefused(Exception):
    """An index cannot be made, checked or dropped; the text is one sentence."""


class IndexGone(IndexRefused):
    """An index, or its table, was taken away from whoever works on it."""


class Checked(NamedTuple):
    """The result of a check: entities of the table, entries that were missing, and entries that no entity has."""

    entities: int
    missing: int
    stale: int


class Indexes:
    """The indexes of the tables of one storage. `fresh_id` gives bytes that no other process has."""

    def __init__(
        self, engine: Engine, catalog: Catalog, clock: Clock, fresh_id: Callable[[], bytes]
    ) -> None:
        require_keeps_entries(engine.capabilities)
        self._engine = engine
        self._catalog = catalog
        self._clock = clock
        self._name = fresh_id().hex()
        self._claimed_at = 0

    async def create(
        self,
        owner: Owner,
        table: str,
        name: str,
        *,
        within_partition: bool = False,
        progress: Progress = lambda _entities: None,
    ) -> int:
        """Make an index on a property, or continue to; the number of entities in the table.

        Raises `IndexRefused`, or `TableNotFound`.
        """
        require_indexable(name)

        def decide(index: Index | None, indexes: Sequence[Index], record: TableRecord) -> Index:
            if index is None:
                if len(indexes) == INDEXES_MAX:
                    raise IndexRefused(
                        f"{record.name} has {INDEXES_MAX} indexes: more are not possible."
                    )
                number = record.members.get(LAST_MEMBER, 0) + 1
                return Index(name, number, within_partition, IndexState.BUILDING)
            if index.state is IndexState.DROPPING:
                raise IndexRefused(f"The index on {name} is being dropped: drop it again first.")
            if index.within_partition != within_partition:
                kind = "within its partitions" if index.within_partition else "over all partitions"
                raise IndexRefused(f"{record.name} has an index on {name} {kind}: drop it first.")
            if index.state is not IndexState.BUILDING:
                raise IndexRefused(f"{record.name} already has an index on {name}.")
            return index

        async with self._claimed(owner, table, name, decide) as record:
            entities = await self._build(owner, record, name, progress)
            await self._change(owner, record.name, name, lambda old: _ended(old, IndexState.READY))
            return entities

    async def _build(self, owner: Owner, record: TableRecord, name: str, progress: Progress) -> int:
        index = _index(record, name)
        rest = storage_keys.table_range(record.table_id)
        if index.reached is not None:
            reached = storage_keys.entity_place(record.table_id, EntityKey(*index.reached))
            rest = KeyRange(reached, rest.end)
        entities = 0
        while rows := await self._engine.scan(rest, rows_max=ROWS_PER_STEP):
            keys = [Key(row.partition, row.row) for row in rows]
            await self._reindex(owner, record, name, dict.fromkeys(keys, ()))
            rest = storage_keys.after(rest, rows[-1])
            entities += len(rows)
            progress(entities)
            if self._is_to_claim_again:
                here = replace(
                    index, claim=self._fresh_claim(), reached=storage_keys.entity_key(keys[-1])
                )
                await self._change(owner, record.name, name, lambda _old: here)  # noqa: B023
        return entities

    async def _reindex(
        self,
        owner: Owner,
        record: TableRecord,
        name: str,
        stale_of: Mapping[Key, Sequence[bytes]],
    ) -> None:
        """Give rows the entries of their values, and take the stale ones away, while the index is there."""
        groups: defaultdict[bytes, list[Change]] = defaultdict(list)
        for key, stale in stale_of.items():
            groups[key.partition].append(Change(key.row, ANY, Reindex(stale)))
        left = list(groups.items())
        while left:
            generation = generation_to_rely_on(self._engine)
            present = await self._catalog.find(owner, record.name)
            if present is None or present.table_id != record.table_id:
                raise IndexGone(f"The table {record.name} was deleted.")
            index = _index(present, name)
            entries_of = entries_function(record.table_id, (index,))
            outcomes = await asyncio.gather(
                *(
                    self._engine.commit(
                        WriteSet(
                            partition, changes, entries_of=entries_of, decided_under=generation
                        )
                    )
                    for partition, changes in left
                )
            )
            left = [
                group for group, outcome in zip(left, outcomes, strict=True) if outcome == OUTDATED
            ]
            await asyncio.sleep(0)

    async def finds_nothing(self, owner: Owner, table: str, name: str) -> bool:
        """Whether an index has no entity: its name may be a typing error."""
        record = await self._catalog.require(owner, table)
        places = index_head(record.table_id, _index(record, name).number) + b"\1"
        async with _moment(self._engine) as moment:
            return not await moment.entries(*all_entries(places), entries_max=1)

    async def drop(self, owner: Owner, table: str, name: str) -> None:
        """Drop an index, or continue to. Raises `IndexRefused`, or `TableNotFound`."""

        def decide(index: Index | None, _: Sequence[Index], record: TableRecord) -> Index:
            if index is None:
                raise IndexRefused(f"{record.name} has no index on {name}.")
            return replace(index, state=IndexState.DROPPING, reached=None)

        async with self._claimed(owner, table, name, decide) as record:
            prefix = index_head(record.table_id, _index(record, name).number)
            while await remove_entries(self._engine, prefix):
                await self._claim_again(owner, record, name)
            await self._change(owner, record.name, name, lambda _old: None)

    async def check(
        self, owner: Owner, table: str, name: str, progress: Progress = lambda _entities: None
    ) -> Checked:
        """Compare an index with the entities, and repair it. Raises `IndexRefused`, or `TableNotFound`."""

        def decide(index: Index | None, _: Sequence[Index], record: TableRecord) -> Index:
            if index is None:
                raise IndexRefused(f"{record.name} has no index on {name}.")
            if index.state in (IndexState.BUILDING, IndexState.DROPPING):
                raise IndexRefused(
                    f"The index on {name} is {index.state.value}: it cannot be checked."
                )
            return replace(index, state=states.get(name, index.state))

        record = await self._catalog.require(owner, table)
        states = {each.property: each.state for each in await indexes_of(self._engine, record)}
        async with self._claimed(owner, table, name, decide) as record:
            index = _index(record, name)
            is_broken = False
            entities = missing = stale = 0
            async for wrong, examined in wrong_entries(self._engine, record.table_id, index):
                entities += examined
                missing += sum(not entries for entries in wrong.values())
                stale += sum(map(len, wrong.values()))
                if missing and not is_broken:  # no query uses it until it is right
                    is_broken = True
                    await self._change(
                        owner, record.name, name, lambda old: replace(old, state=IndexState.BROKEN)
                    )
                await self._reindex(owner, record, name, wrong)
                await self._claim_again(owner, record, name)
                progress(entities)
            await self._change(owner, record.name, name, lambda old: _ended(old, IndexState.READY))
            return Checked(entities, missing, stale)

    @asynccontextmanager
    async def _claimed(
        self,
        owner: Owner,
        table: str,
        name: str,
        decide: Callable[[Index | None, Sequence[Index], TableRecord], Index],
    ) -> "AsyncIterator[TableRecord]":
        """Work on an index. If the work fails, as on a full disk, whoever asks for it again may go on at once."""
        claiming = asyncio.ensure_future(self._claim(owner, table, name, decide))
        try:
            yield await asyncio.shield(claiming)
        except BaseException:
            with suppress(EngineUnavailable, OutcomeUnknown, IndexRefused, StorageError):
                record = await claiming  # it may have been stored when Ctrl-C came
                await self._change(owner, record.name, name, lambda old: replace(old, claim=None))
            raise

    async def _claim(
        self,
        owner: Owner,
        table: str,
        name: str,
        decide: Callable[[Index | None, Sequence[Index], TableRecord], Index],
    ) -> TableRecord:
        """Store what `decide` makes of the index, as work of this process, and return the table."""

        def members(record: TableRecord) -> Mapping[str, Any]:
            found = [each for each in record.indexes if each.property == name]
            index = decide(found[0] if found else None, record.indexes, record)
            if index.claim is not None and index.claim[0] != self._name:
                rest = (index.claim[1] - self._clock()) / TICKS_PER_SECOND
                if rest > 0:
                    raise IndexRefused(
                        f"Another process works on the index on {name}, or stopped less than {CLAIM_SECONDS} s ago."
                    )
            claimed = replace(index, claim=self._fresh_claim())
            others = [each for each in record.indexes if each.property != name]
            last = max(claimed.number, record.members.get(LAST_MEMBER, 0))
            return {**_members([*others, claimed]), LAST_MEMBER: last}

        await self._catalog.change_members(owner, table, members)
        return await self._catalog.require(owner, table)

    def _fresh_claim(self) -> tuple[str, int]:
        self._claimed_at = self._clock()
        return self._name, self._claimed_at + CLAIM_SECONDS * TICKS_PER_SECOND

    @property
    def _is_to_claim_again(self) -> bool:
        return self._clock() - self._claimed_at > CLAIM_SECONDS * TICKS_PER_SECOND // 2

    async def _claim_again(self, owner: Owner, record: TableRecord, name: str) -> None:
        """Say in time that the work goes on. `IndexGone` if another process has taken it over."""
        if self._is_to_claim_again:
            claim = self._fresh_claim()
            await self._change(owner, record.name, name, lambda old: replace(old, claim=claim))

    async def _change(
        self, owner: Owner, table: str, name: str, change: Callable[[Index], Index | None]
    ) -> None:
        """Change an index that this process works on; None removes it."""

        def members(record: TableRecord) -> Mapping[str, Any]:
            index = _index(record, name)
            if index.claim is None or index.claim[0] != self._name:
                raise IndexGone(f"Another process works on the index on {name} now.")
            changed = [change(each) if each is index else each for each in record.indexes]
            return _members([each for each in changed if each is not None])

        await self._catalog.change_members(owner, table, members)


def require_keeps_entries(capabilities: Capabilities) -> None:
    """Raise `IndexRefused` if an engine cannot keep an entry in the commit of its entity."""
    if not capabilities.keeps_entries:
        raise IndexRefused(
            "This engine keeps no indexes, because a commit there changes one partition, and an index is in another: "
            "write a second table with the property as its key, as on Azure."
        )


def require_indexable(name: str) -> None:
    """Raise `IndexRefused` if no index on the property is possible."""
    if name in (PARTITION_KEY, "Timestamp") or name.startswith("odata."):
        raise IndexRefused(
            f"An index on {name} is not possible: index another property, or RowKey."
        )
    try:
        require_property_name(name)
    except StorageError:
        raise IndexRefused(f"{name!r} cannot be the name of a property.") from None


def _members(indexes: Sequence[Index]) -> dict[str, Any]:
    return {MEMBER: [index.to_json() for index in indexes] or None}


def _index(record: TableRecord, name: str) -> Index:
    for index in record.indexes:
        if index.property == name:
            return index
    raise IndexGone(f"The index on {name} of {record.name} was dropped.")


def _ended(index: Index, state: IndexState) -> Index:
    return replace(index, state=state, claim=None, reached=None)


@asynccontextmanager
async def _moment(engine: Engine) -> "AsyncIterator[IndexedSnapshot]":
    moment = cast("IndexedSnapshot", await engine.snapshot())
    try:
        yield moment
    finally:
        await moment.close()


async def indexes_of(engine: Engine, table: TableRecord) -> list[Index]:
    """The indexes of a table. One that is said to be ready and has no mark in this storage is broken."""
    if not table.indexes or not engine.capabilities.keeps_entries:
        return []
    found = []
    async with _moment(engine) as moment:
        for index in table.indexes:
            mark = all_entries(mark_of(table.table_id, index.number, IndexState.READY))
            if index.state is IndexState.READY and not await moment.entries(*mark, entries_max=1):
                index = replace(index, state=IndexState.BROKEN)  # noqa: PLW2901
            found.append(index)
    return found


async def remove_entries(engine: Engine, prefix: bytes) -> bool:
    """Remove some entries that begin with the prefix, marks too; False if there are none."""
    async with _moment(engine) as moment:
        entries = await moment.entries(*all_entries(prefix), entries_max=ROWS_PER_STEP)
    stale: defaultdict[Key, list[bytes]] = defaultdict(list)
    for entry, partition, row in entries:
        stale[Key(partition, row)].append(entry)
    groups: defaultdict[bytes, list[Change]] = defaultdict(list)
    for key, of_row in stale.items():
        groups[key.partition].append(Change(key.row, ANY, Reindex(of_row)))
    await asyncio.gather(
        *(
            engine.commit(WriteSet(partition, changes, entries_of=lambda _value: ()))
            for partition, changes in groups.items()
        )
    )
    await asyncio.sleep(0)  # let requests run
    return bool(entries)


async def wrong_entries(
    engine: Engine, table_id: bytes, index: Index
) -> "AsyncIterator[tuple[dict[Key, list[bytes]], int]]":
    """Piece by piece, the rows whose entries are wrong, and the number of entities that were examined.

    A row that lacks its entry has an empty list, and another one the entries that it should not have.
    """
    entries_of = entries_function(table_id, (replace(index, state=IndexState.READY),))
    assert entries_of is not None
    rest = [storage_keys.table_range(table_id)]
    while rest:
        async with _moment(engine) as moment:
            rows = await moment.read(rest, rows_max=ROWS_PER_STEP, bytes_max=limits.PAGE_BYTES_MAX)
            wrong: dict[Key, list[bytes]] = {}
            for value in rows.values:
                key = storage_keys.entity_place(table_id, key_of(read_raw(value)))
                for entry in entries_of(value):
                    end = Entry(entry, key.partition, key.row + b"\0")
                    if not await moment.entries(Entry(entry, *key), end, entries_max=1):
                        wrong[key] = []
        yield wrong, len(rows.values)
        rest = [] if rows.next_key is None else storage_keys.ranges_from(rest, rows.next_key)
    start, end = all_entries(index_head(table_id, index.number) + b"\1")
    while True:
        async with _moment(engine) as moment:
            entries = await moment.entries(start, end, entries_max=ROWS_PER_STEP)
            stale = await _stale(moment, entries, entries_of)
        if not entries:
            return
        yield stale, 0
        start = entries[-1]._replace(row=entries[-1].row + b"\0")


async def _stale(
    moment: IndexedSnapshot, entries: Sequence[Entry], entries_of: EntriesOf
) -> dict[Key, list[bytes]]:
    """The entries whose row is missing or has another value, by row."""
    stale: defaultdict[Key, list[bytes]] = defaultdict(list)
    for entry, *key in entries:
        point = [KeyRange.of_row(*key)]
        rows = await moment.read(point, rows_max=1, bytes_max=1)
        if not rows.values or entry not in entries_of(rows.values[0]):
            stale[Key(*key)].append(entry)
    return stale
