"""A server whose data fills the disk: reads and deletes go on, and the deletes make it writable again."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableClient, TableServiceClient

from cli.admin_pages import json_page
from cli.command_line import Ended, tablestone
from cli.small_disk import small_disk
from conftest import StartServer

DISK_BYTES = 48 * 1024 * 1024
LARGER_DISK_BYTES = 160 * 1024 * 1024
TEXT = "x" * 30_000
WAIT_SECONDS_MAX = 120.0
PAUSE_SECONDS = 0.01
"""On disks as small as these, quicker writes could fill the margin between two looks."""


LEFT_BYTES = 36 * 1024
"""Enough for SQLite to open the database, and too little for a commit that begins or ends the record of changes."""
KEEP = ("--keep-changes", "7d")
END = ("--keep-changes", "none")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES) as place:
        yield place


@pytest.fixture
def larger_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", LARGER_DISK_BYTES) as place:
        yield place


def was_stored(table: TableClient, entity: dict[str, str]) -> bool:
    """Whether the entity was stored; the only other answer allowed is 503 `ServerBusy`."""
    try:
        table.upsert_entity(entity)
    except HttpResponseError as error:
        if error.status_code != 503 or "ServerBusy" not in str(error):
            raise
        return False
    return True


def fill(table: TableClient) -> int:
    """Store entities until the service refuses one; returns how many."""
    stored = 0
    while was_stored(table, {"PartitionKey": "p", "RowKey": f"{stored:06}", "a": TEXT, "b": TEXT}):
        stored += 1
    return stored


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def can_write(table: TableClient) -> bool:
    return was_stored(table, {"PartitionKey": "q", "RowKey": "r", "a": TEXT})


@pytest.mark.slow
@pytest.mark.parametrize("way", ["entities", "table"])
def test_a_full_disk_is_emptied_by_deletions(
    private_server: StartServer, disk: Path, way: str
) -> None:
    server = private_server(disk / "data", "--workers", "2")
    service = TableServiceClient.from_connection_string(server.connection_string, retry_total=0)
    other = service.create_table("other")
    other.create_entity({"PartitionKey": "p", "RowKey": "r"})
    table = service.create_table("readings")
    stored = fill(table)
    assert stored * 2 * len(TEXT) > DISK_BYTES // 4
    assert len(list(table.query_entities("", select=["RowKey"]))) == stored, "reads go on"
    wait_until(lambda: not can_write(other))  # each worker checks the disk for itself
    wait_until(lambda: "is nearly full: writes that need room are refused" in server.stderr)
    if way == "table":
        service.delete_table("readings")
    else:
        for number in range(0, stored, 2):
            table.delete_entity("p", f"{number:06}")
    wait_until(lambda: can_write(other))
    if way == "entities":
        assert len(list(table.query_entities("", select=["RowKey"]))) == stored // 2
    assert tablestone("compact", "--data", disk / "data").status == 0
    assert tablestone("check", "--data", disk / "data").lines == [f"{disk / 'data'}: healthy"]
    assert server.stop() == 0


@pytest.mark.slow
def test_the_oldest_changes_go_before_writes_are_refused(
    private_server: StartServer, larger_disk: Path
) -> None:
    """The same entities are stored again and again, so only the record of changes grows."""
    server = private_server(
        larger_disk / "data", "--workers", "2", "--keep-changes", "7d,1GiB", "--admin=0"
    )
    service = TableServiceClient.from_connection_string(server.connection_string, retry_total=0)
    table = service.create_table("readings")
    for number in range(LARGER_DISK_BYTES // (2 * len(TEXT))):
        entity = {
            "PartitionKey": "p",
            "RowKey": f"{number % 50}",
            "a": TEXT,
            "b": f"{number}{TEXT}",
        }
        assert was_stored(table, entity), number
        time.sleep(PAUSE_SECONDS)
    wait_until(lambda: "the oldest records of changes are removed before" in server.stderr)
    assert "writes that need room are refused" not in server.stderr
    _status, page = json_page(server, "/health/ready")
    assert page["warnings"] == [
        "The disk is nearly full: the oldest records of changes are removed before their time."
    ]
    assert server.stop() == 0
    assert tablestone("check", "--data", larger_disk / "data").lines == [
        f"{larger_disk / 'data'}: healthy"
    ]


@pytest.mark.parametrize(
    ("before", "after", "verb"), [((), KEEP, "begin"), (KEEP, END, "end")], ids=["begin", "end"]
)
def test_a_record_of_changes_begins_or_ends_as_a_whole(
    private_server: StartServer,
    disk: Path,
    before: tuple[str, ...],
    after: tuple[str, ...],
    verb: str,
) -> None:
    data = disk / "data"
    server = private_server(data, "--workers", "2", *before)
    TableServiceClient.from_connection_string(server.connection_string).create_table("readings")
    assert server.stop() == 0
    found = os.statvfs(disk)
    filler = disk / "filler"
    filler.write_bytes(bytes(found.f_bavail * found.f_frsize - LEFT_BYTES))
    assert tablestone("serve", "--port", "0", "--data", data, "--workers", "2", *after) == Ended(
        2,
        [],
        f"tablestone: The record of changes cannot {verb}. Storage cannot write now: database or disk is full.\n",
    )
    assert tablestone("check", "--data", data).lines == [f"{data}: healthy"]
    server = private_server(data, "--workers", "2")  # which writes nothing
    assert server.stop() == 0
    filler.unlink()
    for options, answer in ((before, 0 if before else 1), (after, 0 if after == KEEP else 1)):
        server = private_server(data, *options)
        place = {"AZURE_STORAGE_CONNECTION_STRING": server.connection_string}
        assert tablestone("changes", "readings", environment=place).status == answer
        assert server.stop() == 0
