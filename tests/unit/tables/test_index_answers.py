"""A query with indexes and the same one without have the same pages and tokens, whatever they filter by."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stress.property import pools
from stress.property.filter_model import FUNCTIONS, Bare, Both, Comparison, text_of
from tablestone.engines.registry import open_engine
from tablestone.model.edm import EdmType, EdmValue, parse_date_time
from tablestone.model.entity import Entity
from tablestone.model.entity_json import members
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey
from tablestone.model.operations import (
    IF_MATCH_ANY,
    CountForm,
    DeleteEntity,
    EntitiesPage,
    EntityWrite,
    InsertOrMergeEntity,
    InsertOrReplaceEntity,
    QueryEntities,
)
from tablestone.query.plan import PlanKind
from tablestone.tables.account_incarnation import Named
from tablestone.tables.index_building import IndexWork
from tablestone.tables.integrity import check_rows
from tablestone.tables.service import TableService
from unit.query.query_tables import parsed

if TYPE_CHECKING:
    from pathlib import Path

    from stress.property.filter_model import Filter
    from stress.property.model import Value

OWNER = Named("account")
NOW = 638_000_000_000_000_000
NAMES = ("a", "B", "_c")
INDEXED = ("a", "B", "RowKey")
LIMITS = {"FEW_ENTRIES": 3, "SORTED_ENTRIES_MAX": 6, "ENTRIES_PER_READ": 2, "ROWS_PER_READ_MIN": 1}
"""Small, so that every way to read is taken with some twenty entities."""


def _value(value: Value) -> EdmValue:
    kind = EdmType(value[0])
    raw = value[1]
    return EdmValue(kind, parse_date_time(raw) if kind is EdmType.DATE_TIME else raw)


def _filter(random: Random, depth: int = 3) -> Filter:
    """Mostly of what an index serves."""
    if depth and random.randrange(2):
        left, right = _filter(random, depth - 1), _filter(random, depth - 1)
        return Both(random.choice(("and", "or")), left, right)
    if not random.randrange(8):
        return pools.query_filter(random)
    name = random.choice(("PartitionKey", "RowKey", *NAMES, *NAMES))
    texts = {"PartitionKey": pools.PARTITIONS, "RowKey": pools.ROWS}
    if name in texts:
        operators = (*pools.OPERATORS, *FUNCTIONS)
        literal = ("Edm.String", random.choice(texts[name]))
        return Comparison(name, random.choice(operators), literal)
    if not random.randrange(8):
        return Bare(name)
    literal = random.choice(pools.VALUES)
    functions = ("startswith", *FUNCTIONS) if literal[0] == "Edm.String" else ()
    return Comparison(name, random.choice(("eq", "eq", *pools.OPERATORS, *functions)), literal)


async def _filled(url: str, random: Random, *, indexed: bool) -> TableService:
    """A table that was written at random, with indexes that are made in between."""
    engine = open_engine(url, lambda: NOW)
    ids = itertools.count(1)
    service = TableService(engine, lambda: NOW, lambda: 0.0, lambda: next(ids).to_bytes(8, "big"))
    await service.catalog.create(OWNER, "Table")
    writes = random.randrange(60)
    made_at = {name: (random.randrange(writes + 1), not random.randrange(3)) for name in INDEXED}
    for number in range(writes + 1):
        for name, (moment, within) in made_at.items():
            if indexed and moment == number:
                work = IndexWork(service.catalog, OWNER, "Table", name)
                await work.create(within_partition=within)
        key = EntityKey(random.choice(pools.PARTITIONS[:3]), random.choice(pools.ROWS))
        texts = members(
            {n: _value(random.choice(pools.VALUES)) for n in NAMES if random.randrange(4)}
        )
        write: EntityWrite = DeleteEntity("Table", key, IF_MATCH_ANY)
        if kind := random.randrange(6):
            operation = InsertOrMergeEntity if kind < 3 else InsertOrReplaceEntity
            write = operation("Table", Entity(key, texts))
        with suppress(StorageError):
            await service.execute(OWNER, write)
    return service


PAGES_MAX = 200


async def _pages(service: TableService, query: QueryEntities) -> list[EntitiesPage]:
    pages: list[EntitiesPage] = []
    token = None
    while not pages or token is not None:
        page = await service.execute(OWNER, replace(query, token=token))
        assert isinstance(page, EntitiesPage)
        pages.append(page)
        assert len(pages) < PAGES_MAX, "the tokens go round"
        token = page.token
    return pages


async def _compared(url: str, seed: int) -> int:
    """Compare the answers of some queries; the number of pages that were read by an index."""
    plain = await _filled("memory:", Random(seed), indexed=False)
    indexed = await _filled(url, Random(seed), indexed=True)
    assert await check_rows(indexed.catalog.rows._engine) == []
    random = Random(seed)
    by_index = 0
    for _ in range(12):
        text = text_of(_filter(random))
        query = QueryEntities("Table", parsed(text), random.choice((1, 2, 1000)), None, None)
        entities: list[list[bytes]] = []
        for each in (query, replace(query, reverse=True)):
            wanted, found = await _pages(plain, each), await _pages(indexed, each)
            told = [[(page.stored, page.token) for page in pages] for pages in (wanted, found)]
            assert told[0] == told[1], text
            entities.append([stored for page in wanted for stored in page.stored])
            by_index += sum(page.plan == PlanKind.INDEX.value for page in found)
        assert entities[1] == entities[0][::-1], text
        (counted,) = await _pages(indexed, replace(query, counts=CountForm.WHOLE))
        assert counted.count == len(entities[0]), text
    for service in (plain, indexed):
        await service.catalog.rows._engine.close()
    return by_index


@pytest.fixture(autouse=True, params=[1024, 4], ids=["whole values", "values that are cut"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablestone.query.index_plan.VALUE_BYTES_MAX", request.param)
    for name, value in LIMITS.items():
        monkeypatch.setattr(f"tablestone.tables.index_reads.{name}", value)


@given(seed=st.integers(0, 2**32))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_index_changes_no_answer(seed: int) -> None:
    asyncio.run(_compared("memory:", seed))


def test_an_index_changes_no_answer_on_sqlite(tmp_path: Path) -> None:
    found = [asyncio.run(_compared(f"sqlite:{tmp_path / str(n)}", n)) for n in range(12)]
    assert sum(found) > 20  # the indexes were used
