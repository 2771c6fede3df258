"""The package with the folder build: no Python is needed, and the glibc that its sentence names is enough."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.deployed import DEPLOY
from deploy.npm.packed import FOLDER_BUILD, SECONDS_MAX, launcher
from sdk.test_interchange import skip_unless_prepared
from tablestone import __version__

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        FOLDER_BUILD is None,
        reason="FOLDER_BUILD does not name a folder of deploy/standalone/build",
    ),
]


def test_only_node(project: Path, tmp_path: Path) -> None:
    skip_unless_prepared("javascript")
    path = tmp_path / "bin"
    path.mkdir()
    for name in ("node", "env"):
        (path / name).symlink_to(str(shutil.which(name)))

    def printed(*command: str | Path) -> str:
        ended = subprocess.run(
            list(map(str, command)),
            cwd=project,
            env={"PATH": str(path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout
        return ended.stdout

    shown = printed(launcher(project), "--version")
    assert shown == f"Tablestone {__version__}, compiled, filters in C, npm build\n"
    assert "\n# pass 5\n" in printed(
        "node", "--test", "--test-reporter=tap", "node/orders.test.mjs"
    )


def test_the_glibc_of_the_sentence_is_enough(project: Path) -> None:
    source = (DEPLOY / "npm" / "src" / "program.ts").read_text("utf-8")
    named = re.search(r'GLIBC_MIN = "(\d+)\.(\d+)"', source)
    assert named is not None
    server = project / "node_modules" / "tablestone" / "server"
    needed: set[tuple[int, int]] = set()
    for directory, _, names in os.walk(server):
        for name in names:
            content = Path(directory, name).read_bytes()
            if content.startswith(b"\x7fELF"):
                found = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", content)
                needed |= {(int(major), int(minor)) for major, minor in found}
    assert (2, 17) < max(needed) <= (int(named[1]), int(named[2]))
