"""SIGINT during a start: it ends the process, without a traceback.

Python raises `KeyboardInterrupt` wherever it is. An extension module that is just being loaded may answer that with a
segmentation fault (orjson 3 does), and the import system loses it in the callback of a lock that is released: the
server would serve on. Nothing is under way yet that needs an orderly end.
"""

import _signal  # type: ignore[import-not-found]  # `signal` takes time to load, in which SIGINT could be lost
from os import _exit, getpid


def _end(number: int, _frame: object) -> None:
    _exit(128 + number)


IS_FIRST = getpid() == 1
"""Whether this is the first process of a container: there the kernel drops a signal that has no handler."""
ENDS_PROCESS = _end if IS_FIRST else _signal.SIG_DFL
"""A handler with which a signal ends the process at once."""


def end_process_by_sigint() -> bool:
    """Let SIGINT end the process, if it would raise `KeyboardInterrupt`; returns whether it would."""
    raises: bool = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    if raises:
        _signal.signal(_signal.SIGINT, ENDS_PROCESS)
    return raises


class SigintEndsProcess:
    """A context in which SIGINT ends the process, if it would raise `KeyboardInterrupt` outside; may be nested."""

    def __enter__(self) -> None:
        self._raises = end_process_by_sigint()

    def __exit__(self, *_: object) -> None:
        if self._raises:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
