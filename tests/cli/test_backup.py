"""The backups that docs/guides/backup.md describes, made beside a server under writes, checked and served."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.data.tables import TableClient, TableServiceClient

from conftest import StartServer
from server_process import COMMAND, ServerProcess, clean_environment

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "backup.md"
SECTION = GUIDE.read_text(encoding="utf-8")
MAKE, ONLINE, CHECK = re.findall(r"^    (.+)$", SECTION, re.MULTILINE)
SHELL = re.search(r"`(sqlite3 [^`]+)`", SECTION)
assert SHELL
BEFORE = 400
"""Entities that are there before a backup begins."""


def run(command: str, data: Path, copy: Path) -> str:
    """The output of a line of the guide, with its directories filled in and with this environment's programs."""
    command = command.replace("DIR", str(data)).replace("COPY", str(copy))
    name, *arguments = shlex.split(command)
    ours = {"python3": sys.executable, "tablestone": COMMAND}
    ended = subprocess.run(
        [ours.get(name, name), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=clean_environment(),
    )
    assert ended.stderr == ""
    return ended.stdout


def table_of(server: ServerProcess) -> TableClient:
    service = TableServiceClient.from_connection_string(server.connection_string)
    return service.get_table_client("tab")


@contextmanager
def writes(table: TableClient) -> Iterator[list[int]]:
    """Numbers that are acknowledged, one after the other, while the block runs."""
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
        assert has_many.wait(60)
        yield acknowledged
    finally:
        is_over.set()
        writer.join()


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(ONLINE, id="python"),
        pytest.param(
            SHELL[1],
            id="SQLite's shell",
            marks=pytest.mark.skipif(
                shutil.which("sqlite3") is None, reason="there is no sqlite3 here"
            ),
        ),
    ],
)
def test_a_backup_beside_a_server_under_writes(
    private_server: StartServer, tmp_path: Path, command: str
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    server = private_server(data, "--workers", "2")
    table = table_of(server)
    table.create_table()
    run(MAKE, data, copy)
    with writes(table) as acknowledged:
        before = len(acknowledged)
        run(command, data, copy)
    assert len(acknowledged) > before
    assert server.stop() == 0
    assert server.stderr == ""
    assert run(CHECK, data, copy) == f"{copy}: healthy\n"

    copied = table_of(private_server(copy))
    rows = [int(entity["RowKey"]) for entity in copied.list_entities()]
    assert len(rows) >= before
    assert rows == acknowledged[: len(rows)], "one moment: nothing is missing in between"
    copied.create_entity({"PartitionKey": "q", "RowKey": "new"})


def test_a_backup_of_what_is_not_there_makes_nothing(tmp_path: Path) -> None:
    """A mistyped name must not give an empty copy that looks like a good one."""
    copy = tmp_path / "copy"
    run(MAKE, tmp_path, copy)
    with pytest.raises(subprocess.CalledProcessError):
        run(ONLINE, tmp_path, copy)
    assert list(tmp_path.iterdir()) == [copy]


def test_a_copy_of_a_stopped_server_s_directory(
    private_server: StartServer, tmp_path: Path
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    server = private_server(data)
    table = table_of(server)
    table.create_table()
    table.create_entity({"PartitionKey": "p", "RowKey": "r"})
    server.kill()  # the log is not empty: it is part of the copy
    (line,) = re.findall(r"`(cp [^`]+)`", SECTION)
    run(line, data, copy)
    assert run(CHECK, data, copy) == f"{copy}: healthy\n"
    assert len(list(table_of(private_server(copy)).list_entities())) == 1
