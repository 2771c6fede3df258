"""The directory that `tablestone cluster unload` makes, whatever name it is given."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

from cli.command_line import tablestone
from tablestone.cli.main import main
from tablestone.cli.storage_move import in_words, indexes_of
from tablestone.clock import system_clock
from tablestone.engines.change_record import Retention
from tablestone.engines.contract import (
    EngineFull,
    EngineRefused,
    EngineUnavailable,
    StorageId,
    StoredRow,
)
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.backup import NewDirectory
from tablestone.engines.sqlite.data_directory import RULES_FORMAT_VERSION
from tablestone.tables.storage_migration import move
from tablestone.testing import TableStorage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tablestone.testing.storage_service import StorageService

SOURCE = StorageId(b"one keyspace")


@pytest.mark.parametrize("name", ["", ".", "../here", "../link"])
def test_the_working_directory_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The path "." has no last part to which the suffix of the unfinished one could be added."""
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "link").symlink_to(here)
    monkeypatch.chdir(here)
    with NewDirectory(Path(name), SOURCE) as target:
        assert target.partial == tmp_path / "here.part"
        target.finish()
    assert any((tmp_path / "here").iterdir())
    assert not target.partial.exists()


def test_a_full_disk_is_named_and_a_later_attempt_goes_on(tmp_path: Path) -> None:
    rows = [StoredRow(b"p", b"%d" % number, 1, b"v" * 10_000) for number in range(9)]
    with NewDirectory(tmp_path / "data", SOURCE) as target:
        asyncio.run(target.write(rows[:1]))
        target._connection.pragma("max_page_count", 1)
        with pytest.raises(EngineFull, match="There is no room in"):
            asyncio.run(target.write(rows[1:]))
    with NewDirectory(tmp_path / "data", SOURCE) as target:
        assert target.reached == (b"p", b"0")
        asyncio.run(target.write(rows[1:]))


def test_indexes_come_without_entries_and_are_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The settings are rows, which are moved; a cluster has no entries."""
    with TableStorage() as storage:
        storage.seed({"Orders": [{"PartitionKey": "p", "RowKey": "r", "customer": "c"}]})
        storage.create_index("Orders", "customer")
        place = tmp_path / "data"

        async def unload(service: StorageService) -> str:
            with NewDirectory(place, SOURCE) as target:
                await move(service.state.primary, target, lambda _rows, _bytes: None)
                target.finish()
            return await in_words(service.state.primary, indexes_of)

        assert storage.begin(unload).result() == "Orders customer"

    def printed(line: str, status: int = 0) -> str:
        assert main([*line.split(), "--data", str(place)]) == status
        return capsys.readouterr().out

    assert printed("check") == f"{place}: healthy\n"
    assert printed("index list") == "Orders\tcustomer\ttable\tbroken\n"
    repaired = "of 1 entity, 1 had no entry, and 0 entries were of no entity"
    assert repaired in printed("index check Orders customer", 1)
    assert printed("index list") == "Orders\tcustomer\ttable\tready\n"
    printed("index drop Orders customer")
    assert printed("check") == f"{place}: healthy\n"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/", "The directory / is not empty"),
        ("loop", "cannot be read: Too many levels of symbolic links."),
        ("file", "file is not a directory."),
    ],
)
def test_a_place_that_is_taken_or_broken_is_a_sentence(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    with pytest.raises(EngineRefused) as refused:
        NewDirectory(tmp_path / name, SOURCE)
    assert why in str(refused.value)


def test_a_directory_that_cannot_be_replaced_leaves_the_complete_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, an empty file system is mounted there."""

    def busy(_: Path) -> Iterator[Path]:
        raise OSError(16, "Device or resource busy")

    with NewDirectory(tmp_path / "volume", SOURCE) as target:
        (tmp_path / "volume").mkdir()
        monkeypatch.setattr(Path, "rmdir", busy)
        with pytest.raises(EngineUnavailable) as failed:
            target.finish()
    assert str(failed.value) == (
        f"{tmp_path}/volume.part is complete, and cannot be renamed to {tmp_path}/volume: Device or resource busy."
    )
    assert target.partial.exists()


async def unfinished(place: Path) -> Path:
    """DIR.part of an unload that was interrupted after one row."""
    with NewDirectory(place, SOURCE) as target:
        await target.write([StoredRow(b"p", b"r", 1, b"{}")])
        return target.partial


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "command",
    [
        ("serve", "--port", "0", "--data"),
        ("account", "create", "weather", "--data"),
        ("compact", "--data"),
        ("cluster", "load", "--engine", "cassandra://127.0.0.1:9/k", "--from"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
async def test_a_part_of_a_cluster_is_not_served_under_any_name(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    other = (await unfinished(tmp_path / "new")).rename(tmp_path / "other")
    refused = tablestone(*command, str(other), as_process=True)
    assert (refused.status, refused.lines) == (2, [])
    assert refused.stderr == (
        f"tablestone: {other} holds only a part of a cluster's data: "
        "repeat the interrupted `tablestone cluster unload`.\n"
    )


@pytest.mark.asyncio
async def test_a_part_of_a_cluster_is_not_backed_up(tmp_path: Path) -> None:
    part = await unfinished(tmp_path / "new")
    refused = tablestone("backup", "--data", str(part), str(tmp_path / "backup"))
    assert (refused.status, "holds only a part of a cluster's data" in refused.stderr) == (2, True)
    assert not (tmp_path / "backup").exists()


@pytest.mark.asyncio
async def test_another_keyspace_does_not_continue_an_unload(tmp_path: Path) -> None:
    part = await unfinished(tmp_path / "new")
    assert (part / "unloaded-from").stat().st_mode & 0o777 == 0o600
    with pytest.raises(EngineRefused) as refused:
        NewDirectory(tmp_path / "new", StorageId(b"another"))
    assert str(refused.value) == (
        f"{part} is a part of another source: remove it, or name another directory."
    )
    with NewDirectory(tmp_path / "new", SOURCE) as target:
        target.finish()
    await open_engine(f"sqlite:{tmp_path / 'new'}", system_clock).close()


@pytest.mark.asyncio
async def test_data_of_another_origin_is_not_added_to(tmp_path: Path) -> None:
    """A server's directory that happens to have the name."""
    part = await unfinished(tmp_path / "new")
    (part / "unloaded-from").unlink()
    with pytest.raises(EngineRefused, match="holds data of no unfinished attempt"):
        NewDirectory(tmp_path / "new", SOURCE)
    assert not (part / "unloaded-from").exists()


@pytest.mark.asyncio
async def test_what_an_unload_fills_in_is_in_no_record_of_changes(tmp_path: Path) -> None:
    await unfinished(tmp_path / "new")
    with NewDirectory(tmp_path / "new", SOURCE) as target:
        await target.write([StoredRow(b"p", b"s", 1, b"{}")])
        target.finish()
    engine = open_engine(f"sqlite:{tmp_path / 'new'}", system_clock)
    log = engine.changes
    assert log is not None
    assert log.kept() is None
    await log.keep(Retention(None, None))
    kept = log.kept()
    assert kept is not None
    assert (kept.last + 1 - kept.first, kept.is_complete) == (0, False)
    await engine.close()


@pytest.mark.asyncio
async def test_rules_of_accounts_give_it_their_format(tmp_path: Path) -> None:
    with NewDirectory(tmp_path / "data", SOURCE) as target:
        await target.keep_rules()
        target.finish()
    database = apsw.Connection(str(tmp_path / "data" / "tablestone.db"))
    assert database.pragma("user_version") == RULES_FORMAT_VERSION
