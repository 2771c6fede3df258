"""PostgreSQL in operation: its commands, rights, what may lose data, and what goes wrong while a server runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableAccessPolicy, TableServiceClient

from certificates import write_pair
from cli.admin_pages import json_page
from cli.command_line import Ended, tablestone
from cli.small_disk import small_disk
from cli.trace_collector import collecting
from server_process import free_ports, start_server
from storage.conftest import HeldClock
from storage.postgresql_server import Cut, Proxy, running_server, why_not
from storage.write_sets import committed, insert
from tablestone.cli import storage_move
from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.engines import request_time
from tablestone.engines.contract import EngineBusy, EngineRefused, EngineUnavailable, Key, KeyRange
from tablestone.engines.postgresql.address import parse_address
from tablestone.engines.registry import open_engine
from tablestone.tables.storage_keys import is_for_leases
from tablestone.tables.storage_migration import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
CLIENT = 3
"""The kind of a span for a call of the database."""
WHOLE = KeyRange(Key(b"", b""), Key(b"\xff" * 8, b""))
PATIENCE_SECONDS = 60.0
"""The machine may be busy with other work."""
ROLE = "server"
"""A role with no rights but those that it gets."""
FSYNC, NO_STANDBY_ASKED, NO_STANDBY, UNFENCED = (
    "PostgreSQL has fsync = off",
    "PostgreSQL waits for no standby",
    "Too few synchronous standbys answer PostgreSQL now",
    "Nothing says that an old primary",
)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running_server() as port:
        asyncio.run(
            _run(port, f"CREATE ROLE {ROLE} LOGIN; CREATE ROLE locked LOGIN PASSWORD 'right'")
        )
        yield port


@pytest.fixture
def url(port: int) -> str:
    """A schema that does not exist yet."""
    return f"postgresql://postgres@127.0.0.1:{port}/postgres?schema=s{secrets.token_hex(6)}"


async def _run(port: int, statements: str) -> list[Any]:
    """As the owner of the database; the rows of the last statement if there is one."""
    import asyncpg  # noqa: PLC0415 - the tests are skipped without it

    driver = await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres")
    try:
        if ";" in statements:
            await driver.execute(statements)
            return []
        found: list[Any] = await driver.fetch(statements)
        return found
    finally:
        await driver.close()


def execute(port: int, statements: str) -> list[Any]:
    return asyncio.run(_run(port, statements))


@contextlib.contextmanager
def settings(port: int, **changed: str) -> Iterator[None]:
    """Change settings of the database's server for a while."""
    before = {name: _setting(port, name) for name in changed}
    for name, value in changed.items():
        execute(port, f"ALTER SYSTEM SET {name} = '{value}'")
    _reload(port, changed)
    try:
        yield
    finally:
        for name in changed:
            execute(port, f"ALTER SYSTEM SET {name} = '{before[name]}'")
        _reload(port, before)


def _setting(port: int, name: str) -> str:
    [(value,)] = execute(port, f"SHOW {name}")
    return str(value)


def _reload(port: int, expected: Mapping[str, str]) -> None:
    """Wait until new connections have the settings: the server may read its file late."""
    execute(port, "SELECT pg_reload_conf()")
    until = time.monotonic() + PATIENCE_SECONDS
    while {name: _setting(port, name) for name in expected} != expected:
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.2)  # its other processes do the same


def as_role(url: str, role: str = ROLE) -> str:
    return url.replace("postgres@", f"{role}@")


def schema_of(url: str) -> str:
    return parse_address(url).schema


def warned(ended: Ended) -> list[str]:
    """The beginnings of the warnings that `init` has printed."""
    return [
        line.removeprefix("warning: ")[: len(known)]
        for line in ended.lines
        if line.startswith("warning: ")
        for known in (FSYNC, NO_STANDBY_ASKED, NO_STANDBY, UNFENCED)
        if line.startswith(f"warning: {known}")
    ]


# The first rule of an account.


def set_rule(url: str, *more: str) -> Ended:
    return tablestone("account", "set", "weather", "--allow", "127.0.0.1", "--engine", url, *more)


def test_the_first_rule_of_an_account_changes_the_format(url: str, port: int) -> None:
    """It is refused while a program is connected that does not know rules: it has only the first of two locks."""
    assert tablestone("postgresql", "init", "--engine", url, "--grant-to", ROLE).status == 0
    owner, url = url, as_role(url)
    assert tablestone("account", "create", "weather", "--engine", url).status == 0
    formats = f'SELECT format, id FROM "{schema_of(url)}".storage'
    [(found, storage)] = execute(port, formats)
    assert found == 1
    first, second = struct.unpack_from("!ii", storage)

    async def refused() -> Ended:
        import asyncpg  # noqa: PLC0415 - the tests are skipped without it

        driver = await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres")
        try:
            await driver.execute(f"SELECT pg_advisory_lock_shared({first}, {second})")
            return await asyncio.to_thread(set_rule, url)
        finally:
            await driver.close()

    ended = asyncio.run(refused())
    assert ended.status == 2
    assert "--all-servers-upgraded" in ended.stderr
    assert execute(port, formats)[0][0] == 1

    async def beside_this_version() -> Ended:
        engine = open_engine(url, system_clock)
        try:
            await engine.get(Key(b"", b""))
            ended = await asyncio.to_thread(set_rule, url)
            assert "which only its owner may change" in ended.stderr
            return await asyncio.to_thread(set_rule, owner)
        finally:
            await engine.close()

    ended = asyncio.run(beside_this_version())
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.lines[-1].endswith(
        "has the format 2 now: earlier versions of Tablestone refuse it, for good."
    )
    assert execute(port, formats)[0][0] == 2
    assert set_rule(url).lines == ["Admitted to weather: 127.0.0.1/32."]
    assert tablestone("postgresql", "init", "--engine", owner).status == 0


