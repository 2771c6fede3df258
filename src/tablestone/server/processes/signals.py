"""The meaning of SIGHUP and of a second SIGINT for the process that was started, and SIGTERM while it forks.

SIGHUP opens the files of the log again: programs that rotate logs send it, and service managers to reload. It stops
the server only if it comes because the terminal that the server was started from has gone. Knows no event loop.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator


class Hangup:
    """Made before the server serves. From then on SIGHUP ends the process no more."""

    def __init__(self) -> None:
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as nohup leaves it
        self._needs_terminal = not ignored and _has_terminal()
        signal.signal(signal.SIGHUP, lambda *_: None)

    def ends_server(self) -> bool:
        """Whether the SIGHUP that has come tells that the terminal has gone."""
        return self._needs_terminal and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def end_by_interrupt() -> None:
    """End this process now, as SIGINT ends a program that does not handle it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


@contextlib.contextmanager
def stop_signal_held() -> Iterator[None]:
    """Hold SIGTERM back during a fork: a new process still has the supervisor's handler and would ignore the signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
