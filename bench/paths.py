"""The directory for everything that the benchmarks build, install and write; git ignores it."""

from pathlib import Path

BENCH = Path(__file__).parent
WORK = BENCH / ".work"
AZURITE = WORK / "azurite"
DATA = WORK / "data"
RESULTS = WORK / "results"
LOADGEN_SOURCE = BENCH / "loadgen"
LOADGEN = WORK / "loadgen"
