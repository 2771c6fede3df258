"""A commit that always conflicts: every way to change something gives up in the end, with the same error."""

from collections.abc import Awaitable, Callable

import pytest

from tablestone import limits
from tablestone.engines.contract import EngineBusy
from tablestone.engines.memory import MemoryEngine
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.cache_invalidation import one_more_conflict
from tablestone.tables.catalog import Catalog
from tablestone.tables.metadata import DocumentKind, Documents
from wire.overtaken import OvertakenEngine

OWNER = Named("account")
TABLE_ID = b"\0" * storage_keys.TABLE_ID_LENGTH


async def _change_document(engine: MemoryEngine) -> None:
    await Documents(engine).change(DocumentKind.ACCOUNT, "name", lambda _: {"n": 5})


async def _create_table(engine: MemoryEngine) -> None:
    await _catalog(engine).create(OWNER, "new")


async def _delete_table(engine: MemoryEngine) -> None:
    await _catalog(engine).delete(OWNER, "table")


async def _set_policies(engine: MemoryEngine) -> None:
    await _catalog(engine).set_identifiers(OWNER, "table", ())


def _catalog(engine: MemoryEngine) -> Catalog:
    return Catalog(engine, lambda: 1_000, lambda: TABLE_ID, deletion_seconds=40)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("attempt", "what"),
    [
        (_change_document, "the account of name"),
        (_create_table, "table new"),
        (_delete_table, "table table"),
        (_set_policies, "table table"),
    ],
)
async def test_a_commit_that_is_always_overtaken_gives_up(
    attempt: Callable[[MemoryEngine], Awaitable[None]], what: str
) -> None:
    engine = OvertakenEngine(lambda: 1_000)
    await _catalog(engine).create(OWNER, "table")
    engine.conflicts = 0
    with pytest.raises(EngineBusy) as overtaken:
        await attempt(engine)
    assert str(overtaken.value) == f"Other requests keep changing {what}."
    assert engine.conflicts == limits.COMMIT_ATTEMPTS_MAX


def test_as_many_conflicts_are_counted_as_there_may_be_attempts() -> None:
    conflicts = 0
    for _ in range(limits.COMMIT_ATTEMPTS_MAX - 1):
        conflicts = one_more_conflict(conflicts, "it")
    with pytest.raises(EngineBusy, match="Other requests keep changing it"):
        one_more_conflict(conflicts, "it")
