"""The linters accept the files of `deploy/`, and each of them finds a planted fault."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from deploy.deployed import DEPLOY, ROOT, needs, run

DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"
YAMLLINT = ("--strict", "--config-file", str(DEPLOY / ".yamllint.yaml"))
COMPOSE_SCHEMA = ("--builtin-schema", "vendor.compose-spec")


@needs("hadolint")
def test_the_dockerfile(tmp_path: Path) -> None:
    assert run("hadolint", str(DOCKERFILE)).stdout == ""
    planted = tmp_path / "Dockerfile"
    planted.write_text(DOCKERFILE.read_text().replace("WORKDIR /data", "RUN cd /data"))
    assert "DL3003" in run("hadolint", str(planted)).stdout


@needs("yamllint")
def test_yaml(tmp_path: Path) -> None:
    assert run("yamllint", *YAMLLINT, str(DEPLOY)).stdout == ""
    planted = tmp_path / "planted.yaml"
    planted.write_text("a: 1\na: 2\n")
    assert "key-duplicates" in run("yamllint", *YAMLLINT, str(planted)).stdout


@needs("check-jsonschema")
def test_compose(tmp_path: Path) -> None:
    planted = tmp_path / "planted.yaml"
    planted.write_text(COMPOSE.read_text().replace("read_only: true", "read_only: [1]"))
    files = sorted(DEPLOY.rglob("compose.yaml"))
    assert COMPOSE in files
    assert _wrong(COMPOSE_SCHEMA, *files, planted) == {str(planted)}


def _wrong(schema: tuple[str, ...], *files: Path) -> set[str]:
    """The files that are not as the schema says. One run for all: the tool starts slowly."""
    run_once = run("check-jsonschema", *schema, "--output-format=json", *map(str, files))
    return {error["filename"] for error in json.loads(run_once.stdout).get("errors", ())}


CI_FILES = {
    "vendor.github-workflows": [
        ".github/workflows/test.yml",
        ".github/workflows/test-with-service.yml",
    ],
    "vendor.gitlab-ci": [".gitlab-ci.yml"],
}


@needs("check-jsonschema")
@pytest.mark.parametrize(("schema", "names"), CI_FILES.items())
def test_the_files_of_the_guide_for_ci(schema: str, names: list[str], tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guides" / "ci.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"^```yaml\n# (\S+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    assert blocks.keys() == {name for each in CI_FILES.values() for name in each}
    key = "on: push" if "github" in schema else "script:"
    right: list[Path] = []
    planted: list[Path] = []
    for name in names:
        for files, text in (
            (right, blocks[name]),
            (planted, blocks[name].replace(key, "planted: 1")),
        ):
            files.append(tmp_path / f"{len(right)}-{len(planted)}.yml")
            files[-1].write_text(text)
    assert _wrong(("--builtin-schema", schema), *right, *planted) == set(map(str, planted))


WHEELS = {
    "linux": {
        f"cp{version}-{libc}_{machine}"
        for version in (311, 312, 313)
        for libc in ("manylinux", "musllinux")
        for machine in ("x86_64", "aarch64")
    },
    "macos": {
        f"cp{version}-macosx_{machine}"
        for version in (311, 312, 313)
        for machine in ("x86_64", "arm64")
    },
}


@needs("cibuildwheel")
@pytest.mark.parametrize(("platform", "wheels"), WHEELS.items())
def test_the_wheels_that_are_built(platform: str, wheels: set[str]) -> None:
    """Cibuildwheel reads its part of pyproject.toml and lists what it would build."""
    told = run("cibuildwheel", "--platform", platform, "--print-build-identifiers", str(ROOT))
    assert set(told.stdout.split()) == wheels


def test_a_wheel_that_is_not_compiled_is_not_delivered() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert "(HOW_IT_RUNS, way()) == ('compiled', 'C')" in settings["test-command"]
