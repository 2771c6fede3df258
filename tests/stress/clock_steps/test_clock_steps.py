"""The clock is set while a server runs, or before: Timestamps increase, and signatures follow the clock.

The long form is `python -m tests.stress.clock_steps --steps N`. TABLESTONE_CLOCK_SEED repeats a run.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom

import pytest

from sas_signing import SAS_VERSION, query_of, signed
from server_process import ServerProcess, start_server
from signing import signed_headers
from stress.clock_steps.run import Run
from stress.clock_steps.wall_clock import STEPPED, WallClock
from stress.crash.writers import JSON, Connection
from tokens import ISSUER, RsaKey, claims_at, key_set
from tokens import signed as signed_token

SEED = os.environ.get("TABLESTONE_CLOCK_SEED", str(SystemRandom().getrandbits(32)))
STEPS = 40
HOUR, HALF_AN_HOUR = 3600, 1800

pytestmark = pytest.mark.slow


def test_timestamps_increase_whatever_the_clock_does(tmp_path: Path) -> None:
    print(f"TABLESTONE_CLOCK_SEED={SEED}")
    run = Run(tmp_path, SEED)
    assert list(run.problems(STEPS)) == []
    print(run)
    assert run.starts > 1


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> WallClock:
    return WallClock(tmp_path_factory.mktemp("clock") / "clock")


KEY = RsaKey("of the issuer")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, clock: WallClock) -> Iterator[ServerProcess]:
    """A server of two workers on the clock, with a table; the tests act as a proxy that terminates TLS."""
    directory = tmp_path_factory.mktemp("stepped")
    keys = directory / "keys.json"
    keys.write_bytes(key_set(KEY))
    started = start_server(
        directory / "data",
        "--workers=2",
        "--trusted-proxy=127.0.0.1",
        f"--token-issuer={ISSUER},{keys}",
        command=STEPPED,
        environment=clock.environment,
        ready_seconds=120,
    )
    with Connection(started) as connection:
        connection.send("POST", "/Tables", b'{"TableName":"tab"}', expected=201)
    yield started
    started.kill()


def status(server: ServerProcess, query: str, headers: Mapping[str, str]) -> int:
    with Connection(server) as connection:
        target = f"{connection.base}/tab()" + (f"?{query}" if query else "")
        connection.http.request("GET", target, headers=JSON | dict(headers))
        response = connection.http.getresponse()
        response.read()
        return response.status


def in_utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def with_table_sas(server: ServerProcess, _now: float) -> int:
    at = time.time()
    parameters = {
        "sv": SAS_VERSION,
        "tn": "tab",
        "sp": "r",
        "st": in_utc(at - HALF_AN_HOUR),
        "se": in_utc(at + HALF_AN_HOUR),
    }
    return status(server, query_of(signed(server.account_name, server.account_key, parameters)), {})


def with_account_sas(server: ServerProcess, _now: float) -> int:
    at = time.time()
    parameters = {
        "sv": SAS_VERSION,
        "ss": "t",
        "srt": "sco",
        "sp": "rl",
        "st": in_utc(at - HALF_AN_HOUR),
        "se": in_utc(at + HALF_AN_HOUR),
    }
    return status(server, query_of(signed(server.account_name, server.account_key, parameters)), {})


def with_token(server: ServerProcess, _now: float) -> int:
    at = time.time()
    claims = claims_at(at, nbf=int(at) - HALF_AN_HOUR, exp=int(at) + HALF_AN_HOUR)
    headers = {
        "Authorization": f"Bearer {signed_token(KEY, claims)}",
        "X-Forwarded-Proto": "https",
        "x-ms-version": "2020-12-06",
    }
    return status(server, "", headers)


def with_key(server: ServerProcess, now: float) -> int:
    """A request signed with an account key at `now`."""
    target = f"{Connection(server).base}/tab()"
    date = f"{datetime.fromtimestamp(now, UTC):%a, %d %b %Y %H:%M:%S GMT}"
    account, key = server.account_name, server.account_key
    return status(
        server, "", dict(signed_headers(account, key, method="GET", target=target, date=date))
    )


def with_key_of_the_real_time(server: ServerProcess, _now: float) -> int:
    return with_key(server, time.time())


def with_key_of_the_server_s_time(server: ServerProcess, now: float) -> int:
    return with_key(server, now)


@pytest.mark.parametrize(
    ("ask", "refused"),
    [
        (with_table_sas, 403),
        (with_account_sas, 403),
        (with_token, 401),
        (with_key_of_the_real_time, 403),
        (with_key_of_the_server_s_time, 200),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_signatures_and_tokens_follow_the_wall_clock(
    server: ServerProcess, clock: WallClock, ask: object, refused: int
) -> None:
    """Valid for half an hour to both sides: not an hour later or earlier, and valid again when the clock is back."""
    assert callable(ask)
    found = []
    for ahead in (0, HOUR, 0, -HOUR, 0):
        clock.set(ahead)
        found.append(ask(server, clock.now()))
    assert found == [200, refused, 200, refused, 200]


def test_a_table_comes_and_goes_whatever_the_clock_does(
    server: ServerProcess, clock: WallClock
) -> None:
    """A table that was deleted while the clock was ahead can be created again when it is set back."""
    for ahead in (HOUR, 0, -HOUR, 0):
        clock.set(ahead)
        with Connection(server, now=clock.now) as connection:
            connection.send("POST", "/Tables", b'{"TableName":"other"}', expected=201)
            body = json.dumps({"PartitionKey": "p", "RowKey": "r"}).encode()
            connection.send("POST", "/other", body, expected=201)
            connection.send("DELETE", "/Tables('other')", expected=204)
