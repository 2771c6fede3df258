"""A Cassandra cluster for tests and trials: `python -m tests.storage.cluster up [--nodes N]`, `down` and `faults`.

`up` prints the engine's URL as its last line, and the nodes keep running; `down` stops them and removes their data.
`stop NODE`, `start NODE` and `nodetool NODE …` act on one node, by its number from 1. `faults` does the fault run on
its own cluster (`faults.py`), and exits with 1 if something is wrong. Without a JDK 17 and Maven, each command and
`missing` say so and exit with 2.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import missing_driver, names
from storage.cluster.distribution import VERSION, NoCluster, missing
from storage.cluster.nodes import READY_SECONDS_MAX, Cluster, Node
from stress.histories.planted_server import ON_CLUSTER

DIRECTORY = Path(tempfile.gettempdir()) / "tablestone-cassandra"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.storage.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a cluster")
    up.add_argument("--nodes", type=int, default=1, choices=range(1, 10), metavar="N")
    up.add_argument("--datacenters", type=int, default=1, choices=range(1, 4), metavar="N")
    down = commands.add_parser("down", help="stop the cluster and remove its data")
    commands.add_parser(
        "missing", help="say why there can be no cluster here; status 0 if there can"
    )
    faults = commands.add_parser("faults", help="kill, pause, slow down and add nodes under load")
    faults.add_argument("--short", action="store_true", help="a minute of faults, on three nodes")
    faults.add_argument("--seed", default=f"{SystemRandom().getrandbits(32)}")
    faults.add_argument("--bug", choices=ON_CLUSTER, help=names(ON_CLUSTER), metavar="NAME")
    of_node = [
        commands.add_parser("stop", help="stop one node"),
        commands.add_parser("start", help="start a node that was stopped"),
        commands.add_parser("nodetool", help="run Cassandra's nodetool for one node"),
    ]
    for command in of_node:
        command.add_argument("node", type=int, metavar="NODE", help="the number of a node, from 1")
    of_node[-1].add_argument("words", nargs=argparse.REMAINDER, metavar="WORD", help="its command")
    for command in (up, down, *of_node):
        command.add_argument("--directory", type=Path, default=DIRECTORY, help=f"({DIRECTORY})")
    options = parser.parse_args(arguments)
    if options.command == "missing":
        reason = missing()
        print(reason or "")
        return 0 if reason is None else 2
    try:
        if options.command == "faults":
            return fault_run(options)
        if options.command == "up":
            if options.datacenters > options.nodes:
                parser.error("a datacenter needs a node: --nodes is less than --datacenters")
            start_all(options.directory, options.nodes, options.datacenters)
            return 0
        cluster = Cluster.of(options.directory)
        if options.command == "down":
            cluster.remove()
            return 0
    except NoCluster as reason:
        print(f"No cluster: {reason}.", file=sys.stderr)
        return 2
    return with_node(cluster, options)


def start_all(directory: Path, nodes: int, datacenters: int = 1) -> None:
    """Start a cluster; prints each node when it has started. Raises `NoCluster`."""
    count = "1 node" if nodes == 1 else f"{nodes} nodes, one after the other"
    print(
        f"Cassandra {VERSION} in {directory}: {count}. A node takes about ten seconds, and up to "
        f"{READY_SECONDS_MAX:.0f} on a busy machine.",
        flush=True,
    )

    def tell(node: Node) -> None:
        print(f"Node {Path(node.directory).name.removeprefix('node')} is up.", flush=True)

    print(Cluster.create(directory, nodes, tell=tell, datacenters=datacenters).url)


def with_node(cluster: Cluster, options: argparse.Namespace) -> int:
    """Stop or start one node, or run nodetool for it. Returns the exit status: 2 if the node is in no state for it."""
    number: int = options.node
    if not 1 <= number <= len(cluster.nodes):
        print(f"The nodes are 1 to {len(cluster.nodes)}.", file=sys.stderr)
        return 2
    node = cluster.nodes[number - 1]
    if node.is_running() == (options.command == "start"):
        state = "runs already" if options.command == "start" else "does not run"
        print(f"Node {number} {state}.", file=sys.stderr)
        return 2
    try:
        if options.command == "stop":
            node.stop()
            print(f"Node {number} has stopped.")
        elif options.command == "start":
            cluster.start(node)
            print(f"Node {number} is up.")
        else:
            print(node.nodetool(*options.words), end="")
    except NoCluster as reason:
        print(str(reason).rstrip(), file=sys.stderr)
        return 1
    return 0


def fault_run(options: argparse.Namespace) -> int:
    from storage.cluster.faults import ServiceStopped, run_faults  # noqa: PLC0415 - only here
    from stress.histories.checker import NoChecker, build  # noqa: PLC0415

    def tell(line: str) -> None:
        print(line, flush=True)

    if (missing_package := missing_driver()) is not None:
        print(f"{missing_package}.", file=sys.stderr)
        return 2
    tell(f"seed {options.seed}")
    try:
        build()
        with tempfile.TemporaryDirectory() as directory:
            report = run_faults(
                Path(directory) / "cluster",
                seed=options.seed,
                is_short=options.short,
                bug=options.bug,
                tell=tell,
            )
    except NoChecker as reason:
        print(f"{reason}.", file=sys.stderr)
        return 2
    except ServiceStopped as stopped:
        print(f"The service stopped: {stopped}.", file=sys.stderr)
        return 1
    for line in report.lines():
        tell(line)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
