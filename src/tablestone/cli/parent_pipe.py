"""The pipe of the program that started this one: this process gets SIGTERM when that program ends, however it ends.

A program that is killed cannot pass a signal on, but the kernel closes its end of a pipe. Nothing here waits for that:
neither a thread, which a supervisor may not have when it forks, nor an event loop. The kernel sends the signal
(fcntl(2), F_SETSIG). PR_SET_PDEATHSIG would not do: it acts when the thread ends that started the process, and test
runners start programs in threads.
"""

import fcntl
import os
import select
import signal
import stat
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final

import click

VARIABLE: Final = "TABLESTONE_PARENT_PIPE"


def end_with_parent(environment: MutableMapping[str, str]) -> None:
    """Take the number of the inherited end from the environment; `click.ClickException` if it is not one of a pipe."""
    # Where this process starts others, the number would mean nothing to them.
    number = environment.pop(VARIABLE, "")
    if not number:
        return
    end, mode = -1, 0
    with suppress(ValueError, OverflowError, OSError):
        end = int(number)
        mode = os.fstat(end).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        raise click.ClickException(
            f"{VARIABLE} must be the number of a pipe that this process has inherited, not {number[:40]!r}."
        )
    if not hasattr(fcntl, "F_SETSIG"):
        raise click.ClickException(f"{VARIABLE} needs Linux.")
    fcntl.fcntl(end, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(end, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) | os.O_ASYNC)
    has_ended = select.poll()
    has_ended.register(end, select.POLLIN)
    if has_ended.poll(0):  # before the kernel was asked
        signal.raise_signal(signal.SIGTERM)
