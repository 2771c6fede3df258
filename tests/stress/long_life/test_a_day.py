"""A day in the life of what a server renews, counts and caches, on a clock that the test turns.

Each test goes past the most that its subject keeps: at the end it answers as at the start, and keeps no more than after
its first hour.
"""

import asyncio
import functools
import re
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tablestone.accounts import issuer_keys
from tablestone.accounts.issuer_keys import KEPT_SECONDS_MAX, IssuerKeys
from tablestone.auth.bearer_tokens import (
    VERIFIED_KEPT_MAX,
    TokenRefused,
    TokenTrust,
    issue_token,
    make_issuer,
    own_issuer,
)
from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS
from tablestone.configuration import SelfSigned, TrustedIssuer
from tablestone.engines.contract import ANY, Change, Put, WriteSet
from tablestone.engines.leases import Leases
from tablestone.engines.memory import MemoryEngine
from tablestone.engines.sqlite.commit_lock import Generation
from tablestone.insight.report import DAY, HOUR
from tablestone.server.requests.pipeline import request_ids
from tablestone.server.self_signed_certificate import (
    CLOCKS_DIFFER,
    RENEWED_BEFORE,
    keep_self_signed,
)
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.cached_rows import KEPT_MAX, CachedRows
from tablestone.tables.catalog import Catalog
from tablestone.tables.metadata import DocumentKind
from tablestone.tables.sweeping import SWEPT_MAX, Sweeper
from tablestone.tables.throughput_targets import SLOTS, SharedSlots, Throughput
from tablestone.telemetry.refused_callers import PLACES, QuietAddresses
from unit.engines.leased_storage import PLACE, CountingEngine, Elapsed, at_once, stored
from unit.insight.test_insight_counts import get
from unit.insight.test_insight_history import NOON, Server, partitions_of
from unit.tables.test_throughput import read

DAY_SECONDS = 24 * 3600
MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.asyncio
async def test_leases() -> None:
    """Each is renewed in time: a change is seen within one lease, and nothing is read more than once in each."""
    storage, elapsed = CountingEngine(), Elapsed()
    leases = Leases(20.0, elapsed)
    engine = at_once(storage, leases)
    rows = CachedRows(engine)
    began, changed = elapsed.now, 0.0
    value = b"0"
    await stored(storage, value)
    while elapsed.now - began < DAY_SECONDS:
        elapsed.now += 4.0
        for _ in range(2):
            await rows.get(PLACE, bytes)
            await asyncio.sleep(0)  # the renewal reads between two requests
        found = await rows.get(PLACE, bytes)
        assert found == value or elapsed.now - changed < leases.seconds
        if elapsed.now % 3600 < 4:
            changed, value = elapsed.now, b"%d" % elapsed.now
            await stored(storage, value)
    assert await rows.get(PLACE, bytes) == value
    assert storage.reads <= 2.5 * DAY_SECONDS / leases.seconds
    assert rows.misses <= 2
    assert len(rows._renewed_by) <= 1
    assert len(leases._renewals) <= 1


@pytest.mark.asyncio
async def test_rows_of_more_places_than_are_kept() -> None:
    engine = MemoryEngine(count(1_000).__next__)
    for number in range(KEPT_MAX + 100):
        place = storage_keys.document_place(DocumentKind.ROLES.value, f"{number}")
        put = Put(functools.partial(_rendered, number))
        await engine.commit(WriteSet(place.partition, [Change(place.row, ANY, put)]))
    rows = CachedRows(engine)
    for number in (*range(KEPT_MAX + 100), *range(KEPT_MAX + 100)):
        place = storage_keys.document_place(DocumentKind.ROLES.value, f"{number}")
        assert await rows.get(place, int) == number
        assert len(rows._rows.kept) <= KEPT_MAX


