"""SQLite's own checksum layer, cksumvfs: what it notices, and why it is not used (docs/decisions/0016-checksums.md)."""

import json
import subprocess
import sys
from pathlib import Path

import apsw.sqlite_extra
import pytest

PROGRAM = Path(__file__).with_name("checksum_layer.py")


@pytest.mark.slow
@pytest.mark.skipif(
    not apsw.sqlite_extra.has("cksumvfs"), reason="this build of apsw has no cksumvfs"
)
def test_it_sees_pages_of_the_database_and_not_the_log(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(PROGRAM)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    told = json.loads(ran.stdout)
    assert len(told["pages"]) > 50
    assert all(page == {"found": True, "wrong": 0} for page in told["pages"])
    unseen = {"found": False, "wrong": 1}
    assert told["log"] == unseen
    assert told["copied log"] == unseen, "the copy gets a checksum that fits"
    assert told["turned off"] == 1, "one flipped bit turns it off, and the next one is served"
