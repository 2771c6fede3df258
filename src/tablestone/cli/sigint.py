"""SIGINT while modules are imported: it ends the process, without a traceback.

Python raises `KeyboardInterrupt` wherever it is, and an extension module that is just being loaded may answer that with
a segmentation fault (orjson 3 does). Nothing is under way yet that has to be ended in order.
Uses the built-in module `_signal`: to read the file of `signal` takes milliseconds, in which SIGINT would print a
traceback. Imports nothing of ours, for the same reason.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the built-in part of `signal`, which carries no types


class SigintEndsProcess:
    """A context in which SIGINT ends the process, if it would raise `KeyboardInterrupt` outside; may be nested."""

    def __enter__(self) -> None:
        self._raises = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
        if self._raises:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

    def __exit__(self, *_: object) -> None:
        if self._raises:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
