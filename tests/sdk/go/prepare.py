"""The Go SDK for the SDK tests: fetches aztables, and builds its tests and its interchange program into build/."""

import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE / "build" / "tables.test"
INTERCHANGE = HERE / "build" / "interchange"


def prepare() -> None:
    if shutil.which("go") is None:
        raise FileNotFoundError("Go is not installed")
    (HERE / "build").mkdir(exist_ok=True)
    for build in (
        ["go", "test", "-c", "-buildvcs=false", "-o", str(TESTS), "."],
        ["go", "build", "-buildvcs=false", "-o", str(INTERCHANGE), "./interchange"],
    ):
        subprocess.run(build, cwd=HERE, check=True)


def missing() -> str | None:
    if not (TESTS.exists() and INTERCHANGE.exists()):
        if shutil.which("go") is None:
            return "Go is not installed"
        return "the Go SDK tests are not built: run python tests/sdk/install.py go"
    sources = [*HERE.glob("*.go"), *HERE.glob("interchange/*.go"), HERE / "go.mod"]
    built = min(TESTS.stat().st_mtime, INTERCHANGE.stat().st_mtime)
    if any(source.stat().st_mtime > built for source in sources):
        return "the Go SDK tests changed since they were built: run python tests/sdk/install.py go"
    return None


def interchange() -> list[str]:
    return [str(INTERCHANGE)]
