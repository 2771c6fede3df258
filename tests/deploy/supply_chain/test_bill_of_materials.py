"""The bill of materials that docs/threat-model.md shows how to make: CycloneDX, from an installed environment."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WITHOUT_LICENCE = {"apsw-sqlite3mc"}
"""Its metadata only says "OSI Approved"; the licence itself is in its file LICENSE."""
COMMAND = re.compile(r"^    (cyclonedx-py environment .*)$", re.MULTILINE)


def plain(name: str) -> str:
    """A package's normalized name (PEP 503)."""
    return re.sub(r"[-_]+", "-", name).lower()


@pytest.mark.skipif(find_spec("cyclonedx_py") is None, reason="needs pip install '.[dev]'")
@pytest.mark.slow
def test_it_names_every_package_of_the_base_installation(tmp_path: Path) -> None:
    (command,) = COMMAND.findall((ROOT / "docs" / "threat-model.md").read_text("utf-8"))
    bill = tmp_path / "tablestone.cdx.json"
    given = {"tablestone.cdx.json": str(bill), ".venv/bin/python": sys.executable}
    _, *arguments = (given.get(word, word) for word in command.split())
    # The environment of the tests has 200 packages; validating their description would take half a minute.
    program = [sys.executable, "-m", "cyclonedx_py", *arguments, "--no-validate"]
    subprocess.run(program, cwd=ROOT, check=True, timeout=300)
    content = json.loads(bill.read_text())
    assert content["bomFormat"] == "CycloneDX"
    assert content["metadata"]["component"]["name"] == "tablestone"
    components = {plain(each["name"]): each for each in content["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for dependency in project["dependencies"]:
        name = re.split(r"[<>=]", dependency)[0]
        component = components[plain(name)]
        assert component["version"] == version(name)
        assert plain(component["purl"]).startswith(f"pkg:pypi/{plain(name)}@")
        assert component.get("licenses") or name in WITHOUT_LICENCE, name
