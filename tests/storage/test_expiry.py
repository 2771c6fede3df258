"""Expired entities on every engine: each operation on one, conflicts between its read and its commit, pages, sweeping.

`tests/stress/property/test_expiry.py` tries the rule at random.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest
import pytest_asyncio

from tablestone.clock import TICKS_PER_SECOND as SECOND
from tablestone.clock import UNIX_EPOCH_TICKS
from tablestone.engines import request_time
from tablestone.engines.contract import Committed, Conflict, EngineUnavailable, WriteSet
from tablestone.engines.forwarding_engine import ForwardingEngine, ForwardingSnapshot
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import Entity
from tablestone.model.entity_json import key_of, members, read_raw, typed_properties
from tablestone.model.errors import StorageError
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import EntityKey
from tablestone.model.operations import (
    IF_MATCH_ANY,
    DeleteEntity,
    EntitiesPage,
    EntityFound,
    EntityGroupTransaction,
    EntityInserted,
    EntityWrite,
    EntityWritten,
    GetEntity,
    InsertEntity,
    InsertOrMergeEntity,
    InsertOrReplaceEntity,
    MergeEntity,
    QueryEntities,
    ReadConditions,
    SetTableExpiry,
    TransactionCommitted,
    UpdateEntity,
)
from tablestone.query.filter_parser import parse_filter
from tablestone.tables import cache_invalidation, catalog, expiry_sweeping
from tablestone.tables.account_incarnation import Named, Owner
from tablestone.tables.expiry import count_ended
from tablestone.tables.expiry_sweeping import ExpirySweeper
from tablestone.tables.service import TableService

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from storage.conftest import HeldClock
    from tablestone.engines.contract import Engine, Hint, KeyRange, Rows, Snapshot
    from tablestone.model.operations import Operation, Result

pytestmark = pytest.mark.asyncio

OWNER: Final = Named("expiry")
TABLE: Final = "Sessions"
KEY: Final = EntityKey("p", "r")
POLICY: Final = ExpiryPolicy(after=60)


class OvertakenEngine(ForwardingEngine):
    """Lets another client act before the next commit, once."""

    meanwhile: Callable[[], Awaitable[object]] | None = None
    commits = 0

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.hints: list[Hint | None] = []
        """Of all reads of snapshots."""

    async def snapshot(self) -> Snapshot:
        hints = self.hints

        class Noting(ForwardingSnapshot):
            async def read(
                self,
                ranges: Sequence[KeyRange],
                *,
                rows_max: int,
                bytes_max: int,
                hint: Hint | None = None,
                reverse: bool = False,
            ) -> Rows:
                hints.append(hint)
                return await super().read(
                    ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint, reverse=reverse
                )

        return Noting(await super().snapshot())

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        self.commits += 1
        return await super().commit(write_set)


class Sessions:
    """A table whose entities expire after a minute."""

    def __init__(self, engine: Engine, clock: HeldClock) -> None:
        clock.now = UNIX_EPOCH_TICKS + 1_700_000_000 * SECOND
        self.clock = clock
        self.engine = OvertakenEngine(engine)
        ids = count(1)
        self.service = TableService(
            self.engine, clock, lambda: 0.0, lambda: next(ids).to_bytes(8, "big")
        )
        self.sweeper = ExpirySweeper(
            self.engine, self.service.catalog, self.owner, clock, lambda: 0.0, "server"
        )

    async def owner(self, _name: str) -> Owner:
        return OWNER

    async def policy(self, policy: ExpiryPolicy | None) -> None:
        await self.service.catalog.change_expiry(OWNER, TABLE, lambda _old: policy)

    async def do(self, operation: Operation) -> Result:
        return await self.service.execute(OWNER, operation)

    async def put(self, row: str = "r", **numbers: int) -> int:
        written = await self.do(InsertOrReplaceEntity(TABLE, entity(row, **numbers)))
        assert isinstance(written, EntityWritten)
        return written.version

    async def outcome(self, operation: Operation) -> str:
        """The code of the error, or what is stored then: the properties of the one entity."""
        try:
            await self.do(operation)
            found = await self.do(GetEntity(TABLE, KEY, None))
        except StorageError as error:
            return error.code
        assert isinstance(found, EntityFound)
        return " ".join(typed_properties(read_raw(found.stored)))

    async def rows(self, top: int = 1000, text: str | None = None) -> list[str]:
        page = await self.do(
            QueryEntities(TABLE, None if text is None else parse_filter(text), top, None, None)
        )
        assert isinstance(page, EntitiesPage)
        return [key_of(read_raw(stored)).row_key for stored in page.stored]

    async def sweep(self, margin: int = 0) -> int:
        before = self.sweeper.swept
        async for _ in self.sweeper.steps(margin):
            pass
        return self.sweeper.swept - before

    def pass_by(self, seconds: float) -> None:
        self.clock.now += int(seconds * SECOND)


def entity(row: str = "r", **numbers: int) -> Entity:
    typed = {name: EdmValue(EdmType.INT32, number) for name, number in numbers.items()}
    return Entity(EntityKey("p", row), members(typed))


@pytest_asyncio.fixture
async def sessions(engine: Engine, clock: HeldClock, monkeypatch: pytest.MonkeyPatch) -> Sessions:
    """A change of a policy waits for no sweep, except in the tests of that."""

    async def no_wait(_seconds: float) -> None:
        pass

    monkeypatch.setattr(catalog, "outlast", no_wait)
    made = Sessions(engine, clock)
    await made.service.catalog.create(OWNER, TABLE)
    await made.policy(POLICY)
    return made


NEW: Final = entity(new=1)


def read(if_match: int | None = None, if_none_match: int | None = None) -> GetEntity:
    return GetEntity(TABLE, KEY, None, ReadConditions(None, if_match, if_none_match))


CASES: Final[dict[str, tuple[Callable[[int], Operation], str, str]]] = {
    # operation by the version that is stored: its outcome while the entity lives, and once it has expired
    "read": (lambda _: GetEntity(TABLE, KEY, None), "old", "ResourceNotFound"),
    "read if-match": (read, "old", "ResourceNotFound"),
    "read if-none-match": (
        lambda version: read(None, version),
        "ConditionNotMet",
        "ResourceNotFound",
    ),
    "insert": (lambda _: InsertEntity(TABLE, NEW), "EntityAlreadyExists", "new"),
    "replace": (lambda _: InsertOrReplaceEntity(TABLE, NEW), "new", "new"),
    "insert or merge": (lambda _: InsertOrMergeEntity(TABLE, NEW), "new old", "new"),
    "merge": (lambda _: MergeEntity(TABLE, NEW, IF_MATCH_ANY), "new old", "ResourceNotFound"),
    "merge if-match": (
        lambda version: MergeEntity(TABLE, NEW, version),
        "new old",
        "ResourceNotFound",
    ),
    "update": (lambda _: UpdateEntity(TABLE, NEW, IF_MATCH_ANY), "new", "ResourceNotFound"),
    "update if-match": (
        lambda version: UpdateEntity(TABLE, NEW, version),
        "new",
        "ResourceNotFound",
    ),
    "update of another version": (
        lambda version: UpdateEntity(TABLE, NEW, version - 1),
        "UpdateConditionNotSatisfied",
        "ResourceNotFound",
    ),
    "delete": (
        lambda version: DeleteEntity(TABLE, KEY, version),
        "ResourceNotFound",
        "ResourceNotFound",
    ),
}


def grouped(operation: Operation) -> Operation:
    """A write with another one in a transaction."""
    if isinstance(operation, GetEntity):
        return operation
    assert isinstance(operation, EntityWrite)
    other = InsertOrReplaceEntity(TABLE, entity("other", n=1))
    return EntityGroupTransaction(TABLE, "p", [other, operation])


@pytest.mark.parametrize("case", CASES)
async def test_an_expired_entity_is_absent(sessions: Sessions, case: str) -> None:
    """Alone and inside a transaction; and it is there again while the policy is suspended."""
    make, alive, expired = CASES[case]
    for wait, expected in ((59, alive), (60, expired)):
        for form in (make, lambda version: grouped(make(version))):
            sessions.pass_by(1)
            version = await sessions.put(old=1)
            sessions.pass_by(wait)
            assert await sessions.outcome(form(version)) == expected, wait
    sessions.pass_by(1)
    version = await sessions.put(old=1)
    sessions.pass_by(60)
    await sessions.policy(ExpiryPolicy(after=60, suspended=True))
    assert await sessions.outcome(make(version)) == alive


@pytest.mark.parametrize("limit", ["p", "r"])
async def test_a_transaction_names_the_operation_that_fails(sessions: Sessions, limit: str) -> None:
    await sessions.put("p", n=1)
    sessions.pass_by(60)
    await sessions.put("r", n=1)
    writes = [InsertOrReplaceEntity(TABLE, entity(f"{number}", n=1)) for number in range(90)]
    last = UpdateEntity(TABLE, entity(limit, n=2), IF_MATCH_ANY)
    transaction = EntityGroupTransaction(TABLE, "p", [*writes, last])
    if limit == "r":
        done = await sessions.do(transaction)
        assert isinstance(done, TransactionCommitted)
        assert await sessions.rows() == sorted([*(f"{number}" for number in range(90)), "r"])
        return
    with pytest.raises(StorageError) as refused:
        await sessions.do(transaction)
    assert (refused.value.code, refused.value.operation_index) == ("ResourceNotFound", 90)
    assert await sessions.rows() == ["r"]


async def test_a_transaction_of_entities_that_are_more_than_a_page(sessions: Sessions) -> None:
    """Rows that an engine returns in two answers, in another order than that of their keys; one has expired."""
    texts = {f"t{number}": EdmValue(EdmType.STRING, "€" * 32_000) for number in range(14)}
    rows = ["4", "3", "2", "1"]
    for row in rows:
        await sessions.do(InsertOrReplaceEntity(TABLE, Entity(EntityKey("p", row), members(texts))))
        sessions.pass_by(15)
    updates: list[EntityWrite] = [
        UpdateEntity(TABLE, entity(row, n=1), IF_MATCH_ANY) for row in rows
    ]
    with pytest.raises(StorageError) as refused:
        await sessions.do(EntityGroupTransaction(TABLE, "p", [*updates[1:], updates[0]]))
    assert (refused.value.code, refused.value.operation_index) == ("ResourceNotFound", 3)
    updates[0] = InsertEntity(TABLE, entity("4", n=1))
    await sessions.do(EntityGroupTransaction(TABLE, "p", updates))
    assert await sessions.rows(text="n eq 1") == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("make", "meanwhile", "expected"),
    [
        # Someone else renews the entity between the read and the commit.
        (lambda _: InsertEntity(TABLE, NEW), "renew", "EntityAlreadyExists"),
        (lambda _: InsertOrMergeEntity(TABLE, NEW), "renew", "new renewed"),
        (lambda _: InsertOrReplaceEntity(TABLE, NEW), "renew", "new"),
        (lambda _: MergeEntity(TABLE, NEW, IF_MATCH_ANY), "renew", "ResourceNotFound"),
        # It is swept.
        (lambda _: InsertEntity(TABLE, NEW), "sweep", "new"),
        (lambda _: InsertOrMergeEntity(TABLE, NEW), "sweep", "new"),
        # It is there again.
        (lambda _: InsertEntity(TABLE, NEW), "suspend", "EntityAlreadyExists"),
        (lambda _: InsertOrMergeEntity(TABLE, NEW), "suspend", "new old"),
    ],
)
async def test_a_conflict_over_an_expired_entity_is_decided_again(
    sessions: Sessions, make: Callable[[int], Operation], meanwhile: str, expected: str
) -> None:
    version = await sessions.put(old=1)
    sessions.pass_by(60)
    if meanwhile == "suspend":
        suspended = ExpiryPolicy(after=60, suspended=True)
        sessions.engine.meanwhile = lambda: sessions.policy(suspended)
        if not sessions.engine.capabilities.checks_relied_rows:
            expected = "new"  # as if it had come first
    elif meanwhile == "renew":
        sessions.engine.meanwhile = lambda: sessions.put(renewed=1)
    else:
        sessions.engine.meanwhile = sessions.sweep
    assert await sessions.outcome(make(version)) == expected


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda version: UpdateEntity(TABLE, NEW, version), "UpdateConditionNotSatisfied"),
        (lambda version: DeleteEntity(TABLE, KEY, version), "UpdateConditionNotSatisfied"),
        (lambda _: UpdateEntity(TABLE, NEW, IF_MATCH_ANY), "new"),
        (lambda _: MergeEntity(TABLE, NEW, IF_MATCH_ANY), "new renewed"),
    ],
)
async def test_if_match_is_judged_once(
    sessions: Sessions, make: Callable[[int], Operation], expected: str
) -> None:
    """A version that another client replaces before the commit is 412, after one attempt; `*` is tried again."""
    version = await sessions.put(old=1)
    sessions.engine.meanwhile = lambda: sessions.put(renewed=1)
    sessions.engine.commits = 0
    assert await sessions.outcome(make(version)) == expected
    assert sessions.engine.commits == (3 if expected.startswith("new") else 2)


async def test_pages_are_full_and_tokens_name_expired_entities(sessions: Sessions) -> None:
    for row in range(6):
        await sessions.put(f"{row}", n=1)
    sessions.pass_by(60)
    for row in (1, 4):
        await sessions.put(f"{row}", n=2)
    page = await sessions.do(QueryEntities(TABLE, None, 1, None, None))
    assert isinstance(page, EntitiesPage)
    assert [key_of(read_raw(stored)).row_key for stored in page.stored] == ["1"]
    assert page.token is not None
    assert page.token.next_row_key in {"2", "3"}
    page = await sessions.do(QueryEntities(TABLE, None, 2, None, page.token))
    assert isinstance(page, EntitiesPage)
    assert [key_of(read_raw(stored)).row_key for stored in page.stored] == ["4"]
    assert await sessions.rows(text="n ge 1") == ["1", "4"]
    sessions.engine.hints.clear()
    page = await sessions.do(QueryEntities(TABLE, parse_filter("n ge 2"), 1000, None, None))
    assert isinstance(page, EntitiesPage)
    assert page.rows_read == 6  # what the scan costs, with the expired ones
    assert any(sessions.engine.hints) == sessions.engine.capabilities.hints
    assert await sessions.rows(text="PartitionKey eq 'p' and RowKey eq '0'") == []


VALUES: Final = {
    # the value of the property when the time is 1,700,000,000 seconds: whether the entity has expired
    EdmValue(EdmType.DATE_TIME, UNIX_EPOCH_TICKS + 1_700_000_000 * SECOND): True,
    EdmValue(EdmType.DATE_TIME, UNIX_EPOCH_TICKS + 1_700_000_000 * SECOND + 1): False,
    EdmValue(EdmType.INT32, 1_700_000_000): True,
    EdmValue(EdmType.INT32, 1_700_000_001): False,
    EdmValue(EdmType.INT32, -1): True,
    EdmValue(EdmType.INT64, 1_699_999_999): True,
    EdmValue(EdmType.INT64, 2**63 - 1): False,
    EdmValue(EdmType.INT64, -(2**63)): True,
    EdmValue(EdmType.DOUBLE, 1_700_000_000.0): True,
    EdmValue(EdmType.DOUBLE, 1_700_000_000.5): False,
    EdmValue(EdmType.DOUBLE, 1.7e308): False,
    EdmValue(EdmType.DOUBLE, -1.7e308): True,
    EdmValue(EdmType.DOUBLE, float("inf")): False,
    EdmValue(EdmType.DOUBLE, float("-inf")): False,
    EdmValue(EdmType.STRING, "2012-01-01T00:00:00Z"): False,
    EdmValue(EdmType.STRING, "5"): False,
    EdmValue(EdmType.BOOLEAN, True): False,
    EdmValue(EdmType.BINARY, b"5"): False,
}


async def test_which_values_have_expired(sessions: Sessions) -> None:
    """All others never do, as an absent one; hidden and swept alike."""
    await sessions.policy(ExpiryPolicy(property_name="expires"))
    live = ["absent"]
    await sessions.put("absent", n=1)
    for number, (value, has_expired) in enumerate(VALUES.items()):
        key = EntityKey("p", f"{number:02}")
        await sessions.do(InsertOrReplaceEntity(TABLE, Entity(key, members({"expires": value}))))
        live += [] if has_expired else [key.row_key]
    assert await sessions.rows() == sorted(live)
    record = await sessions.service.catalog.require(OWNER, TABLE)
    assert record.expiry is not None
    counts = await count_ended(sessions.engine, record.table_id, record.expiry, sessions.clock())
    never = sum(
        value.type not in (EdmType.DATE_TIME, EdmType.INT32, EdmType.INT64, EdmType.DOUBLE)
        or str(value.value).endswith("inf")
        for value in VALUES
    )
    far = 2  # the largest Int64, and the large Double
    found = counts.entities, counts.hidden, counts.never, counts.far
    assert found == (1 + len(VALUES), sum(VALUES.values()), 1 + never, far)
    assert await sessions.sweep() == sum(VALUES.values())
    await sessions.policy(None)
    assert await sessions.rows() == sorted(live)


async def test_a_sweep_takes_what_expired_before_and_spares_what_was_renewed(
    sessions: Sessions,
) -> None:
    for row in range(120):
        await sessions.put(f"{row:03}", n=1)
    sessions.pass_by(60)
    assert await sessions.sweep(margin=1) == 0
    sessions.pass_by(1)
    sessions.engine.meanwhile = lambda: sessions.put("050", n=2)
    assert await sessions.sweep(margin=SECOND) == 119
    assert await sessions.rows() == ["050"]
    sessions.pass_by(120)
    await sessions.policy(ExpiryPolicy(after=60, suspended=True))
    assert await sessions.sweep() == 0
    assert await sessions.rows() == ["050"]


async def test_more_entities_than_a_step_takes(sessions: Sessions) -> None:
    for first in range(0, 600, 100):
        writes = [
            InsertOrReplaceEntity(TABLE, entity(f"{row:03}", n=1))
            for row in range(first, first + 100)
        ]
        await sessions.do(EntityGroupTransaction(TABLE, "p", writes))
    assert len([step async for step in sessions.sweeper.steps(0)]) == 2  # no row is read twice
    sessions.pass_by(60)
    await sessions.put("300", n=2)
    record = await sessions.service.catalog.require(OWNER, TABLE)
    counts = await count_ended(sessions.engine, record.table_id, POLICY, sessions.clock())
    assert (counts.entities, counts.hidden, counts.never, counts.far) == (600, 599, 0, 0)
    assert await sessions.sweep() == 599
    assert await sessions.rows() == ["300"]


async def test_a_sweep_stops_where_the_clock_jumps(sessions: Sessions) -> None:
    """They are hidden all the same."""
    await sessions.put("r", n=1)
    sessions.pass_by(3601)
    assert await sessions.rows() == []
    assert await sessions.sweep() == 0
    sessions.pass_by(-1)
    assert await sessions.sweep() == 1


TRIES = 20


async def made_again(sessions: Sessions) -> None:
    """The table is deleted during a step, and another one of its name has the same entities, alive."""
    await sessions.service.catalog.delete(OWNER, TABLE)
    await sessions.service.catalog.create(OWNER, TABLE)
    await sessions.policy(POLICY)
    for row in range(20):
        await sessions.put(f"{row:03}", n=1)


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda sessions: sessions.policy(ExpiryPolicy(after=60, suspended=True)), 120),
        (lambda sessions: sessions.policy(ExpiryPolicy(after=3600)), 120),
        (lambda sessions: sessions.policy(ExpiryPolicy(property_name="expires")), 120),
        (lambda sessions: sessions.policy(None), 120),
        (made_again, 20),
    ],
    ids=["suspended", "longer", "by a property", "removed", "made again"],
)
async def test_nothing_is_swept_after_a_change_of_the_policy(
    sessions: Sessions,
    change: Callable[[Sessions], Awaitable[None]],
    left: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also not by a step that began before it, whose commit is as late as it can be: what was seen since stays."""
    monkeypatch.setattr(catalog, "outlast", cache_invalidation.outlast)
    for module in (catalog, expiry_sweeping):
        monkeypatch.setattr(module, "SWEEPING_SECONDS", 0.2)
    sessions.sweeper._at_once = 1
    for first in (0, 100):
        writes = [
            InsertOrReplaceEntity(TABLE, entity(f"{row:03}", n=1))
            for row in range(first, min(first + 100, 120))
        ]
        await sessions.do(EntityGroupTransaction(TABLE, "p", writes))
    sessions.pass_by(60)
    seen: list[str] = []

    async def meanwhile() -> None:
        request_time.forget()  # another client
        await change(sessions)
        seen.extend(await sessions.rows())

    sessions.engine.meanwhile = lambda: asyncio.create_task(meanwhile())
    for _ in range(TRIES):
        try:
            await sessions.sweep()
        except (
            EngineUnavailable
        ):  # the time of the step is over, on a loaded node even before its commit
            assert sessions.engine.capabilities.waits
        if seen:
            break
    assert len(seen) == left
    assert await sessions.rows() == seen
    if (
        sessions.engine.capabilities.checks_relied_rows
    ):  # else a step may remove rows of a deleted table
        assert sessions.sweeper.swept == 0


