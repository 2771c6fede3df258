"""Entities that only a server with `--entity-size 2MiB` writes are named where data goes to another server."""

from pathlib import Path

import pytest

from cli.command_line import tablestone
from tablestone.testing.storage import TableStorage

LINE = (
    "7 entities of the size that only a server with --entity-size 2MiB writes: the entity PartitionKey='p', "
    "RowKey='0' of table Large; "
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Seven such entities, by their size or by that of one value, and two of others."""
    rows = [{"PartitionKey": "p", "RowKey": str(row), "V": "x" * 40_000} for row in range(6)]
    whole = {f"P{number}": "x" * 30_000 for number in range(20)}
    rows += [{"PartitionKey": "q", "RowKey": "r", **whole}]
    rows += [{"PartitionKey": "q", "RowKey": str(row), "V": "x" * 32_768} for row in range(2)]
    with TableStorage(engine=f"sqlite:{tmp_path / 'data'}", entity_size="2MiB") as storage:
        storage.seed({"Large": rows})
    return tmp_path / "data"


def test_a_check_a_backup_and_a_restore_name_them(data: Path, tmp_path: Path) -> None:
    backup, restored = tmp_path / "backup.db", tmp_path / "restored"
    for ended in (
        tablestone("check", "--data", data),
        tablestone("backup", backup, "--data", data, "--quiet"),
        tablestone("restore", backup, "--data", restored, "--quiet"),
        tablestone("check", "--data", restored),
    ):
        assert ended.status == 0, ended
        [line] = [each for each in ended.lines if "--entity-size" in each]
        assert line.startswith(LINE), line
        assert line.endswith("RowKey='4' of table Large; and 2 more")
