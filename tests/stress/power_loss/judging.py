"""Cuts the power at points of a recorded run, opens what is left, and compares it with what was acknowledged."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from storage.opened import open_sqlite
from storage.write_sets import WHOLE, committed, insert
from stress.power_loss.lost_power import Disk
from stress.power_loss.recorded_disk import Flushed, Note
from stress.power_loss.writers import PARTITIONS, Run, State
from tablestone.engines.change_record import FIRST
from tablestone.engines.contract import EngineRefused, EngineUnavailable
from tablestone.engines.sqlite.engine import SqliteEngine


@contextmanager
def directory_in_memory() -> Iterator[Path]:
    """An empty directory in memory, where flushes cost nothing, if the system has one."""
    place = Path("/dev/shm")  # noqa: S108 - a name of its own is made in it
    with tempfile.TemporaryDirectory(dir=place if place.is_dir() else None) as directory:
        yield Path(directory)


def points_of(run: Run, count: int, random: Random) -> list[int]:
    """How many events precede each power loss: before and after each flush, then at random, ascending.

    If there are more points of the first kind than `count`, some of them are drawn.
    """
    events = run.recording.events
    boundaries = [
        point
        for number, event in enumerate(events)
        if isinstance(event, Flushed)
        for point in (number, number + 1)
    ]
    if len(boundaries) > count:
        return sorted(random.sample(boundaries, count))
    others = [random.randint(0, len(events)) for _ in range(count - len(boundaries))]
    return sorted(boundaries + others)


def judge(run: Run, count: int, directory: Path, random: Random) -> Iterator[str]:
    """The problems found after `count` power losses in a recorded run."""
    disk = Disk()
    acknowledged = dict.fromkeys(PARTITIONS, 0)
    begun = dict.fromkeys(PARTITIONS, 0)
    done = 0
    for point in points_of(run, count, random):
        for event in run.recording.events[done:point]:
            disk.happens(event)
            if isinstance(event, Note):
                counted = acknowledged if event.is_acknowledged else begun
                counted[event.partition] = event.number
        done = point
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for name, content in disk.after_power_loss(random).items():
            (directory / name).write_bytes(content)
        allowed = {
            partition: run.states[partition][acknowledged[partition] : begun[partition] + 1]
            for partition in PARTITIONS
        }
        before = {
            partition: run.states[partition][: acknowledged[partition]] for partition in PARTITIONS
        }
        for problem in asyncio.run(_problems(directory, before, allowed)):
            yield f"seed {run.seed}, event {point}: {problem}"


async def _problems(
    data: Path, before: dict[bytes, list[State]], allowed: dict[bytes, list[State]]
) -> list[str]:
    """The problems of a data directory. Each partition has to be in one of its allowed states.

    The record of changes has to lead through all states `before` to that one.
    """
    try:
        engine = open_sqlite(data)
    except (EngineRefused, EngineUnavailable) as error:
        return [f"it cannot be opened: {error}"]
    try:
        found: dict[bytes, State] = {partition: {} for partition in PARTITIONS}
        for row in await engine.scan(WHOLE, rows_max=1_000_000):
            found[row.partition][row.row] = row.value
        problems = [
            f"{partition.decode()} is in no state from the one that was acknowledged on"
            for partition, states in allowed.items()
            if found[partition] not in states
        ]
        problems += [
            f"the record does not lead to the state of {partition.decode()}"
            for partition, states in (await _recorded(engine)).items()
            if states
            not in [
                _without_repetitions([*before[partition], *allowed[partition][: number + 1]])
                for number, state in enumerate(allowed[partition])
                if state == found[partition]
            ]
        ]
        problems += await engine.check()
        await committed(engine, insert(b"q", b"after"))
    except EngineUnavailable as error:
        return [f"it cannot be used: {error}"]
    finally:
        await engine.close()
    return problems


async def _recorded(engine: SqliteEngine) -> dict[bytes, list[State]]:
    """The states of each partition through which the record leads."""
    states: dict[bytes, list[State]] = {partition: [{}] for partition in PARTITIONS}
    read = await engine.changes.read(FIRST, subject=None, rows_max=10**6, bytes_max=1 << 40)
    for record in () if read is None else read.records:
        if record.rows:
            state = dict(states[record.partition][-1])
            for row in record.rows:
                if row.value is None:
                    del state[row.row]
                else:
                    state[row.row] = row.value
            states[record.partition].append(state)
    return states


def _without_repetitions(states: list[State]) -> list[State]:
    """A write set that changes nothing has no record."""
    return [
        state for number, state in enumerate(states) if not number or state != states[number - 1]
    ]
