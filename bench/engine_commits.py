"""Where should a group commit run? Prints the throughput and the delays of three designs of the same engine.

    python bench/engine_commits.py [--seconds 1] [--directory DIR] [--rounds 3]

    commit-thread   applied on the loop's thread, COMMIT in a thread: what the engine does
    inline          all on the loop's thread
    one-thread      all in one writer thread

Writers insert values of 1.4 KiB in a closed loop, in random key order; with "+ reads" one more task reads single
rows all the time. Rounds are interleaved, so that a busy neighbour on the machine disturbs all designs alike.
docs/decisions/0002-sqlite-layout.md says which design was chosen from these figures.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tablestone.clock import system_clock
from tablestone.engines.contract import ABSENT, Change, Committed, Conflict, KeyRange, Put, WriteSet
from tablestone.engines.kind import Opening
from tablestone.engines.sqlite import commit
from tablestone.engines.sqlite.commit import GroupCommit, _Accepted, _Group, _Task
from tablestone.engines.sqlite.commit_lock import CommitLock
from tablestone.engines.sqlite.data_directory import DataDirectory
from tablestone.engines.sqlite.engine import SqliteEngine

if TYPE_CHECKING:
    from queue import SimpleQueue

VALUE: Final = b"x" * 1400


class _InPlace:
    """Replaces the thread's queue, and runs each task at once."""

    def __init__(self, tasks: SimpleQueue[_Task | None]) -> None:
        self._tasks = tasks

    def put(self, task: _Task | None) -> None:
        if task is None:
            self._tasks.put(None)
        else:
            task.call()
            task.loop.call_soon(task.then, task.loop, None)


class _InlineCommit(GroupCommit):
    def _start_group(self, loop: asyncio.AbstractEventLoop) -> None:
        if not isinstance(self._tasks, _InPlace):
            self._tasks = _InPlace(self._tasks)  # type: ignore[assignment]
        super()._start_group(loop)


class _OneThreadCommit(GroupCommit):
    def _start_group(self, loop: asyncio.AbstractEventLoop) -> None:
        accepted = self._take_group()
        if not accepted:
            self._is_busy = False
            self._idle.set()
            return
        outcomes: list[Committed | Conflict] = []
        finish = partial(self._finish, _Group(accepted, outcomes))
        self._tasks.put(_Task(loop, partial(self._run, accepted, outcomes), finish))

    def _run(self, accepted: list[_Accepted], outcomes: list[Committed | Conflict]) -> None:
        self._lock.take()
        self._execute("BEGIN IMMEDIATE")
        self._now = self._clock()
        outcomes.extend(self._apply(each.write_set) for each in accepted)
        self._commit(len(accepted))


DESIGNS: Final[dict[str, type[GroupCommit]]] = {
    "commit-thread": GroupCommit,
    "inline": _InlineCommit,
    "one-thread": _OneThreadCommit,
}


def percentile_us(seconds: list[float], share: float) -> str:
    ordered = sorted(seconds)
    return f"{ordered[int(len(ordered) * share)] * 1e6:7.0f}" if ordered else "      -"


async def measure(design: str, data: Path, writers: int, seconds: float, *, reads: bool) -> None:
    directory = DataDirectory(data, Opening.SERVER)
    commits = DESIGNS[design](
        directory.connect_writer, CommitLock(data), system_clock, directory.open_generation()
    )
    reader = SqliteEngine(data, system_clock, Opening.READ_ONLY)
    end = time.perf_counter() + seconds
    commit_seconds: list[float] = []
    read_seconds: list[float] = []
    rows: list[bytes] = [b""]

    async def write(partition: bytes) -> None:
        while (start := time.perf_counter()) < end:
            row = random.randbytes(16)
            change = Change(row, ABSENT, Put(lambda _version: VALUE))
            check = Change(row + b"2", ABSENT, None)  # groups of inserts take another path
            await commits.commit(WriteSet(partition, [change, check]))
            commit_seconds.append(time.perf_counter() - start)
            rows.append(row)

    async def read() -> None:
        while (start := time.perf_counter()) < end:
            key_range = KeyRange.of_row(b"partition 0", random.choice(rows))
            await reader.read([key_range], rows_max=1, bytes_max=1)
            read_seconds.append(time.perf_counter() - start)
            await asyncio.sleep(0)

    processor = time.process_time()
    tasks = [write(b"partition %d" % (index % 4)) for index in range(writers)]
    await asyncio.gather(*tasks, *([read()] if reads else []))
    processor = (time.process_time() - processor) / len(commit_seconds) * 1e6
    await reader.close()
    await commits.close()
    directory.close()
    print(
        f"{design:14} {writers:4}{' + reads' if reads else '        '}"
        f" {len(commit_seconds) / seconds:9.0f} {processor:8.0f}"
        f"  {percentile_us(commit_seconds, 0.5)} {percentile_us(commit_seconds, 0.99)}"
        f" {len(read_seconds) / seconds:9.0f} {percentile_us(read_seconds, 0.99)}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Throughput and delays of three commit designs.")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where to make the databases")
    arguments = parser.parse_args()
    pages = commit.CHECKPOINT_PAGES
    print(f"checkpoint after {pages} pages of log; times in microseconds")
    print("design         writers     commits/s      cpu      p50     p99    reads/s     p99")
    for round_ in range(arguments.rounds):
        for writers, reads in ((1, False), (16, False), (64, False), (1, True), (16, True)):
            for design in DESIGNS:
                with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
                    data = Path(directory) / f"round-{round_}"
                    asyncio.run(measure(design, data, writers, arguments.seconds, reads=reads))


if __name__ == "__main__":
    main()
