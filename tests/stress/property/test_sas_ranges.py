"""The key range of a table SAS against a model: any query, paged or not, returns exactly the entities in it."""

import asyncio
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from tablestone.auth.shared_access_signature import TableSas
from tablestone.engines.memory import MemoryEngine
from tablestone.model.entity import Entity
from tablestone.model.entity_json import key_of, read_raw
from tablestone.model.errors import StorageError
from tablestone.model.keys import ContinuationToken, EntityKey, KeyBounds
from tablestone.model.operations import (
    DeleteEntity,
    EntitiesPage,
    GetEntity,
    InsertEntity,
    QueryEntities,
)
from tablestone.query.filter_parser import parse_filter
from tablestone.tables.account_incarnation import Named
from tablestone.tables.service import TableService
from tablestone.wire.versions import VERSION_LATEST

# Beyond U+FFFF sorts before U+E000 here, as UTF-16 does (wire 6.10). Few of them, so that bounds fall on keys.
_TEXTS = st.sampled_from(("", "a", "ab", "b", "\ue000", "\U0001f600"))
_KEYS = st.builds(EntityKey, _TEXTS, _TEXTS)
_FILTERS = st.sampled_from(
    (
        *("", "PartitionKey eq 'a'", "PartitionKey ge 'a' and RowKey lt 'b'"),
        *("PartitionKey eq 'a' and RowKey eq 'b'", "PartitionKey gt 'a' or RowKey eq 'a'"),
        *("not (PartitionKey eq 'a')", "RowKey eq 'a' or n eq 1", "n ne 7"),
        *("startswith(PartitionKey,'a')", "not startswith(RowKey,'a')", "contains(RowKey,'b')"),
        "startswith(PartitionKey,'') and endswith(RowKey,'a')",
    )
)


@st.composite
def _bounds(draw: st.DrawFn) -> KeyBounds:
    """Row keys only beside their partition keys. No bound is empty, because an empty one is none."""
    texts = st.none() | _TEXTS.filter(bool)
    first, last = draw(texts), draw(texts)
    return KeyBounds(
        first, None if first is None else draw(texts), last, None if last is None else draw(texts)
    )


def _units(text: str) -> bytes:
    return text.encode("utf-16-be")


def _is_within(bounds: KeyBounds, key: EntityKey) -> bool:
    """The table of auth 3.5, word for word."""
    partition, row = _units(key.partition_key), _units(key.row_key)
    spk, srk, epk, erk = (None if bound is None else _units(bound) for bound in bounds)
    lower = spk is None or partition > spk or (partition == spk and (srk is None or row >= srk))
    upper = epk is None or partition < epk or (partition == epk and (erk is None or row <= erk))
    return lower and upper


async def _pages(
    service: TableService, query: QueryEntities, sas: TableSas
) -> tuple[list[EntityKey], list[EntityKey]]:
    """Every key that the caller sees, page by page, and every key that a token names."""
    seen: list[EntityKey] = []
    named: list[EntityKey] = []
    token: ContinuationToken | None = None
    while True:
        asked = QueryEntities(query.table, query.filter, query.top, None, token)
        result = await service.execute(Named("acct"), sas.permit(asked))
        assert isinstance(result, EntitiesPage)
        seen += [key_of(read_raw(stored)) for stored in result.stored]
        token = result.token
        if token is None:
            return seen, named
        named.append(EntityKey(*token))


def _may(sas: TableSas, operation: GetEntity | InsertEntity | DeleteEntity) -> str:
    try:
        sas.permit(operation)
    except StorageError as error:
        return error.code
    return ""


@settings(max_examples=300, deadline=None)
@given(
    keys=st.lists(_KEYS, unique=True, max_size=12),
    bounds=_bounds(),
    filter_text=_FILTERS,
    top=st.integers(1, 4),
    start=st.none() | _KEYS,
)
def test_exactly_what_is_in_the_range(
    keys: list[EntityKey], bounds: KeyBounds, filter_text: str, top: int, start: EntityKey | None
) -> None:
    async def run() -> None:
        ids = count(1)
        service = TableService(
            MemoryEngine(lambda: 1), lambda: 1, lambda: 0.0, lambda: next(ids).to_bytes(8, "big")
        )
        await service.catalog.create(Named("acct"), "tab")
        for key in keys:
            await service.execute(Named("acct"), InsertEntity("tab", Entity(key, {"n": '"n":1'})))
        sas, everything = (
            TableSas("tab", "raud", bounds, VERSION_LATEST, None),
            TableSas("tab", "raud", None, VERSION_LATEST, None),
        )
        query = QueryEntities("tab", parse_filter(filter_text, extended=True), top, None, None)
        matching, _ = await _pages(service, query, everything)
        seen, named = await _pages(service, query, sas)
        assert seen == [key for key in matching if _is_within(bounds, key)]
        assert all(_is_within(bounds, key) for key in named), "a token leaks a key"
        for key in keys:
            inside = _is_within(bounds, key)
            assert _may(sas, GetEntity("tab", key, None)) == ("" if inside else "ResourceNotFound")
            for write in (InsertEntity("tab", Entity(key, {})), DeleteEntity("tab", key, -1)):
                assert _may(sas, write) == ("" if inside else "AuthorizationFailure")
        if start is not None:
            forged = QueryEntities("tab", None, 1000, None, ContinuationToken(*start))
            page = await service.execute(Named("acct"), sas.permit(forged))
            assert isinstance(page, EntitiesPage)
            assert all(_is_within(bounds, key_of(read_raw(each))) for each in page.stored)

    asyncio.run(run())
