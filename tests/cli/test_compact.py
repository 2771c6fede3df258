"""`tablestone compact`: the file shrinks beside a running server, and survives a kill."""

import re
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from azure.data.tables import TableServiceClient

from cli.command_line import Ended, tablestone
from conftest import StartServer
from server_process import COMMAND, clean_environment

FREED_BYTES = 1_500_000
"""The size of rows that a test deletes. A server by itself gives none of it back, because it keeps 2 MiB free."""


def free_pages(data: Path) -> int:
    with closing(sqlite3.connect(data / "tablestone.db")) as database:
        (pages,) = database.execute("PRAGMA freelist_count").fetchone()
    return int(pages)


@pytest.fixture
def data(private_server: StartServer, tmp_path: Path) -> Path:
    """A data directory with one entity and many free pages."""
    data = tmp_path / "data"
    server = private_server(data)
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        service.create_table("tab").create_entity({"PartitionKey": "p", "RowKey": "r"})
    assert server.stop() == 0
    with closing(sqlite3.connect(data / "tablestone.db")) as database:
        with database:
            row = ("INSERT INTO stored_rows VALUES (x'02', ?, 1, zeroblob(60000))",)
            for number in range(FREED_BYTES // 60_000):
                database.execute(*row, (b"%d" % number,))
        with database:
            database.execute("DELETE FROM stored_rows WHERE partition = x'02'")
    return data


def test_all_free_space_is_given_back_beside_a_server(
    private_server: StartServer, data: Path
) -> None:
    assert free_pages(data) * 8192 > FREED_BYTES
    server = private_server(data, "--workers", "2")
    ended = tablestone("compact", "--data", data)
    (line,) = ended.lines
    assert re.fullmatch(rf"{data}: 1\.\d MiB before, [234]\d\.0 KiB now", line), line
    assert free_pages(data) == 0
    assert (data / "tablestone.db").stat().st_size < 100_000
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        table = service.get_table_client("tab")
        table.create_entity({"PartitionKey": "p", "RowKey": "s"})
        assert len(list(table.list_entities())) == 2
    assert server.stop() == 0
    assert tablestone("check", "--data", data).lines == [f"{data}: healthy"]


def is_writing(data: Path) -> bool:
    """Whether the log has content."""
    try:
        return (data / "tablestone.db-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.crash
def test_a_compaction_that_is_killed_loses_nothing(data: Path) -> None:
    with subprocess.Popen(
        [COMMAND, "compact", "--data", str(data)],
        stdout=subprocess.DEVNULL,
        env=clean_environment(),
    ) as process:
        while process.poll() is None and not is_writing(data):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    assert tablestone("check", "--data", data).lines == [f"{data}: healthy"]
    assert tablestone("compact", "--data", data).status == 0
    assert tablestone("check", "--data", data).lines == [f"{data}: healthy"]
    assert free_pages(data) == 0


def test_a_directory_without_data_is_refused_and_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    assert tablestone("compact", "--data", missing) == Ended(
        2, [], f"tablestone: The data directory {missing} holds no Tablestone data.\n"
    )
    assert not missing.exists()
