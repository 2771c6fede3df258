"""SIGINT while modules are imported: it ends the process, without a traceback.

Python raises `KeyboardInterrupt` wherever it is, and an extension module that is just being loaded may answer that with
a segmentation fault (orjson 3 does). Nothing is under way yet that needs an orderly end.
"""

import signal


class SigintEndsProcess:
    """A context in which SIGINT ends the process, if it would raise `KeyboardInterrupt` outside; may be nested."""

    def __enter__(self) -> None:
        self._raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._raises:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def __exit__(self, *_: object) -> None:
        if self._raises:
            signal.signal(signal.SIGINT, signal.default_int_handler)
