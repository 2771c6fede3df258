"""docs/guides/production.md from its first command to its last, in the directory of the test."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.deployed import ROOT
from guides import stand_ins
from guides.page_commands import GUIDES, run_page

ABSOLUTE = ("/opt/tablestone", "/usr/local/bin", "/etc", "/var/lib", "/var/log", "/var/backups")
"""The places of the page that its commands write to."""


@pytest.mark.slow
@pytest.mark.network
def test_the_page_makes_a_service(tmp_path: Path) -> None:
    root = tmp_path / "root"
    places = {path: f"{root}{path}" for path in ABSOLUTE}
    for path in ("/opt", "/usr/local/bin", "/etc/systemd/system", "/etc/logrotate.d"):
        (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("deploy", "src", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        (checkout / name).symlink_to(ROOT / name)
    environment = stand_ins.put_into(tmp_path / "bin", places, root / "etc" / "systemd" / "system")
    environment |= {
        "PATH": f"{tmp_path / 'bin'}:{root}/usr/local/bin:{os.environ['PATH']}",
        "HATCH_BUILD_NO_HOOKS": "true",  # compiling takes long, and other tests do it
        "PYTHONPATH": "",
    }
    page = (GUIDES / "production.md").read_text(encoding="utf-8")
    try:
        run_page(page, checkout, places=places, environment=environment)
    finally:
        for file in (tmp_path / "bin").glob("*.pid"):
            with suppress(ProcessLookupError):
                os.killpg(int(file.read_text()), signal.SIGTERM)
    called = (tmp_path / "bin" / "called").read_text()
    assert "useradd --system" in called


def test_the_stand_in_starts_what_the_unit_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.service").write_text(
        "[Service]\nType=oneshot\nEnvironment=A=b\nExecStart=/there/env\n"
    )
    environment = stand_ins.put_into(tmp_path / "bin", {"/there": "/usr/bin"}, tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ended = subprocess.run([tmp_path / "bin" / "systemctl", "start", "one"], check=False)
    assert ended.returncode == 0
    assert "A=b" in (tmp_path / "bin" / "one.journal").read_text()
