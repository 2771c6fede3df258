"""Tables whose entities expire against a model that is one dict, with the clock as a move, on every engine.

Every operation is judged by the rule: an expired entity is absent. `test_tables_model.py` has expiry among all else.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine
from itertools import count
from typing import Any, ClassVar, Final, NamedTuple, TypeVar
from unittest.mock import AsyncMock, patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from storage.engines_under_test import URL, engine_for
from tablestone.clock import TICKS_PER_SECOND as SECOND
from tablestone.clock import UNIX_EPOCH_TICKS
from tablestone.engines.change_record import Retention
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import Entity
from tablestone.model.entity_json import key_of, members, read_raw, typed_properties, version_of
from tablestone.model.errors import StorageError
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import ContinuationToken, EntityKey
from tablestone.model.operations import (
    IF_MATCH_ANY,
    ChangesFound,
    Deleted,
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
    Operation,
    QueryEntities,
    ReadConditions,
    ReadTableChanges,
    Result,
    Since,
    TransactionCommitted,
    UpdateEntity,
)
from tablestone.query.filter_parser import parse_filter
from tablestone.tables import catalog
from tablestone.tables.account_incarnation import Named, Owner
from tablestone.tables.expiry_sweeping import ExpirySweeper
from tablestone.tables.service import TableService

OWNER: Final = Named("account")
TABLE: Final = "Sessions"
START: Final = UNIX_EPOCH_TICKS + 1_700_000_000 * SECOND
Answer = TypeVar("Answer")


class Row(NamedTuple):
    version: int
    properties: dict[str, EdmValue]


class Draft(NamedTuple):
    """A write; `end` is that of the entity in seconds from now, in a property of `kind`; None for no property."""

    name: str
    row: str
    end: int | None
    kind: EdmType
    if_match: str


drafts = st.builds(
    Draft,
    st.sampled_from(("insert", "update", "merge", "put", "put or merge", "put or merge", "delete")),
    st.sampled_from("ab"),
    st.sampled_from((None, -1, 0, 1, 1, 2)),
    st.sampled_from(
        (EdmType.DATE_TIME, EdmType.INT32, EdmType.INT64, EdmType.DOUBLE, EdmType.STRING)
    ),
    st.sampled_from(("*", "current", "current", "stale")),
)
policies = st.sampled_from(
    (
        *(ExpiryPolicy(after=1), ExpiryPolicy(after=2)),
        *(ExpiryPolicy(property_name="end"), ExpiryPolicy(property_name="end")),
        ExpiryPolicy(property_name="end", suspended=True),
        None,
    )
)


class ExpiringTable(RuleBasedStateMachine):
    ENGINE: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.rows: dict[str, Row] = {}
        self.policy: ExpiryPolicy | None = None
        self.written = 0
        self.swept = 0
        self.directory = tempfile.mkdtemp()
        self.loop = asyncio.Runner()

    @initialize(policy=policies)
    def begin(self, policy: ExpiryPolicy | None) -> None:
        self.run(self.open())
        self.set_policy(policy)

    async def open(self) -> None:
        self.engine: Any = engine_for(
            self.ENGINE, lambda: self.now, directory=self.directory, one_of_many=True
        )
        if self.engine.changes is not None:
            await self.engine.changes.keep(Retention(None, None))
        ids = count(1)
        self.service = TableService(
            self.engine, lambda: self.now, lambda: 0.0, lambda: next(ids).to_bytes(8, "big")
        )
        await self.service.catalog.create(OWNER, TABLE)

        async def find_owner(_name: str) -> Owner:
            return OWNER

        self.sweeper = ExpirySweeper(
            self.engine, self.service.catalog, find_owner, lambda: self.now, lambda: 0.0, "server"
        )

    def teardown(self) -> None:
        if hasattr(self, "service"):
            self.run(self.engine.close())
        self.loop.close()
        shutil.rmtree(self.directory)

    def run(self, asked: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run(asked)

    def is_live(self, row: Row) -> bool:
        policy = self.policy
        if policy is None or policy.suspended:
            return True
        if policy.after is not None:
            return row.version + policy.after * SECOND > self.now
        kind, value = row.properties.get("end", EdmValue(EdmType.STRING, ""))
        if kind is EdmType.STRING:
            return True
        assert isinstance(value, int | float)
        end = value if kind is EdmType.DATE_TIME else UNIX_EPOCH_TICKS + int(value) * SECOND
        return end > self.now

    @property
    def live(self) -> dict[str, Row]:
        return {key: row for key, row in self.rows.items() if self.is_live(row)}

    def drafted(self, draft: Draft) -> EntityWrite:
        key = EntityKey("p", draft.row)
        self.written += 1
        properties = {f"n{self.written % 2}": EdmValue(EdmType.INT32, self.written)}
        if draft.end is not None:
            ticks = self.now // SECOND * SECOND + draft.end * SECOND
            seconds = (ticks - UNIX_EPOCH_TICKS) // SECOND
            value: Any = ticks if draft.kind is EdmType.DATE_TIME else seconds
            if draft.kind is EdmType.DOUBLE:
                value = float(seconds)
            if draft.kind is EdmType.STRING:
                value = str(seconds)
            properties["end"] = EdmValue(draft.kind, value)
        entity = Entity(key, members(properties))
        version = self.rows[draft.row].version if draft.row in self.rows else 5
        if_match = {"*": IF_MATCH_ANY, "current": version, "stale": 7}[draft.if_match]
        match draft.name:
            case "insert":
                return InsertEntity(TABLE, entity)
            case "update":
                return UpdateEntity(TABLE, entity, if_match)
            case "merge":
                return MergeEntity(TABLE, entity, if_match)
            case "put":
                return InsertOrReplaceEntity(TABLE, entity)
            case "put or merge":
                return InsertOrMergeEntity(TABLE, entity)
        return DeleteEntity(TABLE, key, if_match)

    def code_of(self, write: EntityWrite) -> str | None:
        """The error by which the write fails, by the live entities alone."""
        if isinstance(write, InsertOrReplaceEntity | InsertOrMergeEntity):
            return None
        key = write.key if isinstance(write, DeleteEntity) else write.entity.key
        present = self.live.get(key.row_key)
        if isinstance(write, InsertEntity):
            return None if present is None else "EntityAlreadyExists"
        if present is None:
            return "ResourceNotFound"
        if write.if_match in (IF_MATCH_ANY, present.version):
            return None
        return "UpdateConditionNotSatisfied"

    def apply(self, write: EntityWrite, version: int) -> None:
        if isinstance(write, DeleteEntity):
            del self.rows[write.key.row_key]
            return
        key, texts = write.entity
        before = self.live.get(key.row_key)
        if (stored := self.rows.get(key.row_key)) is not None:
            assert version > stored.version, "a version came back"
        given = typed_properties(read_raw(f"{{{','.join(texts.values())}}}".encode()))
        if isinstance(write, MergeEntity | InsertOrMergeEntity) and before is not None:
            given = {**before.properties, **given}
        self.rows[key.row_key] = Row(version, given)

    @rule(draft=drafts)
    def write_once_more(self, draft: Draft) -> None:
        self.write(draft)

    @rule(draft=drafts)
    def write(self, draft: Draft) -> None:
        self.expect([self.drafted(draft)], is_group=False)

    @rule(some=st.lists(drafts, min_size=1, max_size=2, unique_by=lambda draft: draft.row))
    def transaction(self, some: list[Draft]) -> None:
        self.expect([self.drafted(draft) for draft in some], is_group=True)

    def expect(self, writes: list[EntityWrite], *, is_group: bool) -> None:
        codes = [self.code_of(write) for write in writes]
        failing = next((index for index, code in enumerate(codes) if code), None)
        operation = EntityGroupTransaction(TABLE, "p", writes) if is_group else writes[0]
        answer = self.answer(operation)
        if isinstance(answer, StorageError):
            assert failing is not None, answer
            assert (answer.code, answer.operation_index) == (codes[failing], failing)
            return
        assert failing is None, codes
        results = answer.results if isinstance(answer, TransactionCommitted) else [answer]
        for write, result in zip(writes, results, strict=True):
            assert isinstance(result, Deleted | EntityInserted | EntityWritten)
            self.apply(write, 0 if isinstance(result, Deleted) else result.version)

    def answer(self, operation: Operation) -> Result | StorageError:
        try:
            return self.run(self.service.execute(OWNER, operation))
        except StorageError as error:
            return error

    @rule(row=st.sampled_from("ab"), condition=st.sampled_from(("none", "current", "stale")))
    def get(self, row: str, condition: str) -> None:
        present = self.live.get(row)
        version = self.rows[row].version if row in self.rows else 5
        wanted = {"none": None, "current": version, "stale": 7}[condition]
        operation = GetEntity(TABLE, EntityKey("p", row), None, ReadConditions(None, wanted, None))
        found = self.answer(operation)
        if isinstance(found, StorageError):
            refused = present is not None and condition == "stale"
            assert refused or present is None
            code = "UpdateConditionNotSatisfied" if refused else "ResourceNotFound"
            assert found.code == code
            return
        assert isinstance(found, EntityFound)
        assert present is not None
        self.require(row, found.stored)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "service"):
            self.read_all(top=1000)

    @rule(top=st.just(1), text=st.sampled_from((None, "n0 ge 0", "RowKey ge 'b'")))
    def query(self, top: int, text: str | None) -> None:
        self.read_all(top, text)

    def read_all(self, top: int, text: str | None = None) -> None:
        """All pages: each has `top` entities at most, and together they are the live ones."""
        found: list[bytes] = []
        token: ContinuationToken | None = None
        filtered = None if text is None else parse_filter(text)
        for _ in range(2 * len(self.rows) + 2):
            operation = QueryEntities(TABLE, filtered, top, None, token)
            page = self.run(self.service.execute(OWNER, operation))
            assert isinstance(page, EntitiesPage)
            assert len(page.stored) <= top
            found += page.stored
            token = page.token
            if token is None:
                break
        assert token is None
        wanted = sorted(
            row
            for row, (_, properties) in self.live.items()
            if text is None or (row >= "b" if "RowKey" in text else "n0" in properties)
        )
        assert [key_of(read_raw(each)).row_key for each in found] == wanted
        for row, stored in zip(wanted, found, strict=True):
            self.require(row, stored)

    def require(self, row: str, stored: bytes) -> None:
        version, properties = self.rows[row]
        assert version_of(stored) == version
        assert typed_properties(read_raw(stored)) == properties

    @rule(ticks=st.sampled_from((1, SECOND - 1, SECOND, SECOND, 2 * SECOND, -SECOND)))
    def move_clock(self, ticks: int) -> None:
        self.now += ticks

    @rule(policy=policies)
    def set_policy(self, policy: ExpiryPolicy | None) -> None:
        with patch.object(catalog, "outlast", AsyncMock()):  # nothing is swept meanwhile
            self.run(self.service.catalog.change_expiry(OWNER, TABLE, lambda _old: policy))
        self.policy = policy

    @rule(margin=st.integers(0, 1))
    def sweep(self, margin: int) -> None:
        """What expired so many seconds ago goes, and nothing else; the feed of changes says so."""
        before = dict(self.rows)
        self.now -= margin * SECOND
        gone = self.rows.keys() - self.live.keys()
        self.swept += len(gone)
        self.now += margin * SECOND
        self.rows = {row: before[row] for row in before.keys() - gone}

        async def sweep() -> None:
            async for _ in self.sweeper.steps(margin * SECOND):
                pass

        self.run(sweep())
        assert self.run(self.followed()) == {
            row: version for row, (version, _) in self.rows.items()
        }

    async def followed(self) -> dict[str, int]:
        """What the feed of changes leaves of the table: the versions of its entities."""
        if self.engine.changes is None:
            return {row: version for row, (version, _) in self.rows.items()}
        found = await self.service.execute(OWNER, ReadTableChanges(TABLE, Since.OLDEST))
        assert isinstance(found, ChangesFound)
        left: dict[str, int] = {}
        expired = [commit.entities for commit in found.commits if commit.kind == "expired"]
        assert sum(map(len, expired)) == self.swept
        for commit in found.commits:
            for row, version, stored, _before in commit.entities:
                assert commit.kind == "entities" or stored is None
                if stored is None:
                    assert left.pop(row.decode()) == version
                else:
                    left[row.decode()] = version
        return left


class OnMemory(ExpiringTable):
    ENGINE = "memory"


class OnSqlite(ExpiringTable):
    ENGINE = "sqlite"


class OnEngineUnderTest(ExpiringTable):
    ENGINE = URL or ""


TestOnMemory = OnMemory.TestCase
TestOnMemory.settings = settings(
    max_examples=500 if "SLOW" in os.environ else 60, stateful_step_count=25
)
TestOnSqlite = OnSqlite.TestCase
TestOnSqlite.settings = settings(max_examples=15, stateful_step_count=25)
if URL is not None:
    TestOnEngineUnderTest = OnEngineUnderTest.TestCase
    TestOnEngineUnderTest.settings = settings(max_examples=20, stateful_step_count=20)
