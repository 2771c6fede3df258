"""The packages that users install with Tablestone: its dependencies, those of its extras, and what these need."""

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[3]
EXTRAS_OF_USERS: Final = (
    "archive",
    "cassandra",
    "entra",
    "explorer",
    "metrics",
    "otel",
    "postgresql",
    "tools",
)
"""The extras with packages that a server or a data tool imports; the others are for tests and development."""


def needed_by_users() -> dict[str, str]:
    """The installed version of each package by its canonical name, without packages that are not installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    waiting = list(project["dependencies"])
    for extra in EXTRAS_OF_USERS:
        waiting += project["optional-dependencies"][extra]
    found: dict[str, str] = {}
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name in found or name == project["name"]:
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        found[name] = package.version
        waiting += [
            needed
            for needed in package.requires or ()
            if (marker := Requirement(needed).marker) is None or marker.evaluate({"extra": ""})
        ]
    return dict(sorted(found.items()))
