"""Where the bench keeps what it builds, installs and writes: one directory that git ignores."""

from __future__ import annotations

from pathlib import Path

BENCH = Path(__file__).parent
WORK = BENCH / ".work"
AZURITE = WORK / "azurite"
DATA = WORK / "data"
RESULTS = WORK / "results"
LOADGEN_SOURCE = BENCH / "loadgen"
LOADGEN = WORK / "loadgen"
