"""The command `tablestone`, and `python -m tablestone`.

Importing the command line takes tenths of a second. SIGINT ends the process without a traceback even then; afterwards
`cli.main` handles it.
"""

import _signal  # type: ignore[import-not-found]  # `sigint` says why
import sys

from tablestone.sigint import ENDS_PROCESS, IS_FIRST, SigintEndsProcess


def main() -> int:
    if IS_FIRST:
        _signal.signal(_signal.SIGTERM, ENDS_PROCESS)
    # Until here the image has held it back: the kernel would have dropped it.
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGTERM])
    with SigintEndsProcess():
        from tablestone.cli.main import main as run  # noqa: PLC0415 - the slow import
    return run()


if __name__ == "__main__":
    sys.exit(main())
