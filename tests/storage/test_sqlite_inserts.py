"""Groups of inserts: one SQL statement for all of them, with the same outcome for every caller."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from storage.write_sets import insert, put, upsert
from tablestone.clock import system_clock
from tablestone.engines.contract import (
    ABSENT,
    DELETE,
    PRESENT,
    Change,
    Committed,
    Conflict,
    Put,
    WriteSet,
)
from tablestone.engines.kind import Opening
from tablestone.engines.sqlite.commit import ROWS_MAX, GroupCommit
from tablestone.engines.sqlite.commit_lock import CommitLock
from tablestone.engines.sqlite.data_directory import DataDirectory

pytestmark = pytest.mark.asyncio

COUNT = "SELECT count(*) FROM stored_rows"


class Traced:
    """The commits of a data directory, and the first word of every statement that changes something."""

    def __init__(self, data: Path) -> None:
        self._directory = DataDirectory(data, Opening.SERVER)
        self.words: list[str] = []
        self.commits = GroupCommit(
            self._connect, CommitLock(data), system_clock, self._directory.open_generation()
        )

    def _connect(self) -> apsw.Connection:
        connection = self._directory.connect_writer()
        connection.exec_trace = self._note
        return connection

    def _note(self, _cursor: apsw.Cursor, statement: str, _given: Any) -> bool:
        if not statement.startswith(("SELECT", "pragma")):  # these only read
            self.words.append(statement.split(maxsplit=1)[0])
        return True

    async def together(self, write_sets: Sequence[WriteSet]) -> list[Any]:
        """Commit write sets together; returns their outcomes, and the error of each that fails."""
        waiting = [self.commits.commit(each) for each in write_sets]
        return await asyncio.gather(*waiting, return_exceptions=True)

    def rows(self) -> int:
        with closing(self._directory.connect_reader()) as reader:
            found: int = reader.execute(COUNT).get
        return found


@asynccontextmanager
async def traced(data: Path) -> AsyncIterator[Traced]:
    engine = Traced(data)
    try:
        yield engine
    finally:
        await engine.commits.close()


def inserts(first: int, number: int) -> WriteSet:
    """This many rows, all or none."""
    return WriteSet(
        b"p", [Change(b"%05d" % each, ABSENT, put(b"v")) for each in range(first, first + number)]
    )


async def test_a_group_of_them_is_one_statement(tmp_path: Path) -> None:
    async with traced(tmp_path) as engine:
        outcomes = await engine.together([insert(b"p", b"1"), insert(b"q", b"2"), inserts(10, 98)])
        assert [len(each.versions) for each in outcomes] == [1, 1, 98]
        assert len({version for each in outcomes for version in each.versions}) == 1
        assert engine.words == ["INSERT"]
        assert engine.rows() == 100


INVALIDATING = insert(b"p", b"invalidating")._replace(invalidates_caches=True)
OTHERS = {
    "one may replace": upsert(b"p", b"x"),
    "one only checks": WriteSet(b"p", [Change(b"x", ABSENT, None)]),
    "one inserts and checks": WriteSet(
        b"p", [Change(b"x", ABSENT, put(b"v")), Change(b"y", ABSENT, None)]
    ),
    "one deletes": WriteSet(b"p", [Change(b"there", PRESENT, DELETE)]),
    "one invalidates caches": INVALIDATING,
    "one has more rows than a statement": inserts(10, ROWS_MAX + 1),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
async def test_with_others_they_are_a_transaction(tmp_path: Path, other: WriteSet) -> None:
    async with traced(tmp_path) as engine:
        await engine.together([insert(b"p", b"there")])
        engine.words.clear()
        outcomes = await engine.together([other, insert(b"p", b"1"), insert(b"p", b"2")])
        assert [type(each) for each in outcomes] == [Committed] * 3
        assert engine.words[0] == "BEGIN"
        assert engine.words.count("COMMIT") == 1


async def test_more_rows_than_a_statement_has_are_several(tmp_path: Path) -> None:
    async with traced(tmp_path) as engine:
        outcomes = await engine.together([inserts(80 * each, 80) for each in range(5)])
        assert [len(each.versions) for each in outcomes] == [80] * 5
        assert engine.words == ["INSERT"] * 3
        assert engine.rows() == 400


async def test_where_one_conflicts_each_has_its_own_fate(tmp_path: Path) -> None:
    async with traced(tmp_path) as engine:
        ((version,),) = await engine.together([insert(b"p", b"00001")])
        outcomes = await engine.together(
            [insert(b"p", b"1"), inserts(0, 50), insert(b"p", b"1"), inserts(100, 50)]
        )
        assert outcomes[1] == Conflict(1, version[0])
        assert [type(outcomes[each]) for each in (0, 2, 3)] == [Committed, Conflict, Committed]
        assert engine.rows() == 1 + 1 + 50


async def test_one_that_cannot_be_rendered_fails_alone(tmp_path: Path) -> None:
    def fail(_version: int) -> bytes:
        raise ZeroDivisionError

    broken = WriteSet(b"p", [Change(b"a", ABSENT, put(b"v")), Change(b"b", ABSENT, Put(fail))])
    async with traced(tmp_path) as engine:
        outcomes = await engine.together([insert(b"p", b"1"), broken, insert(b"p", b"2")])
        assert [type(each) for each in outcomes] == [Committed, ZeroDivisionError, Committed]
        assert engine.rows() == 2


async def test_an_insert_that_nobody_waits_for_is_not_written(tmp_path: Path) -> None:
    async with traced(tmp_path) as engine:
        waiting = [engine.commits.commit(insert(b"p", b"%d" % each)) for each in range(3)]
        assert isinstance(waiting[1], asyncio.Future)
        waiting[1].cancel()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in outcomes] == [Committed, asyncio.CancelledError, Committed]
        assert engine.words == ["INSERT"]
        assert engine.rows() == 2
