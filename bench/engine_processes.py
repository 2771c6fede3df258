"""How much several processes commit into one directory, and how evenly: a trial of the commit lock.

    python bench/engine_processes.py [--seconds 1] [--directory DIR] [--rounds 3]

    turns      the engine's lock: one process waits next, and no other overtakes it
    scramble   the same lock without that
    sqlite     no lock of ours: BEGIN IMMEDIATE with SQLite's own waiting, up to a minute

Writers insert values of 1.4 KiB in a closed loop, in random key order. A row is one process: `1 beside 16` is a lone
writer in one process beside one with sixteen. docs/decisions/0004-workers.md says which lock was chosen.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Final

import apsw

from tablestone.clock import system_clock
from tablestone.engines.contract import ABSENT, Change, Put, WriteSet
from tablestone.engines.kind import Opening
from tablestone.engines.sqlite.commit import GroupCommit
from tablestone.engines.sqlite.commit_lock import CommitLock
from tablestone.engines.sqlite.data_directory import DataDirectory

VALUE: Final = b"x" * 1400
MINUTE_MS: Final = 60_000


class _Scramble(CommitLock):
    def try_take(self) -> bool:
        self._is_next = True
        return super().try_take()

    def take(self) -> None:
        self._is_next = True
        super().take()


class _NoLock(CommitLock):
    def try_take(self) -> bool:
        self.is_held = True
        return True

    def release(self) -> None:
        self.is_held = False


LOCKS: Final[dict[str, type[CommitLock]]] = {
    "turns": CommitLock,
    "scramble": _Scramble,
    "sqlite": _NoLock,
}
SHARES: Final = ((16,), (8, 8), (1, 1), (1, 16), (4, 4, 4, 4), (1, 16, 16, 16))
"""The writers in each process."""


async def write_for(kind: str, data: Path, writers: int, start_at: float, seconds: float) -> str:
    directory = DataDirectory(data, Opening.SHARED)

    def connect() -> apsw.Connection:
        writer = directory.connect_writer()
        if kind == "sqlite":
            writer.set_busy_timeout(MINUTE_MS)
        return writer

    commits = GroupCommit(connect, LOCKS[kind](data), system_clock, directory.open_generation())
    taken: list[float] = []
    await asyncio.sleep(start_at - time.monotonic())
    end = time.monotonic() + seconds

    async def write(partition: bytes) -> None:
        while (start := time.monotonic()) < end:
            change = Change(random.randbytes(16), ABSENT, Put(lambda _version: VALUE))
            await commits.commit(WriteSet(partition, [change]))
            taken.append(time.monotonic() - start)

    await asyncio.gather(*(write(b"partition %d" % (index % 4)) for index in range(writers)))
    await commits.close()
    ordered = sorted(taken)
    p50, p99 = (ordered[int(len(ordered) * share)] * 1e6 for share in (0.5, 0.99))
    return f"{len(taken) / seconds:9.0f} {p50:9.0f} {p99:9.0f} {ordered[-1] * 1e6:9.0f}"


def play(kind: str, shares: tuple[int, ...], seconds: float, place: Path | None) -> None:
    with tempfile.TemporaryDirectory(dir=place) as directory:
        data = Path(directory) / "data"
        DataDirectory(data, Opening.SERVER).close()
        start_at = time.monotonic() + 0.3
        children = []
        for number, writers in enumerate(shares):
            child = os.fork()
            if child == 0:
                figures = asyncio.run(write_for(kind, data, writers, start_at, seconds))
                others = "+".join(map(str, shares[:number] + shares[number + 1 :])) or "none"
                print(f"{kind:9} {writers:3} beside {others:9} {figures}", flush=True)
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Several processes that commit, by kind of lock.")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where to make the databases")
    arguments = parser.parse_args()
    print("lock      writers            commits/s       p50       p99   longest  (µs)", flush=True)
    for _round in range(arguments.rounds):
        for shares in SHARES:
            for kind in LOCKS:
                play(kind, shares, arguments.seconds, arguments.directory)


if __name__ == "__main__":
    main()