async def test_a_policy_over_the_wire_ends_the_sweeping_under_the_old_one(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As any other change does; and only a table without entities takes one."""
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(catalog, "outlast", wait)
    setting = SetTableExpiry(TABLE, ExpiryPolicy(property_name="expires"))
    await sessions.service.execute(OWNER, setting)
    is_certain = sessions.engine.capabilities.checks_relied_rows
    assert waited == ([] if is_certain else [catalog.SWEEPING_SECONDS])
    suspended = ExpiryPolicy(property_name="expires", suspended=True)
    for _ in range(2):  # the first may have been killed while it waited
        await sessions.service.execute(OWNER, SetTableExpiry(TABLE, suspended))
    assert waited == ([] if is_certain else [catalog.SWEEPING_SECONDS] * 3)
    await sessions.put("r", n=1)
    with pytest.raises(StorageError, match="TableNotEmpty"):
        await sessions.service.execute(OWNER, setting)


async def test_an_insert_over_an_expired_entity_says_its_version(sessions: Sessions) -> None:
    old = await sessions.put(old=1)
    sessions.pass_by(60)
    inserted = await sessions.do(InsertEntity(TABLE, NEW))
    assert isinstance(inserted, EntityInserted)
    assert inserted.version > old
    found = await sessions.do(GetEntity(TABLE, KEY, None))
    assert isinstance(found, EntityFound)
    assert found.stored == inserted.render(inserted.version)
