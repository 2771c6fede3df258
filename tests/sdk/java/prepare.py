"""The Java SDK for the SDK tests: Maven fetches azure-data-tables and compiles the tests and the interchange program.

Afterwards a Java runtime alone runs both, from build/.
"""

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE / "build"
PREPARED = BUILD / "prepared"
CLASS_PATH = os.pathsep.join(
    [str(BUILD / "test-classes"), str(BUILD / "classes"), str(BUILD / "libraries" / "*")]
)


def java(*arguments: str) -> list[str]:
    """The argument vector of a program on the prepared class path, with Java's fastest start."""
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", CLASS_PATH, *arguments]


def prepare() -> None:
    if shutil.which("mvn") is None:
        raise FileNotFoundError("Maven is not installed")
    # Classes of deleted sources would still be found and run.
    for compiled in (BUILD / "classes", BUILD / "test-classes"):
        shutil.rmtree(compiled, ignore_errors=True)
    subprocess.run(
        ["mvn", "-q", "-B", "test-compile", "dependency:copy-dependencies"], cwd=HERE, check=True
    )
    PREPARED.touch()


def missing() -> str | None:
    if shutil.which("java") is None:
        return "Java is not installed"
    if not PREPARED.exists():
        if shutil.which("mvn") is None:
            return "Maven is not installed"
        return "the Java SDK tests are not compiled: run python tests/sdk/install.py java"
    sources = [*HERE.glob("src/**/*.java"), HERE / "pom.xml"]
    if any(source.stat().st_mtime > PREPARED.stat().st_mtime for source in sources):
        return "the Java SDK tests changed since they were compiled: run python tests/sdk/install.py java"
    return None


def interchange() -> list[str]:
    return java("tablestone.sdk.Interchange")
