"""`python -m tablestone`: the same as the command `tablestone`, for where its script is not on the path."""

from __future__ import annotations

import sys

from tablestone.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
