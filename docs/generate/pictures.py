"""Makes the pictures of README and the guides anew, from today's pages: `python docs/generate/pictures.py`.

It needs what the tests of the explorer need: Chromium and `.[dev]` (docs/testing.md).
"""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def main() -> int:
    os.environ["EXPLORER_SCREENSHOTS"] = str(ROOT / "docs" / "images")
    return pytest.main(["-q", "-n", "0", str(ROOT / "tests/explorer/test_explorer_pictures.py")])


if __name__ == "__main__":
    sys.exit(main())
