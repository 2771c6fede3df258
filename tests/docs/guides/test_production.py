"""docs/guides/production.md from its first command to its last, in the test's directory."""

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.deployed import ROOT
from deploy.monitoring.install import missing, program
from docs.guides import stand_ins
from docs.guides.page_commands import GUIDES, commands_of, run_page
from server_process import free_ports

ABSOLUTE = ("/opt/tablestone", "/usr/local/bin", "/etc", "/var/lib", "/var/log", "/var/backups")
"""The paths that the page's commands write to."""


PORTS = ("10002", "10003", "9090")
"""The ports on the page: for clients, for the operator, and Prometheus' own."""
PROMETHEUS_UNIT = """[Service]
Restart=on-failure
ExecStart={program} --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/var/lib/prometheus/metrics2 \
--web.listen-address=127.0.0.1:9090
"""
"""The unit of Debian's package, with its defaults. The test sets the address, because the port may be in use."""


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_the_page_makes_a_service(tmp_path: Path) -> None:
    root = tmp_path / "root"
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    places = {path: f"{root}{path}" for path in ABSOLUTE} | ports
    units = root / "etc" / "systemd" / "system"
    for path in ("/opt", "/usr/local/bin", "/etc/logrotate.d", "/etc/prometheus"):
        (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    units.mkdir(parents=True)
    unit = PROMETHEUS_UNIT.format(program=program("prometheus"))
    (units / "prometheus.service").write_text(unit)
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("src", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        (checkout / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "deploy", checkout / "deploy")
    scraped = checkout / "deploy" / "prometheus" / "prometheus.yml"
    scraped.write_text(scraped.read_text().replace(":10003", f":{ports['10003']}"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "promtool").symlink_to(str(program("promtool")))
    environment = stand_ins.put_into(tmp_path / "bin", places, units)
    environment |= {
        "TABLESTONE_PORT": ports["10002"],
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
    assert f"chown tablestone:tablestone {root}/var/lib/tablestone-drill" in called


CLOSED = r"/var/(?:lib|log|backups)/tablestone|journalctl"
"""Paths and commands that need root or the server's user; the reader is an ordinary user who may sudo."""


def test_what_is_closed_to_the_reader_is_left_to_sudo() -> None:
    """The stand-in for sudo changes no user, so `test_the_page_makes_a_service` cannot notice a missing sudo."""
    typed = [each.typed for each in commands_of((GUIDES / "production.md").read_text("utf-8"))]
    closed = [command for command in typed if re.search(CLOSED, command)]
    assert len(closed) > 10
    for command in closed:
        assert "sudo " in re.split(CLOSED, command)[0], command
        assert "*" not in re.sub(r"'[^']*'", "", command), f"the reader's shell expands: {command}"


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
