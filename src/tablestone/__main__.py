"""The command `tablestone`, and `python -m tablestone`.

SIGINT ends the process without a traceback while the modules of the command line are imported; after that,
`cli.main` answers for it.
"""

import sys

from tablestone.cli.sigint import SigintEndsProcess


def main() -> int:
    with SigintEndsProcess():
        from tablestone.cli.main import main as run  # noqa: PLC0415 - takes the tenths of a second that this is about
    return run()


if __name__ == "__main__":
    sys.exit(main())
