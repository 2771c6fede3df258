"""The command `tablestone`, and `python -m tablestone`.

Importing the command line takes tenths of a second. SIGINT ends the process without a traceback even then; afterwards
`cli.main` handles it.
"""

import sys

from tablestone.cli.sigint import SigintEndsProcess


def main() -> int:
    with SigintEndsProcess():
        from tablestone.cli.main import main as run  # noqa: PLC0415 - the slow import
    return run()


if __name__ == "__main__":
    sys.exit(main())
