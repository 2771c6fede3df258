"""A page of a feed is of one moment: what another process trims meanwhile is never skipped in silence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tablestone.engines.change_record import Retention
from tablestone.engines.contract import ANY, Change, Put, WriteSet
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.engine import SqliteEngine
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
from tablestone.tables.changes import account_scope
from tablestone.tables.service import TableService

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tablestone.model.operations import ChangesSince

OWNER = Named("account")
ROWS = [f"{n:02}" for n in range(20)]


class Tables:
    """A service on one of two engines of a data directory. The other one trims, as another process does."""

    def __init__(self, data: Path) -> None:
        self.now = 1_000
        self.engine = self._open(data, shared=False)
        self.other = self._open(data, shared=True)
        ids = iter(range(1, 100))
        self.service = TableService(
            self.engine, lambda: self.now, lambda: 0.0, lambda: next(ids).to_bytes(8, "big")
        )
        self.statements: list[str] = []
        self.trim_before = -1
        """The number of the statement before which the other engine trims."""
        self.kept_bytes = 0
        """How much it leaves."""

    def _open(self, data: Path, *, shared: bool) -> SqliteEngine:
        engine = open_engine(f"sqlite:{data}", lambda: self.now, shared=shared)
        assert isinstance(engine, SqliteEngine)
        return engine

    async def fill(self, *, is_deleted: bool) -> bytes:
        """Record some commits to a table of this id, and maybe its deletion."""
        await self.engine.changes.keep(Retention(None, 1_000_000))
        await self.service.catalog.create(OWNER, "Orders")
        await self.service.catalog.create(OWNER, "Other")
        table_id = (await self.service.catalog.require(OWNER, "Orders")).table_id
        note = note_of(About(CommitKind.ENTITIES, OWNER.name, None, "Orders", table_id))
        partition = storage_keys.entity_partition(table_id, "p")
        for row in ROWS:
            self.now += 10
            change = Change(row.encode(), ANY, Put(lambda _version: b"{}"))
            await self.engine.commit(WriteSet(partition, (change,), note=note))
        if is_deleted:
            await self.service.catalog.delete(OWNER, "Orders")
        self.now += 10
        return table_id

    def _note(self, _cursor: object, statement: str, _bindings: object) -> bool:
        if len(self.statements) == self.trim_before:
            self.trim()
        self.statements.append(statement)
        return True

    def trim(self) -> None:
        with self.other._directory.committing() as writer:
            writer.execute("UPDATE change_log SET bytes_max = ?", (self.kept_bytes,))
        while self.other.changes.has_surplus():
            self.other.changes.trim()

    async def close(self) -> None:
        await self.other.close()
        await self.engine.close()


async def found_by(
    tables: Tables, since: Callable[[Tables, bytes], ChangesSince], feed: str
) -> list[str] | str:
    """The rows of a page, or the code of the refusal; what the server asks before it counts too."""
    table_id = await tables.fill(is_deleted=feed == "account, deleted")
    place = since(tables, table_id if feed == "table" else account_scope("account", None))
    operation = ReadTableChanges("Orders", place) if feed == "table" else ReadAccountChanges(place)
    tables.engine._reader.exec_trace = tables._note
    try:
        assert tables.service.feeds.are_kept
        found = await tables.service.execute(OWNER, operation)
    except StorageError as error:
        return error.code
    assert isinstance(found, ChangesFound)
    assert not found.has_more
    return [row[0].decode() for commit in found.commits for row in commit.entities]


def cursor_after_five(tables: Tables, scope: bytes) -> ChangesSince:
    kept = tables.other.changes.kept()
    assert kept is not None
    # The creation of two tables comes first.
    return ChangeCursor(kept.storage, kept.epoch, kept.first + 6, 0, scope)


# (where a page begins) -> the rows that must be in it, if it is no refusal; None: any last ones
PLACES: dict[str, tuple[Callable[[Tables, bytes], ChangesSince], list[str] | None]] = {
    "a cursor": (cursor_after_five, ROWS[5:]),
    "a time": (lambda _tables, _scope: 1_060, ROWS[5:]),
    "the oldest": (lambda _tables, _scope: Since.OLDEST, None),
}


@pytest.mark.parametrize("kept_bytes", [900, 0], ids=["most goes", "all goes"])
@pytest.mark.parametrize(
    ("feed", "place"),
    [
        *(("table", place) for place in PLACES),
        ("account", "a cursor"),
        ("account, deleted", "a cursor"),
    ],
)
def test_a_page_is_whole_or_refused_wherever_another_process_trims(
    feed: str, place: str, kept_bytes: int, tmp_path: Path
) -> None:
    since, expected = PLACES[place]

    async def read(trim_before: int) -> tuple[list[str] | str, int]:
        tables = Tables(tmp_path / str(trim_before))
        try:
            tables.trim_before, tables.kept_bytes = trim_before, kept_bytes
            return await found_by(tables, since, feed), len(tables.statements)
        finally:
            await tables.close()

    whole, statements = asyncio.run(read(-1))
    assert whole == (ROWS if expected is None else expected)
    outcomes = set()
    for trim_before in range(statements + 1):
        found, _ = asyncio.run(read(trim_before))
        outcomes.add(str(found))
        if isinstance(found, str):
            assert found == "ChangesNotKept"
        elif expected is None:
            assert found == ROWS[len(ROWS) - len(found) :]
        else:
            assert found == expected
    assert len(outcomes) > 1  # the trims were seen


def test_a_page_of_a_table_takes_few_statements(tmp_path: Path) -> None:
    async def read() -> list[str]:
        tables = Tables(tmp_path / "data")
        try:
            assert await found_by(tables, cursor_after_five, "table") == ROWS[5:]
            return tables.statements
        finally:
            await tables.close()

    statements = [each for each in asyncio.run(read()) if each not in ("BEGIN", "ROLLBACK")]
    assert len(statements) <= 4, statements
