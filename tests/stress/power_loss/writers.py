"""Writers on the engine whose states are known: what each partition holds after each of its write sets.

They note the beginning and the acknowledgement of each write set in a recording.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final
from unittest.mock import patch

from storage.opened import open_sqlite
from storage.write_sets import put
from stress.power_loss.recorded_disk import Note, Recording, recorded_disk
from tablestone.engines import change_record
from tablestone.engines.contract import ABSENT, ANY, DELETE, Change, Committed, WriteSet
from tablestone.engines.sqlite import free_space
from tablestone.engines.sqlite.engine import SqliteEngine
from tablestone.engines.sqlite.free_space import DiskRoom

PARTITIONS: Final = (b"p1", b"p2", b"p3")
ROUNDS: Final = 2
"""How often the engine is opened; closing it runs a checkpoint and removes the log."""
WRITE_SETS: Final = 30
"""Write sets of each partition in a round."""
GIVES_BACK_EVERY: Final = 10
"""Write sets of the first partition between two steps that give free pages back to the file system."""

NOTE: Final = change_record.Note(b"subject", b"")

State = dict[bytes, bytes]
Prepare = Callable[[SqliteEngine, Recording], None]


class Run:
    """A recorded run: its events, and the states of each partition, beginning with the empty one."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.states: dict[bytes, list[State]] = {partition: [{}] for partition in PARTITIONS}
        self.recording = Recording()

    def record(self, data: Path, prepare: Prepare | None = None) -> None:
        """Run the writers in this directory. `prepare` may plant a bug in each engine that is opened."""

        def tight(room: DiskRoom, *_: object) -> bool:
            room.is_tight = True  # checkpoints after a few commits
            return False

        with recorded_disk() as self.recording, patch.object(DiskRoom, "look", tight):
            for number in range(ROUNDS):
                asyncio.run(self._round(data, number, prepare))

    async def _round(self, data: Path, number: int, prepare: Prepare | None) -> None:
        engine = open_sqlite(data)
        await engine.changes.keep(change_record.Retention(None, 1 << 30))
        if prepare is not None:
            prepare(engine, self.recording)
        await asyncio.gather(*(self._write(engine, each, number) for each in PARTITIONS))
        await engine.close()

    async def _write(self, engine: SqliteEngine, partition: bytes, number: int) -> None:
        random = Random(f"{self.seed} {partition!r} {number}")
        states = self.states[partition]
        for written in range(WRITE_SETS):
            if partition == PARTITIONS[0] and written % GIVES_BACK_EVERY == 0:
                await asyncio.to_thread(free_space.step, engine._directory, copies_log=True)
            write_set, state = _next(partition, states[-1], random)
            states.append(state)
            at = len(states) - 1
            self.recording.note(Note(partition, at, is_acknowledged=False))
            outcome = await engine.commit(write_set)
            assert isinstance(outcome, Committed), outcome
            self.recording.note(Note(partition, at, is_acknowledged=True))


def _next(partition: bytes, state: State, random: Random) -> tuple[WriteSet, State]:
    """A write set, and the state after it: new rows, or changes and deletions of any rows."""
    after = dict(state)
    if random.random() < 0.4:
        rows = {b"n%06d" % random.randrange(10**6): _value(random) for _ in range(2)}
        rows = {row: value for row, value in rows.items() if row not in state}
        after.update(rows)
        changes = [Change(row, ABSENT, put(value)) for row, value in rows.items()]
        return WriteSet(partition, changes, note=NOTE), after
    changes = []
    for row in random.sample([b"r%02d" % index for index in range(12)], random.randint(1, 5)):
        if random.random() < 0.3:
            changes.append(Change(row, ANY, DELETE))
            after.pop(row, None)
        else:
            after[row] = _value(random)
            changes.append(Change(row, ANY, put(after[row])))
    return WriteSet(partition, changes, note=NOTE), after


def _value(random: Random) -> bytes:
    length = 20_000 if random.random() < 0.1 else random.randrange(50, 600)
    return random.randbytes(length)
