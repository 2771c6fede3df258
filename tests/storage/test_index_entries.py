"""Entries of indexes: they change in the commit of their rows, and a snapshot reads them in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import apsw
import pytest

from storage.engines_under_test import on_engines_that
from storage.write_sets import committed, put
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    OUTDATED,
    Change,
    Committed,
    Conflict,
    Entry,
    Key,
    KeyRange,
    Put,
    Refusal,
    Reindex,
    ReliedRows,
    Update,
    WriteSet,
)
from tablestone.engines.registry import open_engine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from storage.conftest import HeldClock
    from tablestone.engines.contract import Engine, Mutation

FIRST, END = Entry(b"", b"", b""), Entry(b"\xff", b"", b"")


pytestmark = pytest.mark.asyncio
of_keeping_engines = on_engines_that(lambda can: can.keeps_entries)


def words(value: bytes) -> list[bytes]:
    """The words of a value are its entries."""
    return value.split()


def write(
    row: bytes, mutation: Mutation, expectation: int = ANY, partition: bytes = b"p"
) -> WriteSet:
    return WriteSet(partition, (Change(row, expectation, mutation),), entries_of=words)


async def entries(
    engine: Engine, start: Entry = FIRST, end: Entry = END, entries_max: int = 100
) -> list[Entry]:
    snapshot = await engine.snapshot()
    try:
        return await snapshot.entries(start, end, entries_max=entries_max)
    finally:
        await snapshot.close()


def of_row(*found: bytes) -> list[Entry]:
    return [Entry(entry, b"p", b"r") for entry in found]


APPEND = Update(lambda value: put((value or b"") + b" more"))
REFUSE = Update(lambda _value: Refusal("no"))

# (the value before, the mutation, the entries afterwards)
MUTATIONS: list[tuple[bytes | None, Mutation, list[bytes]]] = [
    (None, put(b"a b"), [b"a", b"b"]),
    (None, put(b""), []),
    (b"a b", put(b"b c"), [b"b", b"c"]),
    (b"a b", put(b""), []),
    (b"a b", APPEND, [b"a", b"b", b"more"]),
    (None, APPEND, [b"more"]),
    (b"a b", REFUSE, [b"a", b"b"]),
    (b"a b", DELETE, []),
    (None, DELETE, []),
    (b"a b", None, [b"a", b"b"]),
    (b"a b", Reindex(), [b"a", b"b"]),
    (b"a b", Reindex((b"a", b"z")), [b"a", b"b"]),
    (None, Reindex((b"a",)), []),
]


@of_keeping_engines
@pytest.mark.parametrize(("before", "mutation", "after"), MUTATIONS)
async def test_entries_follow_the_value(
    engine: Engine, before: bytes | None, mutation: Mutation, after: list[bytes]
) -> None:
    if before is not None:
        await committed(engine, write(b"r", put(before), ABSENT))
    await engine.commit(write(b"r", mutation))
    assert await entries(engine) == of_row(*after)


@of_keeping_engines
async def test_a_conflict_changes_no_entry(engine: Engine) -> None:
    await committed(engine, write(b"r", put(b"a"), ABSENT))
    changes = (Change(b"q", ABSENT, put(b"x")), Change(b"r", ABSENT, put(b"b")))
    outcome = await engine.commit(WriteSet(b"p", changes, entries_of=words))
    assert isinstance(outcome, Conflict)
    assert await entries(engine) == of_row(b"a")


@of_keeping_engines
async def test_reindex_finds_and_removes_what_other_commits_left(engine: Engine) -> None:
    await committed(engine, WriteSet(b"p", (Change(b"r", ABSENT, put(b"a")),)))
    assert await entries(engine) == []
    (version,) = await committed(engine, write(b"r", Reindex()))
    assert version == 0
    assert await entries(engine) == of_row(b"a")
    await committed(engine, WriteSet(b"p", (Change(b"r", ANY, put(b"b")),)))
    await committed(engine, write(b"r", Reindex((b"a", b"b"))))
    assert await entries(engine) == of_row(b"b")
    await committed(engine, WriteSet(b"p", (Change(b"r", ANY, DELETE),)))
    await committed(engine, write(b"r", Reindex((b"b",))))
    assert await entries(engine) == []


@of_keeping_engines
async def test_entries_are_read_in_order_from_any_place(engine: Engine) -> None:
    rows = [(p, r) for p in (b"p", b"p\0", b"q") for r in (b"", b"a", b"a\0", b"b")]
    for partition, row in reversed(rows):
        await committed(engine, write(row, put(b"k " + row.strip(b"\0")), ABSENT, partition))
    every = sorted(
        Entry(entry, partition, row)
        for partition, row in rows
        for entry in {b"k", *([row.strip(b"\0")] if row else [])}
    )
    assert await entries(engine) == every
    for start in every:
        for end in every:
            wanted = [each for each in every if start <= each < end]
            assert await entries(engine, start, end) == wanted
            assert await entries(engine, start, end, 2) == wanted[:2]


@of_keeping_engines
async def test_a_snapshot_shows_the_entries_of_its_moment(engine: Engine) -> None:
    await committed(engine, write(b"r", put(b"a"), ABSENT))
    snapshot = await engine.snapshot()
    before = await snapshot.entries(FIRST, END, entries_max=9)
    await committed(engine, write(b"r", put(b"b")))
    whole = [KeyRange(Key(b"", b""), Key(b"z", b""))]
    rows = await snapshot.read(whole, rows_max=9, bytes_max=99)
    assert (await snapshot.entries(FIRST, END, entries_max=9), rows.values) == (before, [b"a"])
    await snapshot.close()
    assert await entries(engine) == of_row(b"b")


CATALOG = Key(b"c", b"t")


def of_catalog(mutation: Mutation, row: bytes = CATALOG.row) -> WriteSet:
    return WriteSet(CATALOG.partition, (Change(row, ANY, mutation),), invalidates_caches=True)


# (what became of the row that was read at version 1,000) -> whether a write set that relies on it is applied
RELIED: list[tuple[str, list[WriteSet], bool]] = [
    ("nothing", [], True),
    ("another row was changed", [of_catalog(put(b"x"), b"other")], True),
    ("it was changed", [of_catalog(put(b"x"))], False),
    ("it was deleted", [of_catalog(DELETE)], False),
    ("it was deleted and made again", [of_catalog(DELETE), of_catalog(put(b"x"))], False),
]


@of_keeping_engines
@pytest.mark.parametrize("knows_generation", [True, False])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("mutation", [put(b"a"), APPEND], ids=["put", "update"])
@pytest.mark.parametrize(
    ("before", "is_applied"), [row[1:] for row in RELIED], ids=[row[0] for row in RELIED]
)
async def test_a_write_set_is_applied_if_the_rows_on_which_it_relies_are_as_they_were(
    engine: Engine,
    clock: HeldClock,
    before: list[WriteSet],
    mutation: Put | Update,
    rows: int,
    *,
    is_applied: bool,
    knows_generation: bool,
) -> None:
    await committed(engine, write(b"r", put(b"a"), ABSENT))  # makes the table of entries
    read = await committed(engine, of_catalog(put(b"t")))
    generation = engine.generation if knows_generation else None
    for each in before:
        clock.now += 10
        await committed(engine, each)
    relied = [(CATALOG, read[0]), (Key(b"c", b"none"), ABSENT)]
    changes = [Change(b"%d" % n, ABSENT, mutation) for n in range(rows)]
    write_set = WriteSet(b"p", changes, entries_of=words, relies_on=ReliedRows(relied, generation))
    outcome = await engine.commit(write_set)
    assert (outcome == OUTDATED) is not is_applied
    assert len(await entries(engine)) == (1 + rows if is_applied else 1)


@pytest.mark.parametrize("knows_generation", [True, False])
@on_engines_that(lambda can: can.keeps_entries and not can.waits, servers_max=1)
async def test_a_change_in_the_same_group_counts(
    engine: Engine, clock: HeldClock, *, knows_generation: bool
) -> None:
    """It comes first, and the generation does not say so yet."""
    read = await committed(engine, of_catalog(put(b"t")))
    relied = ReliedRows([(CATALOG, read[0])], engine.generation if knows_generation else None)
    clock.now += 10
    late = [
        write(b"0", put(b"a"), ABSENT)._replace(relies_on=relied),
        write(b"1", APPEND, ABSENT)._replace(relies_on=relied),
    ]
    first, *outcomes = await asyncio.gather(*map(engine.commit, [of_catalog(put(b"x")), *late]))
    assert isinstance(first, Committed)
    assert outcomes == [OUTDATED, OUTDATED]
    assert await entries(engine) == []


async def test_a_directory_with_entries_has_a_format_of_its_own(
    data: Path, clock: HeldClock
) -> None:
    """An older version refuses it: `test_sqlite_directory`."""
    engine = open_engine(f"sqlite:{data}", clock)
    await committed(engine, write(b"r", put(b"a"), ABSENT))
    await engine.close()
    assert apsw.Connection(str(data / "tablestone.db")).pragma("user_version") == 3


@of_keeping_engines
async def test_many_inserts_at_once_have_their_entries(engine: Engine) -> None:
    def inserts(first: int) -> Sequence[WriteSet]:
        return [
            write(b"%d" % n, put(b"k %d" % n), ABSENT, b"p%d" % (n % 7))
            for n in range(first, first + 40)
        ]

    for first in (0, 40):  # the first group makes the table of entries
        for write_set in inserts(first):
            await committed(engine, write_set)
    assert len(await entries(engine, entries_max=999)) == 160
