"""Where issuers' keys come from: an address, an OpenID configuration, a file; and failures to read them."""

import asyncio
import http.server
import itertools
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tablestone.accounts import issuer_keys
from tablestone.accounts.issuer_keys import (
    DISCOVERY,
    DOCUMENT_BYTES_MAX,
    KEPT_SECONDS_MAX,
    READ_AGAIN_SECONDS,
    IssuerKeys,
)
from tablestone.clock import monotonic_seconds
from tablestone.configuration import TrustedIssuer
from tokens import EcKey, key_set

FIRST: Final = EcKey("first")
SECOND: Final = EcKey("second")


class Publisher:
    """An issuer's web server. `pages` are its answers by path: a body, a status, or an address to redirect to."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | int | str] = {}
        self.asked: list[str] = []
        self.hold = threading.Event()
        self.hold.set()
        publisher = self

        class Answering(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                publisher.asked.append(self.path)
                publisher.hold.wait(20)
                page = publisher.pages.get(self.path, 404)
                with suppress(ConnectionError):
                    self._answer(page)

            def _answer(self, page: bytes | int | str) -> None:
                self.send_response(
                    200 if isinstance(page, bytes) else page if isinstance(page, int) else 302
                )
                if isinstance(page, str):
                    self.send_header("Location", page)
                body = page if isinstance(page, bytes) else b""
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        # The interval is how long `close` waits.
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    publisher = Publisher()
    yield publisher
    publisher.close()


def keys_of(*issuers: TrustedIssuer) -> IssuerKeys:
    return IssuerKeys(issuers, monotonic_seconds)


def named(keys: IssuerKeys) -> list[list[str]]:
    return [sorted(issuer.keys) for issuer in keys.issuers]


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scene()

    asyncio.run(main())


def test_keys_of_an_address(publisher: Publisher) -> None:
    publisher.pages["/keys"] = key_set(FIRST)

    async def scene() -> None:
        keys = keys_of(TrustedIssuer("i", f"{publisher.url}/keys", None))
        assert named(keys) == [[]]
        assert await keys.look_again("i")
        assert named(keys) == [["first"]]
        assert not await keys.look_again("another")

    run(scene)


def test_keys_where_the_openid_configuration_says(publisher: Publisher) -> None:
    for issuer in (publisher.url, f"{publisher.url}/tenant/"):
        path = issuer.removeprefix(publisher.url).rstrip("/") + DISCOVERY
        configuration = {"issuer": issuer, "jwks_uri": f"{publisher.url}/keys"}
        publisher.pages |= {path: json.dumps(configuration).encode(), "/keys": key_set(FIRST)}

    async def scene() -> None:
        keys = keys_of(
            TrustedIssuer(publisher.url, None, None),
            TrustedIssuer(f"{publisher.url}/tenant/", None, None),
        )
        for issuer in keys.issuers:
            assert await keys.look_again(issuer.name)
        assert named(keys) == [["first"], ["first"]]

    run(scene)


BROKEN: dict[str, tuple[bytes | int | str, str]] = {
    "not there": (404, "404"),
    "broken": (500, "500"),
    "no keys": (b"{}", "it has no list of keys"),
    "no JSON": (b"<html>", "it is not JSON"),
    "too long": (b" " * (DOCUMENT_BYTES_MAX + 1), "it is too long"),
    "elsewhere, without https": ("http://keys.example/", "without https"),
    "elsewhere, in a file": ("file:///etc/passwd", "not allowed"),
    "another issuer's configuration": (b'{"issuer":"https://evil.example"}', "of another issuer"),
    "a configuration without keys": (b'{"issuer":"ISSUER"}', "names no keys"),
    "a configuration that leads to http": (
        b'{"issuer":"ISSUER","jwks_uri":"http://keys.example"}',
        "without https",
    ),
}


@pytest.mark.parametrize(("page", "reason"), BROKEN.values(), ids=BROKEN)
def test_keys_that_cannot_be_fetched_leave_the_old_ones(
    publisher: Publisher,
    page: bytes | int | str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(issuer_keys, "ASK_AGAIN_SECONDS", 0.0)
    is_discovered = isinstance(page, bytes) and b"issuer" in page
    path = DISCOVERY if is_discovered else "/keys"
    good = {"issuer": publisher.url, "jwks_uri": f"{publisher.url}/keys"}
    publisher.pages = {"/keys": key_set(FIRST), DISCOVERY: json.dumps(good).encode()}
    if isinstance(page, bytes):
        page = page.replace(b"ISSUER", publisher.url.encode())

    async def scene() -> None:
        where = None if is_discovered else f"{publisher.url}/keys"
        keys = keys_of(TrustedIssuer(publisher.url, where, None))
        assert await keys.look_again(publisher.url)
        publisher.pages[path] = page
        for _ in range(3):
            assert not await keys.look_again(publisher.url)
        assert named(keys) == [["first"]]
        told = [record.message for record in caplog.records if record.levelname == "ERROR"]
        assert len(told) == 1, "the same failure is told once"
        assert reason in told[0]
        publisher.pages |= {"/keys": key_set(SECOND), DISCOVERY: json.dumps(good).encode()}
        assert await keys.look_again(publisher.url)
        assert named(keys) == [["second"]]

    run(scene)


def test_one_key_is_one_key(publisher: Publisher, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        issuer = TrustedIssuer("i", f"{publisher.url}/keys", None)
        moments = itertools.count(0.0, 3600.0)
        keys = IssuerKeys([issuer], lambda: next(moments))
        for page in (key_set(FIRST), key_set(FIRST, SECOND), key_set(FIRST), b""):
            publisher.pages["/keys"] = page
            await keys.look_again("i")

    with caplog.at_level("INFO"):
        run(scene)
    assert [each.message.partition(",")[2] or each.message for each in caplog.records] == [
        *("i has 1 key", "i has 2 keys", "i has 1 key"),
        " 1 stays in use: it is not JSON",
    ]


def test_an_issuer_that_is_down(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        keys = keys_of(TrustedIssuer("i", "http://127.0.0.1:9/keys", None))
        assert not await keys.look_again("i")

    run(scene)
    assert "the keys of i cannot be read, none is in use: Connection refused" in caplog.text


def test_a_failure_in_every_process_is_logged_by_one(caplog: pytest.LogCaptureFixture) -> None:
    issuer = TrustedIssuer("i", "/nowhere/keys.json", None)

    async def scene() -> None:
        for logs_warnings in (True, False, False):
            assert not await IssuerKeys(
                [issuer], monotonic_seconds, logs_warnings=logs_warnings
            ).look_again("i")

    run(scene)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "the keys of i cannot be read, none is in use: No such file or directory"
    ]


def test_an_issuer_is_asked_again_only_seldom(publisher: Publisher) -> None:
    publisher.pages["/keys"] = key_set(FIRST)

    async def scene() -> None:
        keys = keys_of(TrustedIssuer("i", f"{publisher.url}/keys", None))
        assert await keys.look_again("i")
        for _ in range(20):
            assert not await keys.look_again("i")
        assert len(publisher.asked) == 1

    run(scene)


def test_concurrent_requests_fetch_the_keys_once(publisher: Publisher) -> None:
    publisher.pages["/keys"] = key_set(FIRST)

    async def scene() -> None:
        keys = keys_of(TrustedIssuer("i", f"{publisher.url}/keys", None))
        assert await asyncio.gather(*(keys.look_again("i") for _ in range(20))) == [True] * 20
        assert len(publisher.asked) == 1

    run(scene)


def test_an_issuer_that_does_not_answer_is_not_waited_for(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that named a new key waits a while; others do not wait at all."""
    monkeypatch.setattr(issuer_keys, "WAIT_SECONDS_MAX", 1.0)
    publisher.pages["/keys"] = key_set(FIRST)
    publisher.hold.clear()

    async def scene() -> None:
        keys = keys_of(TrustedIssuer("i", f"{publisher.url}/keys", None))
        asking = asyncio.create_task(keys.look_again("i"))
        turns = 0
        while not asking.done():
            await asyncio.sleep(0.01)
            turns += 1
        assert turns > 5, "the loop stood still meanwhile"
        assert not asking.result()
        publisher.hold.set()
        ends = time.monotonic() + 20
        while named(keys) != [["first"]]:
            assert time.monotonic() < ends
            await asyncio.sleep(0.01)

    run(scene)


