"""The systemd units, as systemd's own tools read them."""

import re
import sys
from pathlib import Path

import pytest

from deploy.deployed import DEPLOY, needs, run, with_places

pytestmark = needs("systemd-analyze")
PROGRAM = "/opt/tablestone/bin/tablestone"
SERVICES = ("tablestone.service", "tablestone-backup.service")
EXPOSURE_MAX = 1.5
"""systemd's own score from 0 to 10; it calls a score below 2 OK. A unit without settings scores 9.6."""


def verified(directory: Path, *places: tuple[str, str]) -> str:
    """What systemd complains about in the units, which here start the program under test."""
    own = {PROGRAM: str(Path(sys.executable).with_name("tablestone"))}
    units = [
        with_places(DEPLOY / name, own | (dict(places) if name == SERVICES[0] else {}), directory)
        for name in SERVICES
    ]
    timer = with_places(DEPLOY / "tablestone-backup.timer", {}, directory)
    return run("systemd-analyze", "verify", "--man=no", *map(str, [*units, timer])).stdout


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    said = verified(tmp_path)
    assert [line for line in said.splitlines() if "tablestone" in line] == []


def test_a_planted_mistake_is_found(tmp_path: Path) -> None:
    assert "ProtectSytem" in verified(tmp_path, ("ProtectSystem", "ProtectSytem"))


@pytest.mark.parametrize("name", SERVICES)
def test_the_units_are_hardened(name: str, tmp_path: Path) -> None:
    unit = with_places(DEPLOY / name, {}, tmp_path)
    graded = run("systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)).stdout
    exposure = re.search(r"Overall exposure level for \S+: (\d+\.\d)", graded)
    assert exposure is not None, graded
    assert float(exposure[1]) <= EXPOSURE_MAX, graded
