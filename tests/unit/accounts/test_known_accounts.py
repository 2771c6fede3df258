"""The account with a name, and the administration of stored accounts, which takes effect at once on all servers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tablestone.accounts.known_accounts import KnownAccounts
from tablestone.accounts.stored_accounts import (
    AccountRefused,
    StoredAccount,
    StoredAccounts,
    generate_key,
)
from tablestone.auth.account import Account
from tablestone.clock import system_clock
from tablestone.configuration import DEVELOPMENT_ACCOUNT, AccountKeys
from tablestone.engines.contract import ANY, Change, Engine, Put, WriteSet
from tablestone.engines.registry import open_engine
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Incarnations, Named
from tablestone.tables.catalog import Catalog
from tablestone.tables.integrity import check_rows
from tablestone.tables.metadata import DocumentKind, Documents
from tablestone.tables.sweeping import Sweeper

KEY = "a2V5IG9uZQ=="
OTHER_KEY = "a2V5IHR3bw=="
THIRD_KEY = "a2V5IHRocmVl"
TEXT = b"what is signed"
ENGINES = pytest.mark.parametrize("url", ["memory:", "sqlite:"])

Scene = Callable[[Engine], Awaitable[None]]


def run(url: str, data: Path, scene: Scene) -> None:
    async def main() -> None:
        engine = open_engine(url + (str(data) if url == "sqlite:" else ""), system_clock)
        try:
            await scene(engine)
            assert await check_rows(engine) == []
        finally:
            await engine.close()

    asyncio.run(main())


def signatures(account: Account | None) -> set[bytes]:
    """The signatures of a text with the account's keys."""
    assert account is not None
    return {key.signature(TEXT) for key in account.keys}


def signatures_of(*given: str) -> set[bytes]:
    return signatures(Account("any", given))


def catalog(engine: Engine) -> Catalog:
    ids = iter(range(1, 1000))
    return Catalog(engine, system_clock, lambda: next(ids).to_bytes(8, "big"))


def stored_alone(engine: Engine) -> KnownAccounts:
    """The stored accounts, without any other."""
    return KnownAccounts([], Documents(engine), Incarnations(engine))


@ENGINES
def test_configured_before_stored_before_the_development_account(url: str, tmp_path: Path) -> None:
    async def scene(engine: Engine) -> None:
        stored = StoredAccounts(engine, system_clock)
        known = KnownAccounts(
            [AccountKeys("configured", (KEY,))],
            Documents(engine),
            Incarnations(engine),
            (DEVELOPMENT_ACCOUNT,),
        )
        assert signatures(await known.find(DEVELOPMENT_ACCOUNT.name)) == signatures_of(
            *DEVELOPMENT_ACCOUNT.keys
        )
        for name in ("configured", "stored", DEVELOPMENT_ACCOUNT.name):
            await stored.create(name, (OTHER_KEY, THIRD_KEY))
        assert signatures(await known.find("configured")) == signatures_of(KEY)
        assert signatures(await known.find("stored")) == signatures_of(OTHER_KEY, THIRD_KEY)
        found = await known.find(DEVELOPMENT_ACCOUNT.name)
        assert signatures(found) == signatures_of(OTHER_KEY, THIRD_KEY)
        assert await known.find("stored") is await known.find("stored"), "made ready once"
        for nobody in ("nobody", "", "Stored", "stored/", "s\u00e9", "x" * 1000):
            assert await known.find(nobody) is None

    run(url, tmp_path, scene)


@ENGINES
def test_a_rotated_key_is_another_one_at_once(url: str, tmp_path: Path) -> None:
    async def scene(engine: Engine) -> None:
        stored, known = StoredAccounts(engine, system_clock), stored_alone(engine)
        await stored.create("weather", (KEY,))
        assert signatures(await known.find("weather")) == signatures_of(KEY)
        await stored.replace_key("weather", 2, OTHER_KEY)
        assert signatures(await known.find("weather")) == signatures_of(KEY, OTHER_KEY)
        await stored.replace_key("weather", 1, THIRD_KEY)
        assert signatures(await known.find("weather")) == signatures_of(THIRD_KEY, OTHER_KEY)
        assert (await stored.get("weather")).keys == (THIRD_KEY, OTHER_KEY)

    run(url, tmp_path, scene)


@ENGINES
def test_what_cannot_be_done_changes_nothing(url: str, tmp_path: Path) -> None:
    async def scene(engine: Engine) -> None:
        stored = StoredAccounts(engine, system_clock)
        await stored.create("weather", (KEY, OTHER_KEY))
        refusals: list[tuple[Awaitable[object], str]] = [
            (stored.create("weather", (KEY,)), "There is an account weather already."),
            (
                stored.create("no", (KEY,)),
                "'no' is not an account name: 3 to 24 lower-case letters",
            ),
            (stored.create("three", (KEY, KEY, KEY)), "must have one or two keys"),
            (stored.create("bad", ("s3cret!",)), "A key is not valid base64."),
            (stored.replace_key("weather", 1, "s3cret!"), "A key is not valid base64."),
            (
                stored.replace_key("weather", 2, KEY),
                "This is key 1 of weather already: it has to be another one.",
            ),
            (
                stored.replace_key("weather", 1, OTHER_KEY),
                "This is key 2 of weather already: it has to be another one.",
            ),
            (stored.replace_key("nobody", 1, KEY), "There is no stored account nobody."),
            (stored.get("nobody"), "There is no stored account nobody."),
            (stored.delete("nobody", with_tables=True), "There is no stored account nobody."),
        ]
        for refused, sentence in refusals:
            with pytest.raises(AccountRefused) as raised:
                await refused
            assert sentence in str(raised.value)
            assert "s3cret" not in str(raised.value)
        assert [account.keys for account in await stored.all()] == [(KEY, OTHER_KEY)]

    run(url, tmp_path, scene)