def test_watching_fetches_and_fetches_again(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any token: a withdrawn key disappears, too."""
    monkeypatch.setattr(issuer_keys, "FILE_SECONDS", 0.05)
    monkeypatch.setattr(issuer_keys, "ADDRESS_SECONDS", 0.05)
    publisher.pages["/keys"] = key_set(FIRST)
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(FIRST, SECOND))

    async def scene() -> None:
        keys = keys_of(
            TrustedIssuer("address", f"{publisher.url}/keys", None),
            TrustedIssuer("file", str(file), None),
        )
        watching = asyncio.create_task(keys.watch())

        async def become(expected: list[list[str]]) -> None:
            ends = time.monotonic() + 20
            while named(keys) != expected:
                assert time.monotonic() < ends, named(keys)
                await asyncio.sleep(0.01)

        await become([["first"], ["first", "second"]])
        publisher.pages["/keys"] = key_set(SECOND)
        file.write_bytes(key_set(SECOND))
        await become([["second"], ["second"]])
        watching.cancel()

    run(scene)


@pytest.mark.parametrize("withdrawn", [b'{"keys":[]}', None], ids=["an empty set", "no file"])
def test_keys_that_were_withdrawn_are_gone_and_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, withdrawn: bytes | None
) -> None:
    monkeypatch.setattr(issuer_keys, "READ_AGAIN_SECONDS", 0.0)
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(FIRST))

    async def scene() -> None:
        keys = keys_of(TrustedIssuer("i", str(file), None))
        await keys.look_again("i")
        assert named(keys) == [["first"]]
        if withdrawn is None:
            file.unlink()
        else:
            file.write_bytes(withdrawn)
        await keys.look_again("i")
        assert named(keys) == [[]]
        file.write_bytes(key_set(FIRST))
        assert await keys.look_again("i")
        assert named(keys) == [["first"]]

    run(scene)


def test_keys_that_cannot_be_fetched_for_a_day_are_not_accepted(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "ASK_AGAIN_SECONDS", 0.0)
    publisher.pages["/keys"] = key_set(FIRST)
    now = 1000.0

    async def scene() -> None:
        nonlocal now
        keys = IssuerKeys([TrustedIssuer("i", f"{publisher.url}/keys", None)], lambda: now)
        assert await keys.look_again("i")
        publisher.pages["/keys"] = 500
        for later, expected in ((KEPT_SECONDS_MAX - 1, ["first"]), (KEPT_SECONDS_MAX, [])):
            now = 1000.0 + later
            assert not await keys.look_again("i")
            assert named(keys) == [expected]
        publisher.pages["/keys"] = key_set(FIRST)
        assert await keys.look_again("i")
        assert named(keys) == [["first"]]

    run(scene)


def test_a_fetch_that_hangs_keeps_no_keys_for_ever(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "FILE_SECONDS", 0.01)
    publisher.pages["/keys"] = key_set(FIRST)
    now = 1000.0

    async def scene() -> None:
        nonlocal now
        keys = IssuerKeys([TrustedIssuer("i", f"{publisher.url}/keys", None)], lambda: now)
        assert await keys.look_again("i")
        publisher.hold.clear()
        now += KEPT_SECONDS_MAX
        watching = asyncio.create_task(keys.watch())
        await asyncio.sleep(0.1)
        assert named(keys) == [[]]
        watching.cancel()
        publisher.hold.set()

    run(scene)


def test_an_unknown_key_makes_the_server_read_the_file_at_once(tmp_path: Path) -> None:
    """The watch has just read the file; requests have it read at most once a second."""
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(FIRST))
    now = 1000.0

    async def scene() -> None:
        nonlocal now
        keys = IssuerKeys([TrustedIssuer("i", str(file), None)], lambda: now)
        watching = asyncio.create_task(keys.watch())
        ends = time.monotonic() + 20
        while named(keys) != [["first"]]:
            assert time.monotonic() < ends
            await asyncio.sleep(0.01)
        file.write_bytes(key_set(FIRST, SECOND))
        assert await keys.look_again("i")
        assert named(keys) == [["first", "second"]]
        file.write_bytes(key_set(SECOND))
        assert not await keys.look_again("i")
        now += READ_AGAIN_SECONDS
        assert await keys.look_again("i")
        watching.cancel()

    run(scene)