@pytest.mark.slow
def test_rules_of_accounts_move_with_their_format(url: str, port: int, tmp_path: Path) -> None:
    data, back = tmp_path / "data", tmp_path / "back"
    assert tablestone("account", "create", "weather", "--data", data).status == 0
    rule = ("--allow", "127.0.0.1")
    assert tablestone("account", "set", "weather", *rule, "--data", data).status == 0
    assert tablestone("postgresql", "init", "--engine", url).status == 0
    told = ["Rules of accounts, which act at once:", "  weather: allowed addresses: 127.0.0.1/32"]
    loaded = tablestone("postgresql", "load", "--from", data, "--engine", url, "--quiet")
    assert (loaded.status, loaded.lines[-2:]) == (0, told)
    assert execute(port, f'SELECT format FROM "{schema_of(url)}".storage')[0][0] == 2
    unloaded = tablestone("postgresql", "unload", "--to", back, "--engine", url, "--quiet")
    assert (unloaded.status, unloaded.lines[-2:]) == (0, told)
    assert "format 4, " in tablestone("upgrade", "--data", back).lines[0]


# `init`, and the rights of a server.


def test_init_makes_a_schema_once_and_gives_a_role_its_rights(url: str) -> None:
    made = tablestone("postgresql", "init", "--engine", url, "--grant-to", ROLE)
    assert (made.status, made.stderr) == (0, "")
    schema = schema_of(url)
    assert made.lines[:2] == [
        f"Schema {schema}: made.",
        f"The role {ROLE} has the rights of a server.",
    ]
    again = tablestone("postgresql", "init", "--engine", url)
    assert (again.status, again.lines[0]) == (0, f"Schema {schema}: exists already.")
    # The role reads and writes, and changes nothing else.
    checked = tablestone("check", "--engine", f"{as_role(url)}&connections=2")
    assert (checked.status, checked.lines[-1].endswith(f"?schema={schema}: healthy")) == (0, True)
    given_away = tablestone("postgresql", "init", "--engine", as_role(url), "--grant-to", "locked")
    assert (given_away.status, given_away.lines) == (2, [])
    assert "is another role's, which can give the rights." in given_away.stderr
    for statement in (f"DROP TABLE {schema}.rows", f"UPDATE {schema}.storage SET format = 9"):
        with pytest.raises(Exception, match=r"permission denied|must be owner"):
            execute_as_role(parse_address(url).netloc.rpartition(":")[2], statement)


def execute_as_role(port: str, statement: str) -> None:
    import asyncpg  # noqa: PLC0415 - as above

    async def run() -> None:
        driver = await asyncpg.connect(f"postgresql://{ROLE}@127.0.0.1:{port}/postgres")
        try:
            await driver.execute(statement)
        finally:
            await driver.close()

    asyncio.run(run())


def test_init_refuses_what_it_cannot_use(url: str, port: int) -> None:
    schema = schema_of(url)

    def refused(*more: str) -> str:
        ended = tablestone("postgresql", "init", "--engine", url, *more)
        assert (ended.status, ended.lines) == (2, [])
        return ended.stderr

    execute(port, f"CREATE SCHEMA {schema} CREATE TABLE things (id integer)")
    assert "is another program's: choose one with schema=NAME." in refused()
    execute(port, f"DROP TABLE {schema}.things")
    assert "PostgreSQL has no role 'nobody_here': create the" in refused(
        "--grant-to", "nobody_here"
    )
    assert execute(port, f"SELECT FROM pg_tables WHERE schemaname = '{schema}'") == []
    assert tablestone("postgresql", "init", "--engine", url).status == 0
    execute(port, f"UPDATE {schema}.storage SET format = 3")
    assert (
        "has the format 3, and this Tablestone reads 2: use the version that made it" in refused()
    )
    execute(port, f"UPDATE {schema}.storage SET format = 0")
    assert "has the format 0, which cannot be upgraded." in refused()
    ended = tablestone("check", "--engine", url)
    assert (
        ended.status,
        "and run `tablestone postgresql init`, which upgrades it" in ended.stderr,
    ) == (2, True)
    said = tablestone("postgresql", "init", "--engine", "sqlite:/tmp/none").stderr
    assert said.startswith("tablestone: Say which database: --engine 'postgresql://")


