"""`tablestone backup`, `restore` and `salvage` without permission for a path: exit status 2, and the path's name."""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cli.command_line import tablestone
from server_process import clean_environment

DENIED = {
    "a new directory in one that is closed for writing": (
        "restore open/one.db --data shut/new --quiet",
        "open/one.db was not restored into shut/new: shut cannot be written",
    ),
    "an empty directory of another user": (
        "restore open/one.db --data shut --quiet",
        "open/one.db was not restored into shut: shut cannot be written",
    ),
    "a backup in a directory of another user": (
        "restore secret/one.db --data open/new --quiet",
        "secret/one.db was not restored into open/new: secret cannot be entered",
    ),
    "backups that cannot be listed": (
        "restore secret --data open/new --quiet",
        "secret was not restored into open/new: secret cannot be entered",
    ),
    "a backup that cannot be read": (
        "restore open/private.db --data open/new --quiet",
        "open/private.db was not restored into open/new: open/private.db cannot be read",
    ),
    "a backup into a directory that is closed for writing": (
        "backup --data data shut/x.db --quiet",
        "The backup shut/x.db was not made: shut cannot be written",
    ),
    "dated backups into a new directory there": (
        "backup --data data shut/x --keep 3 --quiet",
        "The backup shut/x was not made: shut cannot be written",
    ),
    "a backup into a directory of another user": (
        "backup --data data secret/x.db --quiet",
        "The backup secret/x.db was not made: secret cannot be entered",
    ),
    "salvaged entities in a directory that is closed for writing": (
        "salvage data shut/out",
        "shut/out cannot be made: shut cannot be written",
    ),
    "a backup of the data of another user": (
        "backup --data secret open/x.db --quiet",
        "The data directory secret cannot be used: Permission denied.",
    ),
}
"""Commands of a user without rights, and the message, which names the path."""
AS_ANOTHER_USER = """
import os, sys
import apsw, tablestone.engines.sqlite.engine
from tablestone.cli import command_list, main
for command in command_list.SERVER_COMMANDS:
    command_list.load(command)
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
sys.exit(main.main(sys.argv[1:]))
"""
"""Runs the command line without root's rights, which ignore file modes. It imports first: root may own the package."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `data`, a data directory with one account, and `one.db`, its backup."""
    directory = tmp_path_factory.mktemp("made")
    assert tablestone("account", "create", "weather", "--data", directory / "data").status == 0
    assert tablestone("backup", "--data", directory / "data", directory / "one.db").status == 0
    return directory


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("line", "sentence"), DENIED.values(), ids=DENIED)
def test_a_place_that_is_denied_is_named(made: Path, line: str, sentence: str) -> None:
    with TemporaryDirectory() as outside:  # other users cannot enter pytest's own directories
        place = Path(outside)
        shutil.copytree(made / "data", place / "data")
        for name in ("open", "shut", "secret"):
            (place / name).mkdir()
        for name in ("open/one.db", "open/private.db"):
            shutil.copyfile(made / "one.db", place / name)
        modes = {".": 0o755, "open": 0o777, "shut": 0o555, "secret": 0, "data": 0o777}
        modes |= {f"data/{each.name}": 0o666 for each in (place / "data").iterdir()}
        modes |= {"open/one.db": 0o644, "open/private.db": 0}
        for name, mode in modes.items():
            (place / name).chmod(mode)
        words = [
            str(place / word) if word.partition("/")[0] in modes else word for word in line.split()
        ]
        ended = subprocess.run(
            [sys.executable, "-c", AS_ANOTHER_USER, *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=clean_environment() | {"HOME": outside},
        )
        (place / "secret").chmod(0o700)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.replace(f"{place}/", "").startswith(f"tablestone: {sentence}")
        assert ended.stderr.count("\n") == 1
        assert (names(place / "open"), names(place / "shut")) == (["one.db", "private.db"], [])
