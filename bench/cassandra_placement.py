"""How evenly partitions, and the load on them, spread over the nodes of a cluster: a simulation. Prints a table.

    python -m bench.cassandra_placement

Tokens are random, as Cassandra's are without `allocate_tokens_for_local_replication_factor`. Each row has three copies,
on the next distinct nodes of the ring. Load is even, or Zipf's (exponent 0.99, as YCSB's). The cluster is full when its
busiest node is, so the mean load as a share of the greatest one is the part of the nodes that can be used. Rings differ
by chance: the figures are the mean of some rings, with the lowest and the highest.
"""

import random
import statistics
from bisect import bisect_right
from typing import Final

NODES: Final = (3, 10, 30, 100, 300, 1000)
COPIES: Final = 3
TOKENS: Final = 16
RINGS: Final = 10
"""How many for each number of nodes."""
PARTITIONS: Final = 200_000
EXPONENT: Final = 0.99


def ring_of(nodes: int, chance: random.Random) -> tuple[list[float], list[tuple[int, ...]]]:
    """The tokens in order, and the nodes that hold what comes before each."""
    placed = sorted((chance.random(), node) for node in range(nodes) for _ in range(TOKENS))
    owners = [node for _, node in placed]
    holders = []
    for place in range(len(placed)):
        found: list[int] = []
        step = place
        while len(found) < min(COPIES, nodes):
            node = owners[step % len(owners)]
            if node not in found:
                found.append(node)
            step += 1
        holders.append(tuple(found))
    return [token for token, _ in placed], holders


def usable(nodes: int, weights: list[float], chance: random.Random) -> float:
    """The mean load of the nodes as a share of the greatest; every copy of a partition carries its load."""
    tokens, holders = ring_of(nodes, chance)
    load = [0.0] * nodes
    for weight in weights:
        place = bisect_right(tokens, chance.random()) % len(tokens)
        for node in holders[place]:
            load[node] += weight
    return sum(load) / nodes / max(load)


def main() -> None:
    even = [1.0] * PARTITIONS
    zipf = [1 / rank**EXPONENT for rank in range(1, PARTITIONS + 1)]
    hottest = zipf[0] / sum(zipf)
    print(f"{PARTITIONS:,} partitions, {TOKENS} tokens a node, {COPIES} copies of each row.")
    print(f"Of Zipf's load the hottest partition has {hottest:.1%}.\n")
    print("| nodes | usable, even load | usable, Zipf's load |\n|---|---|---|")
    for nodes in NODES:
        loads = [_spread(nodes, weights) for weights in (even, zipf)]
        print(f"| {nodes:,} | {' | '.join(loads)} |", flush=True)


def _spread(nodes: int, weights: list[float]) -> str:
    """The mean over the rings, and their range."""
    shares = [usable(nodes, weights, random.Random(f"{nodes} {ring}")) for ring in range(RINGS)]
    return f"{statistics.mean(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})"


if __name__ == "__main__":
    main()