@ENGINES
def test_an_account_with_tables_is_deleted_only_with_them(url: str, tmp_path: Path) -> None:
    async def scene(engine: Engine) -> None:
        stored, known = StoredAccounts(engine, system_clock), stored_alone(engine)
        tables = catalog(engine)
        for name in ("weather", "other"):
            await stored.create(name, (KEY,))
            for number in range(3):
                await tables.create(Named(name), f"table{number}")
        record = await tables.require(Named("weather"), "table1")
        rows = [Change(b"r%d" % n, ANY, Put(lambda _version: b"entity")) for n in range(700)]
        partition = storage_keys.entity_partition(record.table_id, "p")
        await engine.commit(WriteSet(partition, rows))
        await Documents(engine).change(DocumentKind.ROLES, "weather", lambda _: {"some": 1})

        with pytest.raises(AccountRefused, match="weather has 3 tables: --force deletes them too"):
            await stored.delete("weather", with_tables=False)
        assert await known.find("weather") is not None

        assert await stored.delete("weather", with_tables=True) == 3
        assert await known.find("weather") is None
        assert await tables.page(Named("weather"), "", 10) == ([], None)
        assert await engine.scan(storage_keys.table_range(record.table_id), rows_max=1) == []
        assert await Documents(engine).names(DocumentKind.ROLES) == []
        (other,) = await stored.all()
        assert other._replace(account_id="", incarnation=None) == StoredAccount("other", (KEY,))
        assert await stored.describe("other") == (other, 3)
        assert await stored.create("weather", (OTHER_KEY,)) == 0

    run(url, tmp_path, scene)


@ENGINES
def test_an_account_is_not_the_one_that_had_its_name_before(url: str, tmp_path: Path) -> None:
    async def scene(engine: Engine) -> None:
        stored, documents = StoredAccounts(engine, system_clock), Documents(engine)
        known = KnownAccounts([AccountKeys("configured", (KEY,))], documents, Incarnations(engine))

        async def identity(name: str) -> str:
            account = await known.find(name)
            assert account is not None
            return account.identity

        await stored.create("weather", (KEY,))
        first = await identity("weather")
        await stored.replace_key("weather", 1, OTHER_KEY)
        assert await identity("weather") == first, "a new key makes no new account"
        await stored.delete("weather", with_tables=False)
        await stored.create("weather", (KEY,))
        assert await identity("weather") != first
        before = StoredAccount("old", (KEY,))
        await documents.change(DocumentKind.ACCOUNT, "old", lambda _: before.members())
        assert await identity("old") == "old", "one that was stored before there were ids"
        assert await identity("configured") == "configured"

    run(url, tmp_path, scene)


@ENGINES
def test_an_account_without_tables_needs_no_force(url: str, tmp_path: Path) -> None:
    async def scene(engine: Engine) -> None:
        stored = StoredAccounts(engine, system_clock)
        await stored.create("weather", (KEY,))
        assert await stored.delete("weather", with_tables=False) == 0
        assert await stored.all() == []

    run(url, tmp_path, scene)


@ENGINES
def test_a_deletion_that_was_interrupted_is_finished_when_it_is_asked_for_again(
    url: str, tmp_path: Path
) -> None:
    async def scene(engine: Engine) -> None:
        stored, known = StoredAccounts(engine, system_clock), stored_alone(engine)
        await catalog(engine).create(Named("weather"), "left")
        half = StoredAccount("weather", (KEY,), is_being_deleted=True)
        await Documents(engine).change(DocumentKind.ACCOUNT, "weather", lambda _: half.members())
        assert await known.find("weather") is None
        for refused in (stored.create("weather", (KEY,)), stored.replace_key("weather", 1, KEY)):
            with pytest.raises(AccountRefused, match="is being deleted"):
                await refused
        assert await stored.all() == [half]
        assert await stored.delete("weather", with_tables=True) == 1
        assert await stored.all() == []

    run(url, tmp_path, scene)


def test_what_deleted_accounts_left_is_swept_whoever_is_known(tmp_path: Path) -> None:
    async def scene(engine: Engine) -> None:
        tables = catalog(engine)
        for name in ("aaa", "bbb", "ccc"):
            await tables.create(Named(name), "table")
        await tables.delete(Named("aaa"), "table")
        await tables.delete(Named("ccc"), "table")
        assert [
            name async for name in Sweeper(engine, system_clock, lambda: b"a server").accounts()
        ] == ["aaa", "ccc"]

    run("sqlite:", tmp_path, scene)


def test_generated_keys_are_64_bytes_and_differ() -> None:
    made = {generate_key() for _ in range(100)}
    assert len(made) == 100
    assert {len(key) for key in made} == {88}
    Account("any", list(made)[:2])


def test_no_representation_shows_a_key() -> None:
    assert KEY not in repr(StoredAccount("weather", (KEY,)))
