"""`kill -9` while clients write: all acknowledged data is there, and no transaction by half.

What a killed process wrote stays with the operating system, so this shows that a commit is atomic and comes before its
answer. That it is flushed to the disk is for `tests/stress/power_loss`. The long form is `python -m tests.stress.crash
--kills N`. CRASH_KILLS and TABLESTONE_CRASH_SEED set the number of kills and the seed.
"""

import os
import random
from pathlib import Path

import pytest

from server_process import start_server
from stress.crash.journal import Journal
from stress.crash.planted import BUGS, planted_server
from stress.crash.run import Run, check, create_tables
from stress.crash.stored_place import StoredPlace
from stress.crash.writers import Connection, EntityWriter, Life, read_partitions

KILLS = int(os.environ.get("CRASH_KILLS", "50" if "SLOW" in os.environ else "5"))
KILLS_OF_ENCRYPTED = max(1, KILLS // 8)
"""The share of the kills that hits servers of an encrypted directory."""
KILLS_WITH_A_BUG = 200
"""One or two are nearly always enough."""
SEED = os.environ.get("TABLESTONE_CRASH_SEED", str(random.SystemRandom().getrandbits(32)))

LOST = {
    "answer before commit": ("acknowledged", "allowed"),
    "transaction in two commits": ("operations of a transaction without an answer",),
}
"""Each planted bug, with words of the complaints that reveal it."""

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("keeps_changes", [True, False], ids=["with a record", "without"])
def test_acknowledged_writes_survive_a_kill(tmp_path: Path, *, keeps_changes: bool) -> None:
    """Kept changes are exactly the commits that are there."""
    print(f"TABLESTONE_CRASH_SEED={SEED} CRASH_KILLS={KILLS}")
    run = Run(tmp_path, SEED, keeps_changes=keeps_changes)
    kills = (KILLS - KILLS_OF_ENCRYPTED) // 2
    assert list(run.problems(kills)) == [], f"seed {SEED}"
    print(run)
    assert run.kills.total() >= kills


@pytest.mark.slow
def test_acknowledged_writes_survive_a_kill_in_an_encrypted_directory(tmp_path: Path) -> None:
    print(f"TABLESTONE_CRASH_SEED={SEED} CRASH_KILLS={KILLS}")
    run = Run(tmp_path, SEED, is_encrypted=True)
    assert list(run.problems(KILLS_OF_ENCRYPTED)) == [], f"seed {SEED}"
    print(run)
    assert run.kills.total() >= KILLS_OF_ENCRYPTED
    assert b"SQLite format 3" not in (run.data.path / "tablestone.db").read_bytes()[:16]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(tmp_path: Path, bug: str) -> None:
    problems = Run(tmp_path, SEED, *planted_server(bug)).problems(KILLS_WITH_A_BUG)
    try:
        for problem in problems:
            if any(words in problem for words in LOST[bug]):
                return
    finally:
        problems.close()  # ends the server
    pytest.fail(f"{bug} was not found with seed {SEED}")


@pytest.mark.slow
def test_the_harness_sees_what_was_lost(tmp_path: Path) -> None:
    """Remove the log, with the last commits, between kill and restart: the journals must complain."""
    journal = Journal("writer-0")
    server = start_server(tmp_path)
    try:
        create_tables(server)
        server.stop()  # Move all writes so far from the log into the database.
        server = start_server(tmp_path)
        life = Life(server)
        writer = EntityWriter(life, journal, random.Random(SEED))
        writer.start()
        # So few that SQLite does not move them to the database by itself.
        for _ in range(5):
            life.acknowledged.acquire()
        life.is_ending.set()
        server.kill()
        writer.join()
        assert check(StoredPlace(tmp_path)) == []
        logs = list(tmp_path.glob("*-wal"))
        assert logs
        for log in logs:
            log.unlink()
        server = start_server(tmp_path)
        with Connection(server) as connection:
            found = read_partitions(connection).get("writer-0", {})
        assert list(journal.complaints(found)) != []
    finally:
        server.kill()
