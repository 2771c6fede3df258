"""`python -m tests.stress.pattern_kills --seconds N`: kills of clients of the patterns, ten at once.

`--connection-string` names another service than a server of its own, which has none of the run's tables: Azurite, say.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3] / "patterns" / "src"))

from command_lines import number_above_zero, whole_number
from server_process import start_server
from stress.pattern_kills.run import Run


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.stress.pattern_kills", description=__doc__
    )
    parser.add_argument("--seconds", type=number_above_zero, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=whole_number, default=10)
    parser.add_argument("--connection-string")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        server = None if given.connection_string else start_server(place / "data")
        try:
            connection_string = given.connection_string or server.connection_string  # type: ignore[union-attr]  # one of them
            run = Run(connection_string, place, given.seed, given.clients)
            problems = list(run.problems(given.seconds))
        finally:
            if server is not None:
                server.stop()
    print("\n".join(problems) or "no problem", run, sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
