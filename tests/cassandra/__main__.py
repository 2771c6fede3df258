"""A Cassandra cluster for tests and trials: `python -m tests.cassandra up [--nodes N]` and `down`.

`up` prints the URL of the engine as its last line. The nodes keep running, and `down` stops them and removes what they
stored. Needs a JDK 17 and Maven; where one is missing it says so, as `missing` does, and ends with status 2.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.distribution import VERSION, NoCluster, missing
from cluster.nodes import Cluster

DIRECTORY = Path(tempfile.gettempdir()) / "tablestone-cassandra"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cassandra", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a cluster")
    up.add_argument("--nodes", type=int, default=1, choices=range(1, 10), metavar="N")
    down = commands.add_parser("down", help="stop the cluster and remove its data")
    commands.add_parser(
        "missing", help="say why there can be no cluster here; status 0 if there can"
    )
    for command in (up, down):
        command.add_argument("--directory", type=Path, default=DIRECTORY, help=f"({DIRECTORY})")
    options = parser.parse_args(arguments)
    if options.command == "missing":
        reason = missing()
        print(reason or "")
        return 0 if reason is None else 2
    try:
        if options.command == "down":
            Cluster.of(options.directory).remove()
            return 0
        print(f"Cassandra {VERSION}, {options.nodes} nodes in {options.directory} …", flush=True)
        print(Cluster.create(options.directory, options.nodes).url)
    except NoCluster as reason:
        print(f"No cluster: {reason}.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
