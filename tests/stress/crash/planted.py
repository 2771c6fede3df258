"""Servers with a planted bug, which a run of kills has to find."""

import sys
from pathlib import Path
from typing import Final

PLANTED: Final = (
    sys.executable,
    str(Path(__file__).parents[1] / "histories" / "planted_server.py"),
)
BUGS: Final = ("answer before commit", "transaction in two commits")


def planted_server(bug: str | None) -> tuple[tuple[str, ...] | None, dict[str, str]]:
    """The command and the environment of a server with this bug; of the real one for None."""
    return (None, {}) if bug is None else (PLANTED, {"PLANTED_BUG": bug})
