"""Feeds of changes where a commit comes late: after its table was deleted, or after its account was."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.engines.change_record import Retention
from tablestone.engines.contract import ANY, Change, Put, WriteSet
from tablestone.engines.memory import MemoryEngine
from tablestone.model.errors import StorageError
from tablestone.model.operations import (
    ChangeCursor,
    ChangesFound,
    ReadAccountChanges,
    ReadTableChanges,
    Since,
)
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.change_notes import About, CommitKind, note_of
from tablestone.tables.service import TableService

if TYPE_CHECKING:
    from tablestone.model.operations import ChangesSince

pytestmark = pytest.mark.asyncio

OWNER = Named("account")


class Tables:
    """A service in memory that keeps changes."""

    def __init__(self) -> None:
        self.now = system_clock()
        self.engine = MemoryEngine(lambda: self.now)
        ids = itertools.count(1)
        self.service = TableService(
            self.engine, lambda: self.now, lambda: 0.0, lambda: next(ids).to_bytes(8, "big")
        )

    async def create(self) -> bytes:
        """Create the table, and return its id."""
        await self.service.catalog.create(OWNER, "Orders")
        return (await self.service.catalog.require(OWNER, "Orders")).table_id

    async def put(self, table_id: bytes, row: bytes, owner: Named = OWNER) -> None:
        """A put whose request found the table of this id, whatever became of it since."""
        note = note_of(
            About(CommitKind.ENTITIES, owner.name, owner.incarnation, "Orders", table_id)
        )
        partition = storage_keys.entity_partition(table_id, "p")
        change = Change(row, ANY, Put(lambda _version: b"{}"))
        await self.engine.commit(WriteSet(partition, (change,), note=note))

    async def of_table(self, since: ChangesSince = Since.OLDEST) -> list[str]:
        found = await self.service.execute(OWNER, ReadTableChanges("Orders", since))
        return lines(found)

    async def of_account(self, owner: Named = OWNER) -> list[str]:
        return lines(await self.service.execute(owner, ReadAccountChanges(Since.OLDEST)))


def lines(found: object) -> list[str]:
    assert isinstance(found, ChangesFound)
    return [
        name
        for commit in found.commits
        for name in ([row[0].decode() for row in commit.entities] or [commit.kind])
    ]


@pytest_asyncio.fixture
async def tables() -> Tables:
    tables = Tables()
    await tables.engine.changes.keep(Retention(None, None))
    return tables


async def test_a_put_after_the_deletion_of_its_table_is_in_no_feed(tables: Tables) -> None:
    first = await tables.create()
    await tables.put(first, b"1")
    await tables.service.catalog.delete(OWNER, "Orders")
    await tables.put(first, b"late")
    assert await tables.of_account() == ["table-created", "1", "table-deleted"]
    second = await tables.create()
    await tables.put(first, b"later")
    await tables.put(second, b"2")
    assert await tables.of_account() == [
        "table-created",
        "1",
        "table-deleted",
        "table-created",
        "2",
    ]
    assert await tables.of_table() == ["2"]


async def test_what_came_before_a_deletion_that_is_not_kept_any_more_is_hidden() -> None:
    tables = Tables()
    first = await tables.create()
    await tables.service.catalog.delete(OWNER, "Orders")
    await tables.engine.changes.keep(Retention(None, None))
    await tables.put(first, b"late")
    assert await tables.of_account() == []


async def test_an_account_sees_nothing_of_another_or_an_earlier_one(tables: Tables) -> None:
    table_id = await tables.create()
    await tables.put(table_id, b"1")
    await tables.put(table_id, b"earlier", Named("account", 7))
    await tables.put(table_id, b"another", Named("other"))
    assert await tables.of_account() == ["table-created", "1"]
    assert await tables.of_account(Named("nobody")) == []


async def test_settings_are_recorded_and_in_no_feed(tables: Tables) -> None:
    await tables.create()
    await tables.service.catalog.set_identifiers(OWNER, "Orders", ())
    kept = tables.engine.changes.kept()
    assert kept is not None
    assert kept.last == 2
    assert await tables.of_account() == ["table-created"]
    assert await tables.of_table() == []


async def test_a_cursor_is_not_accepted_after_an_epoch_or_for_what_is_trimmed(
    tables: Tables,
) -> None:
    table_id = await tables.create()
    log = tables.engine.changes
    kept = log.kept()
    assert kept is not None
    cursor = ChangeCursor(kept.storage, kept.epoch, kept.last, 0, table_id)
    await tables.put(table_id, b"1")
    assert await tables.of_table(cursor) == ["1"]
    await log.keep(Retention(None, 1))
    with pytest.raises(StorageError, match="ChangesNotKept"):
        await tables.of_table(cursor)
    await log.keep(None)
    await log.keep(Retention(None, None))
    with pytest.raises(StorageError, match="InvalidChangeCursor"):
        await tables.of_table(cursor)


async def test_a_cursor_with_the_number_but_not_the_time_of_a_record_is_refused(
    tables: Tables,
) -> None:
    table_id = await tables.create()
    kept = tables.engine.changes.kept()
    assert kept is not None
    cursor = ChangeCursor(kept.storage, kept.epoch, kept.last, 5, table_id)
    with pytest.raises(StorageError, match="InvalidChangeCursor"):
        await tables.of_table(cursor)


async def test_the_time_of_the_newest_line_is_a_place_also_after_the_clock_stepped_back(
    tables: Tables,
) -> None:
    table_id = await tables.create()
    await tables.put(table_id, b"1")
    newest = tables.now
    tables.now -= 60 * TICKS_PER_SECOND
    assert await tables.of_table(newest) == ["1"]
    await tables.put(table_id, b"2")  # its record has the time of the one before
    assert await tables.of_table(newest) == ["1", "2"]
    with pytest.raises(StorageError) as refused:
        await tables.of_table(newest + 1)
    assert refused.value.text == "The time in since is in the future."


async def test_a_start_hides_what_was_stored_before_also_after_a_step_back(tables: Tables) -> None:
    """Then the times of records are later than the changes, which have versions of their own."""
    table_id = await tables.create()
    tables.now += 7_200 * TICKS_PER_SECOND
    await tables.put(table_id, b"1")
    tables.now -= 7_200 * TICKS_PER_SECOND
    await tables.put(table_id, b"2")
    start = tables.now + 60 * TICKS_PER_SECOND
    tables.now = start + 1
    await tables.put(table_id, b"3")
    operation = ReadTableChanges("Orders", Since.OLDEST, not_before=start)
    assert lines(await tables.service.execute(OWNER, operation)) == ["1", "3"]


async def test_the_lag_is_that_of_the_reader_behind_all_others(tables: Tables) -> None:
    def lag_after(seconds: int) -> float:
        tables.now += seconds * TICKS_PER_SECOND
        return tables.service.feeds.lag_seconds()

    table_id = await tables.create()
    await tables.put(table_id, b"1")
    assert lag_after(100) == 0  # nobody has asked
    await tables.of_table(Since.NOW)
    assert lag_after(0) == 0  # and has seen all
    await tables.of_account()
    assert lag_after(0) == 100
    await tables.put(table_id, b"2")
    tables.now += 5 * TICKS_PER_SECOND
    await tables.of_table(tables.now - 5 * TICKS_PER_SECOND)
    assert lag_after(0) == 100
    assert lag_after(55) == 5
    assert lag_after(5) == 0
    await tables.of_account(Named("nobody"))
    assert lag_after(0) == 0  # all are of another account
