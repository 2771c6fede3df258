"""Every system call of the SQLite engine fails, once or for a while: nothing is half done, and the engine recovers."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from storage.failing_disk import (
    BROKEN,
    NO_ROOM,
    NOT_FLUSHED,
    NOT_OPENED,
    Disk,
    Failure,
    Plan,
    failing_disk,
)
from storage.opened import open_sqlite
from storage.write_sets import committed, insert, put, read_all
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    Change,
    Committed,
    EngineRefused,
    EngineUnavailable,
    OutcomeUnknown,
    WriteSet,
)
from tablestone.engines.sqlite.free_space import DiskRoom

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tablestone.engines.sqlite.engine import SqliteEngine

CALLS = [
    (kind, error)
    for kind, errors in {
        "write log": (NO_ROOM, BROKEN),
        "flush log": (NOT_FLUSHED,),
        "read log": (BROKEN,),
        "open log": (NOT_OPENED,),
        "truncate log": (BROKEN,),
        "write database": (NO_ROOM, BROKEN),
        "flush database": (NOT_FLUSHED,),
        "read database": (BROKEN,),
        "open database": (NOT_OPENED,),
    }.items()
    for error in errors
]
CALLS_OF_A_START = [each for each in CALLS if each[0] != "truncate log"]
ROUNDS = 4


def name_of(value: object) -> str:
    """The name of a call, or of an error, for the names of tests."""
    return value[0].__name__ if isinstance(value, tuple) else str(value)


VALUE = b"x" * 60_000


@pytest.fixture
def disk() -> Iterator[Disk]:
    with failing_disk() as disk:
        yield disk


@pytest.fixture(autouse=True)
def _copies_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoint after a few commits, as on a nearly full disk, so that these calls fail too."""

    def look(room: DiskRoom, *_: object) -> bool:
        room.is_tight = True
        return False

    monkeypatch.setattr(DiskRoom, "look", look)


class Program:
    """Writes of several kinds, and the rows that must exist after those that were acknowledged."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self.rows: dict[bytes, bytes] = {}

    async def run(self, first: int) -> None:
        for number in range(first, first + ROUNDS):
            names = [b"%04d-%d" % (number, part) for part in range(3)]
            value = b"%d" % number + VALUE
            await self._commit(
                dict.fromkeys(names, value), [Change(n, ABSENT, put(value)) for n in names]
            )
            changed = b"changed" + value
            mixed = [Change(names[0], ANY, DELETE), Change(names[1], ANY, put(changed))]
            await self._commit({names[1]: changed}, mixed, removed=names[0])
            await self._read()

    async def _commit(
        self, rows: dict[bytes, bytes], changes: list[Change], removed: bytes | None = None
    ) -> None:
        try:
            outcome = await self._engine.commit(WriteSet(b"p", changes))
        except (EngineUnavailable, OutcomeUnknown):
            return
        assert isinstance(outcome, Committed), outcome
        self.rows |= rows
        self.rows.pop(removed or b"", None)

    async def _read(self) -> None:
        try:
            found = await read_all(self._engine)
        except EngineUnavailable:
            return
        assert found == self.expected

    @property
    def expected(self) -> list[bytes]:
        return [self.rows[name] for name in sorted(self.rows)]


@pytest.mark.slow
@pytest.mark.parametrize("is_lasting", [False, True], ids=["once", "for a while"])
@pytest.mark.parametrize(("kind", "error"), CALLS, ids=name_of)
def test_a_call_that_fails_leaves_nothing_half_done_and_the_engine_recovers(
    data: Path, disk: Disk, kind: str, error: tuple[Failure, int], *, is_lasting: bool
) -> None:
    failures = 0

    async def run(number: int) -> int:
        shutil.rmtree(data, ignore_errors=True)
        disk.plan = None
        engine = open_sqlite(data)
        program = Program(engine)
        await program.run(0)
        plan = disk.plan = Plan(kind, number, error, is_lasting)
        await program.run(100)
        disk.plan = None
        await program.run(200)
        assert await read_all(engine) == program.expected, number
        assert await engine.check() == []
        await engine.close()
        await reopened(data, program.expected)
        return plan.failed

    for number in (1, 2, 5):
        failures += asyncio.run(run(number))
    assert failures or kind in {"open log", "open database", "truncate log"}


async def reopened(data: Path, expected: list[bytes]) -> None:
    engine = open_sqlite(data)
    assert await read_all(engine) == expected
    assert await engine.check() == []
    await committed(engine, insert(b"q", b"after"))
    await engine.close()


@pytest.mark.parametrize(("kind", "error"), CALLS_OF_A_START, ids=name_of)
def test_a_start_on_a_disk_that_fails_is_refused_in_one_sentence_and_a_later_one_is_not(
    data: Path, disk: Disk, kind: str, error: tuple[Failure, int]
) -> None:
    async def start(number: int) -> None:
        disk.plan = Plan(kind, number, error, is_lasting=True)
        with suppress(EngineRefused, EngineUnavailable):
            engine = open_sqlite(data)
            with suppress(EngineUnavailable, OutcomeUnknown):
                await engine.commit(insert(b"p", b"%d" % number))
            await engine.close()
        disk.plan = None
        engine = open_sqlite(data)
        assert await engine.check() == []
        await engine.close()

    for number in (1, 2, 4):
        asyncio.run(start(number))


@pytest.mark.asyncio
async def test_the_outcome_of_a_commit_whose_flush_fails_is_not_known_until_the_next_one(
    data: Path, disk: Disk, tmp_path: Path
) -> None:
    """The commit is already in the log when its flush fails, so a crash can bring it back."""
    engine = open_sqlite(data)
    await committed(engine, insert(b"p", b"before"))
    disk.plan = Plan("flush log", 1, NOT_FLUSHED, is_lasting=True)
    with pytest.raises(OutcomeUnknown):
        await engine.commit(insert(b"p", b"unknown"))
    assert len(await read_all(engine)) == 1, "nothing of it is seen"
    shutil.copytree(data, tmp_path / "crashed")
    disk.plan = None
    await committed(engine, insert(b"p", b"after", b"after"))
    shutil.copytree(data, tmp_path / "crashed later")
    await engine.close()
    for name, count in (("crashed", 2), ("crashed later", 2)):
        crashed = open_sqlite(tmp_path / name)
        found = await read_all(crashed)
        assert len(found) == count
        assert (b"after" in found) is (name == "crashed later")
        await crashed.close()
