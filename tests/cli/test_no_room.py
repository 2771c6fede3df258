"""Commands on a full or read-only disk: one sentence that names the place, and nothing left behind.

`tests/cli/test_full_disk.py` is about a server.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.data.tables import TableServiceClient

from cli.command_line import tablestone
from cli.small_disk import make_read_only, small_disk
from server_process import start_server

pytestmark = pytest.mark.slow

DISK_BYTES = 2 * 1024 * 1024
KEPT_BYTES = 200 * 1024
"""The free space on a full disk: less than the data needs."""

COMMANDS = {
    "backup": (
        "backup {disk}/one.db --data {made}/data --quiet",
        "The backup {disk}/one.db was not made: there is no room in {disk}.",
    ),
    "backup of an encrypted directory": (
        "backup {disk}/one.db --data {made}/encrypted --encryption-key-file {made}/key --quiet",
        "The backup {disk}/one.db was not made: there is no room in {disk}.",
    ),
    "restore": (
        "restore {made}/one.db --data {disk}/new --quiet",
        "{made}/one.db was not restored into {disk}/new: there is no room in {disk}.",
    ),
    "salvage": (
        "salvage {made}/data {disk}/out",
        "{disk}/out cannot be written: there is no room in {disk}.",
    ),
    "encrypt": (
        "encrypt --data {disk}/data --encryption-key-file {made}/key --quiet",
        "The data directory {disk}/data is as it was: there is no room in {disk}/data.",
    ),
    "decrypt": (
        "decrypt --data {disk}/encrypted --encryption-key-file {made}/key --quiet",
        "The data directory {disk}/encrypted is as it was: there is no room in {disk}/encrypted.",
    ),
    "account create": (
        "account create weather --data {disk}/data",
        "{disk}/data/tablestone.db cannot be opened: there is no room for tablestone.db-shm.",
    ),
}
NEEDS_LITTLE = "account create"
EMPTY_FILES = {"lock", "tablestone.db-shm", "tablestone.db-wal"}
"""Files that come and go with the processes of a data directory."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `data`, more than 1 MiB of it, the same `encrypted`, its `key`, and `one.db`, a backup."""
    place = tmp_path_factory.mktemp("made")
    server = start_server(place / "data")
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        table = service.create_table("Readings")
        for number in range(20):
            text = f"{number:02}" * 15_000
            entity = {"PartitionKey": "p", "RowKey": f"{number}", "a": text, "b": text}
            table.create_entity(entity)
    assert server.stop() == 0
    (place / "key").write_text("5a" * 32)
    shutil.copytree(place / "data", place / "encrypted")
    key = ("--encryption-key-file", place / "key", "--quiet")
    assert tablestone("encrypt", "--data", place / "encrypted", *key).status == 0
    backup = ("backup", place / "one.db", "--data", place / "data", "--quiet")
    assert tablestone(*backup).status == 0
    return place


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES) as place:
        yield place


def files_below(place: Path) -> list[str]:
    files = (path for path in place.rglob("*") if path.name not in EMPTY_FILES)
    return sorted(str(path.relative_to(place)) for path in files)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_without_room_is_named(name: str, made: Path, disk: Path) -> None:
    line, sentence = (text.format(made=made, disk=disk) for text in COMMANDS[name])
    for data in ("data", "encrypted"):
        if f"--data {disk / data}" in line:
            shutil.copytree(
                made / data, disk / data, ignore=shutil.ignore_patterns("*-shm", "*-wal")
            )
    kept = 0 if name == NEEDS_LITTLE else KEPT_BYTES
    (disk / "others").write_bytes(bytes(max(0, shutil.disk_usage(disk).free - kept)))
    before = files_below(disk)
    ended = tablestone(*line.split())
    assert (ended.status, ended.lines, ended.stderr) == (1, [], f"tablestone: {sentence}\n")
    assert files_below(disk) == before


def test_an_upgrade_where_nothing_can_be_written(made: Path, disk: Path) -> None:
    shutil.copytree(made / "data", disk / "data")
    (disk / "data" / "lock").unlink(missing_ok=True)
    make_read_only(disk)
    ended = tablestone("upgrade", "--data", disk / "data")
    assert (ended.status, ended.lines) == (2, [])
    assert ended.stderr == (
        f"tablestone: The data directory {disk / 'data'} cannot be used: Read-only file system.\n"
    )
