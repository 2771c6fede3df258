"""The kills of a run: which processes of a server, or of the commands beside it, get SIGKILL.

A kill says whether it hit a process, because one may have ended by itself.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from server_process import COMMAND, QUIETER, ServerProcess, clean_environment
from stress.crash.stored_place import StoredPlace
from stress.crash.writers import Life

Kill = Callable[[Life, Random], bool]

KILLED_AT_START_SECONDS_MAX: Final = 0.8


def workers_of(server: ServerProcess) -> list[int]:
    """The workers of a server that has several: the children of its supervisor."""
    first = server.process.pid
    return [*map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]


def kill_worker(life: Life, random: Random) -> bool:
    workers = workers_of(life.server)
    return bool(workers) and killed(random.choice(workers))


def kill_two_workers(life: Life, random: Random) -> bool:
    workers = workers_of(life.server)
    chosen = random.sample(workers, 2) if len(workers) > 1 else []
    return sum(map(killed, chosen)) > 0


def kill_command(life: Life, random: Random) -> bool:
    """Kill an account command or a backup that is running."""
    running = list(life.commands)
    return bool(running) and killed(random.choice(running).pid)


def kill_first(life: Life, _random: Random) -> bool:
    """Kill the only process, or the supervisor, whose workers then end by themselves."""
    life.server.kill()
    return True


def kill_all(life: Life, random: Random) -> bool:
    """Kill the supervisor, its workers, and half of the time the commands too."""
    workers = workers_of(life.server)
    life.server.kill()
    for worker in workers:
        killed(worker)
    if random.random() < 0.5:
        for command in list(life.commands):
            killed(command.pid)
    return True


def killed(process: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
        return True
    return False


ON_THE_WAY: Final[dict[str, Kill]] = {
    "a worker": kill_worker,
    "two workers": kill_two_workers,
    "a command": kill_command,
}
AT_THE_END: Final[dict[str, Kill]] = {"the supervisor": kill_first, "all processes": kill_all}
AT_THE_START: Final = "during the start"


def kill_during_start(data: StoredPlace, options: Sequence[str], random: Random) -> None:
    """Start a server, and kill all its processes a moment later, ready or not."""
    server = subprocess.Popen(
        [COMMAND, "serve", "--port=0", f"--data={data.path}", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=clean_environment() | QUIETER,
        start_new_session=True,
    )
    time.sleep(random.uniform(0, KILLED_AT_START_SECONDS_MAX))
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()
