"""`tablestone` with a wall clock that a file sets: `python tests/stress/clock_steps/stepped_server.py serve …`.

CLOCK_FILE names that file (`wall_clock.py`). The clocks that measure durations are the machine's, as when an operator
sets the time of a real machine. The package has none of this.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from stress.clock_steps.wall_clock import NAME, WallClock


def run() -> int:
    """Run the command with this clock instead of Python's, before anything has asked for the time."""
    clock = WallClock(Path(os.environ[NAME]))
    time.time, time.time_ns = clock.now, clock.now_ns
    from tablestone.cli.main import main  # noqa: PLC0415 - after the line before

    return main()


if __name__ == "__main__":
    sys.exit(run())
