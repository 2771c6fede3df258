"""`tablestone check`: a healthy directory, one in use, and the message for each kind of damage."""

import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from azure.data.tables import TableServiceClient

from server_process import COMMAND, ServerProcess, clean_environment
from tablestone.engines.sqlite.data_directory import PAGE_SIZE_BYTES

StartServer = Callable[..., ServerProcess]


def check(data_dir: Path) -> tuple[int, list[str], str]:
    """Exit status, printed lines and standard error of a check."""
    ended = subprocess.run(
        [COMMAND, "check", "--data", str(data_dir)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=clean_environment(),
    )
    return ended.returncode, ended.stdout.splitlines(), ended.stderr


def fill(server: ServerProcess) -> None:
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        table = service.create_table("readings")
        for number in range(3):
            table.create_entity({"PartitionKey": "JFK", "RowKey": str(number), "temperature": 3.9})
        service.create_table("deleted").create_entity({"PartitionKey": "a", "RowKey": "b"})
        service.delete_table("deleted")


@pytest.fixture
def data_dir(private_server: StartServer, tmp_path: Path) -> Path:
    """The data directory of a server that has been used and stopped."""
    server = private_server(tmp_path / "data")
    fill(server)
    assert server.stop() == 0
    return tmp_path / "data"


def test_a_healthy_directory(data_dir: Path) -> None:
    assert check(data_dir) == (0, [f"{data_dir}: healthy"], "")


def test_a_directory_in_use(private_server: StartServer, tmp_path: Path) -> None:
    fill(private_server(tmp_path))
    assert check(tmp_path) == (0, [f"{tmp_path}: healthy"], "")


@pytest.mark.slow
def test_a_log_on_a_medium_that_is_only_read(private_server: StartServer, tmp_path: Path) -> None:
    """A killed server leaves its log and SQLite's shared memory file, in which no process counts frames any more."""
    data = tmp_path / "data"
    fill(private_server(data))
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], check=False).returncode:
        pytest.skip("this user may not mount a tmpfs")
    try:
        shutil.copytree(data, disk / "data")
        shutil.copytree(data, disk / "damaged")
        with (disk / "damaged" / "tablestone.db-wal").open("r+b") as log:
            log.seek(100)
            log.write(b"damage")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert check(disk / "data") == (0, [f"{disk / 'data'}: healthy"], "")
        status, lines, _errors = check(disk / "damaged")
        assert status == 1
        assert "the write-ahead log is damaged" in lines[0]
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_directory_without_data(tmp_path: Path) -> None:
    status, printed, sentence = check(tmp_path / "nothing")
    assert (status, printed) == (2, [])
    assert sentence == (
        f"tablestone: The data directory {tmp_path / 'nothing'} holds no Tablestone data.\n"
    )
    assert not (tmp_path / "nothing").exists()


