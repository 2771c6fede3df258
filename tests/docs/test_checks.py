"""The files that run the checks elsewhere agree with .ci/run: the versions, and the parts on a forge."""

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
PINNED: Final = dict(
    re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / ".ci/constraints.txt").read_text(), re.MULTILINE)
)


def test_each_line_of_the_constraints_is_one_version() -> None:
    """Without addresses: those of one registry are not those of another."""
    lines = (ROOT / ".ci/constraints.txt").read_text().splitlines()
    assert len([line for line in lines if not line.startswith("#")]) == len(PINNED)


@pytest.mark.parametrize("extra", ["test", "testing", "dev", "docs", "deploy", "build"])
def test_what_checks_has_a_version_that_the_project_allows(extra: str) -> None:
    written = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    pinned = {canonicalize_name(name): version for name, version in PINNED.items()}
    extras = written["project"]["optional-dependencies"] | {
        "build": written["build-system"]["requires"]
    }
    asked = map(Requirement, extras[extra])
    assert [
        str(each)
        for each in asked
        if each.name != "tablestone"
        and not each.specifier.contains(pinned.get(canonicalize_name(each.name), "0"))
    ] == []


def test_the_forge_runs_each_part_of_the_checks() -> None:
    parts = re.search(r"^parts=\((.*)\)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    workflow = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text())
    assert parts is not None
    assert workflow["jobs"]["part"]["strategy"]["matrix"]["part"] == parts[1].split()
