"""The PostgreSQL engine on a primary with a synchronous standby. tests/stress/failover does the same under load."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

import pytest

from storage.conftest import HeldClock
from storage.postgresql_pair import running_pair
from storage.postgresql_server import why_no_pair
from storage.write_sets import committed, insert, upsert
from tablestone.engines import request_time
from tablestone.engines.contract import (
    Committed,
    EngineBusy,
    EngineUnavailable,
    Key,
    OutcomeUnknown,
)
from tablestone.engines.registry import open_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.postgresql_pair import Pair
    from tablestone.engines.contract import Engine

pytestmark = [
    pytest.mark.skipif(why_no_pair() is not None, reason=str(why_no_pair())),
    pytest.mark.asyncio,
]
HERE = Key(b"p", b"r")


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with running_pair() as pair:
        yield pair


@pytest.fixture
def url(pair: Pair) -> str:
    """A schema that does not exist yet."""
    return pair.url(f"s{secrets.token_hex(6)}")


def be_impatient(monkeypatch: pytest.MonkeyPatch, outcome_seconds_max: float) -> None:
    """From the first commits on, which begin sessions and may take longer."""
    monkeypatch.setattr("tablestone.engines.postgresql.commit.COMMIT_SECONDS_MAX", 0.3)
    monkeypatch.setattr(
        "tablestone.engines.postgresql.commit.OUTCOME_SECONDS_MAX", outcome_seconds_max
    )


def opened(url: str) -> Engine:
    return open_engine(url, HeldClock())


async def gone(engine: Engine) -> None:
    async with asyncio.timeout(10):
        await engine.close()


async def test_a_commit_that_was_given_up_does_not_show_before_the_standby_has_it(
    pair: Pair, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = opened(url), opened(url)
    await committed(one, upsert(b"warm", b"r"))
    be_impatient(monkeypatch, 0.5)
    assert pair.standby is not None
    with pair.standby.paused():
        with pytest.raises(EngineBusy):  # not even its session begins
            await other.commit(insert(*HERE))
        with pytest.raises(OutcomeUnknown):
            await one.commit(insert(*HERE))
        await asyncio.sleep(0.3)
        assert await other.get(HERE) is None
    async with asyncio.timeout(10):
        while await other.get(HERE) is None:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)
    await gone(one)
    await gone(other)


async def test_writes_are_refused_while_the_standby_hangs(
    pair: Pair, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would take all connections, those of PostgreSQL too, and reads would fail with them."""
    from tablestone.engines.postgresql import checks  # noqa: PLC0415 - needs the driver

    assert "'5 s'" in checks.EXAMINE
    monkeypatch.setattr(checks, "EXAMINE", checks.EXAMINE.replace("'5 s'", "'0.5 s'"))
    monkeypatch.setattr("tablestone.engines.postgresql.engine.EXAMINE_SECONDS", 0.1)
    engine = opened(url + "&connections=4")
    await committed(engine, insert(*HERE))
    watch = asyncio.ensure_future(engine.watch(leads=True))
    assert pair.standby is not None
    with pair.standby.paused():
        first = asyncio.ensure_future(engine.commit(insert(b"p", b"first")))
        async with asyncio.timeout(30):
            while checks.NO_STANDBY not in engine.warnings():  # type: ignore[attr-defined]  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            for number in range(20):
                with pytest.raises(EngineBusy, match="Too few synchronous standbys answer"):
                    await engine.commit(insert(b"%d" % number, b"r"))
            assert await engine.get(HERE) == b"value"
        assert not first.done()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        assert pair.ask(waiting) == "1"
    async with asyncio.timeout(10):
        assert isinstance(await first, Committed)
        await committed(engine, insert(b"p", b"second"))
    watch.cancel()
    await gone(engine)


async def test_a_server_finds_the_standby_that_was_promoted(pair: Pair, url: str) -> None:
    engine = opened(url)
    await committed(engine, insert(*HERE))
    pair.fail_over()
    value, written = None, None
    async with asyncio.timeout(10):
        while value is None or written is None:
            try:
                value = await engine.get(HERE)
                written = await engine.commit(insert(b"p", b"after"))
            except EngineUnavailable:
                await asyncio.sleep(0.05)
    assert value == b"value"
    await gone(engine)
    pair.add_standby()


async def test_a_server_leaves_a_primary_that_hangs(
    pair: Pair, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a machine that was switched off: it neither answers nor refuses, and is the first host of the URL."""

    async def get() -> bytes | None:
        request_time.begin(2)
        return await engine.get(HERE)

    ports = [pair.proxy.port, *(each.port for each in pair.proxies if each is not pair.proxy)]
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    engine = opened(f"postgresql://postgres@{hosts}/{url.rpartition('/')[2]}")
    await committed(engine, insert(*HERE))
    monkeypatch.setattr("tablestone.engines.postgresql.commit.COMMIT_SECONDS_MAX", 0.5)
    with pair.primary.paused():
        old = pair.promote()
        async with asyncio.timeout(10):
            await committed(engine, insert(b"p", b"other"))
            assert await asyncio.create_task(get()) == b"value"
    old.kill()
    await gone(engine)
    pair.add_standby()


async def test_an_old_primary_that_is_only_cut_off_still_answers_reads(
    pair: Pair, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/guides/caveats.md says. It acknowledges no write, since it still waits for its standby."""
    cut_off, served = opened(url), opened(url)
    await committed(served, upsert(*HERE, b"old"))
    old_proxy = pair.proxy
    await committed(cut_off, upsert(b"warm", b"r"))
    assert await cut_off.get(HERE) == b"old"
    await gone(served)
    old = pair.promote()
    try:
        old_proxy.is_away = True  # from here on nobody reaches the old one anew
        served = opened(url)
        await committed(served, upsert(*HERE, b"new"))
        assert await served.get(HERE) == b"new"
        assert await cut_off.get(HERE) == b"old"
        be_impatient(monkeypatch, 10)
        await committed(cut_off, insert(b"p", b"again"))  # tried again, on the new one
        assert await served.get(Key(b"p", b"again")) == b"value"
        await gone(served)
    finally:
        old.kill()
    await gone(cut_off)
