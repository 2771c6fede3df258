"""Marks of changes under leases: a few reused names, and a sentinel before every other row.

Cassandra reads past deleted rows for days (docs/decisions/0008-leases.md).
"""

import uuid
from itertools import count

import pytest

from tablestone.engines.contract import ANY, DELETE, Change, Committed, KeyRange, Put
from tablestone.engines.leases import Leases
from tablestone.engines.memory import MemoryEngine
from tablestone.tables import cache_invalidation, storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.cache_invalidation import InvalidatingChange, remove_old_marks
from tablestone.tables.catalog import Catalog
from tablestone.tables.metadata import Documents
from unit.engines.leased_storage import KIND, PLACE, at_once

pytestmark = pytest.mark.asyncio

SECONDS = 0.001


@pytest.mark.parametrize("partition", [PLACE.partition, storage_keys.catalog_partition("account")])
async def test_the_first_mark_brings_a_sentinel_that_stays_before_every_row(
    partition: bytes,
) -> None:
    """A read of the first row finds it at once, instead of after all deleted rows."""
    storage = MemoryEngine(count(1_000).__next__)
    engine = at_once(storage, Leases(SECONDS))
    ids = (b"%08d" % number for number in count())
    catalog = Catalog(engine, count(1_000).__next__, ids.__next__)
    documents = Documents(engine)

    async def first_row() -> list[bytes]:
        whole = KeyRange.of_partition(partition)
        return [row.row for row in await storage.scan(whole, rows_max=1)]

    await catalog.create(Named("account"), "table")
    assert await first_row() != [storage_keys.SENTINEL_ROW]
    for name in ("a", "table"):
        await catalog.delete(Named("account"), "table")
        await catalog.create(Named("account"), "table")
        await documents.change(KIND, name, lambda _: {"assignments": []})
        await documents.change(KIND, name, lambda _: None)
        assert await first_row() == [storage_keys.SENTINEL_ROW]


async def test_marks_have_few_names_and_use_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name that was used once slows the reads of marks, for days."""
    monkeypatch.setattr(cache_invalidation, "outlast", no_wait)
    storage = MemoryEngine(count(1_000).__next__)
    engine = at_once(storage, Leases(SECONDS))
    names: set[bytes] = set()
    for _ in range(2_000):
        async with InvalidatingChange(engine, PLACE.partition) as change:
            await change.waits()
            names |= await marks_of(storage)
    assert len(names) <= 256
    assert await marks_of(storage) == set()


async def test_changes_at_the_same_time_have_marks_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache_invalidation, "outlast", no_wait)
    storage = MemoryEngine(count(1_000).__next__)
    engine = at_once(storage, Leases(SECONDS))
    changes = [InvalidatingChange(engine, PLACE.partition) for _ in range(600)]
    for marked, change in enumerate(changes, 1):
        await change.waits()
        assert len(await marks_of(storage)) == marked
    for left, change in enumerate(reversed(changes)):
        assert isinstance(await change.commit((Change(b"row", ANY, DELETE),)), Committed)
        assert len(await marks_of(storage)) == 599 - left


@pytest.mark.parametrize("is_given_up", [True, False])
async def test_a_change_does_not_take_the_mark_of_another_one_for_its_own(
    monkeypatch: pytest.MonkeyPatch, *, is_given_up: bool
) -> None:
    """Its mark was removed as an old one, and the name was reused: it waits again, and the other change does not."""
    waits: list[float] = []

    async def outlast(seconds: float) -> None:
        waits.append(seconds)

    class Names:
        """Every change draws the same name first."""

        def __init__(self) -> None:
            self.bytes = bytes((min(len(waits) // 2, 1),)) * 16

    monkeypatch.setattr(cache_invalidation, "outlast", outlast)
    monkeypatch.setattr(uuid, "uuid4", Names)
    storage = MemoryEngine(count(1_000).__next__)
    engine = at_once(storage, Leases(SECONDS))
    put = Change(PLACE.row, ANY, Put(lambda _: b"{}"))
    stopped = InvalidatingChange(engine, PLACE.partition)
    async with InvalidatingChange(engine, PLACE.partition) as other:
        async with stopped:
            assert await stopped.waits()
            await remove_old_marks(engine, PLACE.partition, before=1 << 60)
            assert await other.waits()
            (taken,) = await marks_of(storage)
            if not is_given_up:
                assert isinstance(await stopped.commit((put,)), Committed)
        assert len(waits) == (2 if is_given_up else 3)
        assert await marks_of(storage) == {taken}
        assert isinstance(await other.commit((put,)), Committed)
    assert len(waits) == (2 if is_given_up else 3)
    assert await marks_of(storage) == set()


async def no_wait(_seconds: float) -> None:
    """Skips the wait for leases, in a test without readers."""


async def marks_of(storage: MemoryEngine) -> set[bytes]:
    rows = await storage.scan(storage_keys.marks(PLACE.partition), rows_max=1000)
    return {row.row for row in rows}
