"""Reads a file of tests/spec: tests/spec/README.md describes its rows."""

import tomllib
from pathlib import Path
from typing import Any

SPEC = Path(__file__).resolve().parent / "spec"

Row = dict[str, Any]


def load(name: str) -> dict[str, Any]:
    """A whole file. The rows of a group stand among those of their kind, with what the group gives them."""
    table = tomllib.loads((SPEC / name).read_text(encoding="utf-8"))
    for group in table.pop("group", ()):
        kinds = {kind for kind, value in group.items() if _is_rows(value)}
        shared = {key: value for key, value in group.items() if key not in kinds}
        for kind in kinds:
            table.setdefault(kind, []).extend(shared | row for row in group[kind])
    return table


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)
