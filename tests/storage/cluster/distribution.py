"""The Cassandra server for tests: `cassandra-all` from Maven Central with its dependencies, run by a JDK 17.

It needs no container, and installs nothing outside the checkout and Maven's own cache.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

VERSION: Final = "5.0.6"
"""The version of `org.apache.cassandra:cassandra-all`."""

_PACKAGES = Path(__file__).parent / ".packages"
JARS: Final = _PACKAGES / f"cassandra-{VERSION}"
"""The server's jars, once they are downloaded."""

_PROJECT = f"""
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tablestone</groupId><artifactId>cassandra-for-tests</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId><version>{VERSION}</version>
  </dependency></dependencies>
</project>
"""


class NoCluster(Exception):
    """Cassandra cannot run here. The text says why, and is the reason of every skipped test."""


def java() -> str:
    """The `java` of a JDK 17, in JAVA_HOME or on the path. Raises `NoCluster`."""
    home = os.environ.get("JAVA_HOME")
    named = str(Path(home) / "bin" / "java") if home else "java"
    command = shutil.which(named)
    if command is None:
        raise NoCluster("no JDK: Cassandra 5.0 needs version 17 (JAVA_HOME, or java on the path)")
    told = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', told.stderr)
    if found is None or found[1] not in {"11", "17"}:
        raise NoCluster(f"no JDK 17: {command} is version {found[1] if found else 'unknown'}")
    return command


def prepare() -> None:
    """Download the jars if they are missing. Raises `NoCluster`."""
    java()
    if JARS.is_dir():
        return
    maven = shutil.which("mvn")
    if maven is None:
        raise NoCluster("no Maven: it downloads Cassandra (mvn on the path)")
    _PACKAGES.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=_PACKAGES) as directory:
        project = Path(directory)
        (project / "pom.xml").write_text(_PROJECT)
        download = subprocess.run(
            [maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"],
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
        if download.returncode:
            raise NoCluster(f"Maven could not download Cassandra: {download.stdout.strip()[:400]}")
        if not JARS.is_dir():  # another process may have been faster
            (project / "jars").rename(JARS)


def missing() -> str | None:
    """Why no node can run here, or None if one can. Downloads nothing."""
    try:
        java()
    except NoCluster as reason:
        return str(reason)
    if JARS.is_dir() or shutil.which("mvn"):
        return None
    return "no Maven: it downloads Cassandra (mvn on the path)"