def test_the_keys_of_an_issuer_that_changes_them_every_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key counts from the next refresh on, and a withdrawn one until then."""
    monkeypatch.setattr(issuer_keys, "FILE_SECONDS", 30.0)
    now = 1000.0
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    file = tmp_path / "keys.json"
    looks = 0

    async def sleep(seconds: float) -> None:
        nonlocal now, looks
        assert seconds == issuer_keys.FILE_SECONDS
        await asyncio.gather(*(source.asking for source in keys._sources.values() if source.asking))
        named = [list(issuer.keys) for issuer in keys.issuers]
        assert named == [[f"of hour {int(now - 1000) // 3600}"]]
        looks += 1
        now += seconds
        if now - 1000 >= DAY_SECONDS:
            raise asyncio.CancelledError
        write()

    def write() -> None:
        file.write_bytes(key_set(f"of hour {int(now - 1000) // 3600}", key))

    async def watch() -> None:
        await keys.watch()

    write()
    keys = IssuerKeys([TrustedIssuer("i", str(file), None)], lambda: now)
    monkeypatch.setattr("asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch())
    assert looks == DAY_SECONDS / 30.0
    assert KEPT_SECONDS_MAX == DAY_SECONDS  # they were refreshed all the time, so none was too old


def test_tokens_of_an_hour() -> None:
    """Each is accepted for its hour and refused afterwards, and only the latest ones are cached."""
    members = make_issuer()
    trust = TokenTrust((own_issuer(members),))
    start = UNIX_EPOCH_TICKS + 1_800_000_000 * TICKS_PER_SECOND
    texts: list[bytes] = []
    for ten in range(24 * 6):
        now = start + ten * 600 * TICKS_PER_SECOND
        text = issue_token(
            members,
            principal="p",
            roles=(),
            tenant="t",
            audience="https://storage.azure.com",
            lifetime_seconds=3600,
            now=now,
        )
        texts.append(text.encode())
        for back in (0, 3, 5, 7, 8):
            if ten >= back:
                assert is_accepted(trust, texts[ten - back], now) is (back <= 6), (ten, back)
    assert len(trust._verified) <= VERIFIED_KEPT_MAX


def test_the_certificate_of_ten_years(tmp_path: Path) -> None:
    """It is always valid, for at least as long as the time before its renewal, and always has the same key."""
    self_signed = SelfSigned(tmp_path / "tls", ("tables.example",))
    keys, serials = set(), set()
    for week in range(52 * 10):
        now = MIDNIGHT + timedelta(weeks=week)
        keep_self_signed(self_signed, now)
        made = x509.load_pem_x509_certificate(self_signed.files.certificate.read_bytes())
        assert made.not_valid_before_utc <= now - CLOCKS_DIFFER or week == 0
        assert made.not_valid_after_utc >= now + RENEWED_BEFORE - timedelta(seconds=1)
        keys.add(self_signed.files.key.read_bytes())
        serials.add(made.serial_number)
    assert (len(keys), len(serials)) == (1, 5)


def test_generations_past_32_bits(tmp_path: Path) -> None:
    """Two processes make changes in turn, and each sees every one."""
    one, other = Generation(tmp_path / "generation"), Generation(tmp_path / "generation")
    one._counters[0] = one._counters[1] = 2**32 - 50_000
    seen: set[int | None] = set()
    for number in range(100_000):
        changer, reader = (one, other) if number % 2 else (other, one)
        changer.begin()
        assert reader.current is None
        changer.end()
        seen.add(reader.current)
    assert len(seen) == 100_000
    assert one.current == other.current == 2**32 + 50_000
    one.close()
    other.close()


def test_the_ids_of_a_million_requests() -> None:
    form = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
    found = set(islice(request_ids(), 1_000_000))
    assert len(found) == 1_000_000
    assert all(map(form.fullmatch, found))


def test_the_windows_of_insight() -> None:
    """Every request of the last hour and the last day is in the report, and no older one is kept."""
    server = Server(workers=1)
    (worker,) = server.workers
    sizes = []
    for minute in range(26 * 60):
        worker.counts.count(get("hot"))
        worker.counts.count(get(f"of minute {minute}"))
        for _ in range(3):
            server.now += 19
            server.second()
        if minute % 60 == 59:
            sizes.append((len(server.history.minutes()), len(server.history.quarters())))
    report = server.report()
    hour, day = partitions_of(report, HOUR)["hot"], partitions_of(report, DAY)["hot"]
    assert server.now == NOON + 26 * DAY_SECONDS / 24
    assert 59 <= hour.activity.reads <= 61
    assert 24 * 60 - 15 <= day.activity.reads <= 24 * 60 + 15
    assert sizes[-1] == sizes[-2]
    assert (max(minutes for minutes, _ in sizes) <= 77, max(days for _, days in sizes) <= 98) == (
        True,
        True,
    )


@pytest.mark.asyncio
async def test_more_deleted_tables_than_are_remembered() -> None:
    """Tables come and go, and their records with them; nothing of them stays in memory or in storage."""
    now = UNIX_EPOCH_TICKS
    ids = count(1)
    engine = MemoryEngine(count(now).__next__)
    catalog = Catalog(engine, lambda: now, lambda: next(ids).to_bytes(16))
    sweeper = Sweeper(engine, lambda: now, lambda: b"a server")
    owner = Named("acct")
    for number in range(2_000):
        await catalog.create(owner, f"T{number}")
        await catalog.delete(owner, f"T{number}")
        now += 61 * TICKS_PER_SECOND
        while await sweeper.sweep("acct"):
            pass
    assert len(sweeper._swept) <= 1
    assert not engine._rows.stored
    for number in range(SWEPT_MAX + 10):
        sweeper._was_empty(number.to_bytes(16))
    assert len(sweeper._swept) == SWEPT_MAX


def test_more_partitions_than_have_a_share() -> None:
    """Few of them share a slot: all are served, a hundred a second."""
    elapsed = Elapsed()
    throughput = Throughput(0, 5, elapsed, SharedSlots())
    for number in range(2 * SLOTS):
        elapsed.now += 0.01
        throughput.begin("a", read(f"{number}"))
    assert throughput.refused == {}


def test_more_addresses_than_the_log_remembers() -> None:
    quiet = QuietAddresses()
    told = 0
    for number in range(20 * PLACES):
        told += (
            quiet.take(
                f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", number, number + 60.0
            )
            is not None
        )
    assert told >= 19 * PLACES


def _rendered(number: int, _version: int) -> bytes:
    return b"%d" % number


def key_set(kid: str, key: rsa.RSAPublicKey) -> bytes:
    public = RSAAlgorithm.to_jwk(key, as_dict=True)
    return orjson.dumps({"keys": [{**public, "kid": kid, "use": "sig", "alg": "RS256"}]})


def is_accepted(trust: TokenTrust, text: bytes, now: int) -> bool:
    try:
        trust.check(text, "acct", now)
    except TokenRefused:
        return False
    return True
