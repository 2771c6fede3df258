"""`tablestone backup` and `restore`, as docs/guides/backup.md shows them: beside a server under writes, and refused."""

import asyncio
import base64
import fcntl
import os
import re
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from azure.data.tables import TableClient, TableServiceClient

from cli.command_line import Ended, commands_of, run_line, tablestone
from conftest import StartServer
from server_process import COMMAND, ServerProcess, clean_environment, start_server
from tablestone.clock import system_clock
from tablestone.engines.change_record import FIRST
from tablestone.engines.registry import open_engine
from tablestone.model.expiry import ExpiryPolicy
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog, every_table
from tablestone.tables.expiry_counts import COUNTS_SECRET, SECRET_LENGTH
from tablestone.tables.metadata import DocumentKind, Documents
from tablestone.tables.storage_keys import fresh_table_id

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "backup.md"
DATED = re.compile(r"tablestone-\d{8}T\d{6}Z\.db")
BEFORE = 200
"""Entities that exist before a backup begins."""


def table_of(server: ServerProcess) -> TableClient:
    service = TableServiceClient.from_connection_string(server.connection_string)
    return service.get_table_client("tab")


@contextmanager
def writes(table: TableClient) -> Iterator[list[int]]:
    """Write while the block runs; yields the numbers that were acknowledged, in order."""
    acknowledged: list[int] = []
    has_many, is_over = threading.Event(), threading.Event()

    def write() -> None:
        while not is_over.is_set():
            number = len(acknowledged)
            table.create_entity({"PartitionKey": "p", "RowKey": f"{number:09d}", "text": "x" * 500})
            acknowledged.append(number)
            if number == BEFORE:
                has_many.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert has_many.wait(120)
        yield acknowledged
    finally:
        is_over.set()
        writer.join()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `data`, a data directory with one entity, and `one.db`, its backup."""
    directory = tmp_path_factory.mktemp("made")
    data, place = directory / "data", directory / "one.db"
    server = start_server(data)
    table = table_of(server)
    table.create_table()
    table.create_entity({"PartitionKey": "p", "RowKey": "r", "text": "kept"})
    assert server.stop() == 0
    size = (data / "tablestone.db").stat().st_size
    ended = tablestone("backup", "--data", data, place)
    assert ended == Ended(0, [f"{place}: {size / 1024:.1f} KiB, checked"], "")
    return directory


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """A data directory with one entity and no server."""
    return Path(shutil.copytree(made / "data", tmp_path / "data"))


@pytest.fixture
def backup(made: Path, tmp_path: Path) -> Path:
    """A backup of `data`, with its checksum."""
    shutil.copy2(made / "one.db.sha256", tmp_path)
    return Path(shutil.copy2(made / "one.db", tmp_path))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.slow
def test_a_backup_beside_workers_under_writes_is_one_moment(
    private_server: StartServer, tmp_path: Path
) -> None:
    data, place = tmp_path / "data", tmp_path / "copy.db"
    server = private_server(data, "--workers", "2")
    table = table_of(server)
    table.create_table()
    with writes(table) as acknowledged:
        before = len(acknowledged)
        made = tablestone("backup", "--data", data, place)
    assert made.status == 0, made.stderr
    assert len(acknowledged) > before
    assert server.stop() == 0
    assert place.stat().st_mode & 0o777 == 0o600
    assert tablestone("restore", place, "--data", tmp_path / "new").status == 0
    copied = table_of(private_server(tmp_path / "new"))
    rows = [int(entity["RowKey"]) for entity in copied.list_entities()]
    assert len(rows) >= before
    assert rows == acknowledged[: len(rows)], "one moment: nothing is missing in between"
    copied.create_entity({"PartitionKey": "q", "RowKey": "new"})


@pytest.mark.slow
def test_every_command_of_the_guide_works(private_server: StartServer, tmp_path: Path) -> None:
    places = {name: tmp_path / name.lower() for name in ("DIR", "BACKUPS", "NEW", "COPY", "OUT")}
    server = private_server(places["DIR"])
    table_of(server).create_table()
    table_of(server).create_entity({"PartitionKey": "p", "RowKey": "r"})
    places["BACKUPS"].mkdir()
    made, verify, nightly, cron, restore, move, go_back, check, salvage, load = commands_of(GUIDE)
    (line,) = run_line(made, places, tmp_path)
    (dated,) = DATED.findall(line)
    assert run_line(verify, places, tmp_path) == [f"{dated}: OK"]
    run_line(nightly, places, tmp_path)
    assert cron == f"15 3 * * * {nightly}"
    restore, go_back = (DATED.sub(dated, each) for each in (restore, go_back))
    (line,) = run_line(restore, places, tmp_path)
    assert line.startswith(f"{places['NEW']}: restored from {places['BACKUPS'] / dated}, ")
    assert run_line(check, places, tmp_path) == [f"{places['DIR']}: healthy"]
    server.kill()  # the log is not empty, so it belongs to the copy of the directory
    (copy,) = re.findall(r"`(cp [^`]+)`", GUIDE.read_text(encoding="utf-8"))
    run_line(copy, places, tmp_path)
    run_line(move, places, tmp_path)
    run_line(go_back, places, tmp_path)
    served = server
    for directory in ("NEW", "DIR", "COPY"):
        served = private_server(places[directory])
        assert len(list(table_of(served).list_entities())) == 1
        assert run_line(check.replace("DIR", directory), places, tmp_path) == [
            f"{places[directory]}: healthy"
        ]
    run_line(salvage, places, tmp_path)
    load += f" --connection-string '{served.connection_string}'"
    assert run_line(load, places, tmp_path)[0].startswith("1 entity stored in tab")


@pytest.mark.parametrize("way", ["backup", "copy"])
def test_what_is_restored_has_no_record_of_changes(
    data: Path, tmp_path: Path, private_server: StartServer, way: str
) -> None:
    """Also if it is restored from a copy of the database, which has the record."""
    server = private_server(data, "--keep-changes", "7d")
    table_of(server).upsert_entity({"PartitionKey": "p", "RowKey": "r", "text": "changed"})
    assert server.stop() == 0
    place = data / "tablestone.db"
    if way == "backup":
        place = tmp_path / "made.db"
        assert tablestone("backup", "--data", data, place).status == 0
    restored = tmp_path / "new"
    assert tablestone("restore", place, "--data", restored).status == 0
    assert names(restored) == ["lock", "tablestone.db"]
    for directory, keeps in ((data, True), (restored, False)):
        assert private_server(directory).stop() == 0  # a start without the option changes neither
        engine = open_engine(f"sqlite:{directory}", system_clock, read_only=True)
        assert engine.changes is not None
        assert (engine.changes.kept() is not None) is keeps
        read = asyncio.run(engine.changes.read(FIRST, subject=None, rows_max=10, bytes_max=10**6))
        assert (read is not None and any(record.rows for record in read.records)) is keeps
        asyncio.run(engine.close())


def test_a_restore_suspends_expiry_and_says_so(tmp_path: Path) -> None:
    data, made, restored = (tmp_path / name for name in ("data", "made.db", "restored"))
    owner, policy = Named("devstoreaccount1"), ExpiryPolicy(after=60)
    off = replace(policy, suspended=True)

    async def policies(directory: Path, new: ExpiryPolicy | None = None) -> list[object]:
        engine = open_engine(f"sqlite:{directory}", system_clock)
        catalog = Catalog(engine, system_clock, fresh_table_id)
        if new is not None:
            for table in ("Sessions", "Plain", "Tokens"):
                await catalog.create(owner, table)
                await catalog.change_expiry(
                    owner,
                    table,
                    lambda _old: off if table == "Plain" else new,  # noqa: B023
                )
        found: list[object] = [(table.name, table.expiry) async for _, table in every_table(engine)]
        await engine.close()
        return found

    expected = [("Plain", off), ("Sessions", policy), ("Tokens", policy)]
    assert asyncio.run(policies(data, policy)) == expected
    assert tablestone("backup", "--data", data, made).status == 0
    ended = tablestone("restore", made, "--data", restored)
    assert ended.status == 0
    assert ended.lines[1:] == [
        "The expiry of these tables is suspended, so that nothing is removed before you have looked. To let "
        "their entities expire again:",
        *(
            f"  tablestone expiry resume {table} --account devstoreaccount1 --data {restored}"
            for table in ("Sessions", "Tokens")
        ),
    ]
    assert names(restored) == ["lock", "tablestone.db"]
    suspended = [("Plain", off), ("Sessions", off), ("Tokens", off)]
    assert asyncio.run(policies(restored)) == suspended
    assert asyncio.run(policies(data)) == expected


def test_a_restore_spends_the_tokens_of_counts(tmp_path: Path) -> None:
    """They are signed by a secret of the data, and cover the same table."""
    data, made, restored = (tmp_path / name for name in ("data", "made.db", "restored"))
    place = storage_keys.document_place(DocumentKind.SECRETS.value, COUNTS_SECRET)
    text = base64.b64encode(bytes(SECRET_LENGTH)).decode()

    async def secret(directory: Path, *, make: bool = False) -> bool:
        engine = open_engine(f"sqlite:{directory}", system_clock)
        if make:
            await Documents(engine).change(
                DocumentKind.SECRETS, COUNTS_SECRET, lambda _members: {"secret": text}
            )
        found = await engine.get(place)
        await engine.close()
        return found is not None

    assert asyncio.run(secret(data, make=True))
    assert tablestone("backup", "--data", data, made).status == 0
    assert tablestone("restore", made, "--data", restored).status == 0
    assert not asyncio.run(secret(restored))
    assert asyncio.run(secret(data))


@pytest.mark.slow
def test_keep_removes_the_oldest_backups_and_nothing_else(data: Path, tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    backups.mkdir()
    others = ["notes.txt", "tablestone-20130101T060000Z.db.bak", "tablestone-x.db"]
    for name in others:
        (backups / name).touch()
    old = backups / "tablestone-20130101T060000Z.db"
    for path in (old, old.with_name(f"{old.name}.sha256")):
        path.touch()
    first = tablestone("backup", "--data", data, backups, "--keep", "2")
    second = tablestone("backup", "--data", data, backups, "--keep", "2")
    assert (first.status, second.status) == (0, 0)
    (line,) = first.lines
    assert second.lines[1:] == [f"{old}: removed"]
    made = [DATED.findall(each)[0] for each in (line, second.lines[0])]
    sums = [f"{name}.sha256" for name in made]
    assert names(backups) == sorted([*others, *made, *sums])


def test_a_backup_is_made_though_an_older_one_cannot_be_removed(data: Path, tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    (backups / "tablestone-20130101T060000Z.db").mkdir(parents=True)
    ended = tablestone("backup", "--data", data, backups, "--keep", "1")
    assert (ended.status, len(ended.lines)) == (1, 1)
    sentence = f"An older backup in {backups} was not removed: Is a directory."
    assert ended.stderr == f"tablestone: {sentence}\n"


def make_log_beside(place: Path) -> None:
    place.with_name(f"{place.name}-wal").write_bytes(b"rows")


def flip(path: Path, place: int, count: int = 200) -> None:
    content = bytearray(path.read_bytes())
    content[place : place + count] = bytes(each ^ 0xFF for each in content[place : place + count])
    path.write_bytes(content)


def without_sum(path: Path) -> None:
    path.with_name(f"{path.name}.sha256").unlink()


def flip_value(path: Path) -> None:
    flip(path, path.read_bytes().index(b'"kept"'), 1)


def flip_unsummed(path: Path) -> None:
    without_sum(path)
    flip_value(path)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 8192)


def cut_to_nothing(path: Path) -> None:
    os.truncate(path, 0)


def make_newer(path: Path) -> None:
    without_sum(path)
    content = bytearray(path.read_bytes())
    content[60:64] = (99).to_bytes(4, "big")
    path.write_bytes(content)


def make_foreign(path: Path) -> None:
    without_sum(path)
    content = bytearray(path.read_bytes())
    content[68:72] = bytes(4)
    path.write_bytes(content)


def make_text(path: Path) -> None:
    without_sum(path)
    path.write_bytes(b"not a database " * 1000)


BAD_BACKUPS = {
    "torn": (cut, 1, "{backup} is torn: it has "),
    "empty": (cut_to_nothing, 1, "{backup} is torn: it has 0 of 100 bytes."),
    "flipped": (
        lambda path: flip(path, 20_000),
        1,
        "{backup} is damaged: its SHA-256 is not the one in {backup}.sha256.",
    ),
    "flipped, without a sum": (flip_unsummed, 1, "{backup} is damaged: "),
    "newer": (make_newer, 2, "The backup {backup} was written by a newer version of Tablestone"),
    "foreign": (make_foreign, 2, "{backup} belongs to another program"),
    "text": (make_text, 1, "{backup} is not a Tablestone database"),
    "with a log": (make_log_beside, 2, "{backup} has a log beside it"),
    "gone": (lambda path: path.unlink(), 2, "There is no backup {backup}."),
}


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "status", "words"), BAD_BACKUPS.values(), ids=BAD_BACKUPS)
def test_a_backup_that_is_not_whole_is_refused_and_leaves_nothing(
    backup: Path, tmp_path: Path, damage: object, status: int, words: str
) -> None:
    assert callable(damage)
    damage(backup)
    new = tmp_path / "new"
    ended = tablestone("restore", backup, "--data", new)
    assert (ended.status, ended.lines) == (status, [])
    assert ended.stderr.startswith(f"tablestone: {words.format(backup=backup)}")
    assert ended.stderr.count("\n") == 1
    assert not new.exists()


def test_a_directory_that_was_empty_is_empty_after_a_refusal(backup: Path, tmp_path: Path) -> None:
    cut(backup)
    new = tmp_path / "new"
    new.mkdir()
    assert tablestone("restore", backup, "--data", new).status == 1
    assert names(new) == []


def test_a_restore_over_data_is_refused(backup: Path, data: Path) -> None:
    before = (data / "tablestone.db").read_bytes()
    assert tablestone("restore", backup, "--data", data) == Ended(
        2,
        [],
        f"tablestone: The data directory {data} holds data already: name a new or an empty directory.\n",
    )
    assert (data / "tablestone.db").read_bytes() == before


def test_a_restore_into_a_running_server_is_refused(
    backup: Path, private_server: StartServer, tmp_path: Path
) -> None:
    served = tmp_path / "served"
    private_server(served)
    assert tablestone("restore", backup, "--data", served) == Ended(
        2, [], f"tablestone: The data directory {served} is in use by another Tablestone server.\n"
    )


@pytest.mark.slow
def test_a_restore_that_was_killed_leaves_an_empty_directory(backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    (new / ".restored.partial").mkdir(parents=True)
    (new / ".restored.partial" / "tablestone.db").write_bytes(b"half")
    assert tablestone("check", "--data", new).status == 2
    assert tablestone("account", "create", "weather", "--data", new) == Ended(
        2,
        [],
        f"tablestone: The restore into {new} did not end: run it again, or remove {new / '.restored.partial'} to start "
        "without data.\n",
    )
    assert tablestone("restore", backup, "--data", new).status == 0
    assert names(new) == ["lock", "tablestone.db"]
    assert tablestone("check", "--data", new) == Ended(0, [f"{new}: healthy"], "")


@pytest.mark.slow
def test_a_target_that_cannot_be_one_is_refused(data: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.touch()
    link = tmp_path / "link"
    link.symlink_to(data)
    inside = "would be inside the data directory"
    refused = {
        data / "copy.db": inside,
        data: inside,
        link / "copy.db": inside,
        taken: f"{taken} exists already: name a new file, or a directory.",
        tmp_path / "no" / "copy.db": f"{tmp_path / 'no'} is no directory.",
        taken / "copy.db": f"{taken} is no directory.",
    }
    before = names(data), names(tmp_path)
    for target, words in refused.items():
        ended = tablestone("backup", "--data", data, target)
        assert (ended.status, ended.lines) == (2, []), target
        assert words in ended.stderr
        assert ended.stderr.count("\n") == 1
    keep = tablestone("backup", "--data", data, taken, "--keep", "3")
    assert keep.stderr == f"tablestone: --keep needs a directory, and {taken} is not one.\n"
    assert (names(data), names(tmp_path)) == before


def test_a_directory_with_backups_is_no_backup(backup: Path, tmp_path: Path) -> None:
    dated = backup.rename(tmp_path / "tablestone-20130101T060000Z.db")
    ended = tablestone("restore", tmp_path, "--data", tmp_path / "new")
    assert (
        ended.stderr == f"tablestone: {tmp_path} is a directory: name a backup, such as {dated}.\n"
    )


def test_a_backup_without_room_says_so_and_leaves_nothing(data: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(data / "tablestone.db")) as database, database:
        database.execute("INSERT INTO stored_rows VALUES (x'02', x'00', 1, zeroblob(100000))")
    ended = subprocess.run(  # files of up to 100 blocks of 512 bytes
        [
            "/bin/sh",
            "-c",
            f"ulimit -f 100; exec {COMMAND} backup --data {data} {tmp_path / 'x.db'}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=clean_environment(),
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"tablestone: The backup {tmp_path / 'x.db'} was not made: ")
    assert names(tmp_path) == ["data"]


def test_damaged_data_makes_no_backup(data: Path, tmp_path: Path) -> None:
    flip_value(data / "tablestone.db")
    ended = tablestone("backup", "--data", data, tmp_path / "x.db")
    assert ended.status == 1
    assert "was not made, because the data is damaged: " in ended.stderr
    assert names(tmp_path) == ["data"]


@pytest.mark.parametrize("command", ["backup", "restore"])
@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("memory", "The engine memory stores nothing: there is no directory."),
        (
            "cassandra://node/keyspace?datacenter=dc1",
            "The engine cassandra has no data directory. ",
        ),
    ],
)
def test_engines_without_a_directory_are_refused(
    tmp_path: Path, command: str, engine: str, words: str
) -> None:
    ended = tablestone(command, tmp_path / "x", "--engine", engine)
    assert (ended.status, ended.lines) == (2, [])
    assert words in ended.stderr
    assert words.startswith("The engine memory") or "nodetool" in ended.stderr


def test_a_backup_of_nothing_is_refused(tmp_path: Path) -> None:
    """A mistyped name must not produce an empty copy that looks like a good one."""
    ended = tablestone("backup", "--data", tmp_path / "nothing", tmp_path / "x.db")
    assert ended == Ended(
        2, [], f"tablestone: The data directory {tmp_path / 'nothing'} holds no Tablestone data.\n"
    )
    assert names(tmp_path) == []


def test_two_backups_into_one_directory_do_not_meet(data: Path, tmp_path: Path) -> None:
    staging = tmp_path / ".tablestone-backup.partial"
    staging.mkdir()
    (staging / "left").touch()  # left by a backup that was killed
    held = os.open(staging, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    ended = tablestone("backup", "--data", data, tmp_path / "x.db")
    assert ended.stderr == f"tablestone: Another backup into {tmp_path} is under way.\n"
    os.close(held)
    assert tablestone("backup", "--data", data, tmp_path / "x.db").status == 0
    assert names(tmp_path) == ["data", "x.db", "x.db.sha256"]
