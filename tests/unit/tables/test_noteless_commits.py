"""What commits leave no record of changes: a replica that is made of rows and records has to do without them."""

from __future__ import annotations

import ast
from collections import Counter
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.replica import differences, replayed, stored_rows
from storage.write_sets import committed
from tablestone.accounts.stored_accounts import StoredAccounts, generate_key
from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.change_record import Retention
from tablestone.engines.contract import ABSENT, Change, Put, WriteSet
from tablestone.engines.memory import MemoryEngine
from tablestone.engines.registry import open_engine
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import Entity
from tablestone.model.entity_json import members
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import EntityKey
from tablestone.model.operations import (
    IF_MATCH_ANY,
    CreateTable,
    DeleteEntity,
    DeleteTable,
    EntityGroupTransaction,
    InsertEntity,
    InsertOrMergeEntity,
    SetServiceProperties,
    SetTableAcl,
    SignedIdentifier,
)
from tablestone.tables.account_incarnation import Named
from tablestone.tables.expiry_sweeping import ExpirySweeper
from tablestone.tables.index_building import IndexWork
from tablestone.tables.integrity import check_rows
from tablestone.tables.metadata import DocumentKind, Documents, probe_storage
from tablestone.tables.service import TableService
from tablestone.tables.sweeping import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.replica import Rows
    from tablestone.engines.contract import Engine
    from tablestone.tables.account_incarnation import Owner

SOURCE = Path(__file__).parents[3] / "src" / "tablestone"
LEASES = "only where an engine gives leases, and no such engine keeps changes"
COUNTS = "a count is good for ten minutes, and then it is counted again"
SWEEPS = "the replica has the note of the deleted table, and sweeps it itself"
WITHOUT = {
    ("tables/cache_invalidation.py", "__aexit__"): LEASES,
    ("tables/cache_invalidation.py", "_mark"): LEASES,
    ("tables/cache_invalidation.py", "remove_old_marks"): LEASES,
    ("tables/expiry_counts.py", "_commit"): COUNTS,
    ("tables/expiry_counts.py", "_ask"): COUNTS,
    ("tables/expiry_sweeping.py", "_has_lease"): LEASES,
    (
        "tables/index_building.py",
        "_reindexing",
    ): "index entries follow from the rows, and it changes no row",
    ("tables/metadata.py", "probe_storage"): "the row says nothing: writing it is all",
    ("tables/sweeping.py", "_claim"): LEASES,
    ("tables/sweeping.py", "_remove"): SWEEPS,
    ("tables/sweeping.py", "_forget"): SWEEPS,
    (
        "testing/realism.py",
        "_catch_up",
    ): "a secondary of the test kit, in memory: the primary has the record",
}
NOTE_AT = WriteSet._fields.index("note")


