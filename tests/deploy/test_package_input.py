"""What `deploy/image/build` and `deploy/debian/build` refuse: in one sentence, leaving nothing in OUTDIR."""

import os
import subprocess
from pathlib import Path

import pytest

from deploy.deployed import DEPLOY, needs

pytestmark = needs("dpkg-deb", "unshare")
PROGRAMS = [DEPLOY / "image" / "build", DEPLOY / "debian" / "build"]
ELF_OF_ARM = bytes.fromhex("7f454c46020101" + "00" * 9 + "0200b700" + "00" * 44)
WORKS = "#!/bin/sh\necho Tablestone 0.1.0, compiled\n"


def folder(directory: Path, program: bytes) -> Path:
    """A folder with this program, and with more than fits on the full disk."""
    directory.mkdir()
    (directory / "tablestone").write_bytes(program)
    (directory / "tablestone").chmod(0o755)
    for n in range(3):
        (directory / f"library-{n}").write_bytes(b"x" * 2_000_000)
    return directory


@pytest.fixture(params=PROGRAMS, ids=lambda path: path.parent.name)
def program(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def refused(*words: str | Path) -> tuple[int, str]:
    ended = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
        env=os.environ | {"SOURCE_DATE_EPOCH": "0"},  # a copy of the checkout has no git
    )
    assert ended.stdout == ""
    return ended.returncode, ended.stderr


def test_words(program: Path, tmp_path: Path) -> None:
    assert refused(program) == (2, f"Usage: {program} FOLDER OUTDIR\n")
    empty = tmp_path / "another folder"
    assert refused(program, empty, tmp_path / "out") == (
        1,
        f"{empty} is not the folder that runs without Python: it has no program tablestone.\n",
    )
    assert not (tmp_path / "out").exists()


def test_another_platform(program: Path, tmp_path: Path) -> None:
    foreign = folder(tmp_path / "of ARM", ELF_OF_ARM)
    status, said = refused(program, foreign, tmp_path / "out")
    sentence = f"{foreign}/tablestone does not run on this machine: package it where it runs.\n"
    assert (status, said.endswith(sentence)) == (1, True), said
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [("size=1m", "No space left on device"), ("ro", "Read-only file system")],
)
def test_a_place_without_room(program: Path, options: str, sentence: str, tmp_path: Path) -> None:
    out = tmp_path / "the disk"
    out.mkdir()
    script = 'mount -t tmpfs -o "$1" none "$3" || exit; "$0" "$2" "$3"; echo "$?" >&2; ls -A "$3"'
    given = folder(tmp_path / "folder", WORKS.encode())
    _, said = refused("unshare", "--mount", "sh", "-c", script, program, options, given, out)
    assert sentence in said.splitlines()[0]
    assert said.splitlines()[1:] == ["1"]
