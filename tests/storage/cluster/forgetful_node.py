"""Runs on three nodes: one is stopped, and goes on without what was written meanwhile. Only reads at ONE show that.

The nodes keep no hints, and drop what reaches them too late. A read at ONE asks one of the three nodes, depending on
the partition, so a run has many partitions.
"""

import time
from collections.abc import Sequence
from random import Random
from typing import Final

from storage.cluster.nodes import Cluster
from stress.histories.bug_search import Look, wrong_in
from stress.histories.checker import build
from stress.histories.clients import CLIENTS_PER_PARTITION, Crowd
from stress.histories.service import Target

PARTITIONS: Final = 12
ANSWERS: Final = 15 * PARTITIONS
TOO_LATE_SECONDS: Final = 3.0
"""A node drops a write that arrives later than this (write_request_timeout is 2 s)."""
BACK_SECONDS: Final = 3.0
"""How long the other nodes take to notice that a node is back."""


def runs_without_a_node(cluster: Cluster, targets: Sequence[Target], seed: str) -> Look:
    """Runs in which clients work while a node is stopped. All data is read once it goes on."""
    build()
    random = Random(f"{seed}/nodes")

    def look(number: int, seconds_left: float) -> list[str]:
        deadline = time.monotonic() + seconds_left
        crowd = Crowd(targets, f"{seed}/{number}", PARTITIONS * CLIENTS_PER_PARTITION)
        victim = random.choice(cluster.nodes)
        crowd.start()
        victim.pause()
        try:
            crowd.wait_for_answers(ANSWERS, seconds_left)
            crowd.stop()
            time.sleep(TOO_LATE_SECONDS)
        finally:
            victim.resume()
        time.sleep(BACK_SECONDS)
        return wrong_in(crowd.end(), deadline - time.monotonic())

    return look
