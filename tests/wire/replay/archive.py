"""The source archive of azure-data-tables 12.2.0 from PyPI, which contains its recordings.

It is fetched once, and kept. pip fetches it, so the index, proxy or wheel directory of the machine is used as for any
other installation.
"""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "azure-data-tables"
VERSION = "12.2.0"
ARCHIVE_NAME = f"{PACKAGE}-{VERSION}.zip"
CACHE_VARIABLE = "TABLESTONE_TEST_CACHE"
DOWNLOAD_SECONDS_MAX = 300
PINS = ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")


class ArchiveUnavailableError(Exception):
    """The recordings cannot be fetched now; the text is one sentence, the reason of the skip."""


def cache_directory() -> Path:
    """TABLESTONE_TEST_CACHE, or `.cache/` at the root of the checkout (git ignores it)."""
    configured = os.environ.get(CACHE_VARIABLE)
    return Path(configured) if configured else Path(__file__).resolve().parents[3] / ".cache"


def recordings_archive() -> Path:
    """The archive's path; the first call downloads it."""
    kept = cache_directory() / ARCHIVE_NAME
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of this run may be downloading it
        if not kept.exists():
            # Downloaded to another name and renamed, so that no process sees half a file.
            with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
                download(Path(scratch))
                (Path(scratch) / ARCHIVE_NAME).replace(kept)
    return kept


def download(directory: Path) -> None:
    # pip prepares a source archive's metadata before it hands it over; with build isolation it brings its own
    # setuptools, independent of this environment and of the versions that the checks pin.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", PACKAGE, "--dest", str(directory), f"{PACKAGE}=={VERSION}"]
    try:
        finished = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS_MAX,
            check=False,
            env={name: value for name, value in os.environ.items() if name not in PINS},
        )
    except subprocess.TimeoutExpired:
        raise ArchiveUnavailableError(
            f"pip did not download {ARCHIVE_NAME} within {DOWNLOAD_SECONDS_MAX} s"
        ) from None
    if finished.returncode != 0 or not (directory / ARCHIVE_NAME).exists():
        said = finished.stderr.strip().splitlines() or ["no reason given"]
        raise ArchiveUnavailableError(f"pip could not download {ARCHIVE_NAME}: {said[-1]}")
