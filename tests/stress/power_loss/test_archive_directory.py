"""The directory of an archive after a loss of power: what was acknowledged is there, and nothing is there in part.

Only what was flushed is on the disk: of a file its bytes, of a directory the names in it. Any name that was made since
may be there too. The rules are those of POSIX, where flushing a file says nothing of its name.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tablestone.archive import store as store_module
from tablestone.archive.store import DirectoryStore, ObjectExists

if TYPE_CHECKING:
    from collections.abc import Callable

OBJECTS = 30
NAMES = [
    f"life{n % 2}/{kind}/{n % 3:020}/{n:020}" for n in range(20) for kind in ("terms", "changes")
]


class Disk:
    """What is on the disk below a directory: the bytes of files by inode, and the names of directories."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.bytes: dict[int, bytes] = {}
        self.names: dict[Path, dict[str, int]] = {}

    def flush(self, file: Any) -> None:
        file.flush()
        self.bytes[os.fstat(file.fileno()).st_ino] = Path(file.name).read_bytes()

    def flush_directory(self, path: Path) -> None:
        self.names[path] = {each.name: each.stat().st_ino for each in path.iterdir()}

    def after_power_loss(self, name: str) -> bytes | None:
        """The object, if nothing is on the disk that was not flushed."""
        path, inode = self.top, -1
        for part in Path(name).parts:
            if part not in self.names.get(path, {}):
                return None
            inode, path = self.names[path][part], path / part
        return self.bytes.get(inode, b"")

    def parts_of_objects(self, objects: dict[str, bytes]) -> list[str]:
        """Objects that would be there in part, if all names that were made are on the disk."""
        return [
            name
            for name, data in objects.items()
            if (self.top / name).exists()
            and self.bytes.get((self.top / name).stat().st_ino) != data
        ]


def lose_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str = "") -> list[str]:
    """Create objects, with a loss of power after each step of each; returns what was wrong."""
    disk = Disk(tmp_path)
    begun: dict[str, bytes] = {}
    acknowledged: dict[str, bytes] = {}
    problems: list[str] = []

    def judge() -> None:
        problems.extend(f"{name} is there in part" for name in disk.parts_of_objects(begun))
        for name, data in acknowledged.items():
            if disk.after_power_loss(name) != data:
                problems.append(f"{name} was acknowledged and is lost")

    def watched(act: Callable[..., None], name: str) -> Callable[..., None]:
        def do(*given: Any) -> None:
            if bug != name:
                act(*given)
            judge()

        return do

    monkeypatch.setattr(store_module, "flush", watched(disk.flush, "flush"))
    monkeypatch.setattr(
        store_module, "flush_directory", watched(disk.flush_directory, "flush_directory")
    )
    link = os.link
    monkeypatch.setattr(os, "link", watched(link, "link"))
    random = Random(7)
    for _number in range(OBJECTS):
        # Each start of a server knows nothing of the directories that are there.
        store = DirectoryStore(tmp_path / "archive")
        name, data = random.choice(NAMES), random.randbytes(random.choice((0, 10, 100_000)))
        key = f"archive/{name}"
        if key not in begun:
            begun[key] = data
        try:
            asyncio.run(store.create(name, data))
        except ObjectExists:
            assert key in acknowledged
        else:
            acknowledged[key] = data
        judge()
    assert len(acknowledged) > 10
    return problems


def test_an_acknowledged_object_survives_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lose_power(tmp_path, monkeypatch) == []


@pytest.mark.parametrize("bug", ["flush", "flush_directory"])
def test_a_flush_that_is_left_out_is_found(
    bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lose_power(tmp_path, monkeypatch, bug) != []
