"""Whatever names the image means the one that was loaded, and lets no engine ask a public registry for it."""

import re
from pathlib import Path

import pytest
import yaml

from deploy.deployed import CHART, DEPLOY, IMAGE, ROOT

COMPOSE = sorted(DEPLOY.rglob("compose.yaml"))
GUIDES = ROOT / "docs" / "guides"
COMMAND = re.compile(r"docker (?:run|build|tag) [^`\n]*tablestone[^`\n]*")
RECIPE = re.compile(r'(?:Container(?:<>)?\(|Image: +|WithImage\(|"tables", )"(\S*tablestone)"')


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.parent.name)
def test_in_compose(file: Path) -> None:
    services = yaml.safe_load(file.read_text(encoding="utf-8"))["services"].values()
    ours = [each for each in services if "tablestone" in each["image"]]
    assert {(each["image"], each["pull_policy"]) for each in ours} == {(IMAGE, "never")}


def test_in_the_chart() -> None:
    """Its tag is the version (`test_the_chart_is_of_this_version`), with which the image is tagged too."""
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert (values["image"]["repository"], values["image"]["tag"]) == (IMAGE, "")


@pytest.mark.parametrize(
    ("file", "count"),
    [(GUIDES / "containers.md", 6), (GUIDES / "from-azurite.md", 1), (DEPLOY / "Dockerfile", 1)],
    ids=lambda value: getattr(value, "name", None),
)
def test_in_commands(file: Path, count: int) -> None:
    commands = COMMAND.findall(file.read_text(encoding="utf-8"))
    assert len(commands) == count
    assert [each for each in commands if f" {IMAGE}" not in each] == []


def test_in_recipes() -> None:
    page = (GUIDES / "testing-other-languages.md").read_text(encoding="utf-8")
    assert RECIPE.findall(page) == [IMAGE] * 6
