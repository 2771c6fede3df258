"""The format that the first rule of an account gives storage, and servers that do not know it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import apsw
import pytest

from storage.conftest import HeldClock
from storage.opened import close_healthy
from tablestone.accounts.known_accounts import KnownAccounts
from tablestone.accounts.stored_accounts import StoredAccounts, rules_in_words
from tablestone.engines.contract import EngineRefused
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.data_directory import RULES_FORMAT_VERSION, take_server_lock
from tablestone.tables.account_incarnation import Incarnations
from tablestone.tables.metadata import Documents

if TYPE_CHECKING:
    from pathlib import Path

    from tablestone.engines.contract import Engine

pytestmark = pytest.mark.asyncio
NAME = "weather"
KEY = "a2V5IG9uZQ=="


def format_of(data: Path) -> int:
    found: int = apsw.Connection(str(data / "tablestone.db")).pragma("user_version")
    return found


async def with_account(engine: Engine, clock: HeldClock) -> StoredAccounts:
    accounts = StoredAccounts(engine, clock)
    await accounts.create(NAME, (KEY,))
    return accounts


@pytest.mark.parametrize("url", ["memory:", "sqlite:"])
async def test_rules_act_at_once_and_stay(url: str, data: Path, clock: HeldClock) -> None:
    """Another process sees them at its next request, and a new key does not end them."""
    place = url + str(data) * (url == "sqlite:")
    engine = open_engine(place, clock)
    accounts = await with_account(engine, clock)
    other = open_engine(place, clock, shared=True) if url == "sqlite:" else engine
    known = KnownAccounts([], Documents(other), Incarnations(other))
    before = await known.find(NAME)
    assert before is not None
    assert (before.shared_key, before.allowed) == (True, None)
    raised = await accounts.set_rules(NAME, shared_key=False, allow=("10.0.0.0/8",))
    assert (raised is not None) == (url == "sqlite:")
    await accounts.replace_key(NAME, 2, "a2V5IHR3bw==")
    account = await known.find(NAME)
    assert account is not None
    assert account.allowed is not None
    assert not account.shared_key
    assert account.allowed.hold("10.1.1.1")
    assert await rules_in_words(engine) == [
        f"{NAME}: shared key: off; allowed addresses: 10.0.0.0/8"
    ]
    assert await accounts.set_rules(NAME, allow=()) is None  # the other rule stays
    assert (await accounts.get(NAME)).rules == ["shared key: off"]
    await accounts.set_rules(NAME, shared_key=True)
    assert (await accounts.get(NAME)).rules == []
    if other is not engine:
        await other.close()
    await close_healthy(engine)


async def test_the_first_rule_changes_the_format_of_a_directory(
    data: Path, clock: HeldClock
) -> None:
    """An older version refuses it: `test_sqlite_directory`."""
    engine = open_engine(f"sqlite:{data}", clock)
    accounts = await with_account(engine, clock)
    assert await accounts.set_rules(NAME, shared_key=True, allow=()) is None  # no rule
    assert format_of(data) == 1
    raised = await accounts.set_rules(NAME, allow=("::1/128",))
    assert raised == f"The data directory {data} has format 4 now"
    assert format_of(data) == RULES_FORMAT_VERSION == 4
    assert await accounts.set_rules(NAME, shared_key=False) is None
    await close_healthy(engine)
    engine = open_engine(f"sqlite:{data}", clock)
    assert (await StoredAccounts(engine, clock).get(NAME)).allow == ("::1/128",)
    await close_healthy(engine)


@pytest.mark.parametrize("said", [b"", b"3\n", b"rubbish"])
async def test_a_server_that_does_not_know_rules_keeps_them_out(
    said: bytes, data: Path, clock: HeldClock
) -> None:
    engine = open_engine(f"sqlite:{data}", clock, shared=True)
    accounts = await with_account(engine, clock)
    lock = take_server_lock(data)
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, said, 0)
        with pytest.raises(EngineRefused, match=r"earlier version.*--all-servers-upgraded"):
            await accounts.set_rules(NAME, shared_key=False)
        assert (await accounts.get(NAME)).rules == []
        assert format_of(data) == 1
        assert await accounts.set_rules(NAME, shared_key=False, all_upgraded=True) is not None
        assert format_of(data) == 4
    finally:
        os.close(lock)
    await close_healthy(engine)


async def test_a_server_of_this_version_does_not(data: Path, clock: HeldClock) -> None:
    engine = open_engine(f"sqlite:{data}", clock, shared=True)
    accounts = await with_account(engine, clock)
    lock = take_server_lock(data)
    try:
        assert await accounts.set_rules(NAME, shared_key=False) is not None
    finally:
        os.close(lock)
    await close_healthy(engine)
