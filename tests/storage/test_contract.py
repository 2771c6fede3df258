"""The contract, sentence by sentence (`src/tablestone/engines/contract.py`), on every engine.

Commits, versions and concurrent callers; `test_reads.py` has ranges, order and pages. The fixture `engine` ends every
test with the engine's own check.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from storage.engines_under_test import on_engines_that
from storage.write_sets import WHOLE, committed, insert, put, read_all, replace, upsert
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    OUTDATED,
    PRESENT,
    Change,
    Committed,
    Conflict,
    EngineUnavailable,
    Key,
    KeyRange,
    Put,
    Refusal,
    ReliedRows,
    StoredRow,
    Update,
    WriteSet,
)

if TYPE_CHECKING:
    from storage.conftest import HeldClock
    from tablestone.engines.contract import Engine, Expectation, Mutation


pytestmark = pytest.mark.asyncio

PUT = put(b"new")
APPEND = Update(lambda value: put((value or b"") + b"+"))
REFUSED = ValueError("the reason")
REFUSE = Update(lambda _value: Refusal(REFUSED))
VERSION = 1_000
"""The version of a row written while the clock stands still."""

# (whether the row exists, expectation, mutation) -> outcome, value afterwards; "old" is the existing row's.
EXPECTATIONS_AND_MUTATIONS: list[
    tuple[bool, Expectation, Mutation, Committed | Conflict, list[bytes]]
] = [
    (False, ABSENT, PUT, Committed([VERSION]), [b"new"]),
    (False, ABSENT, DELETE, Committed([0]), []),
    (False, ABSENT, None, Committed([0]), []),
    (False, ANY, PUT, Committed([VERSION]), [b"new"]),
    (False, ANY, DELETE, Committed([0]), []),
    (False, ANY, None, Committed([0]), []),
    (False, PRESENT, PUT, Conflict(0, ABSENT), []),
    (False, PRESENT, DELETE, Conflict(0, ABSENT), []),
    (False, PRESENT, None, Conflict(0, ABSENT), []),
    (False, VERSION, PUT, Conflict(0, ABSENT), []),
    (False, VERSION, DELETE, Conflict(0, ABSENT), []),
    (False, VERSION, None, Conflict(0, ABSENT), []),
    (True, ABSENT, PUT, Conflict(0, VERSION), [b"old"]),
    (True, ABSENT, DELETE, Conflict(0, VERSION), [b"old"]),
    (True, ABSENT, None, Conflict(0, VERSION), [b"old"]),
    (True, ANY, PUT, Committed([VERSION + 1]), [b"new"]),
    (True, ANY, DELETE, Committed([0]), []),
    (True, ANY, None, Committed([0]), [b"old"]),
    (True, PRESENT, PUT, Committed([VERSION + 1]), [b"new"]),
    (True, PRESENT, DELETE, Committed([0]), []),
    (True, PRESENT, None, Committed([0]), [b"old"]),
    (True, VERSION, PUT, Committed([VERSION + 1]), [b"new"]),
    (True, VERSION, DELETE, Committed([0]), []),
    (True, VERSION, None, Committed([0]), [b"old"]),
    (True, VERSION - 1, PUT, Conflict(0, VERSION), [b"old"]),
    (True, VERSION + 1, DELETE, Conflict(0, VERSION), [b"old"]),
    (True, VERSION + 1, None, Conflict(0, VERSION), [b"old"]),
    (False, ABSENT, APPEND, Committed([VERSION]), [b"+"]),
    (False, ANY, APPEND, Committed([VERSION]), [b"+"]),
    (False, PRESENT, APPEND, Conflict(0, ABSENT), []),
    (False, VERSION, APPEND, Conflict(0, ABSENT), []),
    (True, ABSENT, APPEND, Conflict(0, VERSION), [b"old"]),
    (True, ANY, APPEND, Committed([VERSION + 1]), [b"old+"]),
    (True, PRESENT, APPEND, Committed([VERSION + 1]), [b"old+"]),
    (True, VERSION, APPEND, Committed([VERSION + 1]), [b"old+"]),
    (True, VERSION - 1, APPEND, Conflict(0, VERSION), [b"old"]),
    (False, ANY, REFUSE, Conflict(0, ABSENT, REFUSED), []),
    (True, ANY, REFUSE, Conflict(0, VERSION, REFUSED), [b"old"]),
    (True, VERSION, REFUSE, Conflict(0, VERSION, REFUSED), [b"old"]),
    (True, ABSENT, REFUSE, Conflict(0, VERSION), [b"old"]),
]


@on_engines_that(lambda can: can.checks_relied_rows)
@pytest.mark.parametrize("mutation", [PUT, APPEND], ids=["put", "update"])
@pytest.mark.parametrize("meanwhile", [None, PUT, DELETE], ids=["nothing", "put", "deleted"])
@pytest.mark.parametrize("is_there", [True, False])
async def test_a_write_set_is_applied_only_if_the_rows_it_relies_on_are_as_they_were(
    engine: Engine, mutation: Mutation, meanwhile: Mutation | None, *, is_there: bool
) -> None:
    """They are in another partition. Nothing is applied otherwise, and a conflict comes after this."""
    versions = await committed(engine, upsert(b"c", b"table")) if is_there else [ABSENT]
    if meanwhile is not None:
        await committed(engine, WriteSet(b"c", [Change(b"table", ANY, meanwhile)]))
    relied = ReliedRows([(Key(b"c", b"table"), versions[0])], None)
    outcomes = [
        await engine.commit(WriteSet(b"p", [Change(row, expected, mutation)], relies_on=relied))
        for row, expected in ((b"r", ABSENT), (b"s", PRESENT))
    ]
    if meanwhile is None or (meanwhile is DELETE and not is_there):
        assert isinstance(outcomes[0], Committed)
        assert outcomes[1] == Conflict(0, ABSENT)
    else:
        assert outcomes == [OUTDATED, OUTDATED]
        assert await read_all(engine, KeyRange.of_partition(b"p")) == []


@pytest.mark.parametrize(
    ("is_there", "expectation", "mutation", "outcome", "values_after"), EXPECTATIONS_AND_MUTATIONS
)
async def test_a_change_applies_exactly_when_its_expectation_holds(
    engine: Engine,
    *,
    is_there: bool,
    expectation: Expectation,
    mutation: Mutation,
    outcome: Committed | Conflict,
    values_after: list[bytes],
) -> None:
    if is_there:
        assert await committed(engine, insert(b"p", b"r", b"old")) == [VERSION]
    assert await engine.commit(WriteSet(b"p", [Change(b"r", expectation, mutation)])) == outcome
    assert await read_all(engine) == values_after


async def test_a_conflict_names_the_first_change_that_failed_and_nothing_is_applied(
    engine: Engine,
) -> None:
    await committed(engine, insert(b"p", b"b", b"old"))
    write_set = WriteSet(
        b"p", [Change(b"a", ABSENT, PUT), Change(b"b", ABSENT, PUT), Change(b"c", PRESENT, PUT)]
    )
    assert await engine.commit(write_set) == Conflict(1, VERSION)
    assert await read_all(engine) == [b"old"]


async def test_a_write_set_is_applied_whole_with_one_version_a_change(engine: Engine) -> None:
    await committed(engine, insert(b"p", b"deleted"))
    await committed(engine, insert(b"p", b"replaced"))
    write_set = WriteSet(
        b"p",
        [
            Change(b"checked", ABSENT, None),
            Change(b"replaced", PRESENT, put(b"2")),
            Change(b"deleted", ANY, DELETE),
            Change(b"inserted", ABSENT, put(b"1")),
        ],
    )
    assert await committed(engine, write_set) == [0, VERSION + 1, 0, VERSION]
    assert await read_all(engine) == [b"1", b"2"]


async def test_an_empty_write_set_is_committed(engine: Engine) -> None:
    assert await engine.commit(WriteSet(b"p", [])) == Committed([])


@pytest.mark.parametrize(
    ("clock_reads", "versions"),
    [
        ([1_000, 1_001, 2_000], [1_000, 1_001, 2_000]),
        ([1_000, 1_000, 1_000], [1_000, 1_001, 1_002]),
        ([1_000, 5, 5, 1_003], [1_000, 1_001, 1_002, 1_003]),
        ([1_000, 5, 1_000, 1_000], [1_000, 1_001, 1_002, 1_003]),
    ],
)
async def test_the_versions_of_a_row_strictly_increase_even_when_the_clock_steps_back(
    engine: Engine, clock: HeldClock, clock_reads: list[int], versions: list[int]
) -> None:
    found = []
    for clock.now in clock_reads:
        found += await committed(engine, upsert(b"p", b"r"))
    assert found == versions


async def test_a_row_that_was_deleted_counts_as_old_version_0_or_as_its_last(
    engine: Engine, clock: HeldClock
) -> None:
    await committed(engine, insert(b"p", b"r"))
    await committed(engine, WriteSet(b"p", [Change(b"r", PRESENT, DELETE)]))
    clock.now = 7
    version = VERSION + 1 if engine.capabilities.versions_outlive_rows else 7
    assert await committed(engine, insert(b"p", b"r")) == [version]


async def test_the_value_is_rendered_for_the_version_that_was_assigned(
    engine: Engine, clock: HeldClock
) -> None:
    render = Put(lambda version: b"written at %d" % version)
    for clock.now in (1_000, 500):
        await committed(engine, WriteSet(b"p", [Change(b"r", ANY, render)]))
    assert await read_all(engine) == [b"written at 1001"]


async def test_a_write_set_that_cannot_be_rendered_fails_alone_and_whole(engine: Engine) -> None:
    def fail(_version: int) -> bytes:
        raise ZeroDivisionError

    broken = WriteSet(b"p", [Change(b"a", ANY, PUT), Change(b"b", ANY, Put(fail))])
    outcomes = await asyncio.gather(
        engine.commit(insert(b"p", b"1", b"good")),
        engine.commit(broken),
        engine.commit(insert(b"p", b"2", b"good")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Committed, ZeroDivisionError, Committed]
    assert await read_all(engine) == [b"good", b"good"]


async def test_write_sets_of_one_flush_each_have_their_own_fate(engine: Engine) -> None:
    await committed(engine, insert(b"p", b"taken", b"old"))
    outcomes = await asyncio.gather(
        engine.commit(insert(b"p", b"1", b"first")),
        engine.commit(
            WriteSet(b"p", [Change(b"2", ABSENT, put(b"half")), Change(b"taken", ABSENT, PUT)])
        ),
        engine.commit(insert(b"p", b"3", b"third")),
    )
    assert list(outcomes) == [Committed([VERSION]), Conflict(1, VERSION), Committed([VERSION])]
    assert await read_all(engine) == [b"first", b"third", b"old"]


async def test_of_write_sets_that_arrive_together_for_one_row_one_wins(engine: Engine) -> None:
    """The first one, where nothing can overtake it on its way."""
    outcomes = await asyncio.gather(
        *(engine.commit(insert(b"p", b"r", b"%d" % index)) for index in range(5))
    )
    # Servers of a cluster cannot know which arrived first elsewhere: exactly one of the five wins.
    first = outcomes.index(Committed([VERSION])) if engine.capabilities.waits else 0
    expected: list[Committed | Conflict] = [Conflict(0, VERSION)] * 5
    expected[first] = Committed([VERSION])
    assert outcomes == expected
    assert await read_all(engine) == [b"%d" % first]


async def test_of_concurrent_updates_under_one_version_exactly_one_wins_each_round(
    engine: Engine,
) -> None:
    [version] = await committed(engine, insert(b"p", b"r"))
    for _round in range(20):
        outcomes = await asyncio.gather(
            *(engine.commit(replace(b"p", b"r", version, b"%d" % index)) for index in range(8))
        )
        winners = [outcome for outcome in outcomes if isinstance(outcome, Committed)]
        assert [winner.versions for winner in winners] == [[version + 1]]
        version += 1


UPDATERS = 12
UPDATES = 4


async def test_of_concurrent_updates_of_one_row_none_is_lost(engine: Engine) -> None:
    async def client(letter: bytes) -> None:
        append = Update(lambda value: put((value or b"") + letter))
        for _ in range(UPDATES):
            await committed(engine, WriteSet(b"p", [Change(b"r", ANY, append)]))

    letters = [bytes([97 + number]) for number in range(UPDATERS)]
    await asyncio.gather(*map(client, letters))
    (value,) = await read_all(engine)
    assert sorted(value) == sorted(b"".join(letters) * UPDATES)


async def test_write_sets_that_update_the_same_rows_do_not_wait_for_each_other(
    engine: Engine,
) -> None:
    async def client(rows: tuple[bytes, bytes]) -> None:
        for _ in range(UPDATES):
            await committed(engine, WriteSet(b"p", [Change(row, ANY, APPEND) for row in rows]))
            await committed(engine, WriteSet(b"p", [Change(rows[0], ANY, APPEND)]))

    await asyncio.gather(*(client((b"a", b"b") if n % 2 else (b"b", b"a")) for n in range(6)))
    assert await read_all(engine) == [b"+" * 6 * UPDATES + b"+" * 3 * UPDATES] * 2


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ([Change(b"a", ANY, APPEND), Change(b"b", ANY, REFUSE)], Conflict(1, ABSENT, REFUSED)),
        ([Change(b"b", ANY, REFUSE), Change(b"a", ABSENT, PUT)], Conflict(0, ABSENT, REFUSED)),
        ([Change(b"a", ABSENT, PUT), Change(b"b", ANY, REFUSE)], Conflict(0, VERSION)),
        ([Change(b"b", ANY, APPEND), Change(b"a", ABSENT, DELETE)], Conflict(1, VERSION)),
    ],
)
async def test_an_update_is_part_of_its_write_set(
    engine: Engine, changes: list[Change], outcome: Conflict
) -> None:
    """The first change that cannot be done decides, and nothing is applied; other write sets are not disturbed."""
    await committed(engine, insert(b"p", b"a", b"old"))
    found, other = await asyncio.gather(
        engine.commit(WriteSet(b"p", changes)), engine.commit(insert(b"p", b"z", b"other"))
    )
    assert found == outcome
    assert isinstance(other, Committed)
    assert await read_all(engine) == [b"old", b"other"]


async def test_a_commit_that_returned_is_seen_by_every_later_read(engine: Engine) -> None:
    async def write_then_read(index: int) -> None:
        row = b"%d" % index
        for value in (b"1", b"2", b"3"):
            await committed(engine, upsert(b"p", row, value))
            assert await read_all(engine, KeyRange.of_row(b"p", row)) == [value]
            [stored] = await engine.scan(KeyRange.of_row(b"p", row), rows_max=2)
            assert stored.value == value

    await asyncio.gather(*(write_then_read(index) for index in range(16)))


async def test_no_reader_sees_half_of_a_write_set(engine: Engine) -> None:
    rows = [b"%02d" % index for index in range(20)]
    is_writing = True

    async def write() -> None:
        nonlocal is_writing
        for generation in range(60):
            value = put(b"%d" % generation)
            await committed(engine, WriteSet(b"p", [Change(row, ANY, value) for row in rows]))
            await asyncio.sleep(0)  # an engine that never waits would give readers no turn
        is_writing = False

    async def read(ranges: list[KeyRange]) -> int:
        reads = 0
        while is_writing:
            values, next_key, _ = await engine.read(ranges, rows_max=100, bytes_max=1 << 20)
            assert len(values) in {0, len(rows)} or next_key is not None
            assert len(set(values)) <= 1
            reads += 1
            await asyncio.sleep(0)
        return reads

    at_once = [KeyRange.of_partition(b"p")]
    row_by_row = [KeyRange.of_row(b"p", row) for row in rows]
    _, *reads = await asyncio.gather(write(), read(at_once), read(row_by_row), read(at_once))
    assert min(reads) > 0


async def test_a_commit_that_nobody_waits_for_any_more_does_not_disturb_others(
    engine: Engine,
) -> None:
    abandoned = [
        asyncio.ensure_future(engine.commit(insert(b"p", b"a%d" % index))) for index in range(3)
    ]
    kept = [
        asyncio.ensure_future(engine.commit(insert(b"p", b"k%d" % index))) for index in range(3)
    ]
    for turns, task in enumerate(abandoned):
        for _turn in range(turns):
            await asyncio.sleep(0)
        task.cancel()
    assert await asyncio.gather(*kept) == [Committed([VERSION])] * 3
    await committed(engine, insert(b"p", b"later"))


@pytest.mark.parametrize("size", [0, 1, 8_000, 70_000, 1 << 20, 3 << 20])
async def test_a_value_of_any_size_is_given_back_as_it_was(engine: Engine, size: int) -> None:
    value = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    await committed(engine, insert(b"p", b"r", value))
    await committed(engine, insert(b"p", b"s", b"after"))
    assert await read_all(engine) == [value, b"after"]
    assert await read_all(engine, KeyRange.of_row(b"p", b"r")) == [value]
    assert await committed(engine, replace(b"p", b"r", VERSION, value[::-1])) == [VERSION + 1]
    assert await read_all(engine, KeyRange.of_row(b"p", b"r")) == [value[::-1]]


async def test_scan_gives_keys_and_versions_in_key_order(engine: Engine, clock: HeldClock) -> None:
    for clock.now, (partition, row) in enumerate(
        [(b"q", b""), (b"p", b"2"), (b"p", b"1"), (b"", b"")], start=1
    ):
        await committed(engine, insert(partition, row, b"%d" % clock.now))
    everything = [
        StoredRow(b"", b"", 4, b"4"),
        StoredRow(b"p", b"1", 3, b"3"),
        StoredRow(b"p", b"2", 2, b"2"),
        StoredRow(b"q", b"", 1, b"1"),
    ]
    assert await engine.scan(WHOLE, rows_max=10) == everything
    assert await engine.scan(WHOLE, rows_max=2) == everything[:2]
    assert await engine.scan(KeyRange.of_partition(b"p"), rows_max=10) == everything[1:3]
    assert await engine.scan(KeyRange(Key(b"p", b"2"), Key(b"q", b"")), rows_max=9) == [
        everything[2]
    ]


async def test_close_finishes_what_was_accepted_and_then_nothing_is_answered(
    opened: Engine,
) -> None:
    engine = opened
    accepted = [
        asyncio.ensure_future(engine.commit(insert(b"p", b"%d" % index))) for index in range(50)
    ]
    await asyncio.sleep(0)
    await engine.close()
    assert await asyncio.gather(*accepted) == [Committed([VERSION])] * 50
    with pytest.raises(EngineUnavailable):
        await engine.commit(insert(b"p", b"late"))
    with pytest.raises(EngineUnavailable):
        await engine.read([WHOLE], rows_max=1, bytes_max=1)
    with pytest.raises(EngineUnavailable):
        await engine.scan(WHOLE, rows_max=1)
    with pytest.raises(EngineUnavailable):
        await engine.get(Key(b"p", b"1"))
    await engine.close()  # again: nothing happens
