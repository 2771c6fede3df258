"""Unusual paths and files: bytes that are not UTF-8, names with a line feed, FIFOs.

Each works, or fails in one sentence.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tablestone.cli.main import main

KEY = "00" * 32
SECONDS_MAX = 100


class Hung(BaseException):
    """A command waited for a FIFO that nobody writes to."""


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """Fail a test whose command waits too long."""

    def raise_hung(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, raise_hung)
    signal.alarm(SECONDS_MAX)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    assert main(["account", "create", "weather", "--data", str(tmp_path / "data")]) == 0
    return tmp_path / "data"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    (tmp_path / "key").write_text(KEY)
    return tmp_path / "key"


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The error message of a command that fails."""
    capsys.readouterr()
    assert main([str(each) for each in arguments]) == 2
    output, error = capsys.readouterr()
    assert output == ""
    return error.removeprefix("tablestone: ").removesuffix("\n")


@pytest.mark.parametrize("command", ["serve", "check", "account list"])
def test_a_data_directory_that_is_not_utf8(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    sentence = refused(capsys, *command.split(), "--data", tmp_path / "bad\udcffdir")
    assert sentence == (
        f"The path of the data directory must be UTF-8, and {tmp_path}/bad\\xffdir is not."
    )
    assert not names(tmp_path)


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_backup_that_is_not_utf8(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    before = names(data)
    sentence = refused(capsys, command, tmp_path / "b\udcffk.db", "--data", data)
    assert sentence == f"The path of the backup must be UTF-8, and {tmp_path}/b\\xffk.db is not."
    assert (names(data), names(tmp_path)) == (before, ["data"])


@pytest.mark.parametrize("name", ["b\nk.db", "b\\n\nk.db", "b\\nk.db"])
def test_a_backup_whose_name_needs_marks_in_its_sum(tmp_path: Path, data: Path, name: str) -> None:
    place, quiet = str(tmp_path / name), "--quiet"
    assert main(["backup", place, "--data", str(data), quiet]) == 0
    if shutil.which("sha256sum"):
        sums = ["sha256sum", "-c", name + ".sha256"]
        subprocess.run(sums, cwd=tmp_path, check=True, capture_output=True)
    assert main(["restore", place, "--data", str(tmp_path / "new"), quiet]) == 0
    with (tmp_path / name).open("ab") as file:
        file.write(b"changed")
    assert main(["restore", place, "--data", str(tmp_path / "other"), quiet]) == 1


@pytest.mark.parametrize("name", ["tablestone.db", "tablestone.db-wal", "lock"])
@pytest.mark.parametrize("encrypted", [False, True], ids=["in the clear", "with a key"])
def test_a_fifo_in_a_data_directory(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str], name: str, *, encrypted: bool
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.mkfifo(data / name)
    keys = ("--encryption-key-file", key) if encrypted else ()
    sentence = refused(capsys, "account", "create", "weather", "--data", data, *keys)
    assert sentence == f"The data directory {data} cannot be used: {name} is no regular file."
    assert names(data) == [name]


def test_a_fifo_that_is_to_be_encrypted(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.mkfifo(data / "tablestone.db")
    sentence = refused(capsys, "encrypt", "--data", data, "--encryption-key-file", key)
    assert sentence == f"The data directory {data} holds no Tablestone data."


def test_a_fifo_without_a_writer_is_no_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "key"
    os.mkfifo(place)
    given = ("--data", tmp_path / "data", "--encryption-key-file", place)
    sentence = refused(capsys, "account", "create", "weather", *given)
    assert sentence.startswith(f"The encryption key file {place} has no key: it must be 32 bytes")
    assert not (tmp_path / "data").exists()


def test_a_key_comes_from_a_pipe_of_the_shell(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, KEY.encode())
    os.close(writing)
    given = ["--data", str(tmp_path / "data"), "--encryption-key-file", f"/dev/fd/{reading}"]
    assert main(["account", "create", "weather", *given]) == 0
    os.close(reading)
    assert not (tmp_path / "data" / "tablestone.db").read_bytes().startswith(b"SQLite format 3")


@pytest.mark.parametrize("kind", ["link", "file"])
def test_something_in_the_place_of_a_new_database(
    tmp_path: Path, data: Path, key: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    place = data / ".reencrypted.partial"
    target = tmp_path / "target"
    target.mkdir()
    (target / "kept").touch()
    if kind == "link":
        place.symlink_to(target)
    else:
        place.write_text("kept")
    command = ("encrypt", "--data", data, "--encryption-key-file", key, "--quiet")
    assert (
        refused(capsys, *command)
        .splitlines()[-1]
        .endswith(
            f"{place} stands in the way of the new database, and no command of Tablestone has made it: look at it, and "
            "remove it."
        )
    )
    assert names(target) == ["kept"]
    assert place.is_symlink() or place.read_text() == "kept"
    place.unlink()
    assert main([str(each) for each in command]) == 0
