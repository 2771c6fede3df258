"""The npm package, built once for a file of tests, and a project that has it, in a path with blanks."""

from pathlib import Path

import pytest

from deploy.npm.install import missing_node
from deploy.npm.packed import build, folder, make_project


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reason = missing_node()
    if reason is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("npm")
    built = build(folder(directory), directory)
    assert built.returncode == 0, built.stderr
    return directory / built.stdout.split()[1]


@pytest.fixture(scope="session")
def project(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project") / "with blanks in it", package)
