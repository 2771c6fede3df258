"""The command `tablestone`, and `python -m tablestone`.

SIGINT ends the process without a traceback while the modules of the commands are imported; after that,
`cli.main` answers for it.
"""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run one command line and answer the exit status."""
    takes_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if takes_interrupts:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tablestone.cli.main import main as run  # noqa: PLC0415 - takes the tenths of a second that this is about

    if takes_interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()


if __name__ == "__main__":
    sys.exit(main())