@pytest.mark.asyncio
async def test_a_schema_is_upgraded_while_no_server_is_connected(
    url: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tablestone.engines.postgresql import checks  # noqa: PLC0415 - need the driver
    from tablestone.engines.postgresql.opening import initialize  # noqa: PLC0415 - needs the driver

    monkeypatch.setattr(checks, "LEAVING_SECONDS_MAX", 0.5)
    schema, steps = schema_of(url), {0: "ALTER TABLE storage ADD COLUMN new integer"}
    engine = open_engine(url, system_clock)
    await committed(engine, insert(b"p", b"r"))
    await _run(port, f"UPDATE {schema}.storage SET format = 0")  # the server runs since before
    with pytest.raises(
        EngineRefused, match=r"is in use from 127\.0\.0\.1: stop every server first"
    ):
        initialize(parse_address(url), None, steps)
    monkeypatch.setattr(checks, "LEAVING_SECONDS_MAX", 30)
    assert not await _run(port, f"SELECT format FROM {schema}.storage WHERE format <> 0")
    await engine.close()
    assert initialize(parse_address(url), None, steps)[0] is False
    assert [
        tuple(row) for row in await _run(port, f"SELECT format, new FROM {schema}.storage")
    ] == [(1, None)]
    engine = open_engine(url, system_clock)
    assert await engine.get(Key(b"p", b"r")) == b"value"
    await engine.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("starts", [True, False])
async def test_a_server_waits_a_moment_for_a_command_that_has_ended(
    url: str, monkeypatch: pytest.MonkeyPatch, *, starts: bool
) -> None:
    """PostgreSQL may keep the lock of `init && serve` for a moment."""
    from tablestone.engines.postgresql import checks  # noqa: PLC0415 - needs the driver
    from tablestone.engines.postgresql.opening import held_alone  # noqa: PLC0415 - needs the driver

    monkeypatch.setattr(checks, "LEAVING_SECONDS_MAX", 30)
    tablestone("postgresql", "init", "--engine", url)
    expected = (
        contextlib.nullcontext()
        if starts
        else pytest.raises(EngineRefused, match=r"wait for it\.$")
    )
    async with held_alone(parse_address(url)):
        if not starts:
            monkeypatch.setattr(checks, "LEAVING_SECONDS_MAX", 0.5)
        opening = asyncio.create_task(asyncio.to_thread(open_engine, url, system_clock))
        await asyncio.wait({opening}, timeout=0.3 if starts else 60)
    with expected:
        await (await opening).close()


# What may lose data, and the clock.


def test_settings_that_may_lose_data_are_told(url: str, port: int) -> None:
    def told(more: str = "", role: str = "postgres") -> list[str]:
        said = warned(tablestone("postgresql", "init", "--engine", as_role(url, role) + more))
        assert said[0] == FSYNC  # of the tests' server
        return said[1:]

    tablestone("postgresql", "init", "--engine", url, "--grant-to", ROLE)
    assert told() == [NO_STANDBY_ASKED, UNFENCED]
    with settings(port, synchronous_standby_names="*"):
        assert told(role=ROLE) == told() == [NO_STANDBY, UNFENCED]
        for more in (("--engine", url, "--grant-to", ROLE), ("--engine", f"{url}_new")):
            waits = tablestone("postgresql", "init", *more)
            assert (waits.status, NO_STANDBY in waits.stderr) == (2, True)
        with synchronous_standby(port):
            assert told() == [UNFENCED]
            # The role sees that there is a standby, and not that it is synchronous.
            assert told("&fenced=yes") == told("&fenced=yes", ROLE) == []
            for names, is_there in (("ANY 1 (*)", True), ("2(a,*)", False)):
                with settings(port, synchronous_standby_names=names):
                    assert (told("&fenced=yes", ROLE) == []) is is_there


@contextlib.contextmanager
def synchronous_standby(port: int) -> Iterator[None]:
    """A program that keeps the write-ahead log, as a standby does."""
    [(programs,)] = execute(port, "SELECT setting FROM pg_config() WHERE name = 'BINDIR'")
    with tempfile.TemporaryDirectory() as directory:
        command = [f"{programs}/pg_receivewal", "--synchronous", "--no-loop", "-D", directory]
        receiver = subprocess.Popen([*command, "-h127.0.0.1", f"-p{port}", "-Upostgres"])
        try:
            until = time.monotonic() + PATIENCE_SECONDS
            while not execute(port, "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'"):
                assert time.monotonic() < until
                time.sleep(0.05)
            yield
        finally:
            receiver.kill()
            receiver.wait()


@pytest.mark.asyncio
async def test_a_clock_that_is_minutes_off_is_told_and_the_databases_time_is_taken(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    now = system_clock()
    for minutes, words in ((-7, "7 min behind"), (1_440, "1,440 min ahead of"), (0.5, None)):
        clock = HeldClock()
        clock.now = now + round(minutes * 60 * TICKS_PER_SECOND)
        caplog.clear()
        engine = open_engine(url + "&fenced=yes", clock)
        assert [
            str(words) in each.message for each in caplog.records if "clock" in each.message
        ] == ([] if words is None else [True])
        [version] = await committed(engine, insert(b"p", secrets.token_bytes(8)))
        expected = clock.now if words is None else now
        assert abs(version - expected) < 20 * TICKS_PER_SECOND
        assert sum("clock" in each for each in engine.warnings()) == (words is not None)  # type: ignore[attr-defined]
        await engine.close()


@pytest.mark.asyncio
async def test_time_limits_of_the_role_are_survived(url: str, port: int) -> None:
    role = f"limited{secrets.token_hex(4)}"
    limits = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"]
    limits.append("idle_session_timeout")
    [(version,)] = await _run(port, "SELECT current_setting('server_version_num')::integer")
    if version >= 170000:
        limits.append("transaction_timeout")
    await _run(
        port,
        f"CREATE ROLE {role} LOGIN SUPERUSER;"
        + "".join(f"ALTER ROLE {role} SET {name} = '100ms';" for name in limits),
    )
    engine = open_engine(as_role(url, role), system_clock)
    await committed(engine, insert(b"p", b"r", b"v"))
    snapshot = await engine.snapshot()
    for _ in range(2):
        page = await snapshot.read([WHOLE], rows_max=9, bytes_max=99)
        assert page.values == [b"v"]
        await asyncio.sleep(0.3)
    await snapshot.close()
    connections = engine._connections  # type: ignore[attr-defined]
    async with connections.one() as connection:
        await connection.fetch("SELECT pg_sleep(0.3)")
    assert connections.connects == 1
    await engine.close()


# Connecting.


@pytest.mark.asyncio
async def test_a_pooler_that_keeps_settings_back_is_refused(
    url: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PgBouncer does, if it is told to ignore them; else it refuses them."""
    import asyncpg  # noqa: PLC0415

    from tablestone.engines.postgresql import connections  # noqa: PLC0415 - needs the driver

    role = f"pooled{secrets.token_hex(4)}"
    await _run(
        port,
        f"CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET synchronous_commit = 'local';",
    )
    open_engine(as_role(url, role), system_clock)
    monkeypatch.delitem(connections.SETTINGS, "synchronous_commit")
    with pytest.raises(
        EngineRefused, match=r"do not reach .*: name PostgreSQL itself, and no pooler"
    ):
        open_engine(as_role(url, role), system_clock)
    refused = asyncpg.ProtocolViolationError("unsupported startup parameter: jit")
    assert connections.what_it_says(refused).startswith("a pooler such as PgBouncer is between")


@pytest.fixture
def with_tls(port: int, tmp_path: Path) -> Iterator[Path]:
    """The certificate, for 127.0.0.1, of the database's server."""
    certificate, key = write_pair(tmp_path, "database")
    [(data,)] = execute(port, "SHOW data_directory")
    for name, source in (("server.crt", certificate), ("server.key", key)):
        place = shutil.copy(source, f"{data}/{name}")
        owner = Path(data).stat()
        os.chown(place, owner.st_uid, owner.st_gid)
        Path(place).chmod(0o600)
    if execute(port, "SELECT FROM pg_config() WHERE setting LIKE '%openssl%'"):
        with settings(port, ssl="on"):
            yield certificate
    else:
        pytest.skip("this PostgreSQL was built without TLS")


def test_tls_is_verified(url: str, port: int, with_tls: Path, tmp_path: Path) -> None:
    verified = f"{url}&sslmode=verify-full&sslrootcert="
    assert tablestone("postgresql", "init", "--engine", f"{verified}{with_tls}").status == 0
    other = tmp_path / "other"
    other.mkdir()
    stranger, _key = write_pair(other, "another authority")
    for changed in (
        f"{verified}{stranger}",
        f"{verified}{with_tls}".replace("127.0.0.1", "localhost"),
        f"{verified}/none/certificate.pem",
    ):
        ended = tablestone("postgresql", "init", "--engine", changed)
        assert (ended.status, "certificate" in ended.stderr) == (2, True), ended
    role = f"only_tls{secrets.token_hex(4)}"
    execute(port, f"CREATE ROLE {role} LOGIN SUPERUSER")
    assert tablestone("check", "--engine", as_role(f"{verified}{with_tls}", role)).status == 0


def test_a_password_comes_from_the_environment_or_a_file(
    url: str, port: int, tmp_path: Path
) -> None:
    locked = as_role(url, "locked")
    tablestone("postgresql", "init", "--engine", url, "--grant-to", "locked")
    right = {"PGPASSWORD": "right"}
    assert tablestone("check", "--engine", locked, environment=right).status == 0
    passwords = tmp_path / "passwords"
    passwords.write_text(f"127.0.0.1:{port}:postgres:locked:right\n")
    passwords.chmod(0o600)
    assert tablestone("check", "--engine", f"{locked}&passfile={passwords}").status == 0
    named = {"PGPASSFILE": str(passwords)}
    assert tablestone("check", "--engine", locked, environment=named).status == 0
    assert tablestone("check", "--engine", locked).status == 2
    passwords.chmod(0o644)
    for where, environment in ((f"{locked}&passfile={passwords}", {}), (locked, named)):
        refused = tablestone("check", "--engine", where, environment=environment)
        assert refused.status == 2
        assert refused.stderr.endswith(f"the passwords in {passwords}: chmod 600 {passwords}.\n")
    # It is not asked for then.
    both = f"{locked}&passfile={passwords}"
    assert tablestone("check", "--engine", both, environment=right).status == 0


def test_of_several_hosts_the_primary_is_used(url: str, port: int) -> None:
    with standby(port) as other:
        alone = url.replace(f":{port}/", f":{other}/")
        both = url.replace(f":{port}/", f":{other},127.0.0.1:{port}/")
        assert tablestone("postgresql", "init", "--engine", both).status == 0
        for command in (("postgresql", "init"), ("check",)):
            refused = tablestone(*command, "--engine", alone)
            assert refused.status == 2
            assert refused.stderr.endswith(
                "cannot be used: it is a standby, and only a primary is used.\n"
            )


@pytest.mark.asyncio
async def test_a_host_that_does_not_even_refuse_holds_up_no_other(url: str) -> None:
    """As a machine that was switched off, before one that was promoted."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        gone = f"127.0.0.1:{silent.getsockname()[1]}"
        engine = open_engine(url.replace("127.0.0.1", f"{gone},127.0.0.1"), system_clock)
        await committed(engine, insert(b"p", b"r"))
        assert await engine.get(Key(b"p", b"r")) == b"value"
        await engine.close()
        wrong = url.replace("127.0.0.1", f"{gone},127.0.0.1").replace("/postgres?", "/none?")
        with pytest.raises(EngineRefused, match='database "none" does not exist'):
            open_engine(wrong, system_clock)


@contextlib.contextmanager
def standby(port: int) -> Iterator[int]:
    """A copy of the server that takes no writes; its port."""
    [(programs,)] = execute(port, "SELECT setting FROM pg_config() WHERE name = 'BINDIR'")
    [(data,)] = execute(port, "SHOW data_directory")
    user: dict[str, Any] = {}
    if not os.geteuid():
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    place = f"{data}.standby"
    backup = [f"{programs}/pg_basebackup", "-h127.0.0.1", f"-p{port}", "-Upostgres", "-D", place]
    subprocess.run([*backup, "-R", "--no-sync", "--checkpoint=fast"], check=True, cwd="/", **user)
    free = free_ports(1)[0]
    more = ["--fsync=off", "--listen_addresses=127.0.0.1", "--unix_socket_directories="]
    server = subprocess.Popen(
        [f"{programs}/postgres", "-D", place, f"--port={free}", *more],
        stderr=subprocess.DEVNULL,
        cwd="/",
        **user,
    )
    try:
        until = time.monotonic() + 30
        while True:
            try:
                execute(free, "SELECT")
                break
            except Exception:  # noqa: BLE001 - it starts
                assert time.monotonic() < until
                time.sleep(0.1)
        yield free
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


# What is wrong at the start: one sentence, and exit status 2.

WRONG = (
    ("a password", "", "locked", "", 'for user "locked" (the password is PGPASSWORD or, without'),
    ("no such role", "", "nobody_here", "", 'role "nobody_here" does not exist.'),
    ("no database", "", "postgres", "/none?", 'database "none" does not exist.'),
    (
        "no right to make the schema",
        "",
        ROLE,
        "",
        "does not exist, and this role may not make it: run `tablestone postgresql init --grant-to",
    ),
    (
        "no right to use it",
        "CREATE SCHEMA {0} CREATE TABLE storage (format integer)",
        ROLE,
        "",
        "permission denied for schema {0} (`tablestone postgresql init --grant-to ROLE` gives",
    ),
    (
        "another program's",
        "CREATE SCHEMA {0} CREATE TABLE t (n integer)",
        "postgres",
        "",
        "another program's",
    ),
    (
        "another program's table of this name",
        "CREATE SCHEMA {0} CREATE TABLE storage (number integer)",
        "postgres",
        "",
        "is another program's: choose one with schema=NAME.",
    ),
    (
        "no more connections",
        "ALTER ROLE locked CONNECTION LIMIT 0",
        "locked",
        "",
        "too many connections for role",
    ),
)


@pytest.mark.parametrize(
    ("prepared", "role", "place", "said"),
    [each[1:] for each in WRONG],
    ids=[each[0] for each in WRONG],
)
def test_what_is_wrong_is_said_at_the_start(
    url: str, port: int, prepared: str, role: str, place: str, said: str
) -> None:
    if prepared:
        execute(port, prepared.format(schema_of(url)) + ";")
    given = as_role(url, role).replace("/postgres?", place or "/postgres?")
    password = "right" if "LIMIT" in prepared else "wrong"
    ended = tablestone(
        "postgresql", "init", "--engine", given, environment={"PGPASSWORD": password}
    )
    assert (ended.status, ended.lines) == (2, [])
    assert said.format(schema_of(url)) in ended.stderr
    assert ended.stderr.startswith("tablestone: ")
    assert ended.stderr.endswith(".\n")
    assert ended.stderr.count("\n") == 1
    assert password not in ended.stderr
    execute(port, "ALTER ROLE locked CONNECTION LIMIT -1;")


def test_a_database_that_stops_answering_at_the_start_is_given_up(
    url: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tablestone.engines.postgresql import opening  # noqa: PLC0415 - needs the driver

    monkeypatch.setattr(opening, "STATEMENT_SECONDS_MAX", 1.0)
    assert tablestone("postgresql", "init", "--engine", url).status == 0
    proxy = Proxy(port, [Cut(b"pg_try_advisory_lock_shared", "hang")])
    ended = tablestone("check", "--engine", url.replace(f":{port}/", f":{proxy.port}/"))
    proxy.close()
    assert (ended.status, ended.stderr.endswith("it does not answer in time.\n")) == (2, True)
    assert not proxy.cuts


# What goes wrong while a server runs: 503, until it is right again.

WENT_WRONG = (
    ("the password", "ALTER ROLE {role} PASSWORD 'another'", "ALTER ROLE {role} PASSWORD 'right'"),
    (
        "no more connections",
        "ALTER ROLE {role} CONNECTION LIMIT 0",
        "ALTER ROLE {role} CONNECTION LIMIT -1",
    ),
    (
        "the rights",
        "REVOKE SELECT ON {schema}.rows FROM {role}",
        "GRANT SELECT ON {schema}.rows TO {role}",
    ),
    (
        "another schema in its place",
        "ALTER SCHEMA {schema} RENAME TO {schema}_old",
        "ALTER SCHEMA {schema}_old RENAME TO {schema}",
    ),
    (
        "another storage",
        "UPDATE {schema}.storage SET id = reverse_id(id)",
        "UPDATE {schema}.storage SET id = reverse_id(id)",
    ),
    (
        "a newer format",
        "UPDATE {schema}.storage SET format = 3",
        "UPDATE {schema}.storage SET format = 1",
    ),
    (
        "a load",
        "UPDATE {schema}.storage SET source = 'x'",
        "UPDATE {schema}.storage SET source = NULL",
    ),
)


class Served:
    """A server whose role has no more than the rights that it needs."""

    def __init__(self, port: int, directory: Path) -> None:
        self.port = port
        self.schema, self.role = "served", "locked"
        url = f"postgresql://postgres@127.0.0.1:{port}/postgres?schema={self.schema}"
        made = tablestone("postgresql", "init", "--engine", url, "--grant-to", self.role)
        assert made.status == 0, made
        execute(
            port,
            "CREATE FUNCTION reverse_id(id bytea) RETURNS bytea LANGUAGE SQL AS "
            "$$ SELECT decode(reverse(encode(id, 'hex')), 'hex') $$;",
        )
        self.server = start_server(
            directory,
            *("--engine", as_role(url, self.role), "--workers", "1", "--admin", "127.0.0.1:0"),
            constants={"tablestone.server.admin.readiness.PROBE_SECONDS_MAX": 2.0},
            environment={"PGPASSWORD": "right"},
        )
        service = TableServiceClient.from_connection_string(
            self.server.connection_string, retry_total=0
        )
        self.table = service.create_table("things")
        self.stored = 0

    def execute(self, statements: str) -> None:
        execute(self.port, statements.format(schema=self.schema, role=self.role) + ";")

    def disconnect(self) -> None:
        """Connections that live do not notice; and a commit on one that is just cut may have any outcome."""
        leave = (
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            f"WHERE usename = '{self.role}'"
        )
        execute(self.port, leave)

    def write(self) -> int:
        """The status of an insert."""
        try:
            self.table.create_entity(
                {"PartitionKey": "p", "RowKey": f"{self.stored:03}", "s": "x" * 30_000}
            )
        except HttpResponseError as error:
            return int(error.status_code or 0) if "ServerBusy" in str(error) else 0
        self.stored += 1
        return 201

    def wait_for(self, status: int) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while self.write() != status:
            assert time.monotonic() < until
            time.sleep(0.1)


@pytest.fixture(scope="module")
def served(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(port, tmp_path_factory.mktemp("served"))
    yield served
    served.server.kill()


@pytest.mark.sdk
@pytest.mark.parametrize(
    ("wrong", "right"), [each[1:] for each in WENT_WRONG], ids=[each[0] for each in WENT_WRONG]
)
def test_a_server_answers_503_until_it_is_right_again(
    served: Served, wrong: str, right: str
) -> None:
    served.wait_for(201)
    served.execute(wrong)
    served.disconnect()
    served.wait_for(503)
    assert served.write() == 503
    served.execute(right)
    served.wait_for(201)
    assert len(list(served.table.list_entities(select=["RowKey"]))) == served.stored


@pytest.mark.sdk
def test_a_full_disk_refuses_writes_and_reads_go_on(served: Served) -> None:
    [(data,)] = execute(served.port, "SHOW data_directory")
    with small_disk(Path(f"{data}.small"), 1 << 20) as disk:
        owner = Path(data).stat()
        os.chown(disk, owner.st_uid, owner.st_gid)
        execute(served.port, f"CREATE TABLESPACE small LOCATION '{disk}'")
        served.execute("ALTER TABLE {schema}.rows SET TABLESPACE small")
        try:
            served.wait_for(503)
            assert len(list(served.table.list_entities(select=["RowKey"]))) == served.stored
            until = time.monotonic() + PATIENCE_SECONDS
            while "PostgreSQL has no room" not in served.server.stderr:
                assert time.monotonic() < until
                time.sleep(0.1)
        finally:
            served.execute("ALTER TABLE {schema}.rows SET TABLESPACE pg_default")
        served.wait_for(201)
        execute(served.port, "DROP TABLESPACE small")


@pytest.mark.sdk
def test_health_tells_what_may_lose_data_now(served: Served) -> None:
    """A failover may bring a primary without a standby: the connections are new, and so are the warnings."""

    def wait_until_told(*beginnings: str, expected: int = 200) -> None:
        """The last probe may be of a moment ago."""
        until = time.monotonic() + PATIENCE_SECONDS
        seen: list[Any] = []
        while True:
            status, members = json_page(served.server, "/health/ready")
            told = [each for each in members.get("warnings", ()) if "standby" in each]
            if (status, [each[:30] for each in told]) == (
                expected,
                [each[:30] for each in beginnings],
            ):
                return
            seen += [members] * (members not in seen)
            assert time.monotonic() < until, seen
            time.sleep(0.2)

    served.wait_for(201)
    assert NO_STANDBY_ASKED in served.server.stderr
    wait_until_told(NO_STANDBY_ASKED)
    with settings(served.port, synchronous_standby_names="*"), synchronous_standby(served.port):
        served.disconnect()
        wait_until_told()
    with settings(served.port, synchronous_standby_names="*"):
        served.disconnect()
        # It waits for its own write, and says why.
        wait_until_told(NO_STANDBY, expected=503)
    served.disconnect()
    wait_until_told(NO_STANDBY_ASKED)
    served.execute("UPDATE {schema}.storage SET format = 3")
    served.disconnect()
    until = time.monotonic() + PATIENCE_SECONDS
    while "has the format 3" not in str(json_page(served.server, "/health/ready")):
        assert time.monotonic() < until
        time.sleep(0.2)
    served.execute("UPDATE {schema}.storage SET format = 1")


@pytest.mark.asyncio
async def test_waits_and_connections_are_counted(url: str, port: int) -> None:
    async with contextlib.AsyncExitStack() as ends:
        one, other = (open_engine(url, system_clock) for _ in range(2))
        ends.push_async_callback(one.close)
        ends.push_async_callback(other.close)
        await committed(one, insert(b"p", b"r"))
        assert measured(one) == (pytest.approx(0, abs=0.3), 1)
        before, _ = measured(one)
        began = time.monotonic()
        lock = one._commits.lock_of(b"p")  # type: ignore[attr-defined]
        import asyncpg  # noqa: PLC0415

        driver = await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres")
        async with driver.transaction():
            await driver.execute(f"SELECT pg_advisory_xact_lock({lock})")
            writes = [
                asyncio.ensure_future(committed(one, insert(b"p", b"%d" % n))) for n in (1, 2)
            ]
            await asyncio.sleep(0.3)
        await asyncio.gather(*writes)
        await driver.close()
        # One waits in PostgreSQL, and the other here.
        waited, connects = measured(one)
        assert connects == 1
        assert 0.4 < waited - before < 2 * (time.monotonic() - began)
        assert await other.get(Key(b"p", b"2")) == b"value"
        assert measured(other) == (0, 1)
        assert requests_of(other) == 1
        snapshot = await other.snapshot()
        for _ in range(2):
            await snapshot.read([WHOLE], rows_max=9, bytes_max=9)
        assert requests_of(other) == 4  # and the snapshot's beginning
        await snapshot.close()
        before = requests_of(one)
        await committed(one, insert(b"p", b"3"))
        assert requests_of(one) == before + 1


def requests_of(engine: Any) -> int:
    _sum, *counts = engine.measure()["postgresql_request_seconds"]
    return int(sum(counts))


def measured(engine: Any) -> Any:
    values = engine.measure()
    return values["postgresql_lock_wait_seconds"], values["postgresql_connects"]


@pytest.mark.sdk
def test_traces_and_plans_show_the_calls_of_a_request(url: str, tmp_path: Path) -> None:
    """How many statements each request needs, and which way a query takes."""
    with collecting() as collector:
        traced = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        command = [sys.executable, "-m", "tablestone"]
        more = ("--engine", url, "--workers", "1")
        server = start_server(tmp_path, *more, command=command, environment=traced)
        try:
            service = TableServiceClient.from_connection_string(server.connection_string)
            table = service.create_table("Plans")
            for number in range(3):
                key = {"PartitionKey": "p", "RowKey": f"{number}"}
                table.create_entity({**key, "n": number, "s": "x"})
            made = tablestone("index", "create", "Plans", "n", "--yes", "--engine", url)
            assert made.status == 0, made
            table.get_entity("p", "1")  # this server has the index by now
            endpoint = {"AZURE_STORAGE_CONNECTION_STRING": server.connection_string}
            assert len(list(table.query_entities("PartitionKey eq 'p'"))) == 3
            for asked, plan, found in (("n eq 1", "index", 1), ("s eq 'y'", "table scan", 0)):
                explain = ("query", "Plans", "--filter", asked, "--explain")
                told = tablestone(*explain, environment=endpoint)
                lines = [line for line in told.stderr.splitlines() if line.startswith("plan: ")]
                assert (told.status, len(told.lines), lines) == (0, found, [f"plan: {plan}"]), told
                assert "\ncost: 1 request, " in told.stderr
        finally:
            server.stop()
    spans = collector.spans
    assert {s.attributes["db.system.name"] for s in spans if s.kind == CLIENT} == {"postgresql"}

    def calls(operation: str) -> list[list[Any]]:
        """In each request with this operation: the calls of the engine, each with the rows that it returned.

        Among them are those that read rows of the catalogue, if a lease has ended.
        """
        requests = sorted((s.start, s.span) for s in spans if s.name == f"execute {operation}")
        return [
            [
                (call.name, call.attributes.get("db.response.returned_rows"))
                for call in sorted(spans, key=lambda call: call.start)
                if call.parent == request
            ]
            for _start, request in requests
        ]

    assert [each.count(("commit", None)) for each in calls("InsertEntity")] == [1, 1, 1]
    assert ("get", 1) in calls("GetEntity")[0]
    partition, index, scan, *_ = calls("QueryEntities")
    for each, rows in ((partition, 3), (index, 1), (scan, 0)):
        assert ("read", rows) in each
        assert (("entries", 1) in each) == (each is index)


@pytest.mark.asyncio
async def test_the_name_of_a_host_may_lead_elsewhere(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, address = socket.getaddrinfo, "127.0.0.1"

    def found(host: Any, *more: Any, **how: Any) -> Any:
        return find(address if host == "db.example" else host, *more, **how)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    engine = open_engine(url.replace("127.0.0.1", "db.example"), system_clock)
    await committed(engine, insert(b"p", b"r"))
    connections = engine._connections  # type: ignore[attr-defined]
    connections._forget_idle()
    address = "127.0.0.99"  # nothing listens there
    with pytest.raises(
        EngineBusy, match=r"now: there is no connection to db\.example:[0-9]+ \(Con"
    ):
        await engine.get(Key(b"p", b"r"))
    address = "127.0.0.1"
    assert await engine.get(Key(b"p", b"r")) == b"value"
    await engine.close()


@pytest.mark.asyncio
async def test_a_host_that_does_not_answer_in_time_is_named(
    url: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tablestone.engines.postgresql import connections  # noqa: PLC0415 - needs the driver

    proxy = Proxy(port)
    engine = open_engine(url.replace(f":{port}/", f":{proxy.port}/"), system_clock)
    await committed(engine, insert(b"p", b"r"))
    proxy.is_held = True
    said = f"127.0.0.1:{proxy.port} "

    async def get(seconds: float) -> None:
        request_time.begin(seconds)
        with pytest.raises(EngineBusy, match=said + "does not answer in time"):
            await engine.get(Key(b"p", b"r"))

    await asyncio.create_task(get(0.3))
    monkeypatch.setattr(connections, "CONNECT_SECONDS_MAX", 0.3)
    said = rf"there is no connection to 127.0.0.1:{proxy.port} \(it "
    await asyncio.create_task(get(5))
    proxy.close()
    await engine.close()


# `load` and `unload`.


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that a server has filled, with an index, an expiry and a policy."""
    directory = tmp_path_factory.mktemp("moving") / "data"
    server = start_server(directory, command=[sys.executable, "-m", "tablestone"])
    try:
        service = TableServiceClient.from_connection_string(server.connection_string)
        table = service.create_table("Many")
        rows = [
            {"PartitionKey": "p", "RowKey": f"{n:02}", "n": n, "s": "x" * 999} for n in range(90)
        ]
        table.submit_transaction([("create", row) for row in rows])
        table.create_entity({"PartitionKey": "\u6f22" * 500, "RowKey": "\u5b57" * 500, "n": 90})
        policy = TableAccessPolicy(permission="r", start=None, expiry=None)
        table.set_table_access_policy({"readers": policy})
    finally:
        server.stop(signal.SIGTERM)
    moved = (
        ("index", "create", "Many", "n"),
        ("expiry", "set", "Many", "--after", "7d", "--yes"),
        ("account", "create", "stored"),
    )
    for words in moved:
        ended = tablestone(*words, "--data", directory)
        assert ended.status == 0, ended
    return directory


def stored_in(url: str) -> list[Any]:
    async def scan() -> list[Any]:
        engine = open_engine(url, system_clock, read_only=True)
        try:
            rows = await engine.scan(WHOLE, rows_max=1_000)
            return [row for row in rows if not is_for_leases(Key(row.partition, row.row))]
        finally:
            await engine.close()

    return asyncio.run(scan())


@pytest.mark.sdk
def test_a_directory_comes_into_the_schema_and_back_as_it_was(
    directory: Path, url: str, tmp_path: Path
) -> None:
    load = ("postgresql", "load", "--from", directory, "--engine", url)
    absent = tablestone(*load)
    assert (absent.status, "postgresql init" in absent.stderr) == (2, True)
    tablestone("postgresql", "init", "--engine", url, "--grant-to", ROLE)
    denied = tablestone("postgresql", "load", "--from", directory, "--engine", as_role(url))
    assert (denied.status, "is another role's, which can load it." in denied.stderr) == (2, True)
    loaded = tablestone(*load)
    assert (loaded.status, loaded.stderr) == (0, "")
    assert f"holds what {directory} holds: 1 account, 1 table, 91 entities" in loaded.lines[0]
    assert loaded.lines[1].endswith("keeps them: Many 7d after their Timestamp.")
    again = tablestone(*load)
    assert (again.status, "holds data already: load into a new one" in again.stderr) == (2, True)
    assert stored_in(url) == stored_in(f"sqlite:{directory}")
    checked = tablestone("index", "check", "Many", "n", "--engine", as_role(url))
    assert (checked.status, checked.lines) == (0, ["The index on n of Many is right: 91 entities."])

    engine = open_engine(url, system_clock)
    asyncio.run(held(engine, lambda: in_use(url, tmp_path)))
    unload = ("postgresql", "unload", "--to", tmp_path / "new", "--engine", as_role(url))
    unloaded = tablestone(*unload)
    assert (unloaded.status, unloaded.stderr) == (0, "")
    assert stored_in(f"sqlite:{tmp_path / 'new'}") == stored_in(url)
    command = unloaded.lines[-1].split()
    assert command[:5] == ["tablestone", "index", "check", "Many", "n"]
    assert [tablestone(*command[1:]).status for _ in range(2)] == [1, 0]


async def held(engine: Any, check: Callable[[], None]) -> None:
    """Check something while a server has a connection."""
    await engine.get(Key(b"p", b"r"))
    await asyncio.to_thread(check)
    await engine.close()


def in_use(url: str, tmp_path: Path) -> None:
    hidden = "an address that only a role with pg_read_all_stats sees (role postgres)"
    for place, seen in ((url, "127.0.0.1"), (as_role(url), hidden)):
        ended = tablestone("postgresql", "unload", "--to", tmp_path / "new", "--engine", place)
        assert ended.status == 2
        assert f"is in use from {seen}: stop every server first." in ended.stderr


@pytest.mark.sdk
def test_a_move_that_was_not_alone_to_its_end_does_not_count(
    directory: Path, url: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection with the lock is lost in the middle: a server may have written."""
    holder = (
        "SELECT pg_terminate_backend(pid) FROM pg_locks "
        "WHERE locktype = 'advisory' AND objsubid = 2 AND mode = 'ExclusiveLock'"
    )

    async def compared_alone(*given: Any) -> Any:
        assert len(await _run(port, holder)) == 1
        return await compare(*given)

    tablestone("postgresql", "init", "--engine", url)
    load = ("postgresql", "load", "--from", directory, "--engine", url)
    unload = ("postgresql", "unload", "--to", tmp_path / "new", "--engine", url)
    said = "Another program may have used the schema"
    for command in (load, unload):
        with monkeypatch.context() as cut:
            cut.setattr(storage_move, "compare", compared_alone)
            ended = tablestone(*command)
        assert (ended.status, ended.lines, said in ended.stderr) == (1, [], True), ended
        assert not (tmp_path / "new").exists()
        refused = tablestone("check", "--engine", url)
        assert refused.status == (2 if command is load else 0)
        assert tablestone(*command).status == 0
    assert stored_in(f"sqlite:{tmp_path / 'new'}") == stored_in(url)


def test_a_load_that_was_interrupted_keeps_servers_out_and_is_continued(
    directory: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tablestone.engines.postgresql import loading  # noqa: PLC0415 - needs the driver

    tablestone("postgresql", "init", "--engine", url)
    monkeypatch.setattr(loading, "KEPT_SECONDS", -1.0)
    write, written = loading.Load.write, list[Any]()

    async def fail_at_the_third(load: Any, rows: Any) -> None:
        if len(written) == 2:
            raise EngineUnavailable("the network is gone")
        written.append(rows)
        await write(load, rows)

    load = ("postgresql", "load", "--from", directory, "--engine", url)
    with monkeypatch.context() as broken:
        broken.setattr(loading.Load, "write", fail_at_the_third)
        assert tablestone(*load).status == 1
    for command in (("check",), ("postgresql", "unload", "--to", tmp_path / "new")):
        refused = tablestone(*command, "--engine", url)
        assert (refused.status, "is being loaded: wait for" in refused.stderr) == (2, True)
    other = tmp_path / "other"
    tablestone("account", "create", "stored", "--data", other)
    refused = tablestone("postgresql", "load", "--from", other, "--engine", url)
    assert (refused.status, "loaded from another directory" in refused.stderr) == (2, True)
    seen = list[int]()

    async def count(load: Any, rows: Any) -> None:
        seen.append(len(rows))
        await write(load, rows)

    monkeypatch.setattr(loading.Load, "write", count)
    assert tablestone(*load).status == 0
    whole = stored_in(f"sqlite:{directory}")
    assert stored_in(url) == whole
    assert sum(seen) < len(whole)  # it went on where it was