def test_an_engine_that_keeps_nothing() -> None:
    ended = subprocess.run(
        [COMMAND, "check", "--engine", "memory"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=clean_environment(),
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        2,
        "",
        "tablestone: There is nothing to check: memory: stores nothing.\n",
    )


ROW_1 = """instr(CAST(value AS TEXT), '"RowKey":"1"')"""
ROW_2 = """instr(CAST(value AS TEXT), '"RowKey":"2"')"""

DAMAGE = {
    "a version changed": (
        f"UPDATE stored_rows SET version = version + 10 WHERE {ROW_1}",
        "but is stored with version",
    ),
    "a value moved to another key": (
        f"UPDATE stored_rows SET value = (SELECT value FROM stored_rows WHERE {ROW_2}) WHERE {ROW_1}",
        "holds the entity",
    ),
    "a value cut short": (
        f"UPDATE stored_rows SET value = substr(value, 1, 20) WHERE {ROW_1}",
        "the entity PartitionKey='JFK', RowKey='1' of table readings: unreadable: it is not JSON",
    ),
    "a table forgotten": (
        "DELETE FROM stored_rows WHERE CAST(row AS TEXT) LIKE 'treadings%'",
        "which is neither a table nor being swept",
    ),
    "a stranger's row": (
        "INSERT INTO stored_rows VALUES (x'7a', x'7a', 1, x'7b7d')",
        "row 'z' of partition 'z': neither a catalog row, an entity nor a document",
    ),
}


def problems(count: int) -> str:
    return "1 problem" if count == 1 else f"{count} problems"


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_put_into_words(data_dir: Path, damage: str, words: str) -> None:
    with closing(sqlite3.connect(data_dir / "tablestone.db")) as database, database:
        assert database.execute(damage).rowcount >= 1
    status, printed, sentence = check(data_dir)
    assert (status, sentence) == (1, "")
    assert any(words in line for line in printed[:-1]), printed
    assert printed[-1] == f"{data_dir}: {problems(len(printed) - 1)}"


@pytest.mark.slow
def test_accounts_roles_and_secrets_are_read_as_the_server_reads_them(data_dir: Path) -> None:
    for words in (
        ["account", "create", "weather"],
        ["role", "assign", "Storage Table Data Reader", "--principal", "one"],
        ["token"],
    ):
        subprocess.run(
            [COMMAND, *words, "--data", str(data_dir)], check=True, stdout=subprocess.DEVNULL
        )
    assert check(data_dir) == (0, [f"{data_dir}: healthy"], "")
    shorten = """UPDATE stored_rows SET value = CAST(replace(CAST(value AS TEXT), '==', '=') AS BLOB)
        WHERE CAST(row AS TEXT) = 'weather'"""
    with closing(sqlite3.connect(data_dir / "tablestone.db")) as database, database:
        assert database.execute(shorten).rowcount == 1
    assert check(data_dir) == (
        1,
        [
            "the stored account weather with its keys: unreadable: A key is not valid base64.",
            f"{data_dir}: 1 problem",
        ],
        "",
    )


def test_a_broken_database_is_put_into_words(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path)
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        table = service.create_table("readings")
        for number in range(40):
            entity = {"PartitionKey": "JFK", "RowKey": f"{number:02}", "text": "x" * 30_000}
            table.create_entity(entity)
    server.stop()
    database = tmp_path / "tablestone.db"
    with database.open("r+b") as file:
        file.seek(3 * PAGE_SIZE_BYTES)
        file.write(b"\xff" * (database.stat().st_size // 2))
    status, printed, sentence = check(tmp_path)
    assert (status, sentence) == (1, "")
    assert len(printed) > 1
    assert printed[-1] == f"{tmp_path}: {problems(len(printed) - 1)}"


def test_a_file_that_is_no_database(data_dir: Path) -> None:
    (data_dir / "tablestone.db").write_bytes(b"not a database" * 1000)
    status, printed, sentence = check(data_dir)
    assert (status, sentence) == (1, "")
    assert printed == [
        f"{data_dir / 'tablestone.db'} is not a Tablestone database: file is not a database.",
        f"{data_dir}: 1 problem",
    ]


def test_a_database_that_was_cut_to_nothing(data_dir: Path) -> None:
    (data_dir / "tablestone.db").write_bytes(b"")
    assert check(data_dir) == (
        1,
        [
            f"{data_dir / 'tablestone.db'} is empty: there is no table and no account in it.",
            f"{data_dir}: 1 problem",
        ],
        "",
    )


DAMAGED_START = {
    "its first page": (100, "is damaged: database disk image is malformed."),
    "its header": (0, "is not a Tablestone database: file is not a database."),
}


@pytest.mark.slow
@pytest.mark.parametrize(("start", "words"), DAMAGED_START.values(), ids=DAMAGED_START)
def test_serve_and_account_on_a_damaged_database_say_where_to_look(
    data_dir: Path, start: int, words: str
) -> None:
    with (data_dir / "tablestone.db").open("r+b") as file:
        file.seek(start)
        file.write(b"\xff" * 1000)
    commands = (["serve", "--port", "0"], ["account", "create", "weather"], ["account", "list"])
    for arguments in commands:
        ended = subprocess.run(
            [COMMAND, *arguments, "--data", str(data_dir)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=clean_environment(),
        )
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr == (
            f"tablestone: {data_dir / 'tablestone.db'} {words} For a list of all problems: "
            f"tablestone check --data {data_dir}\n"
        )


def test_a_database_that_cannot_be_opened_for_damage_is_a_problem(data_dir: Path) -> None:
    database = data_dir / "tablestone.db"
    with database.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 1000)
    assert check(data_dir) == (
        1,
        [
            "the structure of the database is damaged, but every entity in it can be read",
            f"1 of 4 pages damaged (page 1): tablestone salvage {data_dir} OUT writes every entity that can be read",
            f"{data_dir}: 2 problems",
        ],
        "",
    )
