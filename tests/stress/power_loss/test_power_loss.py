"""Every acknowledged write survives a power loss, at every flush and between; planted bugs are found.

The long form is `python -m tests.stress.power_loss --points N`.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from stress.power_loss.judging import directory_in_memory, judge, points_of
from stress.power_loss.lost_power import Disk
from stress.power_loss.planted import BUGS
from stress.power_loss.recorded_disk import Created, Deleted, Event, Flushed, Truncated, Written
from stress.power_loss.writers import Run

SEED = 20261122
POINTS = 400


@pytest.fixture
def directory() -> Iterator[Path]:
    with directory_in_memory() as directory:
        yield directory


def test_what_was_acknowledged_is_there(directory: Path) -> None:
    run = Run(SEED)
    run.record(directory / "run")
    flushes = sum(isinstance(event, Flushed) for event in run.recording.events)
    points = max(POINTS, 2 * flushes + 100)  # before and after every flush, and others
    assert list(judge(run, points, directory / "left", Random(SEED))) == []


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(directory: Path, bug: str) -> None:
    run = Run(SEED)
    run.record(directory / "run", BUGS[bug])
    assert next(judge(run, POINTS, directory / "left", Random(SEED)), None) is not None


CREATED: list[Event] = [Created("a", 1)]
TWO_WRITES: list[Event] = [Written(1, 0, b"xx"), Written(1, 2, b"yy")]


@pytest.mark.parametrize(
    ("events", "possible"),
    [
        ([], {None}),
        (CREATED, {None, b""}),
        ([*CREATED, Flushed(1, 1)], {b""}),
        ([*CREATED, Flushed(1, 1), *TWO_WRITES], {b"", b"xx", b"\0\0yy", b"xxyy"}),
        ([*CREATED, *TWO_WRITES, Flushed(1, 3)], {b"xxyy"}),
        ([*CREATED, *TWO_WRITES, Flushed(1, 2)], {b"xx", b"xxyy"}),
        ([*CREATED, *TWO_WRITES, Flushed(1, 3), Truncated(1, 1)], {b"xxyy", b"x"}),
        ([*CREATED, Flushed(1, 1), Deleted("a", is_flushed=False)], {None, b""}),
        ([*CREATED, Flushed(1, 1), Deleted("a", is_flushed=True)], {None}),
    ],
)
def test_the_rules_of_a_disk(events: list[Event], possible: set[bytes | None]) -> None:
    """Every state in which the file may be found comes up, and no other."""
    disk = Disk()
    for event in events:
        disk.happens(event)
    found = {disk.after_power_loss(Random(seed)).get("a") for seed in range(400)}
    assert found == possible


def test_a_write_may_be_torn_between_sectors_only() -> None:
    disk = Disk()
    for event in (Created("a", 1), Flushed(1, 1), Written(1, 500, b"x" * 1000)):
        disk.happens(event)
    found = {disk.after_power_loss(Random(seed))["a"] for seed in range(400)}
    sectors = [
        tuple(
            set(content[first:last] or b"\0")
            for first, last in ((500, 512), (512, 1024), (1024, 1500))
        )
        for content in found
    ]
    assert all(len(sector) == 1 for pieces in sectors for sector in pieces)
    assert len(found) == 8


def test_a_point_is_before_and_after_each_flush() -> None:
    run = Run(SEED)
    run.recording.events += [Created("a", 1), Flushed(1, 1), Written(1, 0, b"x"), Flushed(1, 3)]
    assert {1, 2, 3, 4} <= set(points_of(run, 10, Random(1)))
