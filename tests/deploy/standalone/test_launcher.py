"""The launcher of the folder: a sentence where the program cannot run. The program is replaced."""

import shutil
from pathlib import Path

import pytest

from deploy.deployed import DEPLOY
from deploy.standalone.conftest import EMPTY, run


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("system", "library", "said"),
    [
        ("Linux aarch64", "glibc 2.36", "is for Linux on x86-64, and not for Linux on aarch64."),
        ("Darwin arm64", "", "is for Linux on x86-64, and not for Darwin on arm64."),
        ("Linux x86_64", "", "needs glibc 2.36 or newer, and this system has another C library"),
        ("Linux x86_64", "glibc 2.35", "needs glibc 2.36 or newer, and this system has 2.35."),
        ("Linux x86_64", "glibc 2.36", None),
        ("Linux x86_64", "glibc 2.100", None),
    ],
)
def test_where_it_cannot_run_it_says_so(
    system: str, library: str, said: str | None, tmp_path: Path
) -> None:
    kernel, machine = system.split()
    script(tmp_path / "bin" / "uname", f'[ "$1" = -s ] && echo {kernel} || echo {machine}')
    script(tmp_path / "bin" / "getconf", f"[ -n '{library}' ] && echo {library}")
    folder = tmp_path / "a folder"
    script(folder / "lib" / "tablestone-program", 'echo "ran $1"')
    shutil.copy(DEPLOY / "standalone" / "launcher", folder / "tablestone")
    (tmp_path / "linked").symlink_to(folder / "tablestone")
    ended = run(tmp_path / "linked", "a b", PATH=f"{tmp_path / 'bin'}:{EMPTY['PATH']}")
    if said is None:
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ran a b\n", "")
    else:
        assert (ended.returncode, ended.stdout) == (2, "")
        assert said in ended.stderr
        assert ended.stderr.count("\n") == 1
