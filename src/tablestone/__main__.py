"""The command `tablestone`, and `python -m tablestone`.

SIGINT ends the process without a traceback while the modules of the commands are imported; after that,
`cli.main` answers for it. The handler is set by the built-in module `_signal`: to read the file of `signal` takes
milliseconds, in which SIGINT would print a traceback.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the built-in part of `signal`, which carries no types
import sys


def main() -> int:
    """Run one command line and answer the exit status."""
    takes_interrupts = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    if takes_interrupts:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from tablestone.cli.main import main as run  # noqa: PLC0415 - takes the tenths of a second that this is about

    if takes_interrupts:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    return run()


if __name__ == "__main__":
    sys.exit(main())