def commits_without_a_note(tree: ast.AST, function: str = "") -> Iterator[str]:
    """The function of each write set without a note, or with None for one."""
    for node in ast.iter_child_nodes(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        inside = node.name if is_function else function  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            notes = [each.value for each in node.keywords if each.arg == "note"]
            is_made = called.rpartition(".")[2] == "WriteSet"
            if is_made:
                notes += node.args[NOTE_AT:][:1]
            is_taken = called.endswith("._replace") and bool(notes)
            if (is_made and not notes) or (
                (is_made or is_taken) and "None" in map(ast.unparse, notes)
            ):
                yield inside
        yield from commits_without_a_note(node, inside)


def test_each_commit_without_a_note_has_a_reason() -> None:
    found = Counter(
        (path.relative_to(SOURCE).as_posix(), function)
        for path in sorted(SOURCE.rglob("*.py"))
        for function in commits_without_a_note(ast.parse(path.read_text()))
    )
    assert found == dict.fromkeys(WITHOUT, 1)


@pytest.mark.parametrize(
    "source",
    [
        "WriteSet(p, c)",
        "WriteSet(p, c, True)",
        "contract.WriteSet(p, c, entries_of=e)",
        "WriteSet(p, c, note=None)",
        "WriteSet(p, c, True, None)",
        "[w._replace(note=None) for w in v]",
    ],
)
def test_a_commit_without_a_note_is_found(source: str) -> None:
    assert list(commits_without_a_note(ast.parse(f"async def f():\n  {source}"))) == ["f"]


def test_a_commit_with_a_note_is_none() -> None:
    source = "def f():\n WriteSet(p, c, note=n)\n WriteSet(p, c, True, n)\n w._replace(changes=c)"
    assert list(commits_without_a_note(ast.parse(source))) == []


class Clock:
    def __init__(self) -> None:
        self.now = 638_000_000_000_000_000

    def ticks(self) -> int:
        self.now += 1
        return self.now

    def pass_by(self, seconds: int) -> None:
        self.now += seconds * TICKS_PER_SECOND


class Server:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.engine = engine
        self.clock = clock
        ids = count(1)
        self.service = TableService(
            engine, clock.ticks, lambda: 0.0, lambda: next(ids).to_bytes(8, "big")
        )
        self.sweeper = Sweeper(engine, clock.ticks, lambda: b"a server")

    async def do(self, *operations: object) -> None:
        for operation in operations:
            await self.service.execute(Named("acct"), operation)  # type: ignore[arg-type]

    async def sweep(self) -> None:
        """Remove what was deleted, and an hour later the notes of it."""
        while await self.sweeper.step():
            pass
        self.clock.pass_by(3600)
        await self.sweeper.step()

    async def owner(self, name: str) -> Owner:
        return Named(name)


def entity(row: str, number: int = 1) -> Entity:
    properties = {"n": EdmValue(EdmType.INT32, number)}
    return Entity(EntityKey("p", row), members(properties))


async def change_everything(server: Server) -> None:
    """One of each kind of operation that stores something."""
    engine, catalog = server.engine, server.service.catalog
    inserts = tuple(InsertEntity("T", entity(f"{n}")) for n in range(5))
    await server.do(
        CreateTable("T"),
        CreateTable("Gone"),
        InsertEntity("Gone", entity("a")),
        EntityGroupTransaction("T", "p", inserts),
        InsertOrMergeEntity("T", entity("1", 2)),
        DeleteEntity("T", EntityKey("p", "2"), IF_MATCH_ANY),
        SetTableAcl("T", (SignedIdentifier("id", None),)),
        SetServiceProperties({"cors": ()}),
    )
    await IndexWork(catalog, Named("acct"), "T", "n").create(within_partition=False)
    await IndexWork(catalog, Named("acct"), "T", "n").check()
    await server.do(InsertEntity("T", entity("6")))
    accounts = StoredAccounts(engine, server.clock.ticks)
    for name in ("first", "second"):
        await accounts.create(name, (generate_key(),))
        await server.service.execute(Named(name), CreateTable("T"))
        await server.service.execute(Named(name), InsertEntity("T", entity("a")))
    await accounts.replace_key("first", 2, generate_key())
    documents = Documents(engine)
    for kind in (DocumentKind.ROLES, DocumentKind.SECRETS):
        await documents.change(kind, "second", lambda _old: {"some": "thing"})
    assert await probe_storage(engine) is None
    await accounts.delete("second", with_tables=True)
    await documents.change(DocumentKind.SECRETS, "second", lambda _old: None)
    await server.do(DeleteTable("Gone"), CreateTable("Gone"))
    await catalog.change_expiry(Named("acct"), "T", lambda _old: ExpiryPolicy(1))
    server.clock.pass_by(10 * 3600)
    sweeper = ExpirySweeper(
        engine, catalog, server.owner, server.clock.ticks, lambda: 0.0, "a server"
    )
    assert [None async for _ in sweeper.steps(0)]
    assert sweeper.swept == 5
    await server.do(InsertEntity("T", entity("7")))


async def replica_of(rows: Rows) -> Engine:
    engine = MemoryEngine(lambda: 1)
    for (partition, row), (version, value) in rows.items():
        engine._clock = lambda version=version: version  # type: ignore[misc]
        put = Put(lambda _version, value=value: value)  # type: ignore[misc]
        assert await committed(engine, WriteSet(partition, [Change(row, ABSENT, put)])) == [version]
    return engine


@pytest.mark.asyncio
async def test_a_replica_does_without_them(tmp_path: Path) -> None:
    """What it has too much goes when it sweeps, and then nothing is left that differs."""
    clock = Clock()
    engine = open_engine(f"sqlite:{tmp_path / 'data'}", clock.ticks)
    server = Server(engine, clock)
    assert engine.changes is not None
    await engine.changes.keep(Retention(None, None))
    await change_everything(server)
    assert differences(await stored_rows(engine), await replayed(engine)) == []
    await server.sweep()
    stored, rows = await stored_rows(engine), await replayed(engine)
    assert differences(stored, rows) == []
    assert rows.keys() - stored.keys()
    replica = await replica_of(rows)
    await Server(replica, clock).sweep()
    swept = await stored_rows(replica)
    assert differences(stored, swept) == differences(swept, stored) == []
    assert await check_rows(engine) == []
    await engine.close()
