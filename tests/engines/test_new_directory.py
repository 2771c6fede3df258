"""The directory that `tablestone cluster unload` makes: under whatever name it is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tablestone.engines.contract import EngineRefused, EngineUnavailable
from tablestone.engines.sqlite.filling import NewDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize("name", ["", ".", "../here", "../link"])
def test_the_working_directory_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its path had no last part, to which the name of the unfinished one could be added."""
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "link").symlink_to(here)
    monkeypatch.chdir(here)
    with NewDirectory(Path(name)) as target:
        assert target.partial == tmp_path / "here.part"
        target.finish()
    assert any((tmp_path / "here").iterdir())
    assert not target.partial.exists()


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
        NewDirectory(tmp_path / name)
    assert why in str(refused.value)


def test_a_directory_that_cannot_be_replaced_leaves_the_complete_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty file system that is mounted there, for example."""

    def busy(_: Path) -> Iterator[Path]:
        raise OSError(16, "Device or resource busy")

    with NewDirectory(tmp_path / "volume") as target:
        (tmp_path / "volume").mkdir()
        monkeypatch.setattr(Path, "rmdir", busy)
        with pytest.raises(EngineUnavailable) as failed:
            target.finish()
    assert str(failed.value) == (
        f"{tmp_path}/volume.part is complete, and cannot be renamed to {tmp_path}/volume: Device or resource busy."
    )
    assert target.partial.exists()
