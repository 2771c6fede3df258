"""SIGINT during a start: it ends the process, without a traceback.

Python raises `KeyboardInterrupt` wherever it is. An extension module that is just being loaded may answer that with a
segmentation fault (orjson 3 does), and the import system loses it in the callback of a lock that is released: the
server would serve on. Nothing is under way yet that needs an orderly end.
"""

import _signal  # type: ignore[import-not-found]  # `signal` takes time to load, in which SIGINT could be lost


class SigintEndsProcess:
    """A context in which SIGINT ends the process, if it would raise `KeyboardInterrupt` outside; may be nested."""

    def __enter__(self) -> None:
        self._raises = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
        if self._raises:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

    def __exit__(self, *_: object) -> None:
        if self._raises:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
