"""Cached rows and documents: read from memory while they are valid, and never after."""

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest

from storage.engines_under_test import engine_for
from tablestone.clock import system_clock
from tablestone.engines.contract import ANY, Change, Engine, Key, Put, WriteSet
from tablestone.tables.cached_rows import CachedRows
from tablestone.tables.integrity import check_rows
from tablestone.tables.metadata import DocumentKind, Documents, Members

PLACE = Key(b"\x03roles", b"name")
ENGINES = ("memory", "sqlite")


class CountingReads:
    """Makes a value from a row, and counts how often it has to."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, value: bytes) -> bytes:
        self.count += 1
        return value


def run(url: str, scene: Callable[[Engine], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = engine_for(url, system_clock)
        try:
            await scene(engine)
        finally:
            await engine.close()

    asyncio.run(main())


async def put(engine: Engine, value: bytes, *, invalidates_caches: bool = True) -> None:
    change = Change(PLACE.row, ANY, Put(lambda _version: value))
    await engine.commit(WriteSet(PLACE.partition, (change,), invalidates_caches=invalidates_caches))


@pytest.mark.parametrize("url", ENGINES)
def test_a_row_is_read_once_until_its_cache_is_invalidated(url: str) -> None:
    async def scene(engine: Engine) -> None:
        rows, read = CachedRows(engine), CountingReads()
        assert [await rows.get(PLACE, read) for _ in range(3)] == [None, None, None]
        await put(engine, b"first")
        assert [await rows.get(PLACE, read) for _ in range(3)] == [b"first"] * 3
        assert read.count == 1
        await put(engine, b"second")
        assert [await rows.get(PLACE, read) for _ in range(3)] == [b"second"] * 3
        assert read.count == 2

    run(url, scene)


@pytest.mark.parametrize("url", ENGINES)
def test_the_generation_changes_with_invalidating_commits_only(url: str) -> None:
    async def scene(engine: Engine) -> None:
        before = engine.generation
        assert before is not None
        await put(engine, b"value", invalidates_caches=False)
        assert engine.generation == before
        await put(engine, b"value")
        assert engine.generation not in (before, None)

    run(url, scene)


def test_nothing_is_kept_while_an_invalidating_commit_is_under_way() -> None:
    async def scene(engine: Engine) -> None:
        await put(engine, b"old")
        rows = CachedRows(engine)
        seen: list[tuple[int | None, bytes | None]] = []
        commit = asyncio.ensure_future(put(engine, b"new"))
        while not commit.done():
            seen.append((engine.generation, await rows.get(PLACE, bytes)))
            await asyncio.sleep(0)
        assert await rows.get(PLACE, bytes) == b"new"
        assert None in {generation for generation, _ in seen}, "it was never met under way"
        values = [value for _, value in seen if value is not None]
        assert len(values) == len(seen)
        assert values == sorted(values, reverse=True), "an old value was read after the new one"

    run("sqlite", scene)


@pytest.mark.parametrize("url", ENGINES)
def test_documents_are_changed_one_edit_after_the_other(url: str) -> None:
    def add_one(members: Members | None) -> Members:
        return {"count": 1 + (0 if members is None else members["count"])}

    async def scene(engine: Engine) -> None:
        documents = Documents(engine)
        edits = [documents.change(DocumentKind.ROLES, "one", add_one) for _ in range(20)]
        await asyncio.gather(*edits, documents.change(DocumentKind.ROLES, "two", add_one))
        assert await documents.get(DocumentKind.ROLES, "one", dict) == {"count": 20}
        assert await documents.names(DocumentKind.ROLES) == ["one", "two"]
        await documents.change(DocumentKind.ROLES, "one", lambda _members: None)
        assert await documents.get(DocumentKind.ROLES, "one", dict) is None
        assert await documents.names(DocumentKind.ROLES) == ["two"]
        assert await check_rows(engine) == []

    run(url, scene)


def test_a_document_in_the_wrong_place_is_found() -> None:
    async def scene(engine: Engine) -> None:
        value = orjson.dumps({"version": 1, "members": {}})
        change = Change(b"name", ANY, Put(lambda _version: value))
        await engine.commit(WriteSet(b"\x03nothing", (change,)))
        (unknown, version) = await check_rows(engine)
        assert "no known kind" in unknown
        assert "says version 1" in version

    run("memory", scene)
